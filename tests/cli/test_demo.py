"""The demo: every stage of it, and what it may replace."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from tests.cli.conftest import Run

from everlog import programs
from everlog.demo.postgres_server import NoServer, start_server


def test_the_demo_shows_every_stage_and_leaves_a_log_to_play_with(everlog: Run) -> None:
    found = everlog("demo", "--no-spark")
    assert found.code == 0
    stages = [line.split()[1] for line in found.out.splitlines() if line.startswith("ok ")]
    assert stages == [
        *("folder", "programs", "week", "late-sync", "retry", "refusals"),
        *("conflict", "secret", "purge", "views", "verify", "trust", "errors"),
    ]
    assert max(len(line) for line in found.out.splitlines() if line.startswith("ok ")) <= 78
    for told in ("The board of a feature", "issues", "Members", "audit", "What caused what"):
        assert told in found.out
    assert "FAIL" not in found.out
    assert everlog("config", "get", "demo").out == "true\n"
    assert int(everlog("--json").data["events"]) > 2_000
    assert everlog("verify").code == 0
    assert len(everlog("errors").rows) >= 8
    assert re.search(r"\(everlog agent trace WP\d+\)", found.out)


def test_the_demo_replaces_a_demo_and_nothing_else_and_tells_programs_what_it_shows(
    everlog: Run, place: Path
) -> None:
    assert everlog("demo", "--dir", "tour", "--no-spark").code == 0
    first, own = everlog("-C", "tour", "--json").data, place / "tour" / ".everlog"
    (own / "mine.txt").write_text("keep me")
    # What was derived from the first goes with it.
    (own / "lake" / "events").mkdir(parents=True)
    (own / "lake" / "events" / "part.parquet").touch()
    (own / "report.html").touch()
    answer = everlog("demo", "--dir", "tour", "--no-spark", "--json")
    second = everlog("-C", "tour", "--json").data
    assert first["log_id"] != second["log_id"]
    assert first["events"] == second["events"]
    assert not {"lake", "report.html"} & {path.name for path in own.iterdir()}
    assert (own / "mine.txt").exists()

    found = answer.data
    assert list(found["shown"]) == ["board", "issues", "members", "audit", "trace"]
    assert {len(rows) > 3 for rows in found["shown"].values()} == {True}
    assert {one["view"].partition(".")[0] for one in found["views"]} == set(programs.TYPES)
    assert all(one["live"] == one["rebuilt"] == one["as_of_head"] for one in found["views"])
    assert [one["code"] for one in found["refused"]] == [
        "transition_refused",
        "look_alike",
        "rule_refused",
        "no_such_subject",
        "rule_refused",
    ]
    assert len(found["synced"]) == 3
    assert len(answer.next) == 9
    for command in answer.next:
        words = shlex.split(command)
        assert words[:3] == ["everlog", "-C", "tour"]
        told = everlog(*words[1:])
        assert (told.code, bool(told.out)) == (0, True), command


def test_the_second_act_needs_the_first(everlog: Run) -> None:
    found = everlog("demo", "--spark-only", "--json")
    assert (found.code, found.error["hint"]) == (4, "everlog demo")
    assert everlog("demo", "--spark-only", "--no-spark").code == 2
    assert everlog("demo", "--spark-only", "--store", "postgres").code == 2


def test_the_demo_leaves_a_real_log_alone(notes: Run) -> None:
    found = notes("demo", "--no-spark", "--json")
    assert found.code == 5
    assert found.error["hint"] == "everlog demo --dir DIR"
    assert len(notes("log").rows) == 5


def test_a_stage_that_does_not_hold_fails_the_demo(everlog: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from everlog.log.write.refusals import Refusals

    monkeypatch.setattr(Refusals, "counts", lambda self: [])
    found = everlog("demo", "--no-spark")
    assert found.code == 1
    assert "FAIL  errors" in found.out
    assert json.loads(everlog("--json").out)["data"]["events"] > 2_000


def test_the_demo_runs_on_a_postgres_of_its_own(everlog: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same stages, and nothing left behind."""
    try:
        server = start_server()
    except NoServer as error:
        pytest.skip(f"no PostgreSQL: {error}")
    monkeypatch.setattr("everlog.demo.postgres_server.start_server", lambda: server)
    found = everlog("demo", "--store", "postgres", "--json")
    assert found.code == 0, found.err
    stages = {stage["stage"]: stage for stage in found.data["stages"]}
    assert {stage["status"] for stage in stages.values()} == {"ok"}
    assert {"server", "week", "late-sync", "purge", "views", "verify"} <= stages.keys()
    assert not server.folder.exists()
