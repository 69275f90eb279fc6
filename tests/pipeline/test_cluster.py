"""The same fold on a real cluster of processes, one of which is killed in the middle: the result is the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.cluster import SparkCluster

import everlog
from everlog import Draft
from everlog.core.event import Event
from everlog.pipeline.engines.spark import derive_on
from everlog.views.builtin import Streams
from everlog.views.registry import live_view

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


def test_a_task_that_dies_in_the_middle_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """The short form: a process of the session that is open is killed, and Spark tries its task again."""
    driver, died, folded = os.getpid(), tmp_path / "died", tmp_path / "folded"

    class Dying(Streams):
        def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
            if os.getpid() != driver:
                with folded.open("a") as file:
                    file.write("x")
                if folded.stat().st_size > 150 and not died.exists():
                    died.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
            return super().apply(state, event)

    url = f"sqlite:{tmp_path / 'log.db'}"
    with everlog.open(url, actor="user:ada") as log:
        log.append_batch([Draft("note.added", f"note/{n % 97}", {"text": f"note {n}"}) for n in range(300)])
        handle = log.view(Dying)
        expected = handle.digest()
        done = live_view(log, Dying()).rebuild(derive=derive_on(spark, url, Dying(), log.catalog))
        assert died.exists()
        assert folded.stat().st_size > 300, "it was not folded again"
        assert (done.same, done.switched, handle.digest()) == (True, True, expected)


@pytest.mark.spark
@pytest.mark.slow
def test_a_worker_that_is_killed_in_the_middle_changes_nothing(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'log.db'}"
    with everlog.open(url, actor="user:ada") as log:
        drafts = [Draft("note.added", f"note/{number % 97}", {"text": f"note {number}"}) for number in range(2400)]
        log.append_batch(drafts)
        expected = log.view(Streams).digest()

    with SparkCluster(tmp_path, workers=2) as cluster:
        job = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.cluster_job", cluster.master, url],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert job.stdout is not None
        reported, killed = [], False
        with job:
            for line in job.stdout:
                reported.append(json.loads(line))
                # The events are shuffled, some keys are folded and others are not.
                if not killed and reported[-1].get("stages_done") and reported[-1]["tasks_done"] >= 11:
                    cluster.kill_worker(0)
                    killed = True
        assert job.returncode == 0

    assert killed, "it was done before anybody could be killed"
    assert reported[-1] == {"digest": expected, "keys": 97}
    assert reported[-2]["tasks_failed"] > 0, "the worker that was killed had nothing to do"
