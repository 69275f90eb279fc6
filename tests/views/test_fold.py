"""The fold itself, on records in any order: what it says it has applied is what it was given."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
from tests.views.conftest import ByActor, Said

from everlog.log.log import Log
from everlog.views.builds.rows import Row
from everlog.views.fold import fold, joined, run_of
from everlog.views.view import View


@pytest.mark.parametrize("view", [Said, ByActor])
def test_what_was_applied_is_named_also_when_it_came_out_of_order(
    make_log: Callable[..., Log], view: type[View]
) -> None:
    """A refold in causal order and a fold sorted by key give records whose first and last say nothing."""
    with make_log("memory") as log:
        for number in range(5):
            log.append("thing.said", stream=f"thing/{number % 2}", payload={"value": number})
        records = list(log._store.read())
    for some in itertools.permutations(records, 3):
        done = fold(view(), {}, some)
        assert done.smooth is not None
        assert done.applied == [recorded.position for recorded in some]


@pytest.mark.parametrize("view", [Said, ByActor])
def test_a_key_whose_first_event_fails_has_no_row(make_log: Callable[..., Log], view: type[View]) -> None:
    """Not even the initial state: `apply` may have left half a change in it, and the next event would build on it."""
    with make_log("memory") as log:
        for number, value in enumerate(("poison", 1)):
            log.append("thing.said", stream=f"thing/{number}", payload={"value": value}, actor=f"user:u{number}")
        rows: dict[str, Row] = {}
        done = fold(view(), rows, list(log._store.read()))
    failed, good = ("thing/0", "thing/1") if view is Said else ("user:u0", "user:u1")
    assert [failure.key for failure in done.failures] == [failed]
    assert (done.changed, set(rows)) == ({good}, {good})


@pytest.mark.parametrize(
    ("before", "more", "run"),
    [
        ([], range(1, 4), True),
        (range(1, 4), range(4, 6), True),
        (range(1, 4), range(5, 6), False),
        (range(1, 4), [4, 5], False),
        ([1, 3], range(4, 6), False),
        (range(1, 4), [], True),
    ],
)
def test_positions_are_joined_and_runs_that_meet_stay_a_run(
    before: Sequence[int], more: Sequence[int], run: bool
) -> None:
    expected = [*before, *more]
    found = joined(before, more)
    assert [*found] == expected
    assert isinstance(found, range) is run


def test_positions_become_a_range_only_if_they_have_no_gap(make_log: Callable[..., Log]) -> None:
    """What stands in a gap was not applied, and an audit must be able to say so."""
    with make_log("memory") as log:
        for number in range(5):
            log.append("thing.said", stream="thing/1", payload={"value": number})
        records = list(log._store.read())
    for size in range(6):
        for some in itertools.combinations(records, size):
            assert [*run_of(some)] == [recorded.position for recorded in some]
    assert run_of(records) == range(1, 6)
