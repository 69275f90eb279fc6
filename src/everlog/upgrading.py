"""Upgrade a log from an older format to the present one, in whichever store it is.

    check the old log from its bytes ── carry everything over into a draft ── compare ── swap

The old log is read by the frozen readers in `everlog.transfer.upgrade.format1`. It is not changed before the draft is
verified, and its files are kept until `forget_old`.
"""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from itertools import groupby, islice
from operator import sub
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import msgspec

from everlog import wiring
from everlog.core.codec import Packed
from everlog.core.event import Purged
from everlog.errors import InvalidSettings, NotFound
from everlog.files import DiskFiles, Files
from everlog.store_urls import require_url, shown_url, store_path
from everlog.stores.contract import Store
from everlog.stores.formats import FORMAT, refuse_other_format
from everlog.stores.sqlite.connection import own_errors
from everlog.transfer.survey import BytesSurvey
from everlog.transfer.upgrade.carry import Progress, Report, carried, carry_over, finish, report_of
from everlog.transfer.upgrade.format1 import jsonl as jsonl1
from everlog.transfer.upgrade.format1 import model
from everlog.transfer.upgrade.format1.jsonl import JsonlLog
from everlog.transfer.upgrade.format1.model import OldLog
from everlog.transfer.upgrade.format1.places import LineReader
from everlog.transfer.upgrade.format1.segments import SegmentsLog
from everlog.transfer.upgrade.format1.sqlite import SqliteLog
from everlog.transfer.upgrade.preflight import Checked, check
from everlog.transfer.upgrade.swap import (
    BEGUN_AGAIN,
    FINISHED,
    DatabaseSwap,
    FolderSwap,
    alone,
    remove_tree,
    size_of,
)

LOCK_WAIT_S = 30.0


class Upgraded(msgspec.Struct, frozen=True):
    """What `upgrade` found and did."""

    report: Report | None  # None: the log was never in an older format
    done: bool  # False: it was in the present format already
    earlier: str  # what became of an upgrade that was killed: "finished", "begun again" or ""
    kept: str  # where the old files are; "" if there are none


class _Swap(Protocol):
    draft: Path
    kept: Path

    def recover(self) -> str: ...

    def prepare(self) -> None: ...

    def discard(self) -> None: ...

    def swap(self) -> None: ...


class _Place:
    """A log in files: its format, its lock, its old reader and its swap."""

    def __init__(self, url: str, base: Path, files: Files) -> None:
        self.url = url
        self.files = files
        path = store_path(url, base=base)
        assert path is not None
        self.path = path
        self.scheme = url.partition(":")[0]
        self.swap: _Swap
        match self.scheme:
            case "sqlite":
                self.lock_path = path.with_name(path.name + "-lock")
                self.swap = DatabaseSwap(files, path)
            case "segments":
                self.lock_path = path / "lock"
                self.swap = FolderSwap(files, path, path, ("segments", "index"))
            case _:
                self.lock_path = path / "local" / "lock"
                self.swap = FolderSwap(files, path, path / "local", _JSONL_ITEMS)

    @contextmanager
    def locked(self) -> Iterator[None]:
        lock = self.files.lock(self.lock_path)
        if self.scheme == "jsonl" and not self.files.exists(self.path / "local"):
            self.files.make_dir(self.path / "local")
        lock.acquire(LOCK_WAIT_S)
        try:
            yield
        finally:
            lock.release()
            lock.close()

    def format(self) -> int:
        """Return the format of the log. Raise an error if there is no log."""
        if not self.files.exists(self.path):
            raise NotFound(f"{self.path} does not exist", why="there is no log to upgrade", hint="check the name")
        if self.scheme == "sqlite":
            return _format_of_database(self.path)
        try:
            found = json.loads(self.files.read_all(self.path / "log.json"))["format"]
            return found if type(found) is int else FORMAT
        except (OSError, ValueError, KeyError, TypeError):
            return model.FORMAT if self._has_old_segments() else FORMAT

    def _has_old_segments(self) -> bool:
        """Return whether the heads of segments show the old format, where log.json does not."""
        folder = self.path / "segments"
        names = [name for name in self.files.names(folder) if name.endswith(".seg")] if folder.is_dir() else []
        return any(self.files.read_all(folder / name)[7:8] == bytes([model.FORMAT]) for name in names[:1])

    def old(self) -> OldLog:
        match self.scheme:
            case "sqlite":
                return SqliteLog(self.path)
            case "segments":
                return SegmentsLog(self.path, self.files)
            case _:
                return JsonlLog(self.path, self.files)

    def open(self) -> Store:
        return wiring.open_store(f"{self.scheme}:{self.path}", base=Path(), create=False)

    def carry(self, old: OldLog, checked: Checked, progress: Progress) -> Report:
        """Fill the draft, compare it, and close it."""
        if isinstance(old, JsonlLog):
            return _carry_day_files(self.files, self.swap.draft, old, checked, progress)
        url = f"{self.scheme}:{self.swap.draft}"
        with closing(wiring.open_store(url, base=Path(), identity=old.identity)) as draft:
            return carry_over(old, draft, checked, progress=progress)


