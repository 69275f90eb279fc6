"""The chain of an origin: whatever the order of arrival, the same runs and the same contiguous end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from everlog.core.chain import FORKS_MAX, NO_CHAIN, Chain, simple_chain
from everlog.core.event import BEGINNING, Link, Position


def hash_of(number: int) -> bytes:
    return b"" if number == 0 else number.to_bytes(32, "big")


def chain_of(numbers: list[int]) -> Chain:
    chain = NO_CHAIN
    for number in numbers:
        chain = chain.extended(number, hash_of(number - 1), hash_of(number), Position(100 + number))
    return chain


def test_events_in_order_are_one_run() -> None:
    chain = chain_of([1, 2, 3])
    assert chain == simple_chain(Link(3, hash_of(3)), Position(103))
    assert chain.end == Link(3, hash_of(3))
    assert chain.simple
    assert chain.holes == []


def test_a_stray_event_far_ahead_does_not_move_the_contiguous_end() -> None:
    chain = chain_of([1, 2, 1_000_000_000])
    assert chain.end == Link(2, hash_of(2))
    assert chain.greatest == Link(1_000_000_000, hash_of(1_000_000_000))
    assert chain.holes == [(3, 999_999_999)]
    assert not chain.simple
    assert chain.has(1_000_000_000)
    assert not chain.has(3)


def test_a_chain_without_its_first_event_has_no_end() -> None:
    chain = chain_of([2, 3])
    assert chain.end == BEGINNING
    assert not chain.simple
    assert chain.holes == [(1, 1)]


@given(st.sets(st.integers(1, 40), min_size=1).flatmap(lambda numbers: st.permutations(sorted(numbers))))
def test_the_order_of_arrival_does_not_matter(numbers: list[int]) -> None:
    chain = chain_of(numbers)
    end = 0
    while end + 1 in numbers:
        end += 1
    assert chain.end == (Link(end, hash_of(end)) if end else BEGINNING)
    known = {number for run in chain.runs for number in range(run.first, run.last + 1)}
    assert known == set(numbers)
    assert all(run.position == 100 + run.last for run in chain.runs)
    assert all(before.last + 1 < after.first for before, after in zip(chain.runs, chain.runs[1:], strict=False))
    missing = {number for first, last in chain.holes for number in range(first, last + 1)}
    assert missing == set(range(1, max(numbers))) - set(numbers)
    assert chain.forks == ()


def test_a_second_event_with_a_number_is_a_fork_and_changes_no_run() -> None:
    chain = chain_of([1, 2, 3])
    forked = chain.extended(2, hash_of(1), b"x" * 32, Position(200))
    assert forked.runs == chain.runs
    assert [(fork.origin_seq, fork.hash, fork.position) for fork in forked.forks] == [(2, b"x" * 32, 200)]
    assert not forked.simple
    for number in range(2 * FORKS_MAX):
        forked = forked.extended(2, hash_of(1), number.to_bytes(32, "big"), Position(number))
    assert len(forked.forks) == FORKS_MAX


def test_an_event_that_does_not_follow_begins_a_run_of_its_own() -> None:
    chain = chain_of([1, 2]).extended(3, b"y" * 32, hash_of(3), Position(103))
    assert chain.end == Link(2, hash_of(2))
    assert [(run.first, run.last) for run in chain.runs] == [(1, 2), (3, 3)]
    assert chain.holes == []
    assert not chain.simple
    longer = chain.extended(4, hash_of(3), hash_of(4), Position(104))
    assert [(run.first, run.last) for run in longer.runs] == [(1, 2), (3, 4)]


def test_a_first_event_that_names_another_before_it_is_not_the_beginning() -> None:
    chain = NO_CHAIN.extended(1, b"z" * 32, hash_of(1), Position(1))
    assert chain.end == BEGINNING
    assert not chain.simple
