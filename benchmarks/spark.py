"""The pipeline on Spark against Spark's own readers and one Python process: the rows of the targets, by number.

    pip install 'everlog[test]'
    python -m benchmarks.spark [--events 1000000] [--large 10000000] [--rounds 5] [--directory DIR] [ROW ...]

All sides of a row take turns in every round, after a first one that warms them up; a figure is the median of the
ratios of the rounds. With --directory the logs are kept there for the next run. What a row lacks here is told.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.bench.rounds import Contest, Spread, interleave, ratio
from benchmarks.figures import Figure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# row -> the module that measures it, with a function `row_N(bench) -> Iterator[Figure]`
ROWS = {
    "1": "spark_source",
    "2": "spark_source",
    "3": "spark_source",
    "4": "spark_lake",
    "5": "spark_fold",
    "6": "spark_fold",
    "7": "spark_fold",
    "8": "spark_fold",
    "9": "spark_lake",
    "10": "spark_whole",
    "11": "spark_whole",
    "12": "spark_start",
    "13": "spark_fold",
}
JARS = {
    "sqlite": (Path("/usr/share/java/sqlite-jdbc.jar"), "libxerial-sqlite-jdbc-java"),
    "postgresql": (Path("/usr/share/java/postgresql.jar"), "libpostgresql-jdbc-java"),
}


class Left(Exception):
    """A row cannot be measured here; the text says why."""


class Bench:
    """What every row is given: a session, a place, and how much to do."""

    def __init__(self, directory: Path, *, events: int, large: int, rounds: int) -> None:
        self.directory, self.events, self.large, self.rounds = directory, events, large, rounds
        self._spark: SparkSession | None = None

    @property
    def spark(self) -> SparkSession:
        """One session for all rows, on two cores, with the drivers of JDBC that are installed."""
        if self._spark is None:
            from everlog.pipeline.session.session import open_session

            jars = [str(path) for path, _ in JARS.values() if path.exists()]
            conf = {"spark.jars": ",".join(jars), "spark.driver.extraClassPath": ":".join(jars)} if jars else {}
            self._spark = open_session(master="local[2]", conf=conf, app="everlog benchmark")
        return self._spark

    def compare(self, contest: Contest, over: str, under: str, *, rounds: int = 0) -> Spread:
        """How many times as fast one side is as the other, warm."""
        for job in contest.sides.values():
            job()
        found = interleave([contest], rounds=rounds or self.rounds, progress=told)
        return ratio(found[contest.name], over, under)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder that is gone afterwards."""
        found = Path(tempfile.mkdtemp(prefix="scratch-", dir=self.directory))
        try:
            yield found
        finally:
            shutil.rmtree(found)

    def stop(self) -> None:
        if self._spark is not None:
            self._spark.stop()


def told(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def measure(bench: Bench, wanted: list[str]) -> Iterator[Figure]:
    for row in wanted:
        module = import_module(f"benchmarks.{ROWS[row]}")
        work: Callable[[Bench], Iterator[Figure]] = getattr(module, f"row_{row}")
        told(f"row {row}: {(work.__doc__ or '').splitlines()[0]}")
        try:
            yield from work(bench)
        except Left as why:
            print(f"row {row} is left out: {why}")


def shown(figure: Figure) -> str:
    middle, low, high = figure.value
    sign = "<=" if figure.at_most else ">="
    verdict = "met" if figure.met else "MISSED"
    ratios = f"{middle:6.2f} ({low:.2f} to {high:.2f})"
    return f"{figure.row:>3}  {figure.what:<60} {ratios}  {sign} {figure.must}  {verdict}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--large", type=int, default=10_000_000, help="events of rows 4, 10 and 11")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path, help="keep the logs there")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}; all if none is named")
    given = parser.parse_args(arguments)
    unknown = [row for row in given.rows if row not in ROWS]
    if unknown:
        parser.error(f"there is no row {unknown[0]}")
    with tempfile.TemporaryDirectory() as temporary:
        bench = Bench(given.directory or Path(temporary), events=given.events, large=given.large, rounds=given.rounds)
        try:
            figures = []
            for figure in measure(bench, given.rows or list(ROWS)):
                figures.append(figure)
                print(shown(figure), flush=True)
        finally:
            bench.stop()
    return 0 if all(figure.met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
