"""How far Spark is: stages, tasks and rows from its status store, read a few times per second by a thread.

    with watched(spark, lambda status: print(status)):
        frame.count()

This is the only module that reads them from the JVM. With Spark Connect there is no JVM here; the progress reports of
the server are used instead, which do not count rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_EVERY_S = 0.25


class Status(NamedTuple):
    """What was done since the watch began. `stages` and `tasks` are those known so far: more may follow."""

    stages_done: int = 0
    stages: int = 0
    tasks_done: int = 0
    tasks: int = 0
    tasks_failed: int = 0
    rows: int = 0  # read from a source or from the lake

    def since(self, before: Status) -> Status:
        """Return what was done after an earlier status of the same watch."""
        return Status(*(max(now - then, 0) for now, then in zip(self, before, strict=True)))

    @property
    def part(self) -> float:
        """The fraction of the known tasks that is done."""
        return self.tasks_done / self.tasks if self.tasks else 0.0


class Step(NamedTuple):
    """One of several steps of a run."""

    what: str
    events: int = 0  # how many it reads, if that is known


OnStep = Callable[[Step], None]


def ignore(step: Step) -> None:
    """Do nothing: the step is of no interest to the caller."""


@contextmanager
def watched(spark: SparkSession, report: Callable[[Status], None]) -> Iterator[Callable[[], Status]]:
    """Call `report` with the status of the jobs that start inside, and at the end. Yields a function to read it."""
    if not hasattr(spark, "_jsparkSession"):
        with _watched_remotely(spark, report):
            yield Status
        return
    store = _StatusStore(spark)
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(LOOK_EVERY_S):
            report(store.status())

    thread = threading.Thread(target=look, name="everlog-spark-progress", daemon=True)
    thread.start()
    try:
        yield store.status
    finally:
        stop.set()
        thread.join()
    report(store.status())


class _StatusStore:
    """Spark's status store: what its web page would show. It exists with or without that page."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._store: Any = self._context._jsc.sc().statusStore()
        self._before = max((int(job) for job in self._jobs()), default=-1)
        self._finished: dict[int, Status] = {}

    def status(self) -> Status:
        found = Status()
        for job in self._jobs():
            if job > self._before:
                found = _added(found, self._job(job))
        return found

    def _jobs(self) -> list[int]:
        # Of every group, including those that a stream or a library set.
        jobs = self._store.jobsList(None)
        return [jobs.apply(number).jobId() for number in range(jobs.size())]

    def _job(self, job: int) -> Status:
        if job not in self._finished:
            data = self._store.job(job)
            stages = data.stageIds()
            skipped = data.numSkippedStages()
            status = Status(
                data.numCompletedStages() + skipped,
                stages.size(),
                data.numCompletedTasks() + data.numSkippedTasks(),
                data.numTasks(),
                data.numFailedTasks(),
                sum(self._rows(stages.apply(number)) for number in range(stages.size())),
            )
            if data.status().toString() == "RUNNING":
                return status
            self._finished[job] = status
        return self._finished[job]

    def _rows(self, stage: int) -> int:
        from py4j.protocol import Py4JJavaError

        try:
            return int(self._store.lastStageAttempt(stage).inputRecords())
        except Py4JJavaError:
            return 0  # the store does not have stages that were not begun or not needed


def _added(one: Status, other: Status) -> Status:
    return Status(*(a + b for a, b in zip(one, other, strict=True)))


@contextmanager
def _watched_remotely(spark: Any, report: Callable[[Status], None]) -> Iterator[None]:
    def handle(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        found = Status()
        for stage in stages or ():
            done_too = stage.num_completed_tasks >= stage.num_tasks
            found = _added(found, Status(int(done_too), 1, stage.num_completed_tasks, stage.num_tasks, 0, 0))
        report(found)

    spark.registerProgressHandler(handle)
    try:
        yield
    finally:
        spark.removeProgressHandler(handle)
