"""Problems of a log in a few lines, and what to do about them."""

from __future__ import annotations

import pytest

from everlog.application.checks.problems import LINES_MAX, RESTORE, describe, no_hint_to_verify, remedy, summarize
from everlog.core.event import START, Position
from everlog.errors import Damaged
from everlog.log.verify.verify import Report
from everlog.stores.contract import Problem


def report_of(problems: list[Problem], unlisted: int = 0) -> Report:
    return Report(events=0, purged=0, head=Position(9), digest="", problems=tuple(problems), unlisted=unlisted)


def test_each_of_a_few_problems_has_one_line_and_so_has_a_range() -> None:
    problems = [
        Problem(Position(3), "position_missing", "gone", upto=Position(9), file="log.db"),
        Problem(START, "foreign_file", "events/x.jsonl is not named after a day"),
    ]
    assert [item.line for item in summarize(report_of(problems))] == [
        "foreign_file: events/x.jsonl is not named after a day",
        "#3 to #9 position_missing in log.db: gone",
    ]


@pytest.mark.parametrize("files", [1, 3, 400])
def test_many_problems_have_one_line_per_kind(files: int) -> None:
    problems = [
        Problem(Position(2 * number), "payload_changed", f"reason {number}", file=f"{number % files}.jsonl")
        for number in range(1, 1001)
    ]
    problems += [Problem(Position(5), f"code{number}", "odd") for number in range(15 if files == 400 else 2)]
    items = summarize(report_of(problems, unlisted=7))
    assert len(items) <= LINES_MAX + 1
    assert items[-1].line == "more: 7 problems that are not listed"
    assert items[0].line.startswith("#2 … #")
    assert "the first: reason 1" in items[0].line
    if files == 400:
        assert "1.jsonl" not in items[0].line or "1,000 positions" in items[0].line
        left = 16 - (LINES_MAX - 1)  # of sixteen kinds
        assert items[-2].line == f"more: {left} problems of other kinds; see everlog verify --json"


def test_a_problem_that_loses_nothing_needs_no_backup() -> None:
    marker = Problem(START, "conflict_marker", "a marker")
    lost = Problem(Position(3), "position_missing", "gone")
    assert "delete the conflict markers" in remedy([marker])
    assert RESTORE not in remedy([marker])
    assert remedy([lost]) == RESTORE
    assert remedy([marker, lost]).endswith(f"for the rest: {RESTORE}")
    assert describe(lost) == "#3 position_missing: gone"


def test_an_error_during_verify_does_not_send_the_reader_to_verify() -> None:
    with pytest.raises(Damaged) as caught, no_hint_to_verify():
        raise Damaged("x", hint="everlog verify", position=3)
    assert (caught.value.hint, caught.value.details["position"]) == (RESTORE, 3)
    with pytest.raises(Damaged) as caught, no_hint_to_verify():
        raise Damaged("x", hint="delete it")
    assert caught.value.hint == "delete it"
