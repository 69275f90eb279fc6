"""`log.page`, `log.head`, `log.get`, `log.history`, `log.causes`, `log.refusals`: events, one by one and in pages."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from everlog.application.events.find import find_position
from everlog.application.events.reading import Reading
from everlog.application.operations.fields import (
    AsOf,
    Filter,
    Limit,
    Record,
    StreamName,
    moment_of,
    record_of,
)
from everlog.core.event import Position, Recorded, moment
from everlog.core.query import Cursor, Query, proof_of
from everlog.errors import InvalidField, NotFound
from everlog.log.log import Log
from everlog.log.read.causes import causes_of
from everlog.log.write.refusal_rows import Refusal
from everlog.programs.command import Question
from everlog.views.as_of import cut, getter_within, head_within
from everlog.wire.messages import Hole


class PageAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A page of events, and where the next one begins."""

    events: list[Record]
    next: str
    head: int
    looked_to: int
    reset_required: bool = False
    reason: str = ""
    holes: tuple[Hole, ...] = ()


class ReadPage(Filter, Question[PageAnswer], frozen=True, kw_only=True):
    """Return some events after a cursor, in order, or a reset if history has changed under it."""

    verb = "page"
    problems = ("damaged", "schema_broken")
    example: ClassVar[dict[str, Any]] = {"after": "0", "kind": "note"}

    after: Annotated[
        Annotated[str, Meta(max_length=500)] | None,
        Meta(description="Continue after this cursor, with resets. None: only look."),
    ] = None
    from_: Annotated[int, Meta(description="Only look, from this position.", ge=0, le=2**53)] = msgspec.field(
        default=0, name="from"
    )
    limit: Limit = 100

    def check(self) -> None:
        if self.after is not None and self.from_:
            raise InvalidField(
                "both after and from are given",
                why="after is for a caller that holds state, and gets resets; from is for one that only looks",
                hint="leave one of them out",
                field="from",
            )

    def answer(self, log: Log, within: str) -> PageAnswer:
        looking = self.after is None
        cursor = Cursor(Position(max(0, self.from_ - 1))) if looking else Cursor.of(self.after or "")
        reading = Reading(log, self.query(), within)
        page = reading.after(cursor, limit=self.limit, looking=looking).page
        looked_to = page.next_cursor.position
        return PageAnswer(
            events=list(map(record_of, page.events)),
            next=str(page.next_cursor),
            head=page.head,
            looked_to=looked_to,
            reset_required=page.reset is not None,
            reason="" if page.reset is None else page.reset.reason,
            holes=reading.holes(max(1, self.from_), looked_to) if looking else (),
        )


class HeadAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The newest position, a cursor after it, and the identity of the log."""

    head: int
    cursor: str
    log_id: str
    origin: str
    epoch: str
    created_at: datetime


class Head(Question[HeadAnswer], frozen=True, kw_only=True):
    """Return the newest position of the log, and a cursor from which to follow it."""

    verb = "head"
    example: ClassVar[dict[str, Any]] = {}

    def answer(self, log: Log, within: str) -> HeadAnswer:
        identity = log.identity
        epoch = identity.epoch  # first: a restore after it is noticed by the cursor
        head = head_within(log, within)
        found = log.get(head) if head else None
        proof = "" if found is None else proof_of(found.event.id, log.identity.life_at(head))
        cursor = Cursor(head, Position(0), epoch, proof)
        return HeadAnswer(
            head=head,
            cursor=str(cursor),
            log_id=identity.log_id,
            origin=identity.origin,
            epoch=epoch,
            created_at=moment(identity.created_us),
        )


class Get(Question[Record], frozen=True, kw_only=True):
    """Return one event, by its id, by a part of its id, or by its position as #12."""

    verb = "get"
    problems = ("damaged",)
    example: ClassVar[dict[str, Any]] = {"event": "#1"}

    event: Annotated[
        str,
        Meta(
            description="An id (ULID or UUID), 6 or more characters of one, or a position.",
            min_length=1,
            max_length=100,
        ),
    ]

    def answer(self, log: Log, within: str) -> Record:
        return record_of(found_event(log, self.event, within))


