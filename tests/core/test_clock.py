"""The Lamport clock: two rules and a bound. Two of the names are seed 002's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlog.core.clock import JUMP_MAX, LAMPORT_MAX, receive, refuse_clock_jump, send
from everlog.errors import ClockJump

CLOCKS = st.integers(min_value=0, max_value=LAMPORT_MAX)


def test_lamport_send_increments() -> None:
    assert [send(0), send(1), send(41)] == [1, 2, 42]


def test_lamport_observe_caps_above() -> None:
    """The clock goes above what it has seen and above itself; what is too far above is not taken over at all."""
    assert receive(3, 10) == 11
    assert receive(10, 3) == 11
    assert receive(10, 10) == 11
    with pytest.raises(ClockJump):
        refuse_clock_jump(3, 3 + JUMP_MAX + 1)


@given(CLOCKS, CLOCKS)
def test_the_clock_never_goes_back_or_stands_still(clock: int, seen: int) -> None:
    assert receive(clock, seen) > max(clock, seen)
    assert send(clock) > clock


@pytest.mark.parametrize("seen", [1, 5, 100, 100 + JUMP_MAX])
def test_an_honest_value_is_accepted(seen: int) -> None:
    refuse_clock_jump(100, seen)


@pytest.mark.parametrize("seen", [0, -1, 100 + JUMP_MAX + 1, 2**53, 2**63 - 2, 2**64])
def test_a_jump_is_refused_and_says_what_would_do(seen: int) -> None:
    """F58: one hostile event must not exhaust the clock."""
    with pytest.raises(ClockJump) as refusal:
        refuse_clock_jump(100, seen)
    assert refusal.value.details == {"seen": seen, "clock": 100}
    assert str(JUMP_MAX) in refusal.value.why


def test_no_value_beyond_exact_json_numbers_is_accepted_even_step_by_step() -> None:
    """F58: a clock that was led up slowly still stops where JSON numbers stop being exact."""
    refuse_clock_jump(LAMPORT_MAX - 5, LAMPORT_MAX)
    with pytest.raises(ClockJump):
        refuse_clock_jump(LAMPORT_MAX - 5, LAMPORT_MAX + 1)
