"""Row 12: the first result of a command, with what an earlier one kept of Java's start, and without."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bench.rounds import Contest, Sample, timed
from benchmarks.figures import Figure
from benchmarks.spark import Bench, Left

_PROGRAM = """
from everlog.pipeline.session.session import opened_session
with opened_session(master="local[2]", tell={tell}) as spark:
    assert spark.range(1000).selectExpr("sum(id)").first()[0] == 499500
"""


def row_12(bench: Bench) -> Iterator[Figure]:
    """time to the first result of a new process, warm against cold"""
    with tempfile.TemporaryDirectory() as kept, tempfile.TemporaryDirectory() as empty:
        _run(kept, tell="print")
        if not any(path.suffix in (".aot", ".jsa") for path in Path(kept, "everlog", "spark").iterdir()):
            raise Left("this Java does not keep its start")
        contest = Contest(
            "12",
            {
                "warm": lambda: timed(1, lambda: _run(kept)),
                "cold": lambda: timed(1, lambda: _run(empty)),
            },
        )
        # Two sides that do one thing each: so many times as fast is one over the share of the time.
        spread = bench.compare(contest, "cold", "warm")
    yield Figure("12", "first result with the start-up file, over without", spread, 0.6, at_most=True)


def _run(cache: str, *, tell: str = "None") -> Sample | None:
    environment = {**os.environ, "XDG_CACHE_HOME": cache}
    subprocess.run([sys.executable, "-c", _PROGRAM.format(tell=tell)], check=True, env=environment)
    return None
