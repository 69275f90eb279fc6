"""Dead letters: events that a view could not take, kept with the reason, visible until somebody acts.

failed    this event could not be applied; its key goes no further
waiting   it comes after a failed one of the same key, and waits so that the order stays
stopped   not even its key could be told; the whole view goes no further
skipped   somebody decided that the view does without it, and said why
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from everlog.core.event import Recorded
from everlog.views.fold import Failure, Folded
from everlog.views.rows import CausalOrder

FAILED, WAITING, STOPPED, SKIPPED = "failed", "waiting", "stopped", "skipped"


class Letter(msgspec.Struct, frozen=True, omit_defaults=True):
    position: int
    id: str
    type: str
    stream: str
    what: str  # one of the four above
    key: str = ""
    reason: str = ""
    trace: str = ""
    at_us: int = 0
    skipped_by: str = ""
    skipped_because: str = ""
    lamport: int = 0


def parked_by(letters: Iterable[Letter]) -> dict[str, CausalOrder]:
    """The keys that wait, and the causal order of the event that they wait behind."""
    parked: dict[str, CausalOrder] = {}
    for letter in letters:
        if letter.what in (FAILED, WAITING) and letter.key:
            order = (letter.lamport, letter.id)
            parked[letter.key] = min(order, parked.get(letter.key, order))
    return parked


def letters_from(done: Folded, now_us: int) -> list[Letter]:
    """The dead letters that a fold leaves behind."""
    made = [_of(failed, FAILED, now_us) for failed in done.failures]
    if done.stopped is not None:
        made.append(_of(done.stopped, STOPPED, now_us))
    made += [letter(recorded, WAITING, key=key, at_us=now_us) for key, recorded in done.waiting]
    return made


def _of(failed: Failure, what: str, now_us: int) -> Letter:
    key = failed.key or ""
    return letter(failed.recorded, what, key=key, reason=failed.reason, trace=failed.trace, at_us=now_us)


def letter(
    recorded: Recorded, what: str, *, key: str = "", reason: str = "", trace: str = "", at_us: int = 0
) -> Letter:
    event = recorded.event
    return Letter(
        recorded.position,
        event.id,
        event.type,
        event.stream,
        what,
        key,
        reason,
        trace,
        at_us,
        lamport=event.lamport,
    )
