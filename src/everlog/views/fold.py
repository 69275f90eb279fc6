"""The one fold: a live view, a rebuild and a view as of a moment all run this code.

    records  ->  upcast  ->  key  ->  apply  ->  rows

An event that cannot be applied is neither lost nor skipped: it is returned as a failure, and the row is as before.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Any

from everlog.core.event import Event, Recorded
from everlog.core.query import EVERYTHING
from everlog.errors import NotCanonical
from everlog.views.builds.rows import CausalOrder, Row, new_row, remember_source, row_bytes, row_of
from everlog.views.view import Order, State, View

AT_ONCE = 1000
"""Events that are folded at once."""

NOBODY: Mapping[str, CausalOrder] = {}


@dataclass(frozen=True)
class Failure:
    """An event that a view could not apply, and why."""

    recorded: Recorded
    key: str | None  # None: its key could not be determined, so nothing after it may be applied
    reason: str
    trace: str
    error: Exception


_Ready = tuple[str | None, Event, Recorded]
_Smooth = tuple[Sequence[str | None], Sequence[Event], Sequence[Recorded]]


@dataclass
class Folded:
    """The result of folding some records."""

    changed: set[str] = field(default_factory=set)
    passed: Sequence[int] | None = None  # None: all of `smooth`; see `applied`
    failures: list[Failure] = field(default_factory=list)
    waiting: list[tuple[str, Recorded]] = field(default_factory=list)  # behind a failure of the same key
    late: dict[str, set[str]] = field(default_factory=dict)  # causal: keys with an event that belongs before one
    # that was applied or failed, with the streams of the events since
    stopped: Failure | None = None
    ready: list[_Ready] = field(default_factory=list)
    smooth: _Smooth | None = None  # if nothing went wrong: `ready` in another form
    again: bool = False  # keys were folded again from their history
    pages: int = 0  # the number of pages, if several are kept together
    since: float = field(default_factory=time.monotonic)

    @property
    def applied(self) -> Sequence[int]:
        """The positions in the order of the records, including those that the view leaves out."""
        if self.passed is None:
            self.passed = [] if self.smooth is None else [recorded.position for recorded in self.smooth[2]]
        return self.passed

    def parked(self) -> dict[str, CausalOrder]:
        """Return the keys that wait from now on, with the causal order of the event that failed."""
        return {failed.key: failed.recorded.event.causal_order for failed in self.failures if failed.key is not None}

    def every(self) -> list[_Ready]:
        """Return the keys, events and records that were folded."""
        if self.smooth is None:
            return self.ready
        return list(zip(*self.smooth, strict=True))


Upcast = Callable[[Event], Event]
UpcastAll = Callable[[list[Event]], list[Event]]
Load = Callable[[Collection[str]], Mapping[str, Row]]


def as_it_is(event: Event) -> Event:
    return event


def nothing_kept(keys: Collection[str]) -> Mapping[str, Row]:
    return {}


def fold(
    view: View,
    rows: dict[str, Row],
    records: Sequence[Recorded],
    *,
    upcast: Upcast = as_it_is,
    upcast_all: UpcastAll | None = None,
    load: Load = nothing_kept,
    parked: Mapping[str, CausalOrder] = NOBODY,
    skipped: Container[int] = (),
) -> Folded:
    """Apply records to rows, in the given order.

    `upcast_all` is `upcast` for many events at once. `load` returns stored rows. Keys in `parked` wait behind an
    event with this causal order, and their events wait too. Positions in `skipped` are left out.
    """
    if not parked and not skipped:
        smooth = _all_at_once(view, rows, records, upcast_all or (lambda events: [*map(upcast, events)]), load)
        if smooth is not None:
            return smooth
    done = Folded()
    ready = done.ready = _with_keys(view, records, upcast, skipped, done)
    missing = {key for key, _, _ in ready if key is not None and key not in rows}
    if missing:
        rows.update(load(missing))
    causal = view.order is Order.CAUSAL
    with_sources = not view.by_stream
    apply, initial, changed = view.apply, view.initial, done.changed
    applied = done.passed = list[int]()
    held = dict(parked)  # keys that wait, with the causal order of the event that failed
    for key, event, recorded in ready:
        if key is None:
            applied.append(recorded.position)
            continue
        row = rows.get(key)
        if key in held:
            if causal and recorded.event.causal_order < held[key]:
                done.late.setdefault(key, set())  # it belongs before the event that failed
            if key in done.late:
                done.late[key].add(recorded.event.stream)
            else:
                done.waiting.append((key, recorded))
            continue
        try:
            if row is None:
                row = rows[key] = Row(initial(), sources=set() if with_sources else None)
            if causal:
                order = (event.lamport, event.id)
                if order <= row.last:
                    done.late[key] = {event.stream}
                    held[key] = order
                    continue
                row.state = apply(row.state, event)
                row.last = order
            else:
                row.state = apply(row.state, event)
        except Exception as error:
            held[key] = recorded.event.causal_order
            done.failures.append(failure(recorded, key, error))
            continue
        row.count += 1
        if with_sources and row.sources is not None and event.stream not in row.sources:
            remember_source(row, event.stream)
        changed.add(key)
        applied.append(recorded.position)
    for failed in done.failures:
        _back_to_before(view, rows, ready, failed, load, done)
    return done


def _all_at_once(
    view: View, rows: dict[str, Row], records: Sequence[Recorded], upcast_all: UpcastAll, load: Load
) -> Folded | None:
    """Do what `fold` does if nothing goes wrong, which is nearly always, in half the time.

    Return None if anything went wrong: then the touched rows are removed, and `fold` goes event by event.
    """
    try:
        events = upcast_all([recorded.event for recorded in records])
        keys = [event.stream for event in events] if view.by_stream else [*map(view.key, events)]
        touched: set[Any] = set(keys)
    except Exception:  # `fold` reports which event failed
        return None
    if not view.by_stream:
        touched.discard(None)
        if not all(type(key) is str for key in touched):
            return None
    missing = touched - rows.keys()
    try:
        if missing:
            rows.update(load(missing))
            for key in missing - rows.keys():
                rows[key] = new_row(view)
        if view.order is Order.CAUSAL or not view.by_stream:
            _apply_with_care(view, rows, keys, events)
        else:
            apply = view.apply
            for event in events:
                row = rows[event.stream]
                row.state = apply(row.state, event)
                row.count += 1
    except Exception:  # `fold` reports it
        for key in touched:
            rows.pop(key, None)
        return None
    return Folded(changed=touched, smooth=(keys, events, records))


def run_of(records: Sequence[Recorded]) -> Sequence[int]:
    """Return the positions of records in ascending order, as a range if there is no gap."""
    if records and records[-1].position - records[0].position + 1 == len(records):
        return range(records[0].position, records[-1].position + 1)
    return [recorded.position for recorded in records]


def joined(before: Sequence[int], more: Sequence[int]) -> Sequence[int]:
    """Return positions and those after them; two ranges that meet stay a range."""
    if not before or not more:
        return before or more
    if isinstance(before, range) and isinstance(more, range) and before.stop == more.start:
        return range(before.start, more.stop)
    found: list[int] = before if isinstance(before, list) else [*before]
    found.extend(more)
    return found


def _apply_with_care(view: View, rows: dict[str, Row], keys: Sequence[str | None], events: Sequence[Event]) -> None:
    """Apply events to keys with several source streams, or in causal order; a late event is left to `fold`."""
    apply, causal, with_sources = view.apply, view.order is Order.CAUSAL, not view.by_stream
    for key, event in zip(keys, events, strict=True):
        if key is None:
            continue
        row = rows[key]
        if causal:
            order = (event.lamport, event.id)
            if order <= row.last:
                raise _Late
            row.last = order
        row.state = apply(row.state, event)
        row.count += 1
        if with_sources and row.sources is not None and event.stream not in row.sources:
            remember_source(row, event.stream)


class _Late(Exception):
    """An event belongs before one that was applied."""


def _with_keys(
    view: View, records: Sequence[Recorded], upcast: Upcast, skipped: Container[int], done: Folded
) -> list[_Ready]:
    """Return the events with their keys, up to the first event whose key cannot be determined."""
    key_of, by_stream = view.key, view.by_stream
    ready: list[_Ready] = []
    for recorded in records:
        event = recorded.event
        if skipped and recorded.position in skipped:
            continue
        try:
            event = upcast(event)
            key = event.stream if by_stream else key_of(event)
        except Exception as error:
            if by_stream:
                # The stream is the key, whatever the payload is: only this key has to wait.
                ready.append((event.stream, _Unreadable(error), recorded))  # type: ignore[arg-type]
                continue
            done.stopped = failure(recorded, None, error)
            return ready
        if key is not None and type(key) is not str:
            wrong = TypeError(f"key() returned {key!r}, which is not a str")
            done.stopped = failure(recorded, None, wrong)
            return ready
        ready.append((key, event, recorded))
    return ready


class _Unreadable:
    """An event that could not be upcast: any use of it raises the reason."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        raise self._error


