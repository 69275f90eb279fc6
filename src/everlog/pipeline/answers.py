"""The answers among the tables that a run keeps: made anew when the log has grown, and gone at once after a purge."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from everlog.core.query import Cursor
from everlog.log.log import Log
from everlog.pipeline.few import FewEvents, overwrite
from everlog.pipeline.few_answers import few_answer
from everlog.pipeline.gold import AS_IT_WAS, MADE_ANEW, Done, Kept
from everlog.pipeline.lake import ANSWERS, Lake
from everlog.pipeline.questions import QUESTIONS, Asked
from everlog.pipeline.standing import stand

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def answers_of(log: Log) -> list[Kept]:
    """Every answer, for `gold_of(…, more=…)`."""
    return [*(Answer(name, question) for name, question in QUESTIONS.items()), Standing(log)]


class _MadeAnew:
    """What is never folded on: buckets are of no use to it, and after a purge the answers are dropped (`gold`)."""

    def wants_buckets(self, lake: Lake, epoch: str) -> bool:
        return False

    def refold(self, lake: Lake, going: DataFrame, staying: DataFrame, cursor: Cursor) -> None:
        return None


class Answer(_MadeAnew):
    """One table of `answers/`, derived from the events alone."""

    def __init__(self, name: str, question: Callable[[Asked], DataFrame]) -> None:
        self._name = name
        self._question = question

    @property
    def name(self) -> str:
        return f"{ANSWERS}/{self._name}"

    def bring_up_to_date(self, spark: SparkSession, lake: Lake, *, upto: Cursor) -> Done:
        table = lake.table(self.name)
        what = AS_IT_WAS
        if not table.holds(upto):
            table.overwrite(self._question(Asked(spark, lake)).coalesce(1), cursor=upto)
            what = MADE_ANEW
        return Done(table=self.name, what=what, rows=table.rows(), position=upto.position)

    def bring_few_up_to_date(self, lake: Lake, events: FewEvents) -> Done | None:
        table, upto = lake.table(self.name), events.upto
        what = AS_IT_WAS
        if not table.holds(upto):
            found = few_answer(self._name, events.rows, events.types)
            if found is None:
                return None
            overwrite(table, found, cursor=upto)
            what = MADE_ANEW
        return Done(table=self.name, what=what, rows=table.rows(), position=upto.position)


class Standing(_MadeAnew):
    """The two tables that only the log itself can fill."""

    def __init__(self, log: Log) -> None:
        self._log = log

    @property
    def name(self) -> str:
        return f"{ANSWERS}/standing"

    def bring_up_to_date(self, spark: SparkSession, lake: Lake, *, upto: Cursor) -> Done:
        return self._done(stand(lake, self._log, upto), upto)

    def bring_few_up_to_date(self, lake: Lake, events: FewEvents) -> Done:
        return self._done(stand(lake, self._log, events.upto), events.upto)

    def _done(self, changed: bool, upto: Cursor) -> Done:
        return Done(table=self.name, what=MADE_ANEW if changed else AS_IT_WAS, position=upto.position)
