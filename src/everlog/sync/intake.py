"""What becomes of a batch that a peer sent: one outcome per event, and a batch is never refused as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from everlog.core.event import Event
from everlog.errors import EverlogError
from everlog.log.admit.outcomes import CODES, Outcome, refused
from everlog.log.log import Log
from everlog.sync.wire import Events, Rejected, TooLarge, claimed_id, event_of


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
            outcomes.append(_refused(log, refused(claimed_id(text), error), peer=peer))
    outcomes += _named(log, [one for one in message.too_large if not _is_here(log, one)], peer=peer)
    if events or message.forks or message.purged:
        outcomes += log.admit_each(
            events, message.groups, message.forks, message.purged, sender=peer, sent_for=message.community_id
        )
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


def _not_sent(one: TooLarge) -> Outcome:
    reason = f"event {one.origin_seq} of {one.origin}: it has {one.bytes:,} bytes, {CODES['event_too_large']}"
    return Outcome(one.id, "refused", "event_too_large", reason)


def _is_here(log: Log, one: TooLarge) -> bool:
    chain = log.stored.chains().get(one.origin)
    return chain is not None and chain.has(one.origin_seq)


def _named(log: Log, left_out: Sequence[TooLarge], *, peer: str) -> list[Outcome]:
    """Return the refusals of events that no message can have. Each is recorded once, however often it is named."""
    outcomes = [_not_sent(one) for one in left_out]
    if outcomes:
        known = {one.context.get("id") for one in log.refusals(limit=None, code="event_too_large", actor=peer)}
        for outcome in outcomes:
            if outcome.id not in known:
                _refused(log, outcome, peer=peer)
    return outcomes


def _refused(log: Log, outcome: Outcome, *, peer: str) -> Outcome:
    """Record the refusal of what is not an event, or was not sent, as `Log.admit_each` records its refusals."""
    log.writer.refusals.keep(
        code=outcome.code,
        reason=outcome.reason,
        operation="admit",
        stream="",
        type="",
        actor=peer,
        context={"id": outcome.id},
    )
    return outcome
