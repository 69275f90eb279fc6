"""Errors of the operating system are converted to everlog's here, and nowhere else."""

from __future__ import annotations

import errno
import signal
import threading
from pathlib import Path

from everlog.errors import EverlogError, ReadOnly, StorageFull, Unavailable, WriterStopped

_READING = ("read", "list", "look at", "look for")
_TEMPORARY = ".everlog-tmp"


def explained(error: OSError, what: str, *, verb: str = "", path: Path | None = None) -> EverlogError | None:
    """Return the everlog error for an OSError, or None if there is none for it."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return StorageFull(
                what,
                why=error.strerror or "the disk is full",
                hint="free some space and try again; nothing was deleted to make room, and reading still works",
            )
        case errno.EROFS:
            return ReadOnly(
                what,
                why=error.strerror or "the disk is mounted for reading",
                hint="the disk is mounted read-only, so nothing can be written; reading still works",
            )
        case errno.EACCES | errno.EPERM:
            return ReadOnly(what, why=error.strerror or "not permitted", hint=_who_may(verb, path))
        case errno.EMFILE | errno.ENFILE:
            return Unavailable(
                what,
                why=error.strerror or "too many files are open",
                hint="ulimit -n prints how many files a process may open; close some, and try again",
            )
        case errno.EIO | errno.EINVAL | errno.ESTALE | errno.ENXIO:
            return Unavailable(
                what,
                why=error.strerror or "the disk failed",
                hint="check the disk (dmesg shows what failed), and try again; restore a backup if the error stays",
            )
    return None


def _who_may(verb: str, path: Path | None) -> str:
    """Return the command that shows the permissions."""
    from shlex import quote  # only a refusal needs it, and it would cost every start of the program

    if path is None:
        return "check the owner and mode of the file and its folder"
    folder, file = f"ls -ld {quote(str(path.parent))}", quote(str(path))
    if verb in _READING:
        return f"{folder} {file} shows their permissions"
    if verb == "make" or path.name.endswith(_TEMPORARY):  # the file does not exist
        return f"{folder} shows its permissions"
    return f"{folder} {file} shows their permissions; reading may still work"


def failed_flush(error: OSError, path: Path) -> WriterStopped:
    """Return the error for a failed flush, whatever its errno: a later flush may succeed without the data."""
    return WriterStopped(
        f"cannot flush {path}",
        why=f"{error.strerror or error}; what reached the disk is unknown",
        hint="close the log, check the disk, then open it again: recovery reads what is on the disk",
        path=str(path),
    )


def raise_explained(error: OSError, verb: str, path: Path) -> None:
    """Raise the everlog error for an OSError; return if there is none for it."""
    if verb == "flush":
        raise failed_flush(error, path) from error
    found = explained(error, f"cannot {verb} {path}", verb=verb, path=path)
    if found is not None:
        raise found from error


class ExplainedErrors:
    """Converts an OSError of a `with` block into an everlog error. The path of every append uses `raise_explained`
    instead, which costs nothing while there is no error."""

    __slots__ = ("_path", "_verb")

    def __init__(self, verb: str, path: Path) -> None:
        self._verb = verb
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        if isinstance(error, OSError):
            raise_explained(error, self._verb, self._path)


def survive_closed_connections() -> None:
    """Ignore SIGPIPE, which the command line leaves to the system: the other end of a connection that closes it must
    not end this program. A write to it raises an error instead."""
    if hasattr(signal, "SIGPIPE") and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
