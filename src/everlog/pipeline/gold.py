"""Gold: what is derived from the events, a table each, kept up to date by every run of the pipeline.

    gold/VIEW       one row a key of a view: `view_table`
    letters/VIEW    the events that the view could not take

Whoever has another table to keep writes a `Kept` of it and adds it to the list. Each is brought from the cursor that
it is at to the one of the run, in one commit; and what a purge takes out of the events is taken out of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.core.query import Cursor
from everlog.pipeline import buckets
from everlog.pipeline.few import FewEvents
from everlog.pipeline.lake import ANSWERS, Lake
from everlog.pipeline.progress import Step, Told, nobody
from everlog.views.view import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AS_IT_WAS, CAUGHT_UP, MADE_ANEW = "as it was", "caught up", "made anew"


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did with one table."""

    table: str
    what: str  # one of the three above
    rows: int = 0
    position: int = 0
    letters: int = 0  # events that could not be taken, in this run
    stopped_at: int = 0  # the table goes no further than the event before this one


class Kept(Protocol):
    """One table that is derived from the events."""

    @property
    def name(self) -> str: ...

    def bring_up_to_date(self, spark: SparkSession, lake: Lake, *, upto: Cursor) -> Done:
        """Take what is new in the events, up to a cursor that the events' table is at."""
        ...

    def bring_few_up_to_date(self, lake: Lake, events: FewEvents) -> Done | None:
        """The same in this process, from all events. None if it takes Spark, and nothing was done."""
        ...

    def wants_buckets(self, lake: Lake, epoch: str) -> bool:
        """True when the next run folds all events for it, and would do so faster over buckets."""
        ...

    def refold(self, lake: Lake, going: DataFrame, staying: DataFrame, cursor: Cursor) -> None:
        """Derive again what some events fed that go, from those that stay, and commit it at the cursor."""
        ...


class Gold:
    """All tables of a lake that are derived from its events."""

    def __init__(self, lake: Lake, tables: Sequence[Kept], *, told: Told = nobody) -> None:
        self._lake = lake
        self._tables = tables
        self._told = told

    def bring_up_to_date(self, spark: SparkSession, lake: Lake, *, upto: Cursor) -> list[Done]:
        folds = sum(table.wants_buckets(lake, upto.epoch) for table in self._tables)
        if buckets.pays(lake.events.rows(), folds):
            buckets.bring_up_to_date(spark, lake, upto=upto)
        done = []
        for number, table in enumerate(self._tables, 1):
            self._told(Step(f"table {number} of {len(self._tables)}, {table.name}"))
            done.append(table.bring_up_to_date(spark, lake, upto=upto))
        return done

    def bring_few_up_to_date(self, lake: Lake, events: FewEvents) -> list[Done | None]:
        """The same in this process; None for each table that takes Spark."""
        return [table.bring_few_up_to_date(lake, events) for table in self._tables]

    def refold(self, going: DataFrame, staying: DataFrame, cursor: Cursor) -> None:
        for table in self._tables:
            table.refold(self._lake, going, staying, cursor)
        # What nobody here knows how to derive again must not keep what is gone.
        known = {name for table in self._tables for name in (f"gold/{table.name}", f"letters/{table.name}")}
        for other in (*self._lake.tables("gold"), *self._lake.tables("letters")):
            if other.name not in known:
                self._lake.drop(other)
        drop_answers(self._lake)


def drop_answers(lake: Lake) -> None:
    """Answers are made anew as a whole, by the next run that keeps them: none may tell of what is gone."""
    for table in lake.tables(ANSWERS):
        lake.drop(table)


def gold_of(
    lake: Lake, views: Sequence[View], catalog: Catalog, *, more: Sequence[Kept] = (), told: Told = nobody
) -> Gold:
    """The tables of these views, and others beside them; `told` hears which one is next."""
    from everlog.pipeline.view_table import ViewTable

    return Gold(lake, [*(ViewTable(view, catalog) for view in views), *more], told=told)
