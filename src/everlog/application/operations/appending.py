"""`log.append` and `log.append_batch`: record events as the caller, within the caller's scope."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from everlog.application.operations.fields import Record, StreamName, record_of
from everlog.core.query import Query, in_scope, narrowed
from everlog.errors import InvalidField, WrongSequence
from everlog.log.log import Log
from everlog.log.write.draft import Draft, Receipt
from everlog.log.write.expect import Expect, NoMatch, require_read
from everlog.log.write.guard import ATTEMPTS
from everlog.programs.command import Action, By, Done
from everlog.programs.perform import no_such_scope, require_stream_within, without_place
from everlog.programs.policy import Policy
from everlog.views.as_of import head_within
from everlog.wire.messages import DraftObject, NoMatchObject

BATCH_MAX = 10_000
_POLICY = Policy(role="append", scope="within", idempotent=False)
REFUSALS = (
    *("unknown_type", "invalid_payload", "invalid_field", "not_canonical", "event_too_large", "secret_found"),
    *("transition_refused", "rule_refused", "id_from_the_future", "no_such_subject", "not_found"),
    *("wrong_sequence", "query_matched", "id_conflict", "idempotency_key_reuse", "already_purged"),
    *("history_changed", "storage_full", "read_only", "writer_stopped", "no_key", "look_alike"),
)
"""The codes with which an append is refused."""


class Append(Action[Record], frozen=True, kw_only=True):
    """Record one event. When this answers, it is on the disk."""

    verb = "append"
    policy = _POLICY
    keyed = True
    problems = REFUSALS
    example: ClassVar[dict[str, Any]] = {"type": "note.added", "stream": "note/1", "payload": {"text": "hello"}}

    type: Annotated[str, Meta(description="The event type.")]
    stream: StreamName
    payload: Annotated[Any, Meta(description="The payload, as the type has it.")] = msgspec.field(
        default_factory=dict
    )
    scope: Annotated[str, Meta(description="The scope of the event; that of the caller, if it is empty.")] = ""
    expect: Annotated[
        str | int | NoMatchObject,
        Meta(description="What the stream must be: any, none, exists, a sequence, or no match of a query."),
    ] = "any"
    id: Annotated[str, Meta(description="The id of the event, if the caller makes it.")] = ""
    occurred_at: Annotated[datetime | None, Meta(description="When it happened, if not now.")] = None
    causation_id: Annotated[str, Meta(description="The id of the event that caused it.")] = ""
    correlation_id: Annotated[str, Meta(description="What connects it to other events.")] = ""
    tags: Annotated[dict[str, str], Meta(description="Texts to find it by.")] = msgspec.field(default_factory=dict)
    dry_run: Annotated[bool, Meta(description="Check everything, record nothing.")] = False

    def run(self, log: Log, by: By, progress: Callable[[int], None] = lambda position: None) -> Done[Record]:
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name != "dry_run"}
        draft = _traced(DraftObject(**fields).draft(request_id=by.request_id), by)
        receipt = commit_within(log, [draft], by, operation=self.type, dry_run=self.dry_run or by.dry_run)
        return Done(record_of(receipt.records[0]), receipt.replayed)


class RecordedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The records of a batch."""

    events: list[Record]


class AppendBatch(Action[RecordedBatch], frozen=True, kw_only=True):
    """Record all events of a batch, or none."""

    verb = "append_batch"
    policy = _POLICY
    keyed = True
    problems = REFUSALS
    example: ClassVar[dict[str, Any]] = {
        "events": [
            {"type": "note.added", "stream": "note/1", "payload": {"text": "hello"}},
            {"type": "note.added", "stream": "note/2", "payload": {"text": "world"}},
        ]
    }

    events: Annotated[list[DraftObject], Meta(description="The events.", min_length=1, max_length=BATCH_MAX)]
    dry_run: Annotated[bool, Meta(description="Check everything, record nothing.")] = False

    def run(self, log: Log, by: By, progress: Callable[[int], None] = lambda position: None) -> Done[RecordedBatch]:
        drafts = [_traced(one.draft(request_id=by.request_id), by) for one in self.events]
        receipt = commit_within(log, drafts, by, operation="batch", dry_run=self.dry_run or by.dry_run)
        return Done(RecordedBatch(events=list(map(record_of, receipt.records))), receipt.replayed)


def _traced(draft: Draft, by: By) -> Draft:
    return msgspec.structs.replace(draft, tags={**by.tags, **draft.tags}) if by.tags else draft


def commit_within(log: Log, drafts: Sequence[Draft], by: By, *, operation: str, dry_run: bool) -> Receipt:
    """Record drafts as the caller, and none of them on a stream of others."""
    asked = [own_draft(draft, by.actor or log.actor, by.within) for draft in drafts]
    for attempt in range(1, ATTEMPTS + 1):
        own = claimed_streams(log, asked, by.within)
        try:
            receipt = log.writer.commit(own, key=by.key, operation=operation, dry_run=dry_run, key_scope=by.within)
            return without_place(log, receipt, by.within)
        except WrongSequence as error:
            if attempt == ATTEMPTS or not taken_meanwhile(error, asked):
                raise
    raise AssertionError("the last attempt returns or raises")


def own_draft(draft: Draft, actor: str, within: str) -> Draft:
    """Return a draft with the actor and the scope of the caller; refuse another actor or a scope outside."""
    if draft.actor and draft.actor != actor:
        raise InvalidField(
            f"the event names the actor {draft.actor[:80]!r}",
            why=f"a token decides who acts, and this one is of {actor}",
            hint="leave actor out",
            field="actor",
        )
    if draft.scope and not in_scope(draft.scope, within):
        raise no_such_scope(draft.scope)
    if draft.actor and (draft.scope or not within):
        return draft
    return msgspec.structs.replace(draft, actor=actor, scope=draft.scope or within)


def claimed_streams(log: Log, drafts: list[Draft], within: str) -> list[Draft]:
    """Return drafts that record nothing on streams of others: a new stream must still be new when it is recorded."""
    if not within:
        return drafts
    found, seen = [], set()
    for draft in drafts:
        require_stream_within(log, draft.stream, within)
        fresh = draft.stream not in seen and next(log.read(Query(stream=draft.stream), limit=1), None) is None
        seen.add(draft.stream)
        if fresh and draft.expect is Expect.ANY:
            draft = msgspec.structs.replace(draft, expect=Expect.NONE)
        elif isinstance(draft.expect, NoMatch):
            draft = msgspec.structs.replace(draft, expect=_own_expectation(log, draft.expect, within))
        found.append(draft)
    return found


def _own_expectation(log: Log, expect: NoMatch, within: str) -> NoMatch:
    """Return an expectation about the caller's own events: those of others neither meet it nor break it."""
    require_read(expect, head_within(log, within))
    own = []
    for query in (expect.query, *expect.also):
        part = narrowed(query, within)
        if part is None:
            raise no_such_scope(query.scope)
        own.append(part)
    return msgspec.structs.replace(expect, query=own[0], also=tuple(own[1:]))


def taken_meanwhile(error: WrongSequence, asked: Sequence[Draft]) -> bool:
    """Return whether a stream was new when it was looked at, and is not any more: the caller did not ask for that."""
    return error.expected == "none yet" and any(
        draft.stream == error.stream and draft.expect is Expect.ANY for draft in asked
    )
