"""A build whose beginning was derived elsewhere, such as on Spark: it is filled, and then checked.

The rows, applied positions and dead letters come in parts and are stored; the live view continues from an exact
position. While it is being filled a build has the version 0, so that no process takes it for one that was begun and
not finished: a process that is killed on the way leaves a build that never answers and that the next rebuild removes.

Some keys are then folded again here. Both engines run the same code, so only a view that is not pure, or other code
on another machine, can make them differ. Then neither result can be trusted, and the build must not answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from msgspec.structs import replace

from everlog.core.event import START, Position
from everlog.core.query import Cursor
from everlog.core.text import counted
from everlog.errors import Busy, Damaged, HistoryChanged
from everlog.log.read.resets import proof_at
from everlog.stores.small_state import SmallState
from everlog.views.builds.build import Build, begin_build, drop_build, put_build, read_build
from everlog.views.builds.content import BLOCK, put_letters, put_rows, scan_rows
from everlog.views.builds.open_build import OpenBuild
from everlog.views.builds.rows import Row, kept_state
from everlog.views.dead_letters import ViewLetter
from everlog.views.fold import fold, kept_rows, nothing_kept
from everlog.views.rebuild.keys import history, sources_of
from everlog.views.view import View

if TYPE_CHECKING:
    from everlog.log.log import Log

FILLING = 0
_ROWS_AT_ONCE = 20_000
_TRIES = 3
KEYS = 20
EVENTS_MAX = 10_000
"""A key with more events is not part of the sample: folding it would take as long as the rest."""


@dataclass
class Part:
    """Some of what was derived, in any order; every key comes once."""

    rows: Mapping[str, bytes] = field(default_factory=dict)  # as `everlog.views.builds.rows` stores them
    places: Mapping[int, int] = field(default_factory=dict)  # block -> bits of applied positions, to be united
    letters: Iterable[ViewLetter] = ()
    stops: Iterable[ViewLetter] = ()  # events whose key could not be determined


Derive = Callable[[Position], Iterable[Part]]
"""A function that derives a view elsewhere: everything up to a position, in parts."""


def fill(log: Log, small_state: SmallState, view: View, derive: Derive) -> Build:
    """Return a new build, derived elsewhere up to the present head. It is not active yet."""
    for _ in range(_TRIES):
        try:
            build = _fill(log, small_state, view, derive)
        except HistoryChanged:
            continue
        if build is not None:
            return build
    raise Busy(
        f"the view {view.name} could not be derived",
        why=f"history changed {_TRIES} times meanwhile, or the view was rebuilt by another process",
        hint=f"everlog views rebuild {view.name} --engine spark",
        view=view.name,
    )


class _Filled(NamedTuple):
    build: Build
    stop: ViewLetter | None  # the event that stops the view


def _fill(log: Log, small_state: SmallState, view: View, derive: Derive) -> Build | None:
    """Make one attempt; None if a purge or another rebuild removed the build."""
    upto = head = log.head()
    epoch = log.identity.epoch
    filled = _put(log, small_state, view, derive, upto, head)
    if filled is None:
        return None
    stop = filled.stop
    if stop is not None:
        # Nothing from that event on counts, and it was derived without knowing that.
        _drop(small_state, filled.build)
        upto = Position(stop.position - 1)
        filled = _put(log, small_state, view, derive, upto, head)
        if filled is None:
            return None
        if filled.stop is not None:
            raise _not_the_same(view, filled.stop)
    return _finish(small_state, view, filled.build, Cursor(upto, START, epoch, proof_at(log.stored, upto)), stop)


def _put(
    log: Log, small_state: SmallState, view: View, derive: Derive, upto: Position, head: Position
) -> _Filled | None:
    """Store what was derived up to a position as a build that is not finished; None if the build was removed."""
    with small_state.change() as change:
        build = replace(begin_build(change, view), version=FILLING)
        put_build(change, build)
    filled = None
    try:
        filled = _put_parts(log, small_state, view, build, derive(upto), head)
    finally:
        if filled is None:
            _drop(small_state, build)
    return filled


def _put_parts(
    log: Log, small_state: SmallState, view: View, build: Build, parts: Iterable[Part], head: Position
) -> _Filled | None:
    places: dict[int, int] = {}
    keys = 0
    stop: ViewLetter | None = None
    for part in parts:
        for letter in part.stops:
            if stop is None or letter.position < stop.position:
                stop = letter
        for block, bits in part.places.items():
            places[block] = places.get(block, 0) | bits
        letters = list(part.letters)
        for rows in _chunks(part.rows) if part.rows else [dict[str, bytes]()]:
            if log.stored.purges(after=head):
                return None  # what was read before the purge may contain purged text, and must not be stored now
            with small_state.change() as change:
                if read_build(change, build.name, build.number) is None:
                    return None
                put_rows(change, view, build, rows)
                keys += len(rows)
                put_letters(change, build, letters)
            letters = []
    for some in _chunks({f"{block:016}": bits.to_bytes(BLOCK // 8) for block, bits in places.items()}):
        with small_state.change() as change:
            change.put(build.places, some)
    return _Filled(replace(build, applied=sum(bits.bit_count() for bits in places.values()), keys=keys), stop)


def _finish(
    small_state: SmallState, view: View, build: Build, cursor: Cursor, stop: ViewLetter | None
) -> Build | None:
    done = replace(
        build,
        version=view.version,
        cursor=str(cursor),
        revision=build.revision + 1,
        changed_us=time.time_ns() // 1000,
        stopped_at=0 if stop is None else stop.position,
    )
    with small_state.change() as change:
        if read_build(change, build.name, build.number) is None:
            return None
        put_letters(change, build, [] if stop is None else [stop])
        put_build(change, done)
    return done


def _drop(small_state: SmallState, build: Build) -> None:
    with small_state.change() as change:
        drop_build(change, build)


_Value = TypeVar("_Value")


def _chunks(rows: Mapping[str, _Value]) -> Iterable[dict[str, _Value]]:
    left = iter(rows.items())
    while some := dict(islice(left, _ROWS_AT_ONCE)):
        yield some


def _not_the_same(view: View, letter: ViewLetter) -> Damaged:
    return Damaged(
        f"the view {view.name} gave event {letter.id} a key the first time, and none the second time",
        why=letter.reason,
        hint="key() must depend on the event and on nothing else",
        view=view.name,
        position=letter.position,
    )


# ---- the check


def require_same_here(log: Log, small_state: SmallState, opened: OpenBuild, differing: Collection[str]) -> int:
    """Fold keys of a build again, refuse the build if one differs, and return how many were folded.

    Keys that differ from the build before it are checked first: either that build was wrong, or this one is.
    """
    build = opened.build
    keys = list(differing) or _sample(small_state, opened)
    streams = sources_of(small_state, build, keys, {}, ())
    records = history(log, opened.view, keys, streams, upto=opened.cursor.position, standing=build.standing)
    rows: dict[str, Row] = {}
    done = fold(opened.view, rows, records, upcast=log.catalog.upcast)
    here = kept_rows(opened.view, rows, done, nothing_kept)
    there = small_state.rows(build.rows, keys)
    wrong = [key for key in keys if _state(here.get(key)) != _state(there.get(key))]
    if not wrong:
        return len(keys)
    with small_state.change() as change:
        drop_build(change, build)
    raise Damaged(
        f"the view {build.name} was derived elsewhere with other states than here",
        why=f"of {counted(len(keys), 'key')} folded again, {counted(len(wrong), 'differs', 'differ')},"
        f" such as {wrong[0]!r}",
        hint=f"check that it depends on its events only and that the workers run the same code, then: "
        f"everlog views rebuild {build.name}",
        view=build.name,
        keys=wrong,
    )


def _state(kept: bytes | None) -> bytes | None:
    return None if kept is None else kept_state(kept)


def _sample(small_state: SmallState, opened: OpenBuild) -> list[str]:
    """Return keys from all parts of the build whose history is short and known."""
    build = opened.build
    step = max(1, small_state.count(build.rows) // KEYS)
    found = islice(scan_rows(small_state, build), 0, None, step)
    return [
        key
        for key, row in found
        if row.count <= EVENTS_MAX and (build.by_stream or row.sources is not None) and not opened.is_parked(key)
    ][:KEYS]
