"""The Lamport clock's two rules and the bound that keeps one hostile event from exhausting it."""

from __future__ import annotations

from everlog.errors import ClockJump

JUMP_MAX = 2**20
"""How far above our clock a received event may be."""

LAMPORT_MAX = 2**53 - 1
"""Lamport values travel as JSON numbers, which are exact up to here."""


def send(clock: int) -> int:
    """The value of the next local event, which is also the new clock."""
    return clock + 1


def receive(clock: int, seen: int) -> int:
    """The clock after an event with the value `seen` arrived."""
    return max(clock, seen) + 1


def refuse_clock_jump(clock: int, seen: int, *, jump_max: int = JUMP_MAX) -> None:
    """Refuse a received value that is not positive or too far ahead to be honest."""
    if 1 <= seen <= min(clock + jump_max, LAMPORT_MAX):
        return
    raise ClockJump(
        f"a received event has the clock value {seen}, ours is {clock}",
        why=f"values from 1 to {jump_max} above our own are accepted",
        hint="sync with other peers first; a peer that keeps sending this has a broken or hostile clock",
        seen=seen,
        clock=clock,
    )
