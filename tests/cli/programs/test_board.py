"""Work packages in a terminal: the board fits, counts what is done, and shows what needs somebody first."""

from __future__ import annotations

import pytest

from everlog.cli.output import Output
from everlog.cli.programs.board import DONE_SHOWN, board_lines, marks


def terminal(monkeypatch: pytest.MonkeyPatch, columns: int = 80) -> Output:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = Output(json=False, agent=False, quiet=False, no_color=True, program="everlog")
    out.terminal = True
    return out


def a_package(name: str, lane: str, **other: object) -> dict[str, object]:
    empty: dict[str, object] = {
        "id": name,
        "title": "",
        "lane": lane,
        "feature": "",
        "conflict": None,
        "closed_gates": {},
        "waits_for": [],
        "subtasks": [],
        "migrated": False,
        "moved_at": name,
    }
    return {**empty, **other}


def test_marks_tell_what_needs_somebody_first() -> None:
    found = a_package(
        "WP01",
        "for_review",
        conflict=[{}],
        closed_gates={"ci": "failed", "scan": "pending"},
        subtasks=[{"done_at": ""}],
    )
    assert [text for text, _ in marks(found)] == ["conflict", "ci failed", "scan pending", "0/1 subtask"]
    assert marks(a_package("WP01", "doing", waits_for=["WP02"])) == []


def test_much_that_is_done_is_counted_and_lanes_of_others_have_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = [a_package(f"WP{number:02}", "done") for number in range(DONE_SHOWN + 3)]
    packages.append(a_package("WP99", "blocked"))
    few = "\n".join(board_lines(terminal(monkeypatch), packages, {}, everything=False))
    assert ("WP02" in few, "WP03" in few, "… 3 more" in few, "blocked 1" in few) == (False, True, True, True)
    all_of_them = "\n".join(board_lines(terminal(monkeypatch), packages, {}, everything=True))
    assert "WP00" in all_of_them


def test_wide_characters_take_their_two_places(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = [a_package("WP01", "planned", title="日本語の時計"), a_package("WP02", "doing", title="x")]
    lines = board_lines(terminal(monkeypatch), packages, {}, everything=False)
    assert lines[2] == "WP01 日本語の時計  WP02 x"
    narrow = board_lines(terminal(monkeypatch, 40), packages, {}, everything=False)
    assert narrow[2] == "WP01 日…  WP02 x"


def test_names_that_could_steer_a_terminal_are_spelled_out(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = board_lines(terminal(monkeypatch), [a_package("WP01", "doing", title="\x1b[2J")], {}, everything=False)
    assert "\x1b" not in "".join(lines)
