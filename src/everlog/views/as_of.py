"""Any stream or view as it was: after a position, at a time, at a value of the Lamport clock, at a version.

    105              after the event at position 105
    a datetime       before the first event that arrived at that time or later, which `Cut.next` names
    Lamport(41)      after every event whose Lamport value is 41 or less: the same on every node
    Version(3)       after the third event of the stream

A time means arrival in this log (`received_at`), as everywhere: so what `state --as-of T` shows and what
`log --since T` lists meet without a gap and without an overlap.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from everlog.core.event import START, Position, Recorded
from everlog.core.query import EVERYTHING, Query
from everlog.errors import InvalidField, NotFound
from everlog.views.fold import AT_ONCE, fold, in_causal_order, kept_rows
from everlog.views.rows import CausalOrder, Row, row_bytes, row_of
from everlog.views.view import Order, State, View

if TYPE_CHECKING:
    from everlog.log.log import Log


class Lamport(msgspec.Struct, frozen=True):
    value: int


class Version(msgspec.Struct, frozen=True):
    """A place in one stream, by its sequence."""

    number: int


Moment = int | datetime | Lamport | Version


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """A moment, found in a log: what lies on this side of it."""

    upto: Position
    lamport: int | None = None
    said: str = ""  # as a person would name it
    next: Position | None = None  # the first event on the other side, where the moment was a time

    def holds(self, recorded: Recorded) -> bool:
        return recorded.position <= self.upto and (self.lamport is None or recorded.event.lamport <= self.lamport)


def cut(log: Log, moment: Moment | None, *, stream: str = "") -> Cut:
    """Where a moment lies in a log; None is now. A version needs the stream that it is one of."""
    head = log.head()
    match moment:
        case None:
            return Cut(upto=head, said=f"#{head}")
        case Lamport(value):
            return Cut(upto=head, lamport=value, said=f"lamport:{value}")
        case Version(number):
            return _version(log, stream, number)
        case datetime():
            if moment.tzinfo is None:
                raise InvalidField(
                    f"{moment} has no time zone",
                    hint="say datetime(…, tzinfo=UTC)",
                    field="as_of",
                    why="it could be any",
                )
            first = next(log.store.read(Query(since=moment), limit=1), None)
            upto = head if first is None else Position(first.position - 1)
            return Cut(upto=upto, said=moment.isoformat(), next=None if first is None else first.position)
    if isinstance(moment, bool) or not isinstance(moment, int) or not START <= moment <= head:
        raise InvalidField(
            f"there is no position {moment}",
            why=f"the log's head is #{head}",
            hint="give a position from 0 to the head, a time, or lamport:N",
            field="as_of",
            head=head,
        )
    return Cut(upto=Position(moment), said=f"#{moment}")


def _version(log: Log, stream: str, number: int) -> Cut:
    if number == 0:
        return Cut(upto=START, said="v0")
    for recorded in log.store.read(Query(stream=stream)) if stream else ():
        if recorded.sequence == number:
            return Cut(upto=recorded.position, said=f"v{number}")
    raise NotFound(
        f"{stream or 'this'} has no version {number}",
        why="a version is the sequence of an event of one stream, and there is none, or it was purged",
        hint=f"everlog log --stream {stream}" if stream else "give a position as #105",
        stream=stream,
    )


def events_to(log: Log, query: Query = EVERYTHING, *, at: Cut, after: Position = START) -> Iterator[Recorded]:
    """The events that a moment has seen."""
    found = log.store.read(query, after=after, upto=at.upto)
    return found if at.lamport is None else (recorded for recorded in found if at.holds(recorded))


class Was(msgspec.Struct, kw_only=True):
    """What a view said at a moment."""

    rows: dict[str, Row]
    parked: dict[str, CausalOrder] = msgspec.field(
        default_factory=dict
    )  # keys that a poison event holds up, and where
    stopped_at: int = 0

    def states(self) -> dict[str, State]:
        return {key: row.state for key, row in self.rows.items()}


def fold_to(
    log: Log, view: View, records: Iterable[Recorded], *, skipped: Collection[int] = (), start: Was | None = None
) -> Was:
    """Fold as the live view does: what cannot be applied stops its key and nothing else.

    `start` is where to go on from, which is changed; for a causal view the records come all at once and from nothing.
    """
    was = start or Was(rows={})
    kept = {key: row_bytes(row) for key, row in was.rows.items()}  # what to go back to when an event fails half-way

    def load(keys: Collection[str]) -> dict[str, Row]:
        return {key: row_of(kept[key]) for key in keys if key in kept}

    taken = iter(in_causal_order(records)) if view.order is Order.CAUSAL else iter(records)
    while not was.stopped_at and (some := list(islice(taken, AT_ONCE))):
        done = fold(
            view,
            was.rows,
            some,
            upcast=log.catalog.upcast,
            upcast_all=log.catalog.upcast_all,
            load=load,
            parked=was.parked,
            skipped=skipped,
        )
        kept.update(kept_rows(view, was.rows, done, load))
        was.parked |= done.parked()
        if done.stopped is not None:
            was.stopped_at = done.stopped.recorded.position
    was.rows = {key: row for key, row in was.rows.items() if row.count}
    return was


def states_at(log: Log, view: View, at: Cut, *, skipped: Collection[int] = ()) -> Was:
    """Every state of a view at a moment, from the events alone."""
    return fold_to(log, view, events_to(log, view.query, at=at), skipped=skipped)


def state_at(
    log: Log,
    view: View,
    key: str,
    at: Cut,
    *,
    sources: Collection[str] | None = None,
    skipped: Collection[int] = (),
) -> Was:
    """The state of one key at a moment. `sources` are the streams that its history lies in, if that is known."""
    return fold_to(log, view, history_of(log, view, key, at, sources=sources), skipped=skipped)


def history_of(log: Log, view: View, key: str, at: Cut, *, sources: Collection[str] | None = None) -> list[Recorded]:
    """The events that a view takes into one key, in its order."""
    if view.by_stream:
        if not key:  # a query for the stream "" would be one for every stream
            return []
        sources = (key,)
    if sources is None:
        records = list(of_key(log, view, key, events_to(log, view.query, at=at)))
    else:
        queries = [msgspec.structs.replace(view.query, stream=stream) for stream in sorted(sources)]
        found = (recorded for query in queries for recorded in events_to(log, query, at=at))
        records = sorted(of_key(log, view, key, found), key=lambda recorded: recorded.position)
    return in_causal_order(records) if view.order is Order.CAUSAL else records


def of_key(log: Log, view: View, key: str, records: Iterable[Recorded]) -> Iterator[Recorded]:
    """Those of some records that a view takes into one key."""
    for recorded in records:
        if view.by_stream:
            yield recorded
            continue
        try:
            mine = view.key(log.catalog.upcast(recorded.event)) == key
        except Exception:  # not even its key can be told: the fold stops there, for this key as for every other
            mine = True
        if mine:
            yield recorded
