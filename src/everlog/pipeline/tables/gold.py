"""Gold: one table per view and per question, derived from the events and brought up to date by every run.

    gold/VIEW       one row per key of a view: `view_table`
    letters/VIEW    the events that the view could not apply
    answers/NAME    tables in SQL, and what the log itself answers: `answers`

To add another kind of table, write a `Derived` for it and add it to the list. Each is brought from its own cursor to
the cursor of the run, in one commit. What a purge removes from the events is removed from each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.core.query import Cursor
from everlog.pipeline.engines.engine import Engine, NeedsSpark
from everlog.pipeline.lake.lake import ANSWERS, GOLD, LETTERS, Lake
from everlog.pipeline.session.progress import OnStep, Step, ignore
from everlog.views.view import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AS_IT_WAS, CAUGHT_UP, REBUILT = "as it was", "caught up", "made anew"
LEFT = "left to Spark"
KEPT = "kept as it was: its rows were wrong"


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did with one table."""

    table: str
    what: str  # one of the five above
    rows: int = 0
    position: int = 0
    letters: int = 0  # events that could not be applied, in this run
    stopped_at: int = 0  # the table goes no further than the event before this one
    problem: str = ""  # why it was kept
    violating: tuple[dict[str, Any], ...] = ()  # some of the rows that it must not have


class Derived(Protocol):
    """One table that is derived from the events."""

    @property
    def name(self) -> str: ...

    def bring_up_to_date(self, engine: Engine, lake: Lake, *, upto: Cursor) -> Done:
        """Apply what is new in the events, up to a cursor that the events' table has reached."""
        ...

    def wants_buckets(self, lake: Lake, epoch: str) -> bool:
        """Return True if the next run folds all events for it, and would do so faster over buckets."""
        ...

    def refold(self, lake: Lake, going: DataFrame, staying: DataFrame, cursor: Cursor) -> None:
        """Derive again what the events that go have fed, from those that stay, and commit it at the cursor."""
        ...


class ComputedWhole:
    """A table that is never folded on: buckets are of no use to it, and after a purge it is dropped."""

    def wants_buckets(self, lake: Lake, epoch: str) -> bool:
        return False

    def refold(self, lake: Lake, going: DataFrame, staying: DataFrame, cursor: Cursor) -> None:
        return None


class Gold:
    """All tables of a lake that are derived from its events."""

    def __init__(self, lake: Lake, tables: Sequence[Derived]) -> None:
        self._lake = lake
        self._tables = tables

    def bring_up_to_date(self, engine: Engine, lake: Lake, *, upto: Cursor, on_step: OnStep = ignore) -> list[Done]:
        """Bring each table up to the cursor; one that this engine cannot derive is `LEFT`."""
        engine.prepare_folds(lake, sum(table.wants_buckets(lake, upto.epoch) for table in self._tables), upto=upto)
        done = []
        for number, table in enumerate(self._tables, 1):
            on_step(Step(f"table {number} of {len(self._tables)}, {table.name}"))
            try:
                done.append(table.bring_up_to_date(engine, lake, upto=upto))
            except NeedsSpark:
                done.append(Done(table=table.name, what=LEFT))
        return done

    def refold(self, going: DataFrame, staying: DataFrame, cursor: Cursor) -> None:
        for table in self._tables:
            table.refold(self._lake, going, staying, cursor)
        # A table that nothing here can derive again must not keep what is gone.
        known = {f"{kind}/{table.name}" for table in self._tables for kind in (GOLD, LETTERS)}
        for other in (*self._lake.tables(GOLD), *self._lake.tables(LETTERS)):
            if other.name not in known:
                self._lake.drop(other)
        drop_answers(self._lake)


def drop_answers(lake: Lake) -> None:
    """Drop all answers: the next run computes them again, and none may show what is gone."""
    for table in lake.tables(ANSWERS):
        lake.drop(table)


def gold_of(lake: Lake, views: Sequence[View], catalog: Catalog, *, more: Sequence[Derived] = ()) -> Gold:
    """Return the tables of these views, and `more` tables beside them."""
    from everlog.pipeline.tables.view_table import ViewTable

    catalog = catalog.without_keys()
    return Gold(lake, [*(ViewTable(view, catalog) for view in views), *more])
