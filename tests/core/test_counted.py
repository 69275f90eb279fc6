from __future__ import annotations

import pytest

from everlog.core.counted import counted


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 events"), (1, "1 event"), (2, "2 events"), (12345, "12,345 events")]
)
def test_one_is_said_without_an_s_and_all_else_with_it(count: int, said: str) -> None:
    assert counted(count, "event") == said


def test_what_is_not_just_an_s_more_is_given() -> None:
    assert counted(1, "line is", "lines are") == "1 line is"
    assert counted(3, "line is", "lines are") == "3 lines are"