def _back_to_before(
    view: View, rows: dict[str, Row], ready: Iterable[_Ready], failed: Failure, load: Load, done: Folded
) -> None:
    """Fold the row of a failure again: an `apply` that changes its argument may have left half a change in it."""
    key = failed.key
    assert key is not None
    row = _row_before(view, key, load)
    rows.pop(key, None)
    before = takewhile(lambda item: item[2] is not failed.recorded, ready)
    earlier = [event for other, event, _ in before if other == key]
    for event in earlier:
        assert row is not None
        _take(view, row, event)
    if row is not None and row.count:
        rows[key] = row
    if not earlier:
        done.changed.discard(key)


def _row_before(view: View, key: str, load: Load) -> Row | None:
    """Return the row as it is stored, or a new one; None if `initial` fails."""
    kept = load([key]).get(key)
    try:
        return kept or new_row(view)
    except Exception:  # already reported as the failure of the key's first event
        return None


def _take(view: View, row: Row, event: Event) -> None:
    row.state = view.apply(row.state, event)
    row.count += 1
    if view.order is Order.CAUSAL:
        row.last = (event.lamport, event.id)
    if row.sources is not None:
        remember_source(row, event.stream)


def kept_rows(view: View, rows: dict[str, Row], done: Folded, load: Load) -> dict[str, bytes]:
    """Return the bytes of the changed rows. If JSON cannot express a state, the event that made it has failed."""
    kept: dict[str, bytes] = {}
    for key in sorted(done.changed):
        try:
            kept[key] = row_bytes(rows[key])
        except (NotCanonical, TypeError, ValueError, RecursionError):
            good = _up_to_the_failure(view, rows, key, done, load)
            if good is not None:
                kept[key] = good
            else:
                done.changed.discard(key)
    return kept


