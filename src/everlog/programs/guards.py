"""Guards: the rules of the programs, applied to every local writer of their types.

A raw append, a batch and NDJSON drafts meet the same rules as a command. What is admitted from elsewhere (copy,
import) does not: it is a fact, and the views decide whether it counts. When and how often a guard is applied is
described in `everlog.log.write.guard`; here it gets a history, the event as it would be recorded, and its typed
payload.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from everlog.core.event import Event, Position, Recorded
from everlog.core.ids import EventId
from everlog.core.query import Looks, Newest, Query
from everlog.errors import EverlogError, NotFound, RejectedEvent, RuleRefused
from everlog.log.write import guard
from everlog.log.write.draft import Draft
from everlog.programs.command import By
from everlog.programs.perform import Batch, History
from everlog.programs.program import Guard, Program

if TYPE_CHECKING:
    from everlog.log.log import Log

_LAMPORT = 2**53 - 100_000  # after everything that is recorded, in the order of the batch
_ID = "7ZZZZZZZZZZZZZZZZZZZ{:06d}"


def guards_of(types: Mapping[str, Callable[[], Program]], log: Callable[[], Log]) -> guard.Guards:
    """Return the guards of all programs of a log, by event type. A program is loaded when it is first needed."""

    def of_type(event_type: str) -> guard.Guard | None:
        if event_type not in types:
            return None
        program = types[event_type]()
        return None if program.rules is None else _for_writers(program, program.rules, log)

    return of_type


def _for_writers(program: Program, rules: Guard, log: Callable[[], Log]) -> guard.Guard:
    def judge(history: guard.DecisionHistory, earlier: Sequence[Draft], draft: Draft) -> None:
        origin = log().identity.origin
        before = _batch(program, history, earlier, origin)
        event = _provisional(draft, program.types.latest(draft.type), len(earlier), history.upto, origin).event
        looks = rules.looks_at(event)
        seen = History(log(), looks, history.upto, earlier=before, already_read=history.already_read)
        by = By(actor=draft.actor, at=draft.occurred_at)
        try:
            rules.judge(seen, event, program.types.typed(event), by)
        except EverlogError as error:
            raise _of_a_writer(error, event) from error
        finally:
            history.queries += seen.queries

    return guard.Guard(looks_at=lambda draft: (), judge=judge)


def _batch(program: Program, history: guard.DecisionHistory, earlier: Sequence[Draft], origin: str) -> Batch:
    """Return the drafts before this one as events. The drafts of one request share what they have read, and this."""
    found = history.shared.setdefault("batch", Batch())
    assert isinstance(found, Batch), "nobody else uses this name"
    for index in range(len(found), len(earlier)):
        draft = earlier[index]
        version = program.types.latest(draft.type) if program.types.knows(draft.type) else 1
        found.add(_provisional(draft, version, index, history.upto, origin))
    return found


def judge_payloads(
    program: Program, history: History, drafts: Sequence[Draft], payloads: Sequence[Any], by: By
) -> None:
    """Judge what a command wants to record. What the judge read becomes a part of the command's history."""
    rules = program.rules
    assert rules is not None, "its caller has looked"
    earlier = Batch()
    for draft, payload in zip(drafts, payloads, strict=True):
        made = _provisional(draft, 0, len(earlier), history.upto, history.log.identity.origin)
        looks = rules.looks_at(made.event)
        if not len(earlier) and _queries(looks) == history.queries:
            rules.judge(history, made.event, payload, by)
        else:
            seen = History(history.log, looks, history.upto, within=by.within, own=draft.stream, earlier=earlier)
            rules.judge(seen, made.event, payload, by)
            history.queries += seen.queries
        earlier.add(made)


def _queries(looks: Looks | Sequence[Looks]) -> list[Query]:
    several = [looks] if isinstance(looks, Query | Newest) else looks
    return [look.query if isinstance(look, Newest) else look for look in several]


def _provisional(draft: Draft, version: int, index: int, upto: Position, origin: str) -> Recorded:
    """Return the event that would be recorded, placed after everything else; it has no hash and no chain yet."""
    event = Event(
        EventId(_ID.format(index)),
        draft.type,
        version,
        draft.stream,
        _LAMPORT + index,
        origin,
        2**53 - 1,
        draft.occurred_at or datetime.now(UTC),
        draft.actor,
        draft.scope,
        draft.request_id,
        draft.causation_id,
        draft.correlation_id,
        "",
        draft.tags,
        b"",
        b"",
        draft.payload,
    )
    return Recorded(Position(upto + 1 + index), 0, 0, event)


def _of_a_writer(error: EverlogError, event: Event) -> EverlogError:
    """Return a refusal for a writer that did not use the command: a rule that it broke, and what to type instead.

    What to type never uses the name of another actor.
    """
    if isinstance(error, RejectedEvent):
        refusal: EverlogError = error
    elif isinstance(error, NotFound):
        rule = error.details.pop("rule", "an event follows from what was recorded before it")
        tried = error.details.pop("tried", f"append {event.type} to {event.stream}")
        refusal = RuleRefused(error.what, rule=rule, tried=tried, why=error.why, hint=error.hint, **error.details)
    else:
        return error
    refusal.hint = _ACTOR.sub("", refusal.hint)
    return refusal


_ACTOR = re.compile(r" --actor \S+")
