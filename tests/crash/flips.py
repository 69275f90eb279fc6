"""One flipped bit anywhere in a log: it is told, or it changed nothing; and what was not hit can still be read (R7).

Files of jsonl and segments are flipped in memory. SQLite reads its own file, so that one lies on a disk.
"""

from __future__ import annotations

import tempfile
from contextlib import closing
from itertools import zip_longest
from pathlib import Path
from random import Random
from typing import Any

from tests.crash.rows import Row
from tests.crash.subjects import DAY_US, SUBJECTS, Clock, Subject, small_and_quiet
from tests.crash.workloads import do, new_disk
from tests.places import in_memory
from tests.support.faults import RecordingFiles

from everlog.catalog.builtin import BUILT_IN
from everlog.core.codec import Packed
from everlog.errors import EverlogError
from everlog.log.log import Log
from everlog.log.verify.verify import verify
from everlog.stores.contract import Store
from everlog.stores.jsonl.day_files import scan
from everlog.stores.sqlite.store import SqliteStore

EVENTS = 24
_DERIVED_OR_EMPTY = ("lock", "lock.queue", ".gitignore")


def flip_bits(row: Row, *, flips: int, seed: int = 7) -> None:
    """Flip one bit at a time, all over the files of a small log."""
    with small_and_quiet():
        if row.subject == "sqlite":
            _flip_sqlite(row, flips, Random(seed))
        else:
            for closed in (True, False):
                _flip_files(row, SUBJECTS[row.subject], flips // 2 + 1, Random(f"{seed} {closed}"), closed=closed)


def _flip_files(row: Row, subject: Subject, flips: int, chance: Random, *, closed: bool) -> None:
    files = _filled(subject, closed=closed)
    intact = files.visible()
    with closing(subject.open(RecordingFiles(intact, dirs=files.dirs), create=False)) as store:
        wanted, aside = _readable(store), _aside(store)
    assert len(wanted) == EVENTS
    places = [
        (path, at) for path, data in intact.items() if path.name not in _DERIVED_OR_EMPTY for at in range(len(data))
    ]
    told = 0
    for path, at in (chance.choice(places) for _ in range(flips)):
        data = bytearray(intact[path])
        data[at] ^= 1 << chance.randrange(8)
        damaged = RecordingFiles({**intact, path: bytes(data)}, dirs=files.dirs)
        row.count += 1
        told += _judge(row, subject, damaged, wanted, aside, f"flip in {path} at {at}")
    row.remark += (
        f"{'after a close' if closed else 'after a kill'} {told} of {flips} told, the others changed nothing; "
    )


def _filled(subject: Subject, *, closed: bool) -> RecordingFiles:
    """A log of several files."""
    files = new_disk(subject)
    clock = Clock()
    store = subject.open(files, clock=clock, rotating=True)
    for first in range(1, EVENTS, 4):
        do(files, store, [first, first + 1])
        do(files, store, [first + 2])
        do(files, store, [first + 3], width=100)
        clock.us += DAY_US // 2
    if closed:
        store.close()
    return files


def _judge(
    row: Row, subject: Subject, files: RecordingFiles, wanted: dict[int, Any], wanted_aside: list[Any], where: str
) -> bool:
    """True when the damage was told."""
    try:
        with closing(subject.open(files, create=False)) as store:
            told = bool(verify(store).problems)
            found = _readable(store)
            aside = _aside(store)
    except EverlogError as error:
        # Refused as a whole, because who the log is cannot be read. Its events must be there all the same.
        if _lines_in(files) != len(wanted):
            row.lost(f"{where}: what was not hit cannot be read: {error!r}", len(wanted))
        return True
    except Exception as error:
        row.broken(f"{where}: {error!r}")
        return True
    if not told and aside != wanted_aside:
        row.changed(f"{where}: not told, and {_first_difference(aside, wanted_aside)}")
    return _compare(row, wanted, found, told, where)


def _compare(row: Row, wanted: dict[int, Any], found: dict[int, Any], told: bool, where: str) -> bool:
    missing = [position for position in wanted if position not in found]
    wrong = [position for position, content in found.items() if wanted.get(position) != content]
    if not told and (missing or wrong):
        row.changed(f"{where}: not told, and {missing} are missing, {wrong} are changed")
    # A flip may take the write that it hits, and the one beside it if it hit what stands between them.
    if told and len(missing) > 4:
        row.lost(f"{where}: {missing} cannot be read", len(missing))
    return told


def _readable(store: Store) -> dict[int, Any]:
    return {
        place.position: (place.header, place.payload, place.salt)
        for place in store.slots()
        if isinstance(place, Packed)
    }


def _aside(store: Store) -> list[Any]:
    """What a log knows beside its events."""
    identity = store.identity
    kept = sorted(map(repr, store.small_state.every_row()))
    return [identity.log_id, identity.created_us, store.head(), *map(repr, store.purges()), *kept]


def _first_difference(found: list[Any], wanted: list[Any]) -> str:
    differing = [f"{new!r} in place of {old!r}" for new, old in zip_longest(found, wanted) if new != old]
    return differing[0]


def _lines_in(files: RecordingFiles) -> int:
    """Whole events in day files, read without opening the log."""
    days = [data for path, data in files.visible().items() if path.parent.name == "events"]
    return sum(1 for data in days for found in scan(data) if found.line is not None)


# ---- SQLite


def _flip_sqlite(row: Row, flips: int, chance: Random) -> None:
    with tempfile.TemporaryDirectory(prefix="everlog-flips-", dir=in_memory()) as folder:
        path = Path(folder) / "log.db"
        with Log(SqliteStore(path), BUILT_IN) as log:
            for number in range(EVENTS):
                log.append("note.added", stream=f"note/{number % 3}", payload={"text": f"number {number}"})
        intact = path.read_bytes()
        with closing(SqliteStore(path)) as store:
            wanted, aside = _readable(store), _aside(store)
        told = 0
        for at in (chance.randrange(len(intact)) for _ in range(flips)):
            data = bytearray(intact)
            data[at] ^= 1 << chance.randrange(8)
            for left in Path(folder).iterdir():
                left.unlink()
            path.write_bytes(data)
            row.count += 1
            told += _judge_sqlite(row, path, wanted, aside, f"flip at {at} of page {at // 4096 + 1}")
    row.remark = f"{told} of {flips} told, the others changed nothing"


def _judge_sqlite(row: Row, path: Path, wanted: dict[int, Any], wanted_aside: list[Any], where: str) -> bool:
    """One file of SQLite is one fate: a flip may make it unreadable as a whole, but never in silence."""
    try:
        with closing(SqliteStore(path, create=False)) as store:
            told = bool(verify(store).problems)
            if told:
                return True
            found = _readable(store)
            aside = _aside(store)
            records = [recorded.position for recorded in store.read()]
    except EverlogError:
        return True
    except Exception as error:
        row.broken(f"{where}: {error!r}")
        return True
    if found != wanted or records != list(wanted):
        row.changed(f"{where}: not told, and {sorted(wanted.keys() ^ found.keys())} differ")
    elif aside != wanted_aside:
        row.changed(f"{where}: not told, and {_first_difference(aside, wanted_aside)}")
    return False
