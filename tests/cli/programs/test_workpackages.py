"""`everlog wp`: what a person sees of it; the rules are tested in tests/programs."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from tests.cli.conftest import Run

from everlog.cli.output import Output
from everlog.cli.programs.board import (
    COLUMN_MAX,
    board_lines,
    describe_step,
    history_lines,
    status_lines,
)
from everlog.programs.perform import ask
from everlog.programs.workpackages.questions import Board, PackageHistory, Specs, Status


@pytest.fixture
def wp(log: Run) -> Run:
    """The command line in a folder with three work packages: done, doing, and waiting."""

    def do(*arguments: str) -> None:
        assert log("wp", *arguments).code == 0

    do("spec", "025-log", "Event log")
    do("create", "WP01", "Day files", "--feature", "025-log", "--gate", "ci")
    do(
        "create",
        "WP02",
        "Index",
        "--feature",
        "025-log",
        "--depends-on",
        "WP01",
        "--subtask",
        "write",
        "--subtask",
        "test",
    )
    do("create", "WP03", "Merge driver", "--feature", "025-log", "--depends-on", "WP02")
    do("move", "WP01", "doing")
    do("move", "WP01", "for_review")
    do("gate", "WP01", "ci", "--result", "passed", "--data", '{"run": 17}')
    do("move", "WP01", "done")
    do("move", "WP02", "doing")
    do("subtask", "WP02", "1")
    return log


def test_the_board_has_a_row_for_each_package_when_it_is_piped(wp: Run) -> None:
    assert wp("wp", "board").rows == [
        ["025-log", "done", "WP01", "Day files", ""],
        ["025-log", "doing", "WP02", "Index", "1/2 subtasks"],
        ["025-log", "planned", "WP03", "Merge driver", "waits for WP02"],
    ]
    assert wp("wp", "board", "--feature", "024-old").out == ""
    assert [one["lane"] for one in wp("wp", "board", "--json").data] == ["done", "doing", "planned"]
    assert wp("wp", "board", "--quiet").out.split() == ["WP01", "WP02", "WP03"]


def test_a_board_of_a_feature_that_nobody_plans_names_those_that_are_there(wp: Run) -> None:
    told = wp("wp", "board", "--feature", "025-lgo").err
    assert told == "nothing is planned for 025-lgo: everlog wp create --help; the features are 025-log\n"


@pytest.mark.parametrize("wrong", [("create", "wp 2", "x"), ("create", "", "x"), ("spec", "my feature", "x")])
def test_an_id_that_cannot_be_one_is_refused_as_an_id(log: Run, wrong: tuple[str, ...]) -> None:
    refused = log("wp", *wrong, "--json")
    assert (refused.code, refused.error["code"]) == (3, "invalid_field")
    assert refused.error["message"].startswith(
        ("the id of a work package is '", "the slug of a feature is 'my feature'")
    )
    assert log(*shlex.split(refused.error["hint"])[1:]).code == 0
    assert len(log("errors").rows) == 1


def test_a_dependency_that_cannot_be_an_id_is_refused(wp: Run) -> None:
    refused = wp("wp", "create", "WP09", "x", "--depends-on", "WP01, WP02", "--json").error
    assert refused["message"] == "the id of a work package is 'WP01, WP02'"


def test_a_move_answers_with_the_lane_and_a_refusal_with_the_way(wp: Run) -> None:
    assert wp("wp", "move", "WP02", "for_review").rows == [["WP02", "for_review", "recorded"]]
    refused = wp("wp", "move", "WP03", "done")
    assert refused.code == 3
    assert "fix: everlog wp move WP03 doing" in refused.err
    assert "again: the same rule refused you once before" in wp("wp", "move", "WP03", "done").err
    error = wp("wp", "move", "WP03", "done", "--json").error
    assert error["details"]["valid_transitions"] == ["doing"]
    assert error["details"]["refused_before"] == 2
    assert wp("errors", "--stats", "--operation", "wp move").rows == [["3", "transition_refused", "", "wp move"]]
    assert "WP03 cannot go" in wp("wp", "status", "WP03").out


def test_status_and_history_tell_all_of_a_package(wp: Run) -> None:
    status = dict(row[:2] for row in wp("wp", "status", "WP01").rows)
    assert (status["lane"], status["conflict"]) == ("done", "")
    assert [row[2] for row in wp("wp", "history", "WP01").rows] == [
        "created: Day files",
        "gate ci",
        "planned -> doing",
        "doing -> for_review",
        "gate ci: pending -> passed",
        "for_review -> done",
    ]
    assert wp("wp", "history", "WP77").code == 4


def test_gates_workspaces_and_dependencies_are_recorded(wp: Run) -> None:
    assert wp("wp", "gate", "WP02", "ci", "--type", "pipeline").code == 0
    assert wp("wp", "gate", "WP02", "ci", "--result", "maybe").code == 3
    assert wp("wp", "workspace", "WP02", "trees/WP02", "--branch", "b").code == 0
    assert wp("wp", "depend", "WP03", "--on-nothing", "--reason", "split").code == 0
    assert "WP09 is not there yet" in wp("wp", "depend", "WP02", "--on", "WP09").err
    found = wp("wp", "status", "WP02", "--json").data
    assert (found["gates"]["ci"]["type"], found["workspace"]["branch"], found["waits_for"]) == (
        "pipeline",
        "b",
        ["WP09"],
    )


@pytest.mark.parametrize(
    "wrong",
    [
        ("depend", "WP03"),
        ("depend", "WP03", "--on", "WP01", "--on-nothing"),
        ("gate", "WP03", "ci", "--data", "{}"),
        ("gate", "WP03", "ci", "--result", "passed", "--data", "{"),
        ("gate", "WP03", "ci", "--result", "passed", "--data", "[]"),
        ("subtask", "WP03", "one"),
    ],
)
def test_what_cannot_be_understood_is_a_mistake_of_usage(wp: Run, wrong: tuple[str, ...]) -> None:
    assert wp("wp", *wrong).code == 2


def test_a_file_of_1_x_is_migrated_once(log: Run, place: Path) -> None:
    file = place / "activity.yaml"
    file.write_text("- {timestamp: 2026-01-12T09:00:00Z, work_package_id: WP01, lane: doing}\n")
    assert log("wp", "migrate", "activity.yaml", "--dry-run").rows[0][2:] == ["1", str(file), "dry_run"]
    assert log("wp", "migrate", "activity.yaml").rows[0][2:] == ["1", f"{file}.migrated", "recorded"]
    assert log("wp", "migrate", "activity.yaml", "--json").data["status"] == "unchanged"
    assert log("wp", "board").rows == [["", "doing", "WP01", "", "migrated"]]
    file.write_text("- {timestamp: x}\n")
    refused = log("wp", "migrate", "activity.yaml")
    assert (refused.code, "activity.yaml:1: timestamp is x" in refused.err) == (3, True)


# ---- in a terminal


def terminal(monkeypatch: pytest.MonkeyPatch, columns: int = 80) -> Output:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = Output(json=False, agent=False, quiet=False, no_color=True, program="everlog")
    out.terminal = True
    return out


BOARD = """\
025-log  Event log                                             1 of 3 done
planned 1          doing 1            for_review 0       done 1
WP03 Merge driver  WP02 Index                            WP01 Day files
  waits for WP02     1/2 subtasks"""


def test_the_board_is_a_table_of_lanes_that_fits_the_terminal(wp: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from everlog.wiring import open_folder

    with open_folder(Path(".everlog").absolute()) as log:
        packages, specs = ask(log, Board()), ask(log, Specs())
        assert "\n".join(board_lines(terminal(monkeypatch), packages, specs, everything=False)) == BOARD
        for columns in (40, 79, 80, 200):
            lines = board_lines(terminal(monkeypatch, columns), packages, specs, everything=False)
            assert max(map(len, lines)) <= min(columns, 4 * (COLUMN_MAX + 2))
        shown = status_lines(terminal(monkeypatch), ask(log, Status(id="WP03")))
        assert shown == [
            "WP03  Merge driver  (025-log)",
            "lane        planned",
            "may go to   doing when WP02 is done",
            "depends on  WP02 (doing)",
        ]
        rows = [describe_step(step) for step in ask(log, PackageHistory(id="WP01"))]
        assert history_lines(terminal(monkeypatch), rows)[2].endswith("planned -> doing")
