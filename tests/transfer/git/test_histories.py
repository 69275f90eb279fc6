"""Random histories of a log in git; see `histories`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.transfer.git.histories import make_clones, play

SHORT, LONG, AT_ONCE = 4, 500, 31


@pytest.fixture
def template(tmp_path: Path) -> Path:
    make_clones(tmp_path / "template")
    return tmp_path / "template"


def test_the_board_is_what_is_checked_out(template: Path, tmp_path: Path) -> None:
    resets = sum(play(template, tmp_path / "history", seed) for seed in range(SHORT))
    assert resets > 0  # or the histories would say nothing


@pytest.mark.slow
@pytest.mark.parametrize("first", range(SHORT, LONG, AT_ONCE))
def test_the_board_is_what_is_checked_out_in_many_histories(template: Path, tmp_path: Path, first: int) -> None:
    for seed in range(first, min(first + AT_ONCE, LONG)):
        play(template, tmp_path / "history", seed)
