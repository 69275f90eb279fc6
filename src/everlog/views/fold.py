"""The one fold: whoever runs a view, live, rebuilding or as of some moment, runs it through here.

    records  ->  upcast  ->  key  ->  apply  ->  rows

What cannot be applied is not lost and not skipped: it comes back as a failure, and the row is as it was before.
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
from everlog.views.rows import CausalOrder, Row, new_row, remember_source, row_bytes, row_of
from everlog.views.view import Order, State, View

AT_ONCE = 1000
"""Events folded between two looks at anything else."""

NOBODY: Mapping[str, CausalOrder] = {}


@dataclass(frozen=True)
class Failure:
    """An event that a view could not take, and why."""

    recorded: Recorded
    key: str | None  # None: not even the key could be told, so that nothing after it may be applied
    reason: str
    trace: str
    error: Exception


_Ready = tuple[str | None, Event, Recorded]
_Smooth = tuple[Sequence[str | None], Sequence[Event], Sequence[Recorded]]


@dataclass
class Folded:
    """What became of some records."""

    changed: set[str] = field(default_factory=set)
    passed: Sequence[int] | None = None  # None: all of `smooth`; see `applied`
    failures: list[Failure] = field(default_factory=list)
    waiting: list[tuple[str, Recorded]] = field(default_factory=list)  # behind a failure of the same key
    late: dict[str, set[str]] = field(default_factory=dict)  # causal: keys that got an event from before what was
    # applied or could not be, with the streams of what came since
    stopped: Failure | None = None
    ready: list[_Ready] = field(default_factory=list)
    smooth: _Smooth | None = None  # where nothing went wrong: `ready` in another form
    again: bool = False  # keys were made again from their history
    pages: int = 0  # how many pages this is about, where several are kept together
    since: float = field(default_factory=time.monotonic)

    @property
    def applied(self) -> Sequence[int]:
        """Positions, in the order in which they came; those that the view leaves out too."""
        if self.passed is None:
            self.passed = [] if self.smooth is None else [recorded.position for recorded in self.smooth[2]]
        return self.passed

    def parked(self) -> dict[str, CausalOrder]:
        """The keys that wait from here on, and the place of what could not be applied."""
        return {failed.key: failed.recorded.event.causal_order for failed in self.failures if failed.key is not None}

    def every(self) -> list[_Ready]:
        """The keys, events and records that this is about."""
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
    """Apply records, in the order in which they come, to rows.

    `upcast_all` does what `upcast` does, for many at once; `load` brings rows that are kept elsewhere; keys in
    `parked` wait behind an event at this causal order, and their events wait too; positions in `skipped` are left out
    because somebody said so.
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
    held = dict(parked)  # keys that get no further, and the place of what could not be applied
    for key, event, recorded in ready:
        if key is None:
            applied.append(recorded.position)
            continue
        row = rows.get(key)
        if key in held:
            if causal and recorded.event.causal_order < held[key]:
                done.late.setdefault(key, set())  # it belongs before what could not be applied
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
    """What `fold` does when nothing goes wrong, which is nearly always, in half the time.

    None if anything did: then the rows that were touched are again as they are kept, and `fold` looks closer.
    """
    try:
        events = upcast_all([recorded.event for recorded in records])
        keys = [event.stream for event in events] if view.by_stream else [*map(view.key, events)]
        touched: set[Any] = set(keys)
    except Exception:  # told by whoever looks closer
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
    except Exception:  # likewise
        for key in touched:
            rows.pop(key, None)
        return None
    return Folded(changed=touched, smooth=(keys, events, records))


def run_of(records: Sequence[Recorded]) -> Sequence[int]:
    """The positions of records that stand upwards: mostly a run without a gap, which need not be spelled out."""
    if records and records[-1].position - records[0].position + 1 == len(records):
        return range(records[0].position, records[-1].position + 1)
    return [recorded.position for recorded in records]


def joined(before: Sequence[int], more: Sequence[int]) -> Sequence[int]:
    """Positions and those after them; two runs that meet stay a run."""
    if not before or not more:
        return before or more
    if isinstance(before, range) and isinstance(more, range) and before.stop == more.start:
        return range(before.start, more.stop)
    found: list[int] = before if isinstance(before, list) else [*before]
    found.extend(more)
    return found


