"""`everlog pipeline run`, `compact` and `stream`, as a user types them."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.conftest import Run, clean_environment, everlog, place

from everlog import open as open_log
from everlog.cli.main import main
from everlog.cli.pipeline.stream import Meter
from everlog.core.event import Position
from everlog.core.query import Cursor
from everlog.pipeline.lake.lake import Lake
from everlog.pipeline.session.java import find_java
from everlog.pipeline.session.warm_start import warm_start_of
from everlog.pipeline.stream_run import Commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["everlog", "place"]

WAIT_S = 240.0


@pytest.fixture
def log(everlog: Run) -> None:
    everlog("init")
    for number in range(3):
        everlog("append", "note.added", "-s", f"note/{number % 2}", f"text=note {number}")


@pytest.mark.usefixtures("log")
def test_a_lake_is_made_kept_and_purged(spark: SparkSession, everlog: Run, place: Path) -> None:
    first = everlog("pipeline", "run", "--json").data
    assert (first["events"], first["typed"], first["set_aside"]) == (3, 3, 0)
    assert first["lake"] == str(place / ".everlog" / "lake")
    assert first["tables"]["events"] == first["tables"]["silver/note.added"] == 3
    assert (place / ".everlog" / "lake" / ".gitignore").read_text() == "*\n"

    purged = everlog("purge", "note/1", "--reason", "request 17", "--confirm", "purge note/1")
    assert "still contains the events until the next everlog pipeline run" in purged.err
    again = everlog("pipeline", "run", "--json").data
    assert (again["events"], again["purged"], again["tables"]["events"]) == (0, 1, 2)
    assert again["scanned_files"] > 0

    nothing = everlog("pipeline", "run")
    assert ["events", "2"] in nothing.rows
    compacted = everlog("pipeline", "compact", "--kept-hours", "0")
    assert ["events", "1", "1", "0"] in compacted.rows


@pytest.mark.usefixtures("log")
def test_what_is_wrong_is_reported_with_its_exit_code(spark: SparkSession, everlog: Run, place: Path) -> None:
    none = everlog("pipeline", "compact", "--json")
    assert (none.code, none.error["code"], none.error["hint"]) == (4, "not_found", "everlog pipeline run")
    assert everlog("pipeline", "run", "--lake", "elsewhere").code == 0
    assert (place / "elsewhere" / "lake.json").exists()
    (file,) = (place / "elsewhere" / "events").rglob("*.parquet")
    file.unlink()

    everlog("append", "note.added", "-s", "note/9", "text=more")
    broken = everlog("pipeline", "run", "--lake", "elsewhere", "--json")
    assert (broken.code, broken.error["code"]) == (8, "damaged")
    assert broken.error["hint"] == "everlog pipeline verify --heal"
    mended = everlog("pipeline", "run", "--lake", "elsewhere", "--rebuild", "events", "--json").data
    assert mended["tables"]["events"] == 4


def test_a_log_elsewhere_has_its_lake_beside_it(everlog: Run, place: Path) -> None:
    assert everlog("init").code == 0
    beside = place / ".everlog" / "log.db.lake"
    none = everlog("--log", "sqlite:.everlog/log.db", "pipeline", "compact", "--json")
    assert (none.code, none.error["message"]) == (4, f"there is no lake in {beside}")
    nowhere = everlog("--log", "postgresql://127.0.0.1:1/none", "pipeline", "run", "--json")
    assert nowhere.code != 0


def test_a_report_says_what_happened_since_the_last_one() -> None:
    now = [0.0]
    meter = Meter(now=lambda: now[0])
    for lag in (0.2, 0.4, 0.3):
        meter.committed(Commit(position=int(lag * 10), events=10, lag_s=lag, took_s=0.1))
    meter.refreshed(Cursor(Position(2)))
    now[0] = 10.0
    assert meter.take() == {
        "position": 3,
        "events": 30,
        "commits": 3,
        "events_per_s": 3.0,
        "lag_s": 0.3,
        "lag_s_max": 0.4,
        "views": 2,
    }
    now[0] = 20.0
    assert meter.take() == {
        "position": 3,
        "events": 0,
        "commits": 0,
        "events_per_s": 0.0,
        "lag_s": None,
        "lag_s_max": None,
        "views": 2,
    }


class Printed(io.StringIO):
    """What a stream prints, kept line by line for a thread that waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.reports: list[dict[str, object]] = []
        self._half = ""

    def write(self, text: str) -> int:
        *lines, self._half = (self._half + text).split("\n")
        self.reports.extend(map(json.loads, lines))
        return len(text)

    def until(self, true: Callable[[dict[str, object]], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not any(map(true, list(self.reports))):
            assert time.monotonic() < deadline, "it takes too long"
            time.sleep(0.02)


@pytest.mark.usefixtures("log", "spark")
def test_a_stream_ends_in_order_when_it_is_asked_to(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, whose session is warm: somebody appends, sees it in the lake and sends SIGTERM."""
    reported, seen = Printed(), list[str]()
    monkeypatch.setattr(sys, "stdout", reported)

    def not_taken(number: int, frame: object) -> None:
        raise AssertionError("the command does not take the signal")

    before = signal.signal(signal.SIGTERM, not_taken)

    def live() -> None:
        try:
            reported.until(lambda one: one["views"] == 3)
            with open_log("sqlite:.everlog/log.db", actor="user:ada", create=False) as log:
                log.append("note.added", stream="note/7", payload={"text": "live"})
            reported.until(lambda one: one["position"] == 4)
            seen.append("the event")
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    somebody = threading.Thread(target=live)
    somebody.start()
    try:
        code = main(["pipeline", "stream", "--json", "--report", "0.2", "--refresh", "0.5"])
    finally:
        somebody.join(WAIT_S)
        signal.signal(signal.SIGTERM, before)
    last = reported.reports[-1]
    assert (code, seen) == (0, ["the event"])
    assert (last["ended"], last["events"], last["position"]) == (True, 4, 4)
    assert Lake.open(place / ".everlog" / "lake").silver("note.added").rows() == 4


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.usefixtures("log")
def test_a_stream_of_its_own_process_ends_in_order_too(everlog: Run, place: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "everlog", "pipeline", "stream", "--json", "--report", "0.2", "--refresh", "0.5"]
    environment = clean_environment(tmp_path / "home")
    warm = warm_start_of(find_java(), environment)
    assert warm is not None
    warm.keep(ended_well=False)  # it would keep its start for later ones, which takes longer than all of this
    process = subprocess.Popen(
        [*command, "--conf", "spark.driver.memory=512m"],
        cwd=place,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    reports = Reports(process)
    try:
        reports.until(lambda one: one["views"] == 3)
        everlog("append", "note.added", "-s", "note/7", "text=live")
        reports.until(lambda one: one["position"] == 4)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
        reports.end()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    last = reports.seen[-1]
    assert (last["ended"], last["events"], last["position"]) == (True, 4, 4)
    assert "Traceback" not in reports.errors
    everlog("append", "note.added", "-s", "note/8", "text=after")
    assert everlog("pipeline", "run", "--json").data["tables"]["silver/note.added"] == 5


class Reports:
    """What a stream prints, read as it comes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.seen: list[dict[str, object]] = []
        self.errors = ""
        self._process = process
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._read, self._read_errors)]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            self.seen.extend(map(json.loads, lines))

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as text:
            self.errors = text.read()

    def until(self, true: object) -> None:
        deadline = time.monotonic() + WAIT_S
        while not any(true(one) for one in list(self.seen)):  # type: ignore[operator]
            assert self._process.poll() is None, self.errors
            assert time.monotonic() < deadline, "it takes too long"
            time.sleep(0.05)

    def end(self) -> None:
        for thread in self._threads:
            thread.join(WAIT_S)
