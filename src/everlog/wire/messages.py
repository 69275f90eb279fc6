"""Drafts, records and pages as JSON, the same for the server, the client and lines of NDJSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from everlog.core.event import EVENT_FIELDS, Event, Position, Recorded, microseconds, values_of
from everlog.core.query import Cursor, Page, Query, Reset
from everlog.errors import InvalidField
from everlog.log.write.draft import Draft
from everlog.log.write.expect import Expect, Expectation, NoMatch
from everlog.stores.own_events import OwnRecords


class QueryObject(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A query as JSON."""

    types: tuple[str, ...] = ()
    stream: str = ""
    kind: str = ""
    scope: str = ""
    actor: str = ""
    correlation_id: str = ""
    since: datetime | None = None
    until: datetime | None = None

    def query(self) -> Query:
        return Query(**{**msgspec.structs.asdict(self), "types": frozenset(self.types)})

    @classmethod
    def of(cls, query: Query) -> QueryObject:
        return cls(**{**msgspec.structs.asdict(query), "types": tuple(sorted(query.types))})


class NoMatchObject(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The expectation that no event matches a query after a position."""

    no_match: QueryObject
    after: int = 0
    also: tuple[QueryObject, ...] = ()
    epoch: str = ""


class DraftObject(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A draft as JSON: a body of HTTP, or a line of NDJSON."""

    type: str
    stream: str
    payload: Any = msgspec.field(default_factory=dict)
    actor: str = ""
    scope: str = ""
    expect: str | int | NoMatchObject = "any"
    id: str = ""
    occurred_at: datetime | None = None
    request_id: str = ""
    causation_id: str = ""
    correlation_id: str = ""
    tags: dict[str, str] = msgspec.field(default_factory=dict)

    def draft(self, *, actor: str = "", scope: str = "", correlation_id: str = "", request_id: str = "") -> Draft:
        """Return the draft; the arguments are for what it leaves out."""
        return Draft(
            self.type,
            self.stream,
            self.payload,
            self.actor or actor,
            self.scope or scope,
            read_expectation(self.expect),
            self.id,
            self.occurred_at,
            self.request_id or request_id,
            self.causation_id,
            self.correlation_id or correlation_id,
            self.tags,
        )

    @classmethod
    def of(cls, draft: Draft) -> DraftObject:
        return cls(**{**msgspec.structs.asdict(draft), "expect": _expectation_object(draft.expect)})


def read_expectation(given: str | int | NoMatchObject) -> Expectation:
    """Return what the stream must be for an event to be recorded: any, none, exists, a sequence, or a query."""
    if given == "any":
        return Expect.ANY
    if isinstance(given, NoMatchObject):
        return NoMatch(
            given.no_match.query(), Position(given.after), tuple(one.query() for one in given.also), given.epoch
        )
    try:
        return int(given) if str(given).lstrip("-").isdigit() else Expect(given)
    except ValueError:
        raise InvalidField(
            f"{given!r} is not any, none, exists or a number",
            hint="give the stream's sequence, or none for a new one",
            field="expect",
        ) from None


def _expectation_object(expectation: Expectation) -> str | int | NoMatchObject:
    match expectation:
        case Expect():
            return str(expectation.value)
        case NoMatch():
            return NoMatchObject(
                no_match=QueryObject.of(expectation.query),
                after=expectation.after,
                also=tuple(map(QueryObject.of, expectation.also)),
                epoch=expectation.epoch,
            )
        case _:
            return expectation


class RecordObject(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A record as JSON: its place in the log, then the fields of the event in their order. Empty fields are left out,
    except the payload, which is only left out once it was erased."""

    position: int
    sequence: int
    received_at: datetime
    id: str
    type: str
    version: int
    stream: str
    lamport: int
    origin: str
    origin_seq: int
    occurred_at: datetime
    actor: str
    scope: str = ""
    request_id: str = ""
    causation_id: str = ""
    correlation_id: str = ""
    idempotency_key: str = ""
    tags: Mapping[str, str] = {}
    commitment: bytes = b""
    previous: bytes = b""
    payload: Any = msgspec.UNSET
    salt: bytes = b""
    signature: bytes = b""
    path: tuple[bytes, ...] = ()
    erased_by: str = ""


_encode = msgspec.json.Encoder(order="deterministic").encode
_PAYLOAD = EVENT_FIELDS.index("payload")


def record_bytes(recorded: Recorded) -> bytes:
    """Return a record as JSON.

    The keys of its payload and tags are sorted, as a store has them: the answer to an append and the answer to its
    retry, which is read from the store, are the same bytes.
    """
    return _encode(_object_of(recorded))


def _object_of(recorded: Recorded) -> RecordObject:
    values = values_of(recorded.event)
    if not recorded.event.salt and not recorded.event.payload:
        values = (*values[:_PAYLOAD], msgspec.UNSET, *values[_PAYLOAD + 1 :])
    return RecordObject(recorded.position, recorded.sequence, recorded.received_at, *values)


def receipt_bytes(records: Sequence[Recorded], *, batch: bool) -> bytes:
    """Return what an append answers: its record, or all of a batch. New records are not made into events for it."""
    values = records.values() if isinstance(records, OwnRecords) else None
    found = [_object_of(one) for one in records] if values is None else [RecordObject(*one) for one in values]
    return _encode({"events": found} if batch else found[0])


def read_record(data: bytes | str | msgspec.Raw) -> Recorded:
    """Return the record of its JSON."""
    return _record_of(_decode_record(data))


def record_of_object(found: Mapping[str, Any]) -> Recorded:
    """Return the record of its JSON object."""
    return _record_of(msgspec.convert(found, RecordObject))


def read_records(data: bytes) -> list[Recorded]:
    """Return the records of `{"events": […]}`, decoded with one call."""
    return list(map(_record_of, msgspec.json.decode(data, type=_Records).events))


class _Records(msgspec.Struct):
    events: list[RecordObject]


_decode_record = msgspec.json.Decoder(RecordObject).decode


def _record_of(found: RecordObject) -> Recorded:
    position, sequence, received_at, *values = msgspec.structs.astuple(found)
    if values[_PAYLOAD] is msgspec.UNSET:
        values[_PAYLOAD] = {}
    elif not isinstance(values[_PAYLOAD], dict):
        raise msgspec.ValidationError("the payload of an event is an object")
    return Recorded(Position(position), sequence, microseconds(received_at), Event(*values))


class OutcomeObject(msgspec.Struct, frozen=True, kw_only=True):
    """The whole outcome of a command as JSON: its result, and its records."""

    result: Any
    status: str
    records: tuple[msgspec.Raw, ...] = ()
    next: tuple[str, ...] = ()


def outcome_bytes(outcome: Any) -> bytes:
    """Return the outcome of a command (`everlog.programs.command.Outcome`) as JSON."""
    return msgspec.json.encode(
        OutcomeObject(
            result=msgspec.to_builtins(outcome.result),
            status=outcome.status,
            records=tuple(msgspec.Raw(record_bytes(one)) for one in outcome.records),
            next=tuple(outcome.next),
        )
    )


class Hole(msgspec.Struct, frozen=True, kw_only=True):
    """Adjacent positions that have no event any more, and the position of the purge that explains it."""

    first: int
    last: int
    purge: int


class PageObject(msgspec.Struct, frozen=True, kw_only=True):
    """A page as JSON."""

    events: tuple[msgspec.Raw, ...]
    next: str
    head: int
    looked_to: int
    reset_required: bool = False
    reason: str = ""
    holes: tuple[Hole, ...] = ()


class _PageEnd(msgspec.Struct, frozen=True):
    """What follows the events of a page."""

    next: str
    head: int
    looked_to: int
    reset_required: bool
    reason: str
    holes: tuple[Hole, ...]


def page_bytes(
    events: Iterable[bytes],
    *,
    next: str,
    head: int,
    looked_to: int,
    reset: Reset | None = None,
    holes: tuple[Hole, ...] = (),
) -> bytes:
    """Return a page as JSON; its records are given as JSON already."""
    end = _PageEnd(next, head, looked_to, reset is not None, "" if reset is None else reset.reason, holes)
    return b'{"events":[' + b",".join(events) + b"]," + _encode(end)[1:]


class _PageRead(_Records, kw_only=True):
    next: str
    head: int
    reset_required: bool = False
    reason: str = ""


def read_page(data: bytes) -> Page:
    """Return the page of its JSON."""
    found = msgspec.json.decode(data, type=_PageRead)
    cursor = Cursor.of(found.next)
    records = tuple(map(_record_of, found.events))
    reset = Reset(cursor, found.reason) if found.reset_required else None
    return Page(records, cursor, Position(found.head), reset)
