"""What a disk that cannot be read, and a process with too many open files, become. Everything else passes."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from everlog.errors import Busy, Damaged


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn EIO, EMFILE and ENFILE of the block into errors of everlog."""
    try:
        yield
    except OSError as error:
        file = error.filename or path
        match error.errno:
            case errno.EIO:
                raise Damaged(
                    f"the disk cannot read or write {file}",
                    why=error.strerror or "input/output error",
                    hint="look at the disk (dmesg); then everlog verify, or restore a backup to another disk",
                    path=str(file),
                ) from error
            case errno.EMFILE | errno.ENFILE:
                raise Busy(
                    f"{file} cannot be opened",
                    why=f"{error.strerror or 'too many open files'}; nothing was read or written",
                    hint="close some, or allow more: ulimit -n 4096",
                    path=str(file),
                ) from error
        raise
