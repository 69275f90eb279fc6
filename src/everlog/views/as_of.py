"""A stream or view as it was: after a position, at a time, at a value of the Lamport clock, at a version; and why.

    105              after the event at position 105
    a datetime       before the first event that arrived at that time or later; `Cut.next` is its position
    Lamport(41)      after every event whose Lamport value is 41 or less: the same on every node
    Version(3)       after the third event of the stream

A time means arrival in this log (`received_at`): what `state --as-of T` includes and what `log --since T` lists meet
without a gap and without an overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from everlog.core.canonical import canonical
from everlog.core.differences import value_at
from everlog.core.event import START, Position, Recorded
from everlog.core.query import EVERYTHING, Query, in_scope, narrowed
from everlog.core.text import PathParts
from everlog.errors import InvalidField, NotFound
from everlog.log.read.causes import causes_of
from everlog.log.read.own_events import OwnEvents
from everlog.views.builds.rows import CausalOrder, Row, row_bytes, row_of
from everlog.views.fold import AT_ONCE, fold, in_causal_order, kept_rows
from everlog.views.view import Order, State, View

if TYPE_CHECKING:
    from everlog.log.log import Log


class Lamport(msgspec.Struct, frozen=True):
    value: int


class Version(msgspec.Struct, frozen=True):
    """An event of one stream, by its sequence."""

    number: int


Moment = int | datetime | Lamport | Version


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """A moment in a log: the events up to it."""

    upto: Position
    lamport: int | None = None
    label: str = ""  # how people write it
    next: Position | None = None  # the first event after it, if the moment is a time
    within: str = ""  # a scope: events outside of it do not exist

    def holds(self, recorded: Recorded) -> bool:
        return recorded.position <= self.upto and (self.lamport is None or recorded.event.lamport <= self.lamport)


def head_within(log: Log, within: str) -> Position:
    """Return the head of the log, or for a scope the newest position in it, which nobody else moves."""
    return OwnEvents(log.stored, within).head() if within else log.head()


def cut(log: Log, moment: Moment | None, *, stream: str = "", within: str = "") -> Cut:
    """Return the moment as a position in a log; None is now. A version needs its stream.

    With `within`, the log is the events in that scope: its head is the newest of them.
    """
    head = head_within(log, within)
    match moment:
        case None:
            return Cut(upto=head, label=f"#{head}", within=within)
        case Lamport(value):
            return Cut(upto=head, lamport=value, label=f"lamport:{value}", within=within)
        case Version(number):
            return _version(log, stream, number, within)
        case datetime():
            if moment.tzinfo is None:
                raise InvalidField(
                    f"{moment} has no time zone",
                    hint="write datetime(…, tzinfo=UTC)",
                    field="as_of",
                    why="without one the moment is ambiguous",
                )
            first = next(log.stored.read(Query(since=moment, scope=within), limit=1), None)
            upto = head if first is None else Position(first.position - 1)
            next_one = None if first is None else first.position
            return Cut(upto=upto, label=moment.isoformat(), next=next_one, within=within)
    if isinstance(moment, bool) or not isinstance(moment, int) or not START <= moment <= head:
        raise InvalidField(
            f"there is no position {moment}",
            why=f"the log's head is #{head}",
            hint="give a position from 0 to the head, a time, or lamport:N",
            field="as_of",
            head=head,
        )
    return Cut(upto=Position(moment), label=f"#{moment}", within=within)


def _version(log: Log, stream: str, number: int, within: str) -> Cut:
    if number == 0:
        return Cut(upto=START, label="v0", within=within)
    for recorded in log.stored.read(Query(stream=stream, scope=within)) if stream else ():
        if recorded.sequence == number:
            return Cut(upto=recorded.position, label=f"v{number}", within=within)
    raise NotFound(
        f"{stream or 'this'} has no version {number}",
        why="a version is the sequence of an event of one stream; there is no such event, or it was purged",
        hint=f"everlog log --stream {stream}" if stream else "give a position as #105",
        stream=stream,
    )


def events_to(log: Log, query: Query = EVERYTHING, *, at: Cut, after: Position = START) -> Iterator[Recorded]:
    """Return the events up to a moment."""
    own = narrowed(query, at.within)
    found = log.counted(log.stored.read(own, after=after, upto=at.upto) if own is not None else iter(()))
    return found if at.lamport is None else (recorded for recorded in found if at.holds(recorded))


class Was(msgspec.Struct, kw_only=True):
    """The rows of a view at a moment."""

    rows: dict[str, Row]
    parked: dict[str, CausalOrder] = msgspec.field(
        default_factory=dict
    )  # keys that wait behind an event that failed, and its causal order
    stopped_at: int = 0

    def states(self) -> dict[str, State]:
        return {key: row.state for key, row in self.rows.items()}


def fold_to(
    log: Log, view: View, records: Iterable[Recorded], *, skipped: Collection[int] = (), start: Was | None = None
) -> Was:
    """Fold as the live view does: an event that cannot be applied stops its key and nothing else.

    `start` is where to continue, and is changed. For a causal view the records come all at once, from the beginning.
    """
    was = start or Was(rows={})
    kept = {key: row_bytes(row) for key, row in was.rows.items()}  # to return to when an event fails half-way

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
    """Return every state of a view at a moment, from the events alone."""
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
    """Return the state of one key at a moment. `sources` are the streams with its history, if they are known."""
    return fold_to(log, view, history_of(log, view, key, at, sources=sources), skipped=skipped)


def history_of(log: Log, view: View, key: str, at: Cut, *, sources: Collection[str] | None = None) -> list[Recorded]:
    """Return the events that a view applies to one key, in its order."""
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
    """Yield those of some records that a view applies to one key."""
    for recorded in records:
        if view.by_stream:
            yield recorded
            continue
        try:
            mine = view.key(log.catalog.upcast(recorded.event)) == key
        except Exception:  # its key cannot be determined: the fold stops there, for every key
            mine = True
        if mine:
            yield recorded


# ---- why a value is what it is


class Made(msgspec.Struct, frozen=True):
    """An event that changed a value: the value before, the value after, and what caused the event."""

    recorded: Recorded
    was: Any  # UNSET: there was none
    now: Any  # UNSET: it was removed
    causes: tuple[Recorded, ...] = ()  # its cause, the cause of that, and so on
    unknown: str = ""  # an id at the end of that chain that is not in this log


def why(
    log: Log,
    view: View,
    key: str,
    parts: PathParts,
    at: Cut,
    *,
    skipped: Collection[int] = (),
    limit: int | None = None,
) -> list[Made]:
    """Return the events that changed the value at a path of a key's state, newest first."""
    changed = []
    before: Any = msgspec.UNSET
    was = Was(rows={})
    for recorded in history_of(log, view, key, at):
        fold_to(log, view, [recorded], skipped=skipped, start=was)
        if key in was.parked or was.stopped_at:
            break
        row = was.rows.get(key)
        now = msgspec.UNSET if row is None else _copied(value_at(row.state, parts))
        if _text(now) != _text(before):
            changed.append((recorded, before, now))
        before = now
    newest = changed[::-1][:limit]
    get = getter_within(log, at.within)
    return [Made(recorded, was, now, *causes_of(get, recorded)) for recorded, was, now in newest]


def getter_within(log: Log, within: str) -> Callable[[str | int], Recorded | None]:
    """Return `Log.get` for a caller for which nothing exists outside of a scope."""

    def get(event: str | int) -> Recorded | None:
        found = log.get(event)
        return found if found is not None and in_scope(found.event.scope, within) else None

    return get if within else log.get


def _copied(value: Any) -> Any:
    """Return a copy: a view may change its state in place."""
    return value if value is msgspec.UNSET else msgspec.json.decode(canonical(value))


def _text(value: Any) -> bytes | None:
    return None if value is msgspec.UNSET else canonical(value)
