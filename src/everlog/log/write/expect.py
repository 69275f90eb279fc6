"""Expectations: what an append requires of the log, checked in its own transaction (G4).

The transitions that the catalog allows for a type are checked in the same place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.catalog.transitions import Transitions
from everlog.core.event import START, Event, Position, Recorded, imported_order, moment
from everlog.core.ids import EventId
from everlog.core.query import Query
from everlog.errors import InvalidField, QueryMatched, WrongSequence
from everlog.log.read.resets import concerns
from everlog.stores.open_write import OpenWrite

if TYPE_CHECKING:
    from everlog.log.write.draft import Draft, PreparedDraft


class Expect(Enum):
    """Expectations without a number."""

    ANY = "any"
    NONE = "none"  # the stream never had an event; one that was purged had
    EXISTS = "exists"


class NoMatch(msgspec.Struct, frozen=True):
    """No event that matches `query`, or one of `also`, was recorded after the position at which it was decided.
    Earlier drafts of the same batch count as recorded.

    Nor was one purged since, unless nothing was read (`after` is the start). With an `epoch`, the log must still have
    the history that was read: no other branch was checked out, and no backup was restored.
    """

    query: Query
    after: Position = START
    also: tuple[Query, ...] = ()
    epoch: str = ""


Expectation = Expect | NoMatch | int
"""A number is the exact sequence at which the stream must be."""


def require(expectation: Expectation, stream: str, sequence: int, writer: OpenWrite) -> None:
    """Refuse an append whose expectation does not hold. `sequence` counts what this batch staged before it."""
    match expectation:
        case Expect.ANY:
            return
        case Expect.NONE:
            if sequence != 0:
                raise WrongSequence(stream, expected="none yet", actual=sequence)
        case Expect.EXISTS:
            if sequence == 0:
                raise WrongSequence(stream, expected="at least one event", actual=sequence)
        case NoMatch():
            _require_no_match(expectation, writer)
        case int() if not isinstance(expectation, bool):
            if expectation < 0:
                raise InvalidField(
                    f"the expected sequence is {expectation}",
                    why="sequences start at 1, and 0 means that the stream has no events",
                    hint="expect the sequence of the last event that the decision was based on",
                    field="expect",
                )
            if sequence != expectation:
                raise WrongSequence(stream, expected=str(expectation), actual=sequence)
        case _:
            # Reached only past the type checker; an expectation that is not understood must not count as met.
            raise InvalidField(
                f"the expectation is {expectation!r:.60}",
                why="an append expects Expect.ANY, NONE, EXISTS, a sequence or a NoMatch",
                hint="expect the sequence of the last event that the decision was based on",
                field="expect",
            )


def _require_no_match(expectation: NoMatch, writer: OpenWrite) -> None:
    require_read(expectation, writer.head())
    queries = (expectation.query, *expectation.also)
    change = find_change(writer, queries, after=expectation.after, epoch=expectation.epoch)
    if change is not None:
        raise QueryMatched(change.what, why=change.why, hint=change.hint, **change.details)


def require_read(expectation: NoMatch, head: Position) -> None:
    """Refuse the expectation of a caller that has read further than the log goes that it sees."""
    if expectation.after <= head:
        return
    if not expectation.epoch:
        raise InvalidField(
            f"the append expects nothing after position {expectation.after}, the log is at {head}",
            why="a decision cannot have been based on what is not there yet",
            hint="expect the head at which the log was read",
            field="expect",
        )
    raise QueryMatched(_OTHER_HISTORY.what, why=_OTHER_HISTORY.why, hint=_OTHER_HISTORY.hint)


class Change(NamedTuple):
    """What happened to a history after a decision had read it."""

    what: str
    why: str
    hint: str
    details: dict[str, Any]


_OTHER_HISTORY = Change(
    "the log has another history than the one that was read",
    why="another branch was checked out, or a backup was restored, after the decision was made",
    hint="read the log again, check whether your decision is still right, then retry",
    details={},
)


def find_change(writer: OpenWrite, queries: Sequence[Query], *, after: Position, epoch: str) -> Change | None:
    """Return a change of what matches the queries since it was read up to `after`, if there is one.

    Something was added, something was purged, or the log has another history now.
    """
    head = writer.head()
    if after > head or (epoch and epoch != writer.epoch):
        return _OTHER_HISTORY
    for query in queries:
        for found in writer.read(query, after=after, limit=1):
            return Change(
                f"position {found.position} has a {found.event.type}, and the append expected no such event",
                why=f"it was recorded after position {after}, on which the decision was based",
                hint=f"check whether that event changes your decision, then retry: everlog show {found.position}",
                details={"position": found.position, "id": found.event.id},
            )
    if START < after < head:  # a purge takes a position, too; at the start nothing was read
        for purge in writer.purges(after=after):
            if any(concerns(purge, query) for query in queries):
                return Change(
                    f"the purge at position {purge.reserved} removed events that the decision may be based on",
                    why=f"it came after position {after}, up to which the log was read",
                    hint="check whether your decision is still right, then retry: everlog log --purges",
                    details={"position": purge.reserved},
                )
    return None


def has_expectations(drafts: Sequence[Draft], catalog: Catalog) -> bool:
    """Return False if the request may be recorded in any state of the log. Most requests may."""
    ruled = catalog.ruled
    for draft in drafts:  # noqa: SIM110 - any() of a generator would double the cost
        if draft.expect is not Expect.ANY or draft.type in ruled:
            return True
    return False


def require_expectations(writer: OpenWrite, prepared: Iterable[PreparedDraft], catalog: Catalog) -> None:
    """Refuse the request if an expectation does not hold. Earlier drafts of the batch count as recorded."""
    earlier = _Earlier(writer.now_us)
    states: dict[tuple[str, str], str] = {}
    for item in prepared:
        draft = item.draft
        if draft.expect is not Expect.ANY:
            sequence = writer.sequence(draft.stream) + earlier.count(draft.stream)
            require(draft.expect, draft.stream, sequence, writer)
            if isinstance(draft.expect, NoMatch):
                earlier.refuse_match(draft.expect)
        earlier.add(item)
        rule = catalog.transition_rule(draft.stream.partition("/")[0], draft.type)
        if rule is not None:
            subject = (draft.stream, draft.type)
            current = states[subject] if subject in states else _current_state(writer, draft, rule, catalog)
            requested = str(item.payload[rule.field])
            rule.check(draft.stream, current, requested)
            states[subject] = requested


class _Earlier:
    """The drafts of a batch that come before one of them."""

    def __init__(self, now_us: int) -> None:
        self._now_us = now_us
        self._drafts: dict[str, list[PreparedDraft]] = {"": []}  # by stream, and all of them under ""
        self._compared: dict[Query, int] = {}  # how many a query did not match: a large batch repeats its queries

    def add(self, item: PreparedDraft) -> None:
        self._drafts[""].append(item)
        self._drafts.setdefault(item.draft.stream, []).append(item)

    def count(self, stream: str) -> int:
        return len(self._drafts.get(stream, ()))

    def refuse_match(self, expectation: NoMatch) -> None:
        for query in (expectation.query, *expectation.also):
            drafts = self._drafts.get(query.stream, [])
            for index in range(self._compared.get(query, 0), len(drafts)):
                if query.matches(self._as_recorded(drafts[index])):
                    raise QueryMatched(
                        f"an earlier draft of the batch is a {drafts[index].draft.type}, and the append expected no"
                        " such event",
                        why="earlier drafts of a batch count as recorded",
                        hint="give the expectation to the first draft only, or leave out the draft that matches",
                    )
            self._compared[query] = len(drafts)

    def _as_recorded(self, item: PreparedDraft) -> Recorded:
        """Return the draft as a query sees it. What no query asks for is empty."""
        draft, at = item.draft, moment(self._now_us)
        event = Event(
            id=EventId(""),
            type=draft.type,
            version=item.version,
            stream=draft.stream,
            lamport=0,
            origin="",
            origin_seq=0,
            occurred_at=draft.occurred_at or at,
            actor=item.actor,
            scope=draft.scope,
            request_id=draft.request_id,
            causation_id=draft.causation_id,
            correlation_id=draft.correlation_id,
            idempotency_key="",
            tags=draft.tags,
            commitment=item.commitment,
            previous=b"",
        )
        return Recorded(START, 0, self._now_us, event)


def _current_state(writer: OpenWrite, draft: Draft, rule: Transitions, catalog: Catalog) -> str:
    query = Query(stream=draft.stream, types=frozenset([draft.type]))
    if not rule.causal:
        for last in writer.read(query, limit=1, newest_first=True):
            return _state_after(last.event, rule, catalog)
        return rule.initial
    every = [recorded.event for recorded in writer.read(query)]
    if every:
        return _state_after(max(every, key=_real_and_late), rule, catalog)
    if rule.also:
        imported = writer.read(Query(stream=draft.stream, types=frozenset(rule.also)))
        last_one = max((recorded.event for recorded in imported), key=imported_order, default=None)
        if last_one is not None:
            return str(last_one.payload.get(rule.also[last_one.type]) or rule.initial)
    return rule.initial


def _real_and_late(event: Event) -> tuple[bool, tuple[int, str]]:
    """Sort migrated events first: their clocks are made up, so they count only if there are no others."""
    return (event.tags.get("migrated") != "true", event.causal_order)


def _state_after(event: Event, rule: Transitions, catalog: Catalog) -> str:
    return str(catalog.upcast(event).payload.get(rule.field) or rule.initial)
