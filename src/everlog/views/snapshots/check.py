"""Check a snapshot: its bytes by their hash, its states by replaying events, and what follows from it.

checksum   SHA-256 over the file, the digest over the states, the signature if there is one
replay     some keys, or all, are folded again from the events alone and compared
live       the snapshot and the events after it must give the states of the live view
before     the snapshot before it and the events between the two must give this one
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec

from everlog.core.event import Position
from everlog.errors import EverlogError
from everlog.views.advance import ENDS
from everlog.views.as_of import Cut, Was, events_to, fold_to, state_at, states_at
from everlog.views.builds.content import build_digest
from everlog.views.builds.rows import Row
from everlog.views.snapshots.body import body_digest, in_memory, parked_in, rows_of, skipped_in
from everlog.views.snapshots.folder import Loaded, SnapshotEntry
from everlog.views.snapshots.snapshots import Snapshots
from everlog.views.view import Order, View, digest, state_bytes

if TYPE_CHECKING:
    from everlog.log.derived import ViewOfLog

SAMPLE = 100
_TRIES = 3


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    view: str
    position: Position
    problem: str = ""  # damaged: it is never used
    stale: str = ""  # intact, but it cannot be used any more
    replayed: int = 0  # the number of keys that were folded again
    wrong: tuple[str, ...] = ()  # the keys that differ
    live: bool | None = None  # leads to the states of the live view; None: not checked
    before: bool | None = None  # follows from the one before it; None: not checked

    @property
    def ok(self) -> bool:
        return not self.problem and not self.wrong and self.live is not False and self.before is not False


def check_all(
    snapshots: Snapshots, running: ViewOfLog, *, sample: int | None = SAMPLE, live: bool = True, seed: int = 1
) -> list[Verdict]:
    """Check every snapshot of a view, the newest first. `sample` keys of each are replayed; None: all."""
    verdicts, later = [], None
    for entry in reversed(snapshots.folder.entries(running.view.name)):
        verdict, loaded = check(snapshots, running, entry, sample=sample, live=live, seed=seed, older=later)
        verdicts.append(verdict)
        later = loaded or later
    return verdicts[::-1]


def check_bytes(snapshots: Snapshots, entry: SnapshotEntry) -> Verdict:
    """Check whether a snapshot is what was written: all that can be checked without the code of its view."""
    found = Verdict(id=entry.id, view=entry.view, position=entry.position, problem=entry.problem)
    if entry.header is None:
        return found
    try:
        snapshots.folder.load(entry)
    except EverlogError as error:
        return msgspec.structs.replace(found, problem=str(error))
    return found


def check(
    snapshots: Snapshots,
    running: ViewOfLog,
    entry: SnapshotEntry,
    *,
    sample: int | None = SAMPLE,
    live: bool = True,
    seed: int = 1,
    older: Loaded | None = None,
) -> tuple[Verdict, Loaded | None]:
    found = check_bytes(snapshots, entry)
    if found.problem:
        return found, None
    loaded = snapshots.folder.load(entry)
    stale = snapshots.stale(loaded.header, running.view) or snapshots.purged(loaded)
    if stale:
        return msgspec.structs.replace(found, stale=stale), None
    keys = _sample(loaded, sample, seed)
    return (
        msgspec.structs.replace(
            found,
            replayed=len(keys),
            wrong=tuple(_replayed_wrong(snapshots, running.view, loaded, keys)),
            live=_leads_to_live(snapshots, running, loaded) if live else None,
            before=None if older is None else _follows(snapshots, running.view, older, loaded),
        ),
        loaded,
    )


def _sample(loaded: Loaded, sample: int | None, seed: int) -> list[str]:
    keys = list(loaded.body["rows"])
    if sample is None or sample >= len(keys):
        return keys
    return sorted(random.Random(seed).sample(keys, sample))


def _replayed_wrong(snapshots: Snapshots, view: View, loaded: Loaded, keys: list[str]) -> list[str]:
    log, rows, skipped = snapshots.log, rows_of(loaded.body, keys), skipped_in(loaded.body)
    at = Cut(upto=loaded.header.position)
    if all(view.by_stream or rows[key].sources is not None for key in keys) and len(keys) < loaded.header.keys:
        again = {
            key: state_at(log, view, key, at, sources=rows[key].sources, skipped=skipped).rows.get(key)
            for key in keys
        }
    else:  # their streams are not known, or it is all keys: one fold of everything
        every = states_at(log, view, at, skipped=skipped).rows
        again = {key: every.get(key) for key in keys}
        if len(keys) == loaded.header.keys:
            again.update({key: row for key, row in every.items() if key not in loaded.body["rows"]})
    return sorted(key for key, row in again.items() if not _same(row, rows.get(key)))


def _same(one: Row | None, other: Row | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.count == other.count and state_bytes(one.state) == state_bytes(other.state)


def _leads_to_live(snapshots: Snapshots, running: ViewOfLog, loaded: Loaded) -> bool | None:
    """Advance a copy of the snapshot in memory, and compare. None if the log changed all the time meanwhile."""
    small_state, opened = in_memory(snapshots.log, running.view, loaded.header, loaded.body)
    for _ in range(_TRIES):
        if opened.catch_up() in ENDS:
            return None
        running.catch_up()
        build = running.build()
        if build is not None and build.position == opened.cursor.position:
            same = build_digest(snapshots.small_state, build) == build_digest(small_state, opened.build)
            again = running.build()
            if again is not None and again.revision == build.revision:
                return same
    return None


def _follows(snapshots: Snapshots, view: View, older: Loaded, newer: Loaded) -> bool | None:
    if view.order is not Order.POSITION or skipped_in(older.body) != skipped_in(newer.body):
        return None  # a late event, or one that was skipped meanwhile, changes the states before
    start = Was(rows=rows_of(older.body), parked=parked_in(older.body), stopped_at=older.header.stopped_at)
    if start.parked or start.stopped_at:
        return None  # it may have been retried
    tail = events_to(snapshots.log, view.query, at=Cut(upto=newer.header.position), after=older.header.position)
    states = fold_to(snapshots.log, view, tail, skipped=skipped_in(newer.body), start=start).states()
    return digest(states.items()) == body_digest(newer.body)
