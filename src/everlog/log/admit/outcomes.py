"""What becomes of an event that another node sent, and the codes that give the reason.

    recorded    it has a position in this log from now on
    known       this log has it already
    held        it is sound, but does not count yet: it waits beside the log (`everlog.log.admit.quarantine`)
    refused     it is not stored

`refused` and `held` have one of `CODES`. The wire, the list of refusals and `everlog sync` use the same ones.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from everlog.core.event import Event
from everlog.errors import (
    AlreadyPurged,
    ClockJump,
    CommitmentMismatch,
    Damaged,
    EverlogError,
    IdConflict,
    IdFromTheFuture,
    InvalidSignature,
)
from everlog.stores.contract import Encoded, Known

Kind = Literal["recorded", "known", "held", "refused"]

CODES = {
    "invalid_signature": "the signature is missing or wrong, or the header commits to another payload",
    "unknown_author": "nothing in the history gives this origin a right to write",
    "revoked_author": "the right of this origin ended before this event",
    "schema_unknown": "it is not an event: a shape, a size or a form is wrong",
    "out_of_order": "an event before it in its chain is missing here",
    "db_corrupt": "this log is damaged where the event would have to be compared with it",
    "fork": "its origin has signed another event with the same number, or one before it",
    "id_conflict": "its id is that of another event, or not one that its origin makes",
    "clock_too_far": "its clock or its time is too far ahead; it can be sent again later",
    "replayed_elsewhere": "it was signed for another log",
    "no_key": "this log has no key to sign with",
    "event_too_large": "no message of a sync has room for it, so its sender named it and did not send it",
    "purged": "it was purged from this log",
}


class Outcome(msgspec.Struct, frozen=True):
    """What became of one event."""

    id: str
    kind: Kind
    code: str = ""
    reason: str = ""


_CODE_OF: dict[type[EverlogError], str] = {
    InvalidSignature: "invalid_signature",
    CommitmentMismatch: "invalid_signature",
    IdConflict: "id_conflict",
    IdFromTheFuture: "clock_too_far",
    ClockJump: "clock_too_far",
    AlreadyPurged: "purged",
    Damaged: "db_corrupt",
}


def refused(event_id: str, error: EverlogError) -> Outcome:
    """Return the outcome for an event that an error refuses."""
    code = next((code for kind, code in _CODE_OF.items() if isinstance(error, kind)), "schema_unknown")
    return Outcome(event_id, "refused", code, str(error))


def outcome_of(event: Event, kind: Kind, code: str, reason: str) -> Outcome:
    return Outcome(event.id, kind, code, f"event {event.id}: {reason}")


def recorded(event: Event) -> Outcome:
    return Outcome(event.id, "recorded")


def if_known(encoded: Encoded, known: Known | None) -> Outcome | None:
    """Return the outcome of an event whose id is known; None if it is new."""
    event = encoded.event
    if known is None:
        return None
    if known.hash != encoded.hash:
        return outcome_of(event, "refused", "id_conflict", "its id is that of another event")
    if known.purged:
        return outcome_of(event, "refused", "purged", "it was purged here, and a purge is for good")
    return Outcome(event.id, "known")


def without_payload(event: Event) -> Outcome:
    return outcome_of(event, "refused", "invalid_signature", "its payload is missing, without a record")


def refuse_clock(event: Event, clock: int, jump_max: int) -> Outcome | None:
    """Refuse an event that is too far ahead of the greatest known value."""
    if event.lamport <= clock + jump_max:
        return None
    reason = f"its clock is {event.lamport}, more than {jump_max} above the greatest known value {clock}"
    return outcome_of(event, "refused", "clock_too_far", reason)
