"""What an engine is: it computes the files of tables. The run commits them; until then nothing that it wrote counts.

    LocalEngine    this process, with Arrow: starts at once, for logs of few events
    SparkEngine    Spark: any number of events, several cores or machines; takes seconds to start

The run and the tables of every kind are written once, over this interface. Both engines give the same rows. What an
engine cannot do it refuses with `NeedsSpark`, and a run on Spark continues from there: every table records how far it
is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from everlog.catalog.catalog import Catalog
from everlog.catalog.seen import Shape
from everlog.core.event import Position, Purge
from everlog.core.query import Cursor
from everlog.pipeline.engines.needs import NeedsSpark as NeedsSpark
from everlog.pipeline.lake.data_file import DataFile
from everlog.pipeline.lake.erase import Erased, Refold, Scrubbed
from everlog.pipeline.lake.lake import Lake
from everlog.pipeline.lake.table import Table
from everlog.pipeline.sql.query import Query
from everlog.pipeline.tables.readings import NO_SHAPES, Readings
from everlog.views.dead_letters import ViewLetter
from everlog.views.view import View

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


T = TypeVar("T")
R = TypeVar("R")


class FoldedFiles(NamedTuple):
    """What a fold of a view wrote, not yet committed."""

    files: list[DataFile] = []  # noqa: RUF012 - never changed
    letters: list[DataFile] | None = None  # all letters of the view; None if that table stays as it is
    new_letters: int = 0
    stop: ViewLetter | None = None  # the first event that stops the view: then nothing else here counts


class Engine(Protocol):
    @property
    def name(self) -> str: ...

    def write_events(self, lake: Lake, url: str, *, after: Position, cursor: Cursor) -> list[DataFile]:
        """Write the events of a log above a position and up to a cursor as files of the events' table."""
        ...

    def type_events(
        self,
        lake: Lake,
        readings: Readings,
        folder: str,
        *,
        after: int,
        upto: int,
        types: Collection[str] = (),
        held: Mapping[str, int],
    ) -> Iterable[Sequence[Any]]:
        """Type events of the lake, of these types or of all, and write them below `folder` of each typed table.

        `held` is the position up to which a table has its rows already. Returns one row (`REPORT`) per file.
        """
        ...

    def shapes(
        self, table: Table, types: Collection[str], *, upto: int, within: Mapping[str, Shape] = NO_SHAPES
    ) -> dict[str, list[Shape]]:
        """Return the shapes of the payloads of these types, in the events or in the quarantine, up to a position.

        The most common one is first. With `within`, payloads that do not fit the shape of their type do not count.
        """
        ...

    def set_aside(self, lake: Lake) -> set[tuple[str, int]]:
        """Return the types in the quarantine, each with the number of the reading that set it aside."""
        ...

    def clear_set_aside(
        self, lake: Lake, types: Collection[str], *, cursor: Cursor
    ) -> tuple[list[DataFile], list[DataFile]]:
        """Return the files of the quarantine that hold these types, and new files with their other rows."""
        ...

    def prepare_folds(self, lake: Lake, folds: int, *, upto: Cursor) -> None:
        """Prepare for this number of folds over all events, if that makes them faster."""
        ...

    def fold(
        self,
        lake: Lake,
        view: View,
        catalog: Catalog,
        *,
        held: Cursor | None,
        upto: Cursor,
        stopped_by: ViewLetter | None = None,
        keys: Sequence[str] | None = None,
    ) -> FoldedFiles:
        """Fold a view up to a cursor, from its rows at `held` or from the beginning; write its rows and letters.

        `stopped_by` is the letter of the event after the cursor, if that is why the view goes no further. With
        `keys`, at least these are folded, from the beginning.
        """
        ...

    def select(self, lake: Lake, query: Query, into: Table, *, cursor: Cursor) -> tuple[list[DataFile], StructType]:
        """Compute a query, and write its rows as files of a table; return them with the schema of the rows."""
        ...

    def look(self, lake: Lake, query: Query) -> pa.Table:
        """Compute a query that has few rows, and return them."""
        ...

    # ---- comparison with the log

    def spread(self, work: Callable[[T], R], over: Sequence[T]) -> Iterable[R]:
        """Apply a function to each item, where this engine computes; return the results in their order."""
        ...

    def sample_keys(self, table: Table, count: int) -> list[str] | None:
        """Return some keys of a view, or None if folding all of them is as fast."""
        ...

    def differing(
        self, table: Table, held: Sequence[DataFile], again: Sequence[DataFile], *, keys: Sequence[str] | None
    ) -> tuple[dict[str, list[str]], list[str]]:
        """Compare the rows in files of a view with those that were folded again: all of them, or those of `keys`.

        Returns the keys that differ, by file, and those that no file holds.
        """
        ...

    def rest(
        self, table: Table, held: Sequence[DataFile], again: Sequence[DataFile], *, cursor: Cursor
    ) -> list[DataFile]:
        """Write the rows that were folded again and whose keys are not in the held files."""
        ...

    # ---- upkeep: commits by itself

    def erase(self, lake: Lake, purges: Sequence[Purge], *, epoch: str, refold: Refold) -> Erased:
        """Remove purged events from every table."""
        ...

    def scrub(self, lake: Lake, purges: Sequence[Purge], *, sentinels: Sequence[str]) -> Scrubbed:
        """Remove every file that no table names, and search the others for what was purged."""
        ...

    def compact(self, lake: Lake, *, epoch: str, small_files_max: int) -> None:
        """Unite the small files of each table that has more than so many."""
        ...