class History(Question[list[Record]], frozen=True, kw_only=True):
    """Return the events of one stream, the oldest first."""

    verb = "history"
    problems = ("damaged", "schema_broken")
    columns = ("position", "sequence", "type", "actor", "occurred_at")
    example: ClassVar[dict[str, Any]] = {"stream": "note/1"}

    stream: StreamName
    as_of: AsOf = ""
    after: Annotated[int, Meta(description="Only events after this position.", ge=0, le=2**53)] = 0
    limit: Limit = 1000

    def answer(self, log: Log, within: str) -> list[Record]:
        at = cut(log, moment_of(self.as_of), stream=self.stream, within=within)
        query = Query(stream=self.stream, scope=within)
        records = [
            record_of(one)
            for one in log.read(query, after=self.after, upto=at.upto, limit=self.limit)
            if at.holds(one)
        ]
        if not records and next(log.read(query, limit=1), None) is None:
            raise NotFound(
                f"there is no stream {self.stream[:80]}",
                why="it has no events",
                hint="everlog log -n 5",
                stream=self.stream,
            )
        return records


class CausesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An event, what caused it, and what caused that."""

    event: Record
    causes: list[Record]
    unknown: str  # an id at the end of the chain that names no event of this log


class Causes(Question[CausesAnswer], frozen=True, kw_only=True):
    """Return an event, the event that caused it, the cause of that, and so on."""

    verb = "causes"
    problems = ("damaged",)
    example: ClassVar[dict[str, Any]] = {"event": "note/1"}

    event: Annotated[
        str, Meta(description="An event, or a stream, whose newest event is meant.", min_length=1, max_length=500)
    ]
    as_of: AsOf = ""

    def answer(self, log: Log, within: str) -> CausesAnswer:
        if "/" in self.event:
            at = cut(log, moment_of(self.as_of), stream=self.event, within=within)
            query = Query(stream=self.event, scope=within)
            newest = log.read(query, upto=at.upto, newest_first=True)
            found = next((one for one in newest if at.holds(one)), None)
            if found is None:
                raise _no_event(self.event)
        else:
            found = found_event(log, self.event, within)
        causes, unknown = causes_of(getter_within(log, within), found)
        return CausesAnswer(event=record_of(found), causes=list(map(record_of, causes)), unknown=unknown)


class RefusalObject(msgspec.Struct, frozen=True, kw_only=True):
    """A request that the log refused."""

    id: str
    code: str
    stream: str
    type: str
    actor: str
    operation: str
    reason: str
    hint: str
    refused_at: datetime
    context: dict[str, Any]
    scope: str | msgspec.UnsetType = msgspec.UNSET

    @classmethod
    def of(cls, refusal: Refusal) -> RefusalObject:
        return cls(**{name: getattr(refusal, name) for name in cls.__struct_fields__})


class Refusals(Question[list[RefusalObject]], frozen=True, kw_only=True):
    """Return requests that the log refused and why, the newest first. They are kept for 90 days."""

    verb = "refusals"
    columns = ("refused_at", "code", "type", "stream", "actor", "reason", "operation")
    example: ClassVar[dict[str, Any]] = {"code": "wrong_sequence"}

    code: Annotated[str, Meta(description="Only refusals with this code.", max_length=100)] = ""
    stream: Annotated[str, Meta(description="Only refusals about this stream.", max_length=500)] = ""
    actor: Annotated[str, Meta(description="Only refusals of this actor.", max_length=200)] = ""
    operation: Annotated[str, Meta(description="Only refusals of this operation.", max_length=200)] = ""
    limit: Limit = 50

    def answer(self, log: Log, within: str) -> list[RefusalObject]:
        found = log.refusals(
            limit=self.limit,
            code=self.code,
            stream=self.stream,
            actor=self.actor,
            operation=self.operation,
            within=within,
        )
        return list(map(RefusalObject.of, found))


def found_event(log: Log, name: str, within: str) -> Recorded:
    """Return the event that is named, if it is in the scope. Outside of it, names are not compared."""
    if within:
        try:
            found = getter_within(log, within)(int(name.removeprefix("#")) if _is_position(name) else name)
        except InvalidField as error:
            raise _no_event(name) from error
    else:
        found = log.get(find_position(log, name))
    if found is None:
        raise _no_event(name)
    return found


def _is_position(name: str) -> bool:
    text = name.removeprefix("#")
    return text.isascii() and text.isdigit() and len(text) <= 16


def _no_event(name: str) -> NotFound:
    return NotFound(f"there is no event {name[:80]}", hint="everlog log -n 5")
