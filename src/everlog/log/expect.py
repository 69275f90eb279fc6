"""What an append may demand of the log before it is written, checked in the append's own transaction (G4)."""

from __future__ import annotations

from enum import Enum

import msgspec

from everlog.core.event import START, Position
from everlog.core.query import Query
from everlog.errors import InvalidField, QueryMatched, WrongSequence
from everlog.stores.contract import Writer


class Expect(Enum):
    """Demands without a number."""

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


def require(expectation: Expectation, stream: str, sequence: int, writer: Writer) -> None:
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
            # Reached only past the type checker; a demand that is not understood must not count as met.
            raise InvalidField(
                f"the expectation is {expectation!r:.60}",
                why="an append expects Expect.ANY, NONE, EXISTS, a sequence or a NoMatch",
                hint="expect the sequence of the last event that the decision was based on",
                field="expect",
            )


def _require_no_match(expectation: NoMatch, writer: Writer) -> None:
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
                f"position {found.position} holds a {found.event.type} that the append expected not to be there",
                why=f"it was recorded after position {expectation.after}, on which the decision was based",
                hint=f"look at it and decide anew: everlog show {found.position}",
                position=found.position,
                id=found.event.id,
            )
