"""The folder of a JSONL log: its files, its identity, and its errors.

    PATH/
      log.json                 the identity of the log, the same in every clone
      events/2026-11-15.jsonl  one file per UTC day, one line per event: the source of everything else
      clock.json               the Lamport clock, for other tools; trusted neither below the log nor far above it
      .gitignore               clock.json and local/
      local/                   files of this copy alone, never in git
        origin.json            the origin of this copy's events, and its earlier origins
        notes.jsonl            small state that is not history
        notes.end              how far it was acknowledged; never flushed
        refusals.jsonl         refusals that the next write takes into the notes; never flushed
        purge.json             a running purge, which is finished after a crash
        index.db               derived from the events; may be deleted
        epochs/                the index of each branch of git that is not checked out; may be deleted
        views.db               rows of views, derived too; views.db.lock is held to open or remove it
        lock  lock.queue       never deleted

Two clones of one repository share `log.json` and nothing in `local/`: so each has its own origin, and events that
both append offline never collide.
"""

from __future__ import annotations

import errno
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from everlog.errors import Busy, Damaged, EverlogError, NotALog, NotFound
from everlog.files import Files, replace_file
from everlog.stores.contract import Identity
from everlog.stores.formats import FORMAT, refuse_other_format

_Kind = TypeVar("_Kind")

IGNORED = "# Local to this copy: the clock, the index, the notes and the lock. The events are not in this list.\n"
IGNORED += "clock.json\nlocal/\n*.everlog-tmp\n"


class _Log(msgspec.Struct):
    log_id: str
    created_us: int
    format: int = 0
    everlog: str = ""


class _Origin(msgspec.Struct, omit_defaults=True):
    origin: str
    former: tuple[str, ...] = ()
    place: str = ""  # the lock file that this copy lives beside: see `everlog.stores.put_back`
    retired: tuple[str, ...] = ()  # former origins that another copy may use: no branch continues with them
    lives: tuple[tuple[str, int, str], ...] = ()  # each time it was put back: the epoch, the head, the new origin


class _Clock(msgspec.Struct):
    value: int


