"""In which file a position is, or was before the file was lost."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from everlog.core.event import Position
from everlog.stores.contract import Problem
from everlog.stores.segments.check import _lost_mark, file_name_of
from everlog.stores.segments.format.layout import Layout

LAYOUT = Layout(Path("/log"))
LOST = (Problem(Position(0), "segment_missing", ""),)


def segment(number: int, before: int | None, head: int, *, archived: bool = False) -> Any:
    header = None if before is None else SimpleNamespace(before=before)
    return SimpleNamespace(number=number, header=header, head=head, archived=archived)


def named(state: Any, position: int) -> str:
    return file_name_of(LAYOUT, state, Position(position))


def file(number: int, *, archived: bool = False) -> str:
    path = LAYOUT.archive(number) if archived else LAYOUT.segment(number)
    return str(path.relative_to(LAYOUT.root))


def state_of(*segments: Any, problems: tuple[Problem, ...] = ()) -> Any:
    return SimpleNamespace(segments=segments, problems=problems, live=segments[-1] if segments else None)


@pytest.mark.parametrize(("position", "number"), [(1, 1), (5, 1), (6, 2), (9, 2), (10, 3), (12, 3), (13, 3)])
def test_a_position_is_in_the_segment_that_ends_at_or_after_it(position: int, number: int) -> None:
    state = state_of(segment(1, 0, 5, archived=True), segment(2, None, 9), segment(3, 9, 12))
    assert named(state, position) == file(number, archived=number == 1)


@pytest.mark.parametrize(("position", "number"), [(5, 1), (6, 2), (9, 2), (10, 3), (13, 4)])
def test_a_position_of_a_missing_segment_is_in_the_file_that_it_had(position: int, number: int) -> None:
    state = state_of(segment(1, 0, 5), segment(3, 9, 12), problems=LOST)
    assert named(state, position) == file(number)


def test_a_log_without_any_segment_has_lost_the_first() -> None:
    assert named(state_of(), 3) == file(1)


def test_a_lost_mark_is_named_with_its_bytes() -> None:
    live = SimpleNamespace(number=7, end=100, lost_mark=b"12345")
    (problem,) = _lost_mark(SimpleNamespace(segments=[live], live=live))  # type: ignore[arg-type]
    assert (problem.position, problem.code) == (0, "mark_lost")
    assert "00000007.seg" in problem.reason
    assert "bytes 100 to 104;" in problem.reason
    live.lost_mark = b""
    assert list(_lost_mark(SimpleNamespace(segments=[live], live=live))) == []  # type: ignore[arg-type]
    assert list(_lost_mark(SimpleNamespace(segments=[], live=live))) == []  # type: ignore[arg-type]
