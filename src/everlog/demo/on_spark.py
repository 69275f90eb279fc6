"""The last stages of the demo: the same week on Spark, with the same digests as the live views, and a report.

Without Spark, these stages are skipped with the reason, and the rest of the demo runs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everlog.demo.stages import StageFailed

if TYPE_CHECKING:
    from everlog.log.log import Log
    from everlog.pipeline.lake.lake import Lake
    from everlog.pipeline.session.session import SparkSession

REPORT = "report.html"


def what_is_missing() -> str:
    """Return what has to be installed before Spark can run here, or ''."""
    from everlog.errors import Unavailable
    from everlog.pipeline.session.session import require_libraries

    try:
        require_libraries()
    except Unavailable as error:
        return error.hint
    return ""


class SparkStages:
    """One run of the pipeline over the log of the demo, into a lake beside it."""

    def __init__(self, log: Log, url: str, folder: Path) -> None:
        self.log = log
        self.facts: dict[str, Any] = {}
        self._url = url
        self._folder = folder
        self._open = ExitStack()
        self._spark: SparkSession | None = None
        self._lake: Lake | None = None

    def all(self) -> list[tuple[str, Callable[[], str]]]:
        return [("spark", self.start), ("lake", self.run), ("on-spark", self.compare), ("report", self.report)]

    def close(self) -> None:
        self._open.close()  # a Spark session that existed before stays open
        self._spark = None

    def start(self) -> str:
        from everlog.pipeline.session.session import opened_session

        self._spark = self._open.enter_context(opened_session(app="everlog demo"))
        return f"Spark {self._spark.version} on this machine"

    def run(self) -> str:
        from everlog.demo.truth import every_view
        from everlog.files import DiskFiles
        from everlog.pipeline.engines.spark import SparkEngine
        from everlog.pipeline.lake.folders import remove_tree
        from everlog.pipeline.lake.lake import Lake
        from everlog.pipeline.run import run
        from everlog.pipeline.tables.answers import answers_of
        from everlog.pipeline.tables.gold import gold_of

        assert self._spark is not None
        remove_tree(DiskFiles(), self._folder / "lake")  # of a demo before this one
        lake = self._lake = Lake.open(self._folder / "lake", log_id=self.log.identity.log_id, create=True)
        views = [view() for view in every_view()]
        gold = gold_of(lake, views, self.log.catalog, more=answers_of(self.log, lake))
        outcome = run(SparkEngine(self._spark), self.log, self._url, lake, gold=gold)
        there = sum(1 for _ in self.log.read())
        if outcome.events != there or outcome.set_aside:
            raise StageFailed(
                f"{outcome.events} of {there} events reached the lake, {outcome.set_aside} were set aside"
            )
        return f"{outcome.events:,} events in {len(lake.tables())} Delta tables"

    def compare(self) -> str:
        """Compare every view that Spark computed with the live view: the bytes must be equal."""
        from everlog.demo.truth import every_view
        from everlog.pipeline.tables.view_table import ViewTable

        assert self._spark is not None
        assert self._lake is not None
        found = []
        for view in every_view():
            live = self.log.view(view).digest()
            on_spark = ViewTable(view(), self.log.catalog).digest(self._spark, self._lake)
            found.append({"view": view.name, "live": live, "spark": on_spark})
        self.facts["on_spark"] = found
        other = [one["view"] for one in found if one["live"] != one["spark"]]
        if other:
            raise StageFailed(f"Spark and the live view differ in {', '.join(other)}")
        shown = next(one for one in found if one["view"] == "workpackages.board")
        return f"{len(found)} views equal the live ones: the board is {shown['spark'][:8]}..."

    def report(self) -> str:
        from everlog.files import DiskFiles, replace_file
        from everlog.pipeline.report.report import report

        assert self._lake is not None
        path = self._folder / REPORT
        replace_file(DiskFiles(), path, report(self._lake).encode())
        return f"a page with plots for your browser: {REPORT}"
