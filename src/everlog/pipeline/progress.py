"""How far Spark is, from its own books: stages, tasks and rows, looked at a few times a second from a thread.

    with watched(spark, lambda status: print(status)):
        frame.count()

The one module that reaches through to the JVM for it. Over Spark Connect there is none to reach, and the server's own
reports are taken instead, which do not count rows.
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
    """What was done since the watch began. `stages` and `tasks` are those that are known so far: more may follow."""

    stages_done: int = 0
    stages: int = 0
    tasks_done: int = 0
    tasks: int = 0
    tasks_failed: int = 0
    rows: int = 0  # that were read from a source or from the lake, by the stages that read

    def since(self, before: Status) -> Status:
        """What was done after another moment of the same watch."""
        return Status(*(max(now - then, 0) for now, then in zip(self, before, strict=True)))

    @property
    def part(self) -> float:
        """How much of what is known is done."""
        return self.tasks_done / self.tasks if self.tasks else 0.0


class Step(NamedTuple):
    """What is being done, of several things one after the other."""

    what: str
    events: int = 0  # that it reads, if their number is known


Told = Callable[[Step], None]


def nobody(step: Step) -> None:
    """Who is told when nobody wants to know."""


@contextmanager
def watched(spark: SparkSession, tell: Callable[[Status], None]) -> Iterator[Callable[[], Status]]:
    """Have a function told how far the jobs are that start inside, and once more at the end. Gives one to ask."""
    if not hasattr(spark, "_jsparkSession"):
        with _watched_from_afar(spark, tell):
            yield Status
        return
    books = _Books(spark)
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(LOOK_EVERY_S):
            tell(books.status())

    thread = threading.Thread(target=look, name="everlog-spark-progress", daemon=True)
    thread.start()
    try:
        yield books.status
    finally:
        stop.set()
        thread.join()
    tell(books.status())


class _Books:
    """Spark's status store: what its web page would show, which is kept whether there is a page or not."""

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
        # Of every group, also of those that a stream or a library has set for itself.
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
            return 0  # a stage that was not begun, or was not needed, is not in the books


def _added(one: Status, other: Status) -> Status:
    return Status(*(a + b for a, b in zip(one, other, strict=True)))


@contextmanager
def _watched_from_afar(spark: Any, tell: Callable[[Status], None]) -> Iterator[None]:
    def handle(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        found = Status()
        for stage in stages or ():
            done_too = stage.num_completed_tasks >= stage.num_tasks
            found = _added(found, Status(int(done_too), 1, stage.num_completed_tasks, stage.num_tasks, 0, 0))
        tell(found)

    spark.registerProgressHandler(handle)
    try:
        yield
    finally:
        spark.removeProgressHandler(handle)
