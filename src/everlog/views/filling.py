"""A build whose beginning was derived elsewhere: its rows, places and dead letters come in parts and are put on the
shelf, and then the live runner goes on from an exact position.

While it is being filled a build has the version 0, so that nobody takes it for one that was begun and not finished:
whatever is killed on the way leaves something that is swept with the next rebuild, and nothing that answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from everlog.core.event import Position
from everlog.core.query import Cursor
from everlog.errors import Busy, Damaged, HistoryChanged
from everlog.stores.shelf import Shelf
from everlog.views.builder import Gone
from everlog.views.letters import Letter
from everlog.views.states import BLOCK, Build, begin_build, drop_build, put_build, put_letters, put_rows, read_build
from everlog.views.view import View

if TYPE_CHECKING:
    from everlog.log.log import Log

FILLING = 0
_ROWS_AT_ONCE = 20_000
_TRIES = 3


@dataclass
class Part:
    """Some of what was derived, in any order; every key comes once."""

    rows: Mapping[str, bytes] = field(default_factory=dict)  # kept rows, as `everlog.views.rows` makes them
    places: Mapping[int, int] = field(default_factory=dict)  # block -> bits of applied positions, to be united
    letters: Iterable[Letter] = ()
    stops: Iterable[Letter] = ()  # events of which not even the key could be told


Derive = Callable[[Position], Iterable[Part]]
"""Whoever derives a view elsewhere: everything up to a position, in parts."""


def fill(log: Log, shelf: Shelf, view: View, derive: Derive) -> Build:
    """A new build, derived elsewhere up to where the log is now; nobody is told of it yet."""
    for _ in range(_TRIES):
        head, epoch = log.head(), log.identity.epoch
        try:
            build, stop = _put(log, shelf, view, derive, head, head)
            upto = head
            if stop is not None:
                # Nothing from there on counts, and it was derived without knowing that.
                _drop(shelf, build)
                upto = Position(stop.position - 1)
                build, again = _put(log, shelf, view, derive, upto, head)
                if again is not None:
                    raise _not_the_same(view, again)
            return _finish(shelf, view, build, Cursor(upto, epoch=epoch), stop)
        except (Gone, HistoryChanged):
            continue  # a purge, or somebody else's rebuild, has swept it away
    raise Busy(
        f"the view {view.name} could not be derived in peace",
        why=f"history changed under it {_TRIES} times, or others rebuilt it meanwhile",
        hint=f"everlog views rebuild {view.name} --engine spark",
        view=view.name,
    )


def _put(
    log: Log, shelf: Shelf, view: View, derive: Derive, upto: Position, head: Position
) -> tuple[Build, Letter | None]:
    """What was derived up to a position, as a build that is not finished, and the event that stops the view."""
    with shelf.change() as change:
        build = replace(begin_build(change, view), version=FILLING)
        put_build(change, build)
    try:
        return _put_parts(log, shelf, view, build, derive(upto), head)
    except BaseException:
        _drop(shelf, build)
        raise


def _put_parts(
    log: Log, shelf: Shelf, view: View, build: Build, parts: Iterable[Part], head: Position
) -> tuple[Build, Letter | None]:
    places: dict[int, int] = {}
    keys = 0
    stop: Letter | None = None
    for part in parts:
        for letter in part.stops:
            if stop is None or letter.position < stop.position:
                stop = letter
        for block, bits in part.places.items():
            places[block] = places.get(block, 0) | bits
        letters = list(part.letters)
        for rows in _chunks(part.rows) if part.rows else [dict[str, bytes]()]:
            if log.store.purges(after=head):
                raise Gone  # what was read before the purge may hold its words: they must not get on the shelf now
            with shelf.change() as change:
                if read_build(change, build.name, build.number) is None:
                    raise Gone
                put_rows(change, view, build, rows)
                keys += len(rows)
                put_letters(change, build, letters)
            letters = []
    for some in _chunks({f"{block:016}": bits.to_bytes(BLOCK // 8) for block, bits in places.items()}):
        with shelf.change() as change:
            change.put(build.places, some)
    return replace(build, applied=sum(bits.bit_count() for bits in places.values()), keys=keys), stop


def _finish(shelf: Shelf, view: View, build: Build, cursor: Cursor, stop: Letter | None) -> Build:
    done = replace(
        build,
        version=view.version,
        cursor=str(cursor),
        revision=build.revision + 1,
        changed_us=time.time_ns() // 1000,
        stopped_at=0 if stop is None else stop.position,
    )
    with shelf.change() as change:
        if read_build(change, build.name, build.number) is None:
            raise Gone
        put_letters(change, build, [] if stop is None else [stop])
        put_build(change, done)
    return done


def _drop(shelf: Shelf, build: Build) -> None:
    with shelf.change() as change:
        drop_build(change, build)


_Value = TypeVar("_Value")


def _chunks(rows: Mapping[str, _Value]) -> Iterable[dict[str, _Value]]:
    left = iter(rows.items())
    while some := dict(islice(left, _ROWS_AT_ONCE)):
        yield some


def _not_the_same(view: View, letter: Letter) -> Damaged:
    return Damaged(
        f"the view {view.name} gave event {letter.id} a key once, and none the next time",
        why=letter.reason,
        hint="key() must depend on the event and on nothing else",
        view=view.name,
        position=letter.position,
    )
