"""The guard of the community program: nothing is recorded here that the history would ignore."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from everlog.core.event import Event
from everlog.core.query import Looks, Query
from everlog.errors import RuleRefused
from everlog.programs.command import By
from everlog.programs.community import questions, rights, rules
from everlog.programs.community.acting import act_now, insist
from everlog.programs.community.events import (
    COMMUNITY,
    DOCUMENT,
    FILE,
    GOVERNANCE,
    POST,
    THREAD,
    community_of,
    name_of,
)
from everlog.programs.community.membership import Standing
from everlog.programs.community.reading import act_of, in_order
from everlog.programs.program import Guard, require_kind

if TYPE_CHECKING:
    from everlog.programs.perform import History

_KINDS = {"market": POST, "chat": THREAD, "file": FILE, "rag": DOCUMENT}
_MARKS = ("chat.message.delivered", "chat.message.read")


def _looks_at(event: Event) -> list[Looks]:
    if event.type in GOVERNANCE or event.kind in (THREAD, DOCUMENT):
        return []  # the views know it; the judge names what they rely on
    return [Query(stream=event.stream)]


def _judge(history: History, event: Event, payload: Any, by: By) -> None:
    kind = COMMUNITY if event.type in GOVERNANCE else _KINDS[event.type.partition(".")[0]]
    require_kind(event, kind)
    community = community_of(event.stream)
    if event.scope != community:
        raise RuleRefused(
            f"{event.type} of {community or 'no community'} needs the scope {community or 'of its community'}",
            rule="the scope of an event is its community",
            tried=f"append {event.type} to {event.stream}",
            allowed=[community],
            why=f"its scope is {event.scope or 'empty'}",
            hint=f"everlog append {event.type} -s {event.stream} --scope {community}",
        )
    log = history.log
    history.relies_on(Query(stream=f"{COMMUNITY}/{community}"))
    standing = _standing(history, community)
    now = act_now(log, payload, by)
    tried = f"record {event.type}"
    if kind == COMMUNITY:
        insist(log, standing, now, tried)
        return
    name = name_of(event.stream)
    if event.type in _MARKS:
        history.relies_on(Query(stream=event.stream))
        found = questions.messages(log, community, name, named=[payload.message])
        subject: dict[str, Any] = {one["message"]: one for one in found.messages}
    else:
        past = in_order([recorded.event for recorded in history if recorded.event.kind == kind])
        subject = rules.fold_subject(standing, kind, name, past).subject
    insist(log, standing, now, tried, kind=kind, subject=subject, name=name)


def _standing(history: History, community: str) -> Standing:
    """Return the standing of a community, with what the same batch has changed before."""
    found = questions.standing(history.log, community)
    new = history.earlier.matching(Query(stream=f"{COMMUNITY}/{community}", types=frozenset(GOVERNANCE)))
    if not new:
        return found
    state = deepcopy(found.state)
    for recorded in new:
        state = rights.take(state, act_of(recorded.event), community)
    return Standing(state, community)


GUARD = Guard(looks_at=_looks_at, judge=_judge)
