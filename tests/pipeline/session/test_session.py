"""The session: it starts, it is quiet, its defaults hold, and what cannot start says why."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from everlog.errors import InvalidSettings, SparkFailed
from everlog.pipeline.session.session import _JvmLog, _not_started, _survive_the_end_of_java, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_session_computes(spark: SparkSession) -> None:
    assert spark.range(100).selectExpr("sum(id)").first() == (4950,)


def test_a_session_has_our_defaults(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"


@pytest.mark.usefixtures("spark")
def test_ctrl_c_stays_what_it_was() -> None:
    """PySpark's own handler asks the JVM in the midst of anything: of a write to a log too."""
    # A shell gives what it starts in the background no Ctrl-C at all.
    assert signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_IGN)


def test_the_workers_run_this_python(spark: SparkSession) -> None:
    import sys

    import pyarrow as pa

    def where(batches: object) -> object:
        import sys

        import everlog

        yield pa.RecordBatch.from_pydict({"python": [sys.executable], "everlog": [everlog.__file__]})

    import everlog

    found = spark.range(1).mapInArrow(where, "python string, everlog string").first()  # type: ignore[arg-type]
    assert found == (sys.executable, everlog.__file__)


@pytest.mark.parametrize("master", ["", "spark//host", "local[", "mesos://x", "http://x:1"])
def test_a_master_that_is_none_is_refused(master: str) -> None:
    with pytest.raises(InvalidSettings, match="not a master"):
        open_session(master=master or "nonsense")


def test_a_cluster_that_is_not_there_is_reported_at_once() -> None:
    with pytest.raises(SparkFailed, match="nothing answers"):
        open_session(master="spark://127.0.0.1:9")


@pytest.mark.parametrize("by", ["logging", "logging.getLogger('py4j.clientserver')"])
def test_a_traceback_that_py4j_logs_is_not_printed(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, by: str
) -> None:
    """It raises the same, and Ctrl-C is no reason for a traceback."""
    from py4j import java_gateway

    said = f"import logging\ntry: 1 / 0\nexcept ZeroDivisionError: {by}.exception('while sending a command')"
    exec(compile(said, java_gateway.__file__, "exec"), {})
    try:
        raise ValueError
    except ValueError:
        logging.exception("of somebody else")
    assert [record.getMessage() for record in caplog.records] == ["of somebody else"]


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of what Java printed, for this test alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "everlog" / "spark"
    folder.mkdir(parents=True)
    return folder


def test_what_java_printed_is_kept_for_a_day_after_its_process_and_then_removed(logs: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    hours = {f"{ended.pid}.log": 25, f"{ended.pid}.young": 23, f"{os.getpid()}.old": 25, "notes.txt": 25}
    for name, age in hours.items():
        (logs / name).touch()
        os.utime(logs / name, (time.time() - age * 3600,) * 2)
    assert _JvmLog().path == logs / f"{os.getpid()}.log"
    assert {path.name for path in logs.iterdir()} == set(hours) - {f"{ended.pid}.log"}


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        (None, ""),
        ("", ""),
        ("only this\n\n", "only this"),
        (
            "long ago\nno memory\n\n  \tat Main.run\ncannot start \nProgram will exit\n",
            "no memory; cannot start; Program will exit",
        ),
        ("a" * 1000, "a" * 400),
    ],
)
@pytest.mark.usefixtures("logs")
def test_the_last_words_of_java_are_the_last_three_lines_that_say_something(printed: str | None, words: str) -> None:
    log = _JvmLog()
    assert log.path is not None
    if printed is not None:
        log.path.write_text(printed)
    assert log.last_words() == words


def test_why_spark_did_not_start_is_in_the_words_of_java(logs: Path) -> None:
    log = _JvmLog()
    (logs / f"{os.getpid()}.log").write_text("no memory\nProgram will exit\n")
    reported = _not_started(RuntimeError("the gateway went away"), "local[2]", log)
    assert reported.why == f"no memory; Program will exit; all of it is in {log.path}"


_ASKED_AFTER_ITS_END = """
import os, signal
from everlog.pipeline.session import session

class Started(Exception):
    pass

def started(java):
    raise Started

signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as the command has it
session.find_java = lambda: None
session.warm_start_of = started
try:
    session.open_session(master="local[2]")
except Started:
    pass
java, asking = os.pipe()
os.close(java)
try:
    os.write(asking, b"are you there?")
except BrokenPipeError:
    print("borne")
"""


def test_java_that_ends_while_it_is_asked_does_not_end_the_caller(logs: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", _ASKED_AFTER_ITS_END], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "borne\n")


def test_a_thread_that_starts_spark_leaves_the_signals_alone() -> None:
    """Only the main one may set them."""
    failures: list[BaseException] = []

    def start() -> None:
        try:
            _survive_the_end_of_java()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert failures == []
