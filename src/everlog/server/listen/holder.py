"""One server per log: a lock beside the log that ends with the process that holds it.

A log in files has one server, because one hub follows it and one process counts its rates. Other processes may use
the log as before: commands, programs, views. In PostgreSQL there may be any number of servers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from everlog.errors import Busy
from everlog.files import DiskFiles
from everlog.log.log import Log

_NOTE_BYTES = 512


class _Note(msgspec.Struct):
    """What the holder writes into the lock file: where it answers."""

    url: str = ""


@contextmanager
def sole_server(log: Log) -> Iterator[Holder]:
    """Hold the log as its only server. Raise Busy, with the address of the other one, if there is one."""
    path = getattr(log.stored, "path", None)
    holder = Holder(_lock_path(path) if isinstance(path, Path) else None)
    try:
        yield holder
    finally:
        holder.close()


class Holder:
    def __init__(self, path: Path | None) -> None:
        self._lock = None if path is None else DiskFiles().lock(path)
        if path is None or self._lock is None:
            return
        try:
            self._lock.acquire(timeout=0)
        except Busy as error:
            raise _served_already(error, path) from error
        self._lock.remember(b" " * _NOTE_BYTES)

    def answers_at(self, url: str) -> None:
        """Leave a note for others: where this server answers."""
        if self._lock is not None:
            self._lock.remember(msgspec.json.encode(_Note(url)).ljust(_NOTE_BYTES)[:_NOTE_BYTES])

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()


def _lock_path(path: Path) -> Path:
    if not path.is_dir():
        return path.with_name(path.name + "-serve")
    local = path / "local"  # of a JSONL log: git does not see it
    return (local if local.is_dir() else path) / "serve"


def _served_already(error: Busy, path: Path) -> Busy:
    try:
        note = msgspec.json.decode(DiskFiles().read_all(path).strip() or b"{}", type=_Note)
    except msgspec.DecodeError:
        note = _Note()
    pid = error.details.get("pid")
    where = f" at {note.url}" if note.url else ""
    return Busy(
        f"another server serves this log{where}",
        why=error.why,
        hint="use that one" + (f", or stop it: kill {pid}" if pid else ""),
        url=note.url,
        pid=pid,
        path=str(path),
    )