def _apply_with_care(view: View, rows: dict[str, Row], keys: Sequence[str | None], events: Sequence[Event]) -> None:
    """The same for keys that are fed by several streams, or in causal order; a late event is for `fold` itself."""
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
    """An event belongs before what was applied."""


def _with_keys(
    view: View, records: Sequence[Recorded], upcast: Upcast, skipped: Container[int], done: Folded
) -> list[_Ready]:
    """The events with their keys, up to the first of which not even the key can be told."""
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
                # The stream is the key whatever the payload says: so only this key has to wait.
                ready.append((event.stream, _Unreadable(error), recorded))  # type: ignore[arg-type]
                continue
            done.stopped = failure(recorded, None, error)
            return ready
        if key is not None and type(key) is not str:
            wrong = TypeError(f"key() answered {key!r}, which is no text")
            done.stopped = failure(recorded, None, wrong)
            return ready
        ready.append((key, event, recorded))
    return ready


class _Unreadable:
    """An event that could not be brought up to date: whoever looks into it gets the reason."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        raise self._error


def _back_to_before(
    view: View, rows: dict[str, Row], ready: Iterable[_Ready], failed: Failure, load: Load, done: Folded
) -> None:
    """Make the row of a failure again: an `apply` that changes its argument may have left half a change in it."""
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
    """The row as it is kept, or a new one; None if the view cannot even begin one."""
    kept = load([key]).get(key)
    try:
        return kept or new_row(view)
    except Exception:  # already told, as the failure of the key's first event
        return None


def _take(view: View, row: Row, event: Event) -> None:
    row.state = view.apply(row.state, event)
    row.count += 1
    if view.order is Order.CAUSAL:
        row.last = (event.lamport, event.id)
    if row.sources is not None:
        remember_source(row, event.stream)


def kept_rows(view: View, rows: dict[str, Row], done: Folded, load: Load) -> dict[str, bytes]:
    """The changed rows as they are kept. A state that JSON cannot say is the failure of the event that made it."""
    kept: dict[str, bytes] = {}
    for key in sorted(done.changed):
        try:
            kept[key] = row_bytes(rows[key])
        except (NotCanonical, TypeError, ValueError, RecursionError):
            good = _up_to_the_culprit(view, rows, key, done, load)
            if good is not None:
                kept[key] = good
            else:
                done.changed.discard(key)
    return kept


def _up_to_the_culprit(view: View, rows: dict[str, Row], key: str, done: Folded, load: Load) -> bytes | None:
    """Apply a key's events again one by one, up to the one after which the state cannot be kept."""
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
            # What failed on top of a state that cannot be kept may well be in order: it waits, like the rest.
            later += [failed.recorded for failed in done.failures if failed.key == key]
            done.failures[:] = [failed for failed in done.failures if failed.key != key]
            done.failures.append(failure(recorded, key, error))
            done.waiting.extend((key, other) for other in later)
            gone = {recorded.position, *(other.position for other in later)}
            done.passed = [position for position in done.applied if position not in gone]
            break
    if good is not None:
        rows[key] = row_of(good)
    return good


def failure(recorded: Recorded, key: str | None, error: Exception) -> Failure:
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    trace = "; ".join(f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno} in {frame.name}" for frame in frames)
    return Failure(recorded, key, f"{type(error).__name__}: {error}"[:2000], trace, error)


def fold_all(view: View, records: Iterable[Recorded], *, upcast: Upcast = as_it_is) -> dict[str, State]:
    """The states of a view from nothing, in memory: the measure that every other way is compared with.

    For a causal view the records may come in any order and twice; for others they come in order of position. The
    first event that cannot be applied is raised as it failed.
    """
    return {key: row.state for key, row in fold_rows(view, records, upcast=upcast).items()}


def fold_rows(view: View, records: Iterable[Recorded], *, upcast: Upcast = as_it_is) -> dict[str, Row]:
    """The same, as rows."""
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
    """The records in the order that is the same on every node, each once."""
    once = {recorded.event.id: recorded for recorded in records}
    return sorted(once.values(), key=lambda recorded: recorded.event.causal_order)