def _up_to_the_failure(view: View, rows: dict[str, Row], key: str, done: Folded, load: Load) -> bytes | None:
    """Apply a key's events again one by one, up to the one after which the state cannot be stored."""
    row = _row_before(view, key, load)
    rows.pop(key, None)
    mine = [(event, recorded) for other, event, recorded in done.every() if other == key]
    applied = set(done.applied)
    good: bytes | None = None
    for place, (event, recorded) in enumerate(mine):
        if recorded.position not in applied:
            continue
        try:
            assert row is not None
            _take(view, row, event)
            good = row_bytes(row)
        except Exception as error:
            later = [other for _, other in mine[place + 1 :] if other.position in applied]
            # An event that failed on a state that cannot be stored may be valid: it waits, like the rest.
            later += [failed.recorded for failed in done.failures if failed.key == key]
            done.failures[:] = [failed for failed in done.failures if failed.key != key]
            done.failures.append(failure(recorded, key, error))
            done.waiting.extend((key, other) for other in later)
            gone = {recorded.position, *(other.position for other in later)}
            done.passed = [position for position in done.applied if position not in gone]
            break
    if good is not None:
        rows[key] = row_of(good)
    else:
        rows.update(load([key]))  # it stays as it is stored
    return good


def failure(recorded: Recorded, key: str | None, error: Exception) -> Failure:
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    trace = "; ".join(f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno} in {frame.name}" for frame in frames)
    return Failure(recorded, key, f"{type(error).__name__}: {error}"[:2000], trace, error)


def fold_all(view: View, records: Iterable[Recorded], *, upcast: Upcast = as_it_is) -> dict[str, State]:
    """Return the states of a view from the beginning, in memory: the reference for every other way to run it.

    For a causal view the records may come in any order and twice; for others they come in order of position. The
    error of the first event that cannot be applied is raised.
    """
    return {key: row.state for key, row in fold_rows(view, records, upcast=upcast).items()}


def fold_rows(view: View, records: Iterable[Recorded], *, upcast: Upcast = as_it_is) -> dict[str, Row]:
    """Return the same as rows."""
    rows: dict[str, Row] = {}
    query = view.query
    matching = iter(records) if query == EVERYTHING else (one for one in records if query.matches(one))
    taken = iter(in_causal_order(matching)) if view.order is Order.CAUSAL else matching
    while some := list(islice(taken, AT_ONCE)):
        done = fold(view, rows, some, upcast=upcast)
        for failed in (done.stopped, *done.failures):
            if failed is not None:
                raise failed.error
    return rows


def in_causal_order(records: Iterable[Recorded]) -> list[Recorded]:
    """Return the records in the order that is the same on every node, each once."""
    once = {recorded.event.id: recorded for recorded in records}
    return sorted(once.values(), key=lambda recorded: recorded.event.causal_order)
