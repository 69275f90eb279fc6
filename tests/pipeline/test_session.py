"""The session: it starts, it is quiet, its defaults hold, and what cannot start says why."""

from __future__ import annotations

import logging
import signal
from typing import TYPE_CHECKING

import pytest

from everlog.errors import InvalidSettings, SparkFailed
from everlog.pipeline.session import open_session

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


def test_a_cluster_that_is_not_there_is_told_at_once() -> None:
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
    logging.warning("of somebody else")
    assert [record.message for record in caplog.records] == ["of somebody else"]
