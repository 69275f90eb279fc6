"""Expectations: what an append requires of the log, checked in its own transaction (G4).

The transitions that the catalog allows for a type are checked in the same place.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.catalog.transitions import Transitions
from everlog.core.event import START, Event, Position, imported_order
from everlog.core.query import Query
from everlog.errors import InvalidField, QueryMatched, WrongSequence
from everlog.stores.open_write import OpenWrite

if TYPE_CHECKING:
    from everlog.log.write.draft import Draft, Prepared


class Expect(Enum):
    """Expectations without a number."""

    ANY = "any"
    NONE = "none"  # the stream never had an event; one that was purged had
    EXISTS = "exists"


class NoMatch(msgspec.Struct, frozen=True):
    """No event that matches `query`, or one of `also`, was recorded after the position at which it was decided."""

    query: Query
    after: Position = START
    also: tuple[Query, ...] = ()


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
    if expectation.after > writer.head():
        raise InvalidField(
            f"the append expects nothing after position {expectation.after}, the log is at {writer.head()}",
            why="a decision cannot have been based on what is not there yet",
            hint="expect the head at which the log was read",
            field="expect",
        )
    for query in (expectation.query, *expectation.also):
        for found in writer.read(query, after=expectation.after, limit=1):
            raise QueryMatched(
                f"position {found.position} has a {found.event.type}, and the append expected no such event",
                why=f"it was recorded after position {expectation.after}, on which the decision was based",
                hint=f"check whether that event changes your decision, then retry: everlog show {found.position}",
                position=found.position,
                id=found.event.id,
            )


def has_expectations(prepared: Sequence[Prepared], catalog: Catalog) -> bool:
    """Return False if the request may be recorded in any state of the log. Most requests may."""
    ruled = catalog.ruled
    for item in prepared:  # noqa: SIM110 - any() of a generator would double the cost
        if item.draft.expect is not Expect.ANY or item.draft.type in ruled:
            return True
    return False


def require_expectations(writer: OpenWrite, prepared: Sequence[Prepared], catalog: Catalog) -> None:
    """Refuse the request if an expectation does not hold. Earlier drafts of the batch count as recorded."""
    staged: dict[str, int] = {}
    states: dict[tuple[str, str], str] = {}
    for item in prepared:
        draft = item.draft
        if draft.expect is not Expect.ANY:
            sequence = writer.sequence(draft.stream) + staged.get(draft.stream, 0)
            require(draft.expect, draft.stream, sequence, writer)
        staged[draft.stream] = staged.get(draft.stream, 0) + 1
        rule = catalog.transition_rule(draft.stream.partition("/")[0], draft.type)
        if rule is not None:
            subject = (draft.stream, draft.type)
            current = states[subject] if subject in states else _current_state(writer, draft, rule, catalog)
            requested = str(item.payload[rule.field])
            rule.check(draft.stream, current, requested)
            states[subject] = requested


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
