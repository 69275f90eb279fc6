"""The two rules of the Lamport clock, and the limit that keeps one hostile event from exhausting it."""

from __future__ import annotations

from everlog.errors import ClockJump

JUMP_MAX = 2**20
"""How far above our clock the clock of a received event may be."""

LAMPORT_MAX = 2**53 - 1
"""Lamport values are sent as JSON numbers, which are exact up to this value."""


def send(clock: int) -> int:
    """Return the value of the next local event, which is also the new clock."""
    return clock + 1


def receive(clock: int, seen: int) -> int:
    """Return the clock after the arrival of an event with the value `seen`."""
    return max(clock, seen) + 1


def refuse_clock_jump(clock: int, seen: int, *, jump_max: int = JUMP_MAX) -> None:
    """Refuse a received value that is not positive, or too far ahead."""
    if 1 <= seen <= min(clock + jump_max, LAMPORT_MAX):
        return
    raise ClockJump(
        f"a received event has the clock value {seen}, ours is {clock}",
        why=f"values from 1 to {jump_max} above our clock are accepted",
        hint="sync with other peers first; a peer that keeps sending this has a broken or hostile clock",
        seen=seen,
        clock=clock,
    )
