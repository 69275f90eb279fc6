"""Failures that are not errors of everlog: one of the system, explained, and a defect, reported in a file."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path

from everlog._version import __version__
from everlog.errors import EverlogError, Unavailable
from everlog.files import DiskFiles, replace_file
from everlog.hiding import hidden
from everlog.os_errors import explained

_OF_THE_MACHINE = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EMFILE, errno.ENFILE),
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP),
}


def explain_os_error(error: OSError) -> EverlogError | None:
    """Return an error of the system, such as a full disk, as everlog's own; None if it may be a defect of everlog."""
    if error.errno not in _OF_THE_MACHINE:
        return None
    name = f" ({error.filename})" if error.filename else ""
    what = f"the system refused it{name}"
    path = Path(error.filename) if isinstance(error.filename, str) else None
    return explained(error, what, path=path) or Unavailable(
        what, why=error.strerror or str(error), hint="everlog doctor", errno=error.errno
    )


def write_report(error: Exception) -> Path:
    """Write a report about a defect below the state directory, without secrets, and return its path."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    directory = Path(base) / "everlog"
    files = DiskFiles()
    for parent in reversed([directory, *directory.parents]):
        if not files.exists(parent):
            files.make_dir(parent)
    path = directory / f"crash-{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.getpid()}.txt"
    # A command line may contain secrets, so the report has only the path of the program.
    replace_file(files, path, _report(error).encode(errors="backslashreplace"), mode=0o600)
    return path


def _report(error: Exception) -> str:
    python = sys.version.split()[0]
    lines = [f"everlog {__version__}, Python {python}, {sys.platform}", "", *traceback.format_exception(error)]
    # Errors of other libraries may contain secrets, and the report is sent to others.
    return "\n".join(hidden(line.rstrip("\n")) for line in lines) + "\n"
