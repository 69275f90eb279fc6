"""What becomes of a batch that a peer sent: one outcome per event, and a batch is never refused as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from everlog.core.event import Event
from everlog.errors import EverlogError, NotCanonical
from everlog.log.log import Log
from everlog.sync.wire import Events, Rejected, claimed_id, event_of


class Outcome(NamedTuple):
    """What became of one event: recorded, known, held or refused."""

    id: str
    kind: str
    code: str = ""
    reason: str = ""


class TakenIn(NamedTuple):
    """What became of a batch."""

    events: list[Event]  # all that could be read
    recorded: int
    known: int
    rejected: list[Rejected]

    @property
    def held(self) -> int:
        return sum(each.held for each in self.rejected)


def take_in(log: Log, message: Events, *, peer: str) -> TakenIn:
    """Admit the events of a batch. Each one that is refused is recorded as a refusal of the peer."""
    events: list[Event] = []
    outcomes: list[Outcome] = []
    for text in message.events:
        try:
            events.append(event_of(text))
        except EverlogError as error:
            outcomes.append(_refused(log, claimed_id(text), error, peer=peer))
    outcomes += _admit_each(log, events, peer=peer)
    return TakenIn(
        events,
        sum(outcome.kind == "recorded" for outcome in outcomes),
        sum(outcome.kind == "known" for outcome in outcomes),
        [
            Rejected(outcome.id, outcome.code, outcome.kind == "held")
            for outcome in outcomes
            if outcome.kind in ("held", "refused")
        ],
    )


def _admit_each(log: Log, events: Sequence[Event], *, peer: str) -> list[Outcome]:
    """Admit all events at once; if one of them is refused, one by one, so that the others are recorded."""
    if not events:
        return []
    try:
        new = {recorded.event.id for recorded in log.admit(events)}
        return [Outcome(event.id, "recorded" if event.id in new else "known") for event in events]
    except EverlogError as error:
        if error.retryable:
            raise
        if len(events) == 1:
            return [_refused(log, events[0].id, error, peer=peer, event=events[0])]
    half = len(events) // 2
    return _admit_each(log, events[:half], peer=peer) + _admit_each(log, events[half:], peer=peer)


def _refused(log: Log, event_id: str, error: EverlogError, *, peer: str, event: Event | None = None) -> Outcome:
    stream, type_ = (event.stream, event.type) if event is not None else ("", "")
    log.writer.refusals.record(error, operation="sync", stream=stream, type=type_, actor=peer)
    code = "not_canonical" if isinstance(error, NotCanonical) else error.code
    return Outcome(event_id, "refused", code, str(error))