_JSONL_ITEMS = (
    "events",
    "clock.json",
    "local/origin.json",
    "local/index.db",
    "local/index.db-wal",
    "local/index.db-shm",
    "local/notes.jsonl",
    "local/notes.end",
    "local/epochs",
    "local/views.db",
    "local/views.db-wal",
    "local/views.db-shm",
)


ProgressOf = Callable[[int], AbstractContextManager[Progress]]
"""Called with the total amount of work: it shows how far the work is."""


def _unseen(total: int) -> AbstractContextManager[Progress]:
    return nullcontext(lambda done: None)


def upgrade(url: str, *, base: Path, progress: ProgressOf = _unseen, files: Files | None = None) -> Upgraded:
    """Bring a log to the present format. A log that is in it already is left as it is.

    The work is three times the positions of the log: each is checked, carried over and compared once.
    """
    require_url(url)
    if url == "memory:":
        raise InvalidSettings("a log in memory has no format", why="it is never stored", hint="name a stored log")
    if store_path(url, base=base) is None:
        return _upgrade_postgres(url, progress)
    place = _Place(url, base, files or DiskFiles())
    place.format()
    with place.locked():
        earlier = place.swap.recover()
        found = place.format()
        if found >= FORMAT:
            refuse_other_format(str(place.path), found)
            with closing(place.open()) as store:
                return Upgraded(report_of(store), earlier == FINISHED, earlier, _kept(place.swap.kept))
        place.swap.prepare()
        try:
            with (
                own_errors(place.path, "upgrading"),
                closing(place.old()) as old,
                progress(3 * old.size) as show,
            ):
                checked = check(old, str(place.path), progress=show)
                report = place.carry(old, checked, lambda slots: show(checked.head + slots))
            if place.scheme == "jsonl":
                _refuse_open_index(place)
            place.swap.swap()
        except BaseException:
            place.swap.recover()  # removes the draft, or finishes what was decided
            raise
    return Upgraded(report, True, earlier, str(place.swap.kept))


def forget_old(url: str, *, base: Path) -> tuple[str, int]:
    """Remove the files that an upgrade has kept; return where they were, and how many bytes are free now."""
    require_url(url)
    if store_path(url, base=base) is None:
        from everlog.stores.postgres.upgrade import schemas_of

        with schemas_of(url) as schemas:
            refuse_other_format(shown_url(url), schemas.format())
            schemas.forget()
            return f"schema {schemas.kept}", 0
    place = _Place(url, base, DiskFiles())
    refuse_other_format(str(place.path), place.format())
    kept = place.swap.kept
    if not kept.exists():
        raise NotFound(
            f"{kept} does not exist", why="no upgrade has kept old files here", hint="nothing is to be done"
        )
    freed = size_of(kept)
    remove_tree(kept)
    for beside in (kept.with_name(kept.name + "-wal"), kept.with_name(kept.name + "-shm")):
        remove_tree(beside)
    return str(kept), freed


def _kept(path: Path) -> str:
    return str(path) if path.exists() else ""


def _upgrade_postgres(url: str, progress: ProgressOf) -> Upgraded:
    """Upgrade into a new schema, which is renamed in the transaction that has the old one locked."""
    from everlog.stores.postgres.upgrade import schemas_of
    from everlog.transfer.upgrade.format1.postgres import PostgresLog

    with schemas_of(url) as schemas:
        earlier = BEGUN_AGAIN if schemas.recover() else ""
        found = schemas.format()
        if found == model.FORMAT:
            schemas.lock()
            old = PostgresLog(schemas.connection, schemas.address.schema)
            with progress(3 * old.size) as show:
                checked = check(old, shown_url(url), progress=show)
                with closing(wiring.open_store(schemas.draft_url, base=Path(), identity=old.identity)) as draft:
                    report = carry_over(old, draft, checked, progress=lambda slots: show(checked.head + slots))
            schemas.swap()
            return Upgraded(report, True, earlier, f"schema {schemas.kept}")
    with closing(wiring.open_store(url, base=Path(), create=False)) as store:  # which refuses what is no log
        return Upgraded(report_of(store), False, earlier, "")


