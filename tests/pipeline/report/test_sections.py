"""The figures of the report: what they become when the log is young. No Spark is needed for that."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from everlog.pipeline.report.sections import Section, every_section

pytest.importorskip("plotly", reason="the report needs plotly: pip install 'everlog[report]'")

MONDAY = date(2026, 11, 9)
WEEK = {"week": MONDAY, **{f"{kind}_p{part}": 1.0 for kind in ("lead", "cycle") for part in (50, 85, 95)}}


class Said:
    """Answers that a test gives."""

    cursor = ""

    def __init__(self, **answers: list[dict[str, Any]]) -> None:
        self._answers = answers

    def __call__(self, name: str) -> list[dict[str, Any]]:
        return self._answers.get(name, [])


def sections(**answers: list[dict[str, Any]]) -> dict[str, Section]:
    return {section.title: section for section in every_section(Said(**answers))}  # type: ignore[arg-type]


@pytest.mark.parametrize(("weeks", "kinds"), [(1, {"bar"}), (2, {"scatter"})])
def test_times_are_lines_over_weeks_and_bars_of_a_single_one(weeks: int, kinds: set[str]) -> None:
    day = {"day": MONDAY, "done": 1, "begun": 1, "in_progress": 0}
    found = sections(flow_daily=[day], flow_weekly=[WEEK] * weeks)["How long it takes"]
    assert {trace.type for trace in found.figure.data} == kinds


def test_growth_of_a_single_day_is_a_bar_a_type_with_the_most_common_first() -> None:
    rows = [{"type": f"type.{number:02}", "day": MONDAY, "events": number} for number in range(1, 21)]
    found = sections(growth=rows)["How the log grows"]
    assert found.says == "210 events arrived in a day, 2026-11-09. The 15 most common of 20 types:"
    (bars,) = found.figure.data
    assert (bars.orientation, len(bars.x), bars.y[0], bars.x[0]) == ("h", 15, "type.20", 20)


def test_growth_over_days_is_a_stack_a_day_in_which_nothing_is_left_out() -> None:
    rows = [{"type": f"type.{n:02}", "day": MONDAY.replace(day=9 + n % 2), "events": n} for n in range(1, 21)]
    found = sections(growth=rows)["How the log grows"]
    assert found.says == "210 events arrived in 2 days."
    assert found.figure.data[-1].name == "others"
    assert sum(sum(bars.y) for bars in found.figure.data) == 210
