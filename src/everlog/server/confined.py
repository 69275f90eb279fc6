"""The log as a caller sees it that is limited to a scope.

What is outside of the scope does not exist: it is not read, and the head, the cursors and the counts that the caller
gets are made of its own events only, so that they do not show how much others write. A stream belongs to the scope of
its first event.
"""

from __future__ import annotations

import msgspec

from everlog.core.event import Position, Recorded
from everlog.core.query import Cursor, Page, Query, in_scope, proof_of
from everlog.core.query import narrowed as confined
from everlog.errors import InvalidField, WrongSequence
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.log.write.expect import Expect
from everlog.programs.perform import no_such_scope, require_stream_within
from everlog.server.route import Caller
from everlog.views.as_of import head_within as head_of


def page_within(log: Log, cursor: Cursor, query: Query, caller: Caller, *, limit: int, looking: bool = False) -> Page:
    """Return a page of the events that a caller may see; see `Log.page_after`."""
    own = confined(query, caller.within)
    if own is None:
        return Page((), cursor, head_of(log, caller.within))
    page = log.page_after(cursor, own, limit=limit, looking=looking)
    if not caller.within:
        return page
    head = head_of(log, caller.within)
    if page.reset is not None:
        return msgspec.structs.replace(page, head=head)
    # The end of the search shows how long the log is: the caller's cursor stays at an event of its own.
    if page.events:
        last = page.events[-1]
        position = last.position
        proof = proof_of(last.event.id, log.identity.life_at(position))
    else:
        position, proof = cursor.position, cursor.proof
    knows = page.next_cursor.knows
    kept = Cursor(position, knows if knows > position else Position(0), page.next_cursor.epoch, proof)
    return msgspec.structs.replace(page, next_cursor=kept, head=head)


def visible(recorded: Recorded | None, caller: Caller) -> Recorded | None:
    """Return a record if the caller may see it."""
    return recorded if recorded is not None and in_scope(recorded.event.scope, caller.within) else None


def own_draft(draft: Draft, caller: Caller) -> Draft:
    """Return a draft with the actor and the scope of the caller; refuse another actor or a scope outside."""
    if draft.actor and draft.actor != caller.actor:
        raise InvalidField(
            f"the event names the actor {draft.actor[:80]!r}",
            why=f"a token decides who acts, and this one is of {caller.actor}",
            hint="leave actor out",
            field="actor",
        )
    if draft.scope and not in_scope(draft.scope, caller.within):
        raise no_such_scope(draft.scope)
    return msgspec.structs.replace(draft, actor=caller.actor, scope=draft.scope or caller.within)


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
        found.append(draft)
    return found


def taken_meanwhile(error: WrongSequence, asked: list[Draft]) -> bool:
    """Return whether a stream was new when it was looked at, and is not any more: the caller did not ask for that."""
    return error.expected == "none yet" and any(
        draft.stream == error.stream and draft.expect is Expect.ANY for draft in asked
    )