class Folder:
    def __init__(self, path: Path, files: Files) -> None:
        self.path = path
        self.files = files
        self.log_file = path / "log.json"
        self.events = path / "events"
        self.clock_file = path / "clock.json"
        self.local = path / "local"
        self.origin_file = self.local / "origin.json"
        self.notes_file = self.local / "notes.jsonl"
        self.notes_end_file = self.local / "notes.end"
        self.refusals_file = self.local / "refusals.jsonl"
        self.purge_file = self.local / "purge.json"
        self.index_file = self.local / "index.db"
        self.lock_file = self.local / "lock"
        self.log_id = ""
        self.created_us = 0

    # ---- identity

    def is_log(self) -> bool:
        return self.files.exists(self.log_file)

    def has_events(self) -> bool:
        """Return whether there are day files without a log.json, as the seed's program writes them."""
        return self.files.exists(self.events) and any(
            name.endswith(".jsonl") for name in self.files.names(self.events)
        )

    def make_parents(self) -> None:
        """Create the folder and that of the lock, which must exist before the lock can be taken."""
        parent = self.path.absolute().parent
        if not self.files.exists(parent):
            raise NotFound(
                f"{self.path} cannot be created", why=f"there is no folder {parent}", hint=f"mkdir -p {parent}"
            )
        self.files.make_dir(self.path)
        self.make_local()

    def make_local(self) -> None:
        self.files.make_dir(self.local)
        if not self.files.exists(self.local / ".gitignore"):
            replace_file(self.files, self.local / ".gitignore", b"*\n")

    def make(self, identity: Identity, place: str) -> None:
        """Create a new log, which is complete when `log.json` exists. The caller holds the lock."""
        self.files.make_dir(self.events)
        if not self.files.exists(self.path / ".gitignore"):
            replace_file(self.files, self.path / ".gitignore", IGNORED.encode())
        self.write_origins((identity.origin,), place)
        content = {
            "created_us": identity.created_us,
            "everlog": "jsonl",
            "format": FORMAT,
            "log_id": identity.log_id,
        }
        self._write(self.log_file, content)

    def read_identity(self) -> None:
        found = self._read(self.log_file, _Log)
        if found.everlog != "jsonl":
            raise NotALog(
                f"{self.path} is not an everlog log",
                why="its log.json was written by another program",
                hint="name another folder",
            )
        refuse_other_format(str(self.path), found.format)
        self.log_id, self.created_us = found.log_id, found.created_us

    def origin(self) -> str:
        """Return the origin of this copy, or nothing if it has never written."""
        return self.origins()[0]

    def origins(self) -> tuple[str, ...]:
        """Return the origin of this copy, then its earlier origins, whose requests are its own, too."""
        found = self._read_origin()
        return (found.origin, *found.former)

    def place(self) -> str:
        """Return the place that this copy recorded, or nothing."""
        return self._read_origin().place

    def lives(self, epoch: str) -> tuple[tuple[int, str], ...]:
        """Return when this copy was put back in an epoch: see `Identity`."""
        return tuple((head, origin) for of, head, origin in self._read_origin().lives if of == epoch)

    def may_continue(self, origin: str) -> bool:
        """Return whether a branch may continue with an earlier origin of this copy."""
        return origin not in self._read_origin().retired

    def _read_origin(self) -> _Origin:
        if not self.files.exists(self.origin_file):
            return _Origin("")
        return self._read(self.origin_file, _Origin)

    def write_origins(self, origins: Sequence[str], place: str, *, put_back: tuple[str, int] | None = None) -> None:
        """Record the origin of this copy, its earlier origins, and its place. `put_back`: the epoch and the head, if
        this copy was put back."""
        former = tuple(each for each in origins[1:] if each and each != origins[0])
        before = self._read_origin()
        retired, lives = before.retired, before.lives
        if put_back is not None:
            retired, lives = former, (*lives, (*put_back, origins[0]))
        content = _Origin(origins[0], former, place, retired, lives)
        self._write(self.origin_file, msgspec.to_builtins(content))

    def set_origin(self, origin: str) -> None:
        """Use an earlier origin of this copy again; with nothing, a new one is created by the next write."""
        known = self._read_origin()
        if known.origin != origin:
            self.write_origins((origin, known.origin, *known.former), known.place)

    # ---- the clock, for other tools

    def clock(self) -> int:
        """Return the value of clock.json, or 0 if it is missing or damaged."""
        try:
            return max(msgspec.json.decode(self.files.read_all(self.clock_file), type=_Clock).value, 0)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, EverlogError):
            return 0

    def write_clock(self, value: int, updated: str, *, durable: bool) -> None:
        data = b'{"last_updated":"%s","value":%d}\n' % (updated.encode(), value)
        if durable:
            replace_file(self.files, self.clock_file, data)
            return
        # No flush: after a crash it may be old, empty or missing, and the log is used instead.
        draft = self.local / "clock.everlog-tmp"
        handle = self.files.open(draft, create=True)
        try:
            self.files.truncate(handle, 0)
            self.files.write_all(handle, data, at=0)
        finally:
            self.files.close(handle)
        self.files.rename(draft, self.clock_file)

    # ---- internal

    def _write(self, path: Path, content: dict[str, object]) -> None:
        data = msgspec.json.encode({**content, "whole": _whole(content)}, order="sorted")
        replace_file(self.files, path, msgspec.json.format(data, indent=2) + b"\n")

    def _read(self, path: Path, kind: type[_Kind]) -> _Kind:
        try:
            content = msgspec.json.decode(self.files.read_all(path), type=dict[str, object])
            whole = content.pop("whole", None)
            if whole is not None and whole != _whole(content):
                raise msgspec.DecodeError("its checksum does not match: it was changed or damaged")
            return msgspec.convert(content, kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Damaged(
                f"{path} cannot be read",
                why=str(error),
                hint=f"restore {path.name} from git or from a backup; the events are not changed",
                path=str(path),
            ) from error


def _whole(content: dict[str, object]) -> str:
    """Return the CRC-32 of the content of a file, as every line of the day files has it, too."""
    return f"{zlib.crc32(msgspec.json.encode(content, order='sorted')):08x}"


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Convert EIO, EMFILE and ENFILE into errors of everlog. Other errors pass."""
    try:
        yield
    except OSError as error:
        file = error.filename or path
        match error.errno:
            case errno.EIO:
                raise Damaged(
                    f"the disk cannot read or write {file}",
                    why=error.strerror or "input/output error",
                    hint="check the disk (dmesg); then everlog verify, or restore a backup to another disk",
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
