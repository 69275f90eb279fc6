"""The answers among the tables that a run keeps: those that the log itself gives, and those in SQL."""

from __future__ import annotations

from collections.abc import Mapping

from everlog.log.log import Log
from everlog.pipeline.lake.lake import Lake
from everlog.pipeline.sql.definition import Definition, read_definitions
from everlog.pipeline.sql.tables import tables_in_sql
from everlog.pipeline.tables.gold import Derived
from everlog.pipeline.tables.log_facts import LogFacts


def answers_of(log: Log, lake: Lake, definitions: Mapping[str, Definition] | None = None) -> list[Derived]:
    """Return every answer, for `gold_of(…, more=…)`; without definitions, those in SQL are ours."""
    chosen = read_definitions() if definitions is None else definitions
    return [LogFacts(log), *tables_in_sql(log, lake, chosen)]
