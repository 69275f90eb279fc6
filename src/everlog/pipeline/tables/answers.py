"""The answers among the tables that a run keeps: computed again when the log has grown, dropped after a purge."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from everlog.core.query import Cursor
from everlog.log.log import Log
from everlog.pipeline.engines.engine import Engine
from everlog.pipeline.lake.arrow_files import spark_schema
from everlog.pipeline.lake.lake import Lake
from everlog.pipeline.sql.definition import Definition
from everlog.pipeline.sql.tables import tables_in_sql
from everlog.pipeline.tables.gold import AS_IT_WAS, REBUILT, ComputedWhole, Derived, Done
from everlog.pipeline.tables.log_facts import LogFacts
from everlog.pipeline.tables.questions import QUESTIONS, Question

NO_DEFINITIONS: Mapping[str, Definition] = MappingProxyType({})


def answers_of(log: Log, lake: Lake, definitions: Mapping[str, Definition] = NO_DEFINITIONS) -> list[Derived]:
    """Return every answer, for `gold_of(…, more=…)`: ours, those of the log itself, and those in SQL."""
    questions = [question for question in QUESTIONS if question.name not in definitions]
    names = [question.name for question in questions]
    return [*map(AnswerTable, questions), LogFacts(log), *tables_in_sql(log, lake, definitions, names)]


class AnswerTable(ComputedWhole):
    """One table of `answers/`, derived from the events alone."""

    def __init__(self, question: Question) -> None:
        self._question = question

    @property
    def name(self) -> str:
        return self._question.table

    def bring_up_to_date(self, engine: Engine, lake: Lake, *, upto: Cursor) -> Done:
        table = lake.table(self.name)
        what = AS_IT_WAS
        if not table.holds(upto):
            files = engine.answer(lake, self._question, cursor=upto)
            table.commit(files, cursor=upto, schema=spark_schema(self._question.schema), mode="overwrite")
            what = REBUILT
        return Done(table=self.name, what=what, rows=table.rows(), position=upto.position)
