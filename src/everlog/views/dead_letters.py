"""The dead letters of a view: events that it could not apply, and the keys that wait because of them.

`everlog.log.dead_letters` describes the form and the words.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from everlog.core.event import Recorded
from everlog.log.dead_letters import FAILED, STOPPED, WAITING
from everlog.views.builds.rows import CausalOrder
from everlog.views.fold import Failure, Folded


class ViewLetter(msgspec.Struct, frozen=True, omit_defaults=True):
    """A dead letter of a view. Its stored names are older than the common form."""

    position: int
    id: str
    type: str
    stream: str
    what: str
    key: str = ""
    reason: str = ""
    trace: str = ""
    at_us: int = 0
    decided_by: str = msgspec.field(default="", name="skipped_by")
    decided_because: str = msgspec.field(default="", name="skipped_because")
    lamport: int = 0  # with `id`, the causal order of the event


def parked_by(letters: Iterable[ViewLetter]) -> dict[str, CausalOrder]:
    """Return the keys that wait, with the causal order of the event that they wait behind."""
    parked: dict[str, CausalOrder] = {}
    for letter in letters:
        if letter.what in (FAILED, WAITING) and letter.key:
            order = (letter.lamport, letter.id)
            parked[letter.key] = min(order, parked.get(letter.key, order))
    return parked


def letters_from(done: Folded, now_us: int) -> list[ViewLetter]:
    """Return the dead letters that follow from a fold."""
    made = [_of(failed, FAILED, now_us) for failed in done.failures]
    if done.stopped is not None:
        made.append(_of(done.stopped, STOPPED, now_us))
    made += [letter(recorded, WAITING, key=key, at_us=now_us) for key, recorded in done.waiting]
    return made


def _of(failed: Failure, what: str, now_us: int) -> ViewLetter:
    key = failed.key or ""
    return letter(failed.recorded, what, key=key, reason=failed.reason, trace=failed.trace, at_us=now_us)


def letter(
    recorded: Recorded, what: str, *, key: str = "", reason: str = "", trace: str = "", at_us: int = 0
) -> ViewLetter:
    event = recorded.event
    return ViewLetter(
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
