"""`everlog pipeline`: what can be reported without Spark. What starts it is tested in tests/pipeline."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from everlog.cli.pipeline.progress import _Shown
from everlog.core.event import Position
from everlog.errors import NotFound
from everlog.pipeline.session.progress import Status, Step

if TYPE_CHECKING:
    from tests.cli.conftest import Result


def test_without_the_libraries_it_says_what_to_install(
    everlog: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    found = everlog("pipeline", "check")
    assert found.code == 7
    assert "fail\tlibraries\tthe pipeline needs Spark" in found.out
    assert "everlog[spark]" in found.out


def test_a_setting_that_is_none_of_sparks_is_refused(everlog: Callable[..., Result]) -> None:
    found = everlog("pipeline", "check", "--conf", "driver.memory=2g")
    assert found.code == 2
    assert "is not like spark.driver.memory=2g" in found.err


def test_a_wrong_master_is_refused_before_anything_starts(everlog: Callable[..., Result]) -> None:
    found = everlog("pipeline", "check", "--master", "mars://rover")
    assert found.code == 2
    assert "fail\tstart\t'mars://rover' is not a master of Spark" in found.out


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark takes seconds to start: a user should not wait for that to see a typing error."""
    pytest.importorskip("deltalake", reason="the pipeline's libraries are not here")

    def start(**more: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("everlog.pipeline.session.session.opened_session", start)


def test_a_file_that_cannot_be_written_is_reported_before_the_work(
    notes: Callable[..., Result], place: Path, no_spark: None
) -> None:
    for command in (["pipeline", "report"], ["export"]):
        refused = notes(*command, "no/such/folder.html", "--json")
        assert (refused.code, refused.error["hint"]) == (4, f"mkdir -p {place / 'no' / 'such'}")
        assert notes(*command, ".", "--json").error["message"] == f"{place} is a folder"


def test_a_lake_that_is_not_there_is_made_by_the_command_that_the_hint_says(
    notes: Callable[..., Result], no_spark: None
) -> None:
    assert notes("pipeline", "report", "--json").error["hint"] == "everlog pipeline run"
    for command in ("report", "compact"):
        refused = notes("pipeline", command, "--lake", "my lake", "--json")
        assert refused.error["hint"] == "everlog pipeline run --lake 'my lake'"


def test_a_lake_of_another_log_is_refused_by_every_command_in_the_same_words(
    notes: Callable[..., Result], place: Path, no_spark: None
) -> None:
    from everlog.pipeline.lake.lake import Lake

    Lake.open(place / ".everlog" / "lake", log_id="01ANOTHER", create=True)
    reported = [
        notes("pipeline", *command, "--json")
        for command in (["run"], ["run", "--rebuild", "nope"], ["compact"], ["stream"], ["report"])
    ]
    assert {(one.code, one.error["message"]) for one in reported} == {
        (5, f"the lake in {place / '.everlog' / 'lake'} belongs to another log")
    }
    assert not (place / "report.html").exists()


def test_a_lake_where_there_is_no_log_can_be_reported_on(
    everlog: Callable[..., Result], place: Path, no_spark: None
) -> None:
    from everlog.pipeline.lake.lake import Lake

    Lake.open(place / "carried", log_id="01ANOTHER", create=True)
    found = everlog("pipeline", "report", "--lake", "carried", "--json")
    assert found.error["message"] == "there is nothing to report"
    assert everlog("pipeline", "report", "--json").error["code"] == "no_log"


def test_names_are_looked_at_before_spark_is_started(
    notes: Callable[..., Result], place: Path, no_spark: None
) -> None:
    refused = notes("pipeline", "run", "--rebuild", "nope", "--json")
    assert (refused.code, refused.error["why"]) == (4, "it has none yet")
    assert notes("pipeline", "run", "--master", "mars://rover").code == 2
    assert not (place / ".everlog" / "lake").exists(), "nothing is made for a command that is refused"
    refused = notes("views", "rebuild", "steams", "--engine", "spark", "--json")
    assert (refused.code, refused.error["hint"]) == (4, "did you mean streams?")
    assert "everlog views list" in notes("views", "rebuild", "nope", "--engine", "spark", "--json").error["hint"]
    refused = notes("pipeline", "migrate", "nowhere", "--to", "sqlite:new.db", "--json")
    assert (refused.code, refused.error["hint"]) == (4, "check its name")
    assert not (place / "new.db").exists()
    refused = notes("pipeline", "export", ".", "--json")
    assert (refused.code, refused.error["message"]) == (5, f"{place} is not empty")


def test_few_events_do_not_start_spark_unless_a_user_says_how_it_runs(
    notes: Callable[..., Result], no_spark: None
) -> None:
    made = notes("pipeline", "run", "--json").data
    assert (made["engine"], made["events"], made["tables"]["silver/note.added"]) == ("process", 5, 5)
    assert made["tables"]["gold/streams"] == 2
    again = notes("pipeline", "run", "--json").data
    assert (again["engine"], again["events"], again["tables"]) == ("process", 0, made["tables"])
    for options in (["--master", "local[1]"], ["--conf", "spark.driver.memory=1g"]):
        started = notes("pipeline", "run", *options)
        assert (started.code, "Spark was started" in started.err) == (1, True), options


def test_ctrl_c_says_what_a_run_leaves(notes: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:

    def interrupted(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("everlog.pipeline.run.run", interrupted)
    stopped = notes("pipeline", "run")
    assert stopped.code == 130
    assert "every table is complete, and the same command continues where it was" in stopped.err


def test_a_table_is_rebuilt_by_its_whole_name(tmp_path: Path) -> None:
    pytest.importorskip("deltalake", reason="the pipeline's libraries are not here")
    from everlog.pipeline.lake.lake import Lake
    from everlog.pipeline.run import require_tables

    lake = Lake.open(tmp_path / "lake", log_id="x", create=True)
    for name in ("gold/streams", "silver/note.added", "events"):
        (tmp_path / "lake" / name / "_delta_log").mkdir(parents=True)
    names = sorted(table.name for table in lake.tables())
    assert {"gold/streams", "silver/note.added", "events"} <= set(names)
    require_tables(lake, [*names, "all"])
    for wrong, meant in (("streams", "gold/streams"), ("silver/note.aded", "silver/note.added")):
        with pytest.raises(NotFound) as refused:
            require_tables(lake, [wrong])
        assert refused.value.hint == f"did you mean {meant}?"


def test_the_rows_of_a_stream_have_the_columns_that_its_help_and_its_first_line_name(
    everlog: Callable[..., Result], capsys: pytest.CaptureFixture[str]
) -> None:
    from everlog.cli.output import Output
    from everlog.cli.pipeline.stream import COLUMNS, Meter, _following, _report

    out = Output(json=False, agent=False, quiet=False, no_color=True, program="everlog")
    assert tuple(Meter().take()) == COLUMNS
    _report(out, Meter().take())
    assert len(capsys.readouterr().out.split("\t")) == len(COLUMNS)
    assert _following(out).endswith("one row per report: " + ", ".join(COLUMNS))
    assert ", ".join(COLUMNS) in " ".join(everlog("pipeline", "stream", "--help").out.split())
    out.terminal = True
    assert _following(out) == "following; Ctrl-C ends it"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stream_says_at_once_that_it_was_asked_to_stop(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    from everlog.cli.output import Output
    from everlog.cli.pipeline.stream import STOPPING, _signals

    out = Output(json=False, agent=False, quiet=False, no_color=True, program="everlog")
    reported: list[str] = []
    monkeypatch.setattr(out, "note", reported.append)
    with _signals(out):
        pass
    assert reported == [], "it ended by itself"
    with _signals(out) as stop:
        os.kill(os.getpid(), number)
        assert stop.wait(10)
        deadline = time.monotonic() + 10
        while not reported and time.monotonic() < deadline:  # while the batch is still under way
            time.sleep(0.01)
        assert reported == [STOPPING]
    assert reported == [STOPPING]


def test_progress_in_words() -> None:
    now = [0.0]
    shown = _Shown(1000, now=lambda: now[0])
    now[0] = 2.0
    status = Status(stages_done=1, stages=3, tasks_done=4, tasks=8, tasks_failed=1, rows=500)
    assert shown.text(status) == (
        "stage 2 of 3, 4 of 8 tasks, 1 failed and retried, 500 rows, 250 a second, 2 s left"
    )
    assert shown.part(Status(rows=2000)) == 1.0
    assert _Shown(0).part(status) == 0.5
    assert _Shown(0).text(Status()) == "0 of 0 tasks"


def test_a_terminal_is_shown_the_step_under_way_with_its_total() -> None:
    now = [0.0]
    shown = _Shown(0, now=lambda: now[0])
    now[0] = 1.0
    assert shown.on_terminal(Status(tasks=8, tasks_done=2, rows=7)) == (
        0.25,
        "2 of 8 tasks, 7 rows, 7 a second, 3 s left",
    )
    before = Status(tasks=8, tasks_done=8, rows=7)
    shown.begin(Step("reading the log", events=1000), before)
    assert shown.on_terminal(before) == (0.0, "reading the log: 0 of 1,000 events")
    now[0] = 3.0
    part, words = shown.on_terminal(Status(tasks=12, tasks_done=9, rows=257))
    assert part == 0.25
    assert words == "reading the log: 250 of 1,000 events, 1 of 4 tasks, 125 a second, 6 s left"
    shown.begin(Step("table 3 of 12, streams"), Status(tasks=12, tasks_done=12, rows=1007))
    after = Status(tasks=16, tasks_done=14, rows=1007)
    assert shown.on_terminal(after) == (0.5, "table 3 of 12, streams: 2 of 4 tasks")


def test_every_table_of_a_run_is_reported_with_its_number(tmp_path: Path) -> None:
    pytest.importorskip("deltalake", reason="the pipeline's libraries are not here")
    from everlog.core.query import Cursor
    from everlog.pipeline.engines.local import LocalEngine
    from everlog.pipeline.lake.lake import Lake
    from everlog.pipeline.tables.gold import AS_IT_WAS, Done, Gold

    class Kept:
        def __init__(self, name: str) -> None:
            self.name = name

        def wants_buckets(self, *args: object) -> bool:
            return False

        def bring_up_to_date(self, *args: object, **options: object) -> Done:
            assert reported[-1].what.endswith(self.name), "before it begins"
            return Done(table=self.name, what=AS_IT_WAS)

    lake = Lake.open(tmp_path / "lake", log_id="x", create=True)
    reported: list[Step] = []
    tables: Any = [Kept("streams"), Kept("answers/flow")]
    Gold(lake, tables).bring_up_to_date(LocalEngine(), lake, upto=Cursor(Position(3)), on_step=reported.append)
    assert reported == [Step("table 1 of 2, streams"), Step("table 2 of 2, answers/flow")]
