"""The operating system's errors become everlog's here and nowhere else."""

from __future__ import annotations

import errno
from pathlib import Path

from everlog.errors import EverlogError, ReadOnly, StorageFull, Unavailable, WriterStopped

_READING = ("read", "list", "look at", "look for")
_TEMPORARY = ".everlog-tmp"


def explained(error: OSError, what: str, *, verb: str = "", path: Path | None = None) -> EverlogError | None:
    """The everlog error that tells this one to a user, or None if it has to pass as it is."""
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
                hint="nothing can be written to this disk as it is mounted; reading still works",
            )
        case errno.EACCES | errno.EPERM:
            return ReadOnly(what, why=error.strerror or "not permitted", hint=_who_may(verb, path))
        case errno.EMFILE | errno.ENFILE:
            return Unavailable(
                what,
                why=error.strerror or "too many files are open",
                hint="ulimit -n says how many files a process may open; close some, and try again",
            )
        case errno.EIO | errno.EINVAL | errno.ESTALE | errno.ENXIO:
            return Unavailable(
                what,
                why=error.strerror or "the disk failed",
                hint="look at the disk (dmesg says what failed), and try again; restore a backup if it stays",
            )
    return None


def _who_may(verb: str, path: Path | None) -> str:
    """What to type to see who may do it."""
    from shlex import quote  # only a refusal needs it, and it would cost every start of the program

    if path is None:
        return "look at the owner and mode of the file and its folder"
    folder, file = f"ls -ld {quote(str(path.parent))}", quote(str(path))
    if verb in _READING:
        return f"{folder} {file} shows who may read it"
    if verb == "make" or path.name.endswith(_TEMPORARY):  # it is not there to be looked at
        return f"{folder} shows who may write there"
    return f"{folder} {file} shows who may write there; reading may still work"


def failed_flush(error: OSError, path: Path) -> WriterStopped:
    """What every failed flush becomes, whatever its errno: the disk's answer to the next one would be a lie."""
    return WriterStopped(
        f"cannot flush {path}",
        why=f"{error.strerror or error}; what reached the disk is unknown",
        hint="close the log, look at the disk, then open it again: recovery reads what is really there",
        path=str(path),
    )


def tell(error: OSError, verb: str, path: Path) -> None:
    """Raise the everlog error that this one becomes; return if it has to pass as it is."""
    if verb == "flush":
        raise failed_flush(error, path) from error
    told = explained(error, f"cannot {verb} {path}", verb=verb, path=path)
    if told is not None:
        raise told from error


class Telling:
    """Turns an OSError of the block into an everlog error. What every append does is spelled out instead, with
    `tell`: that costs nothing where nothing goes wrong."""

    __slots__ = ("_path", "_verb")

    def __init__(self, verb: str, path: Path) -> None:
        self._verb = verb
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        if isinstance(error, OSError):
            tell(error, self._verb, self._path)
