"""Fields and answers that several operations of the log share."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from everlog.application.events.parse_time import parse_moment
from everlog.core.event import Recorded
from everlog.core.query import Query
from everlog.errors import InvalidField
from everlog.views.as_of import Cut, Moment
from everlog.wire.messages import record_bytes

LIMIT_MAX = 10_000

StreamName = Annotated[str, Meta(description="The stream, KIND/ID.", min_length=1, max_length=500)]
ViewName = Annotated[str, Meta(description="The name of a view.", min_length=1, max_length=100)]
GroupName = Annotated[str, Meta(description="The name of a group of consumers.", min_length=1, max_length=64)]
MemberName = Annotated[
    str, Meta(description="The name of a consumer, unique in its group.", min_length=1, max_length=64)
]
AsOf = Annotated[
    str,
    Meta(
        description="The moment: position:105, a time such as 2026-11-01T10:00Z, 10m (ago), lamport:41, or v3 for the"
        " third event of a stream. Empty is now.",
        max_length=100,
    ),
]
Limit = Annotated[int, Meta(description="At most this many.", ge=1, le=LIMIT_MAX)]
Names = Annotated[
    tuple[str, ...], Meta(description="The names of views; none means all that have been run.", max_length=100)
]


RECORD_SCHEMA = "#/components/schemas/RecordObject"
Record = Annotated[dict[str, Any], Meta(extra_json_schema={"$ref": RECORD_SCHEMA})]
"""A record as JSON; its schema is that of RecordObject."""


def record_of(recorded: Recorded) -> Record:
    """Return a record as every answer has it: with the same bytes, whether it was recorded now or read."""
    found: Record = msgspec.json.decode(record_bytes(recorded))
    return found


class CutObject(msgspec.Struct, frozen=True, kw_only=True):
    """A moment of the log: the text for it, the last position that it includes, and the first event after it."""

    as_of: str
    position: int
    lamport: int | None
    next: int | None

    @classmethod
    def of(cls, at: Cut) -> CutObject:
        return cls(as_of=at.label, position=at.upto, lamport=at.lamport, next=at.next)


def moment_of(text: str, field: str = "as_of") -> Moment | None:
    """Return the moment that a text names; None is now."""
    if not text:
        return None
    try:
        return parse_moment(text)
    except InvalidField as error:
        raise InvalidField(error.what, why=error.why, hint=error.hint, field=field) from error


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of events, as fields of an operation. Every part that is given must match."""

    type: Annotated[tuple[str, ...], Meta(description="An event type; may be repeated.", max_length=100)] = ()
    stream: Annotated[str, Meta(description="Only this stream, KIND/ID.", max_length=500)] = ""
    kind: Annotated[str, Meta(description="Only streams of this kind.", max_length=200)] = ""
    scope: Annotated[str, Meta(description="Only this scope and those below it.", max_length=500)] = ""
    actor: Annotated[str, Meta(description="Only events of this actor.", max_length=200)] = ""
    correlation: Annotated[str, Meta(description="Only events with this correlation id.", max_length=200)] = ""
    since: Annotated[datetime | None, Meta(description="Only what arrived at this time or later.")] = None
    until: Annotated[datetime | None, Meta(description="Only what arrived before this time.")] = None

    def query(self) -> Query:
        return Query(
            types=frozenset(self.type),
            stream=self.stream,
            kind=self.kind,
            scope=self.scope,
            actor=self.actor,
            correlation_id=self.correlation,
            since=self.since,
            until=self.until,
        )
