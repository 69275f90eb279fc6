"""Record events once more that peers do not accept, because the clock of this machine was ahead when they were made.

A chain cannot go past an event that others refuse. So the log continues under a new origin, and the events become new
events there. The old ones stay where they are. When their time has come, peers accept them as well.
"""

from __future__ import annotations

from collections.abc import Iterable

from everlog.core.event import Event
from everlog.core.ids import EventId
from everlog.core.query import Query
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.stores.open_write import OpenWrite
from everlog.stores.small_state import NOTES
from everlog.sync.wire import Rejected

_BATCH = 1_000
_NOTE = "again"  # the first event that was recorded once more, the last time


def record_again(log: Log, rejected: Iterable[Rejected]) -> int:
    """Record this log's events once more, from the first one on that a peer refused for its time; return how many."""
    refused = [log.get(one.event_id) for one in rejected if one.reason == "clock_too_far" and one.event_id]
    own = [one.event for one in refused if one is not None and log.identity.made(one.event.origin)]
    if not own:
        return 0
    first = min(own, key=lambda event: event.lamport)
    events = [
        one.event
        for one in log.counted(log.read(Query()))
        if one.event.origin == first.origin and one.event.origin_seq >= first.origin_seq
    ]
    if log.identity.origin == first.origin:
        log.writer.write(lambda write: _leave_chain(write, first.id), exclusive=True)
    for start in range(0, len(events), _BATCH):
        some = events[start : start + _BATCH]
        log.append_batch([_draft(event) for event in some], key=f"again/{some[0].id}", operation="sync.again")
    return len(events)


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
        tags={**event.tags, "was.event_id": event.id},
    )