def _format_of_database(path: Path) -> int:
    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True)) as connection:
        try:
            (found,) = connection.execute("PRAGMA user_version").fetchone()
        except sqlite3.DatabaseError:
            return FORMAT  # opening it says what it is
    return int(found) or FORMAT


def _refuse_open_index(place: _Place) -> None:
    """Refuse while another program has the log open: it would go on writing lines of the old format."""
    index = place.path / "local" / "index.db"
    if place.files.exists(index):
        with alone(index):
            pass


# ---- day files


def _carry_day_files(files: Files, draft: Path, old: JsonlLog, checked: Checked, progress: Progress) -> Report:
    """Write every line again into the file that it was in, and give it the position that it had."""
    from everlog.stores.jsonl import carried as writing

    events = writing.make_folder(files, draft, old.identity)
    seen, ends = BytesSurvey(), array("q", [0])
    # Lines are made in the order of positions, and written in that of the files: only a merge makes them differ.
    with _appended(files, draft / _LINES) as append:
        for place, slot in zip(old.places, carried(old, checked), strict=True):
            seen.take(slot)
            line = _new_line(old.text(place), slot if isinstance(slot, (Packed, Purged)) else None)
            append(line)
            ends.append(ends[-1] + len(line))
            if seen.head % 1000 == 0:
                progress(seen.head)
    made = LineReader(files, draft)
    starts, at = array("q", bytes(8 * len(old.places))), 0
    for name in old.names:
        _write(files, events / name, b"")
    for name, places in groupby(old.places.in_files(), key=lambda found: found[1].file):
        at = 0
        with _appended(files, events / name) as append:
            for number, _ in places:
                append(made.read(_LINES, ends[number], ends[number + 1] - ends[number]))
                starts[number] = at
                at += ends[number + 1] - ends[number]
    files.fsync_dir(events)
    own = old.origins()
    if own:
        _write(files, draft / "local" / "origin.json", files.read_all(old.path / "local" / "origin.json"))
    sizes = map(sub, islice(ends, 1, None), ends)
    lines = (
        (writing.Placed(place.file, start, size - 1), made.read(_LINES, end, size - 1))
        for place, start, end, size in zip(old.places, starts, ends, sizes, strict=False)
    )
    writing.make_index(files, draft, lines, identity=old.identity, own=own, branch=old.branch)
    files.unlink(draft / _LINES)
    with closing(wiring.open_store(f"jsonl:{draft}", base=Path(), create=False)) as store:
        return finish(old, store, checked, seen.end(), progress=progress)


def _new_line(text: bytes, slot: Packed | Purged | None) -> bytes:
    """Return a line of the present format. A line of another program stays as it is."""
    from everlog.stores.jsonl import carried as writing
    from everlog.stores.jsonl.lines import PurgeLine, purge_line

    line, batch = jsonl1.read_marked_line(text)
    match line:
        case jsonl1.Event1() if isinstance(slot, Packed):
            return writing.carried_event(slot, via=line.via, batch=batch, claims=line.claims)
        case jsonl1.Purged1() if isinstance(slot, Purged):
            return writing.carried_purged(
                slot,
                purge=line.purge,
                stream=line.stream,
                sequence=line.sequence,
                via=line.via,
                batch=batch,
                claims=line.claims,
            )
        case jsonl1.Purge1():
            return purge_line(PurgeLine(**msgspec.structs.asdict(line)), batch=batch)
        case _:
            return text + b"\n"


_LINES = "lines"  # a file in the draft: the new lines in the order of positions
_APPENDED_BYTES = 1024 * 1024


@contextmanager
def _appended(files: Files, path: Path) -> Iterator[Callable[[bytes], None]]:
    """Write a file piece by piece, and flush it at the end."""
    handle = files.open(path, create=True)
    held, at = bytearray(), 0

    def append(data: bytes) -> None:
        nonlocal at
        held.extend(data)
        if len(held) >= _APPENDED_BYTES:
            files.write_all(handle, bytes(held), at=at)
            at += len(held)
            held.clear()

    try:
        files.truncate(handle, 0)
        yield append
        files.write_all(handle, bytes(held), at=at)
        files.fsync(handle)
    finally:
        files.close(handle)


def _write(files: Files, path: Path, data: bytes) -> None:
    with _appended(files, path) as append:
        append(data)
