"""Record events once more that peers do not accept, because the clock of this machine was ahead when they were made.

A chain cannot go past an event that others refuse. So the log continues under a new origin, and the events become new
events there. The old ones stay where they are. When their time has come, peers accept them as well.

What states nothing under another origin is left out: what the old origin knew, its successor, and an event whose
payload was erased. An event is recorded once more only once, whatever peers refuse the next time.

A peer that refuses an event is not believed: the clock of this machine, once it is right, must also show that the
time in the id of the event is more than 24 hours ahead. Otherwise nothing is recorded.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

from everlog.catalog.builtin import KNOWS
from everlog.core.event import Event
from everlog.core.ids import AHEAD_MS_MAX, EventId, id_time_ms
from everlog.core.query import Query
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.stores.open_write import OpenWrite
from everlog.stores.small_state import NOTES
from everlog.sync.wire import Rejected
from everlog.trust.succession import SUCCEEDED

_BATCH = 1_000
_BEFORE = "was.event_id"
_OF_ITS_ORIGIN = (KNOWS, SUCCEEDED)
_NOTE = "again"  # the first event that was recorded once more, the last time


class Again(NamedTuple):
    """How many events were recorded once more; `doubted` ones a peer refuses, and this clock does not agree."""

    recorded: int = 0
    doubted: int = 0


def record_again(log: Log, rejected: Iterable[Rejected], *, now_ms: int | None = None) -> Again:
    """Record this log's events once more, from the first one on that a peer refused for its time, and that is too far
    ahead of the clock of this machine as well."""
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    refused = [log.get(one.event_id) for one in rejected if one.reason == "clock_too_far" and one.event_id]
    own = [one.event for one in refused if one is not None and log.identity.made(one.event.origin)]
    ahead = [event for event in own if id_time_ms(event.id) > now_ms + AHEAD_MS_MAX]
    if not ahead:
        return Again(doubted=len(own))
    first = min(ahead, key=lambda event: event.lamport)
    own_events = [one.event for one in log.counted(log.read(Query())) if log.identity.made(one.event.origin)]
    done = {event.tags.get(_BEFORE) for event in own_events}
    events = [
        event
        for event in own_events
        if event.origin == first.origin
        and event.origin_seq >= first.origin_seq
        and event.salt
        and event.type not in _OF_ITS_ORIGIN
        and event.id not in done
    ]
    if log.identity.origin == first.origin:
        log.writer.write(lambda write: _leave_chain(write, first.id), exclusive=True)
    for start in range(0, len(events), _BATCH):
        some = events[start : start + _BATCH]
        drafts = [_draft(event) for event in some]
        log.writer.commit(drafts, key=f"again/{some[0].id}", operation="sync.again", decided=True)
    return Again(len(events), len(own) - len(ahead))


def _leave_chain(write: OpenWrite, first: EventId) -> None:
    """Continue under a new origin. The note is what commits: a write with nothing in it changes nothing."""
    write.take_new_origin()
    write.put(NOTES, {_NOTE: first.encode()})


def _draft(event: Event) -> Draft:
    return Draft(
        type=event.type,
        stream=event.stream,
        payload=event.payload,
        actor=event.actor,
        scope=event.scope,
        request_id=event.request_id,
        causation_id=event.causation_id,
        correlation_id=event.correlation_id,
        tags={**event.tags, _BEFORE: event.id},
    )
