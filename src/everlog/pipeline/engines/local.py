"""The local engine: this process, with Arrow. It starts at once, and takes logs whose events fit into memory.

It always folds all events: with so few, that is faster than continuing from stored rows. What it cannot do (erase
purged events, unite files, compute SQL that DuckDB reads otherwise, take events that are too large) it refuses with
`NeedsSpark`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from everlog.catalog.catalog import Catalog
from everlog.catalog.seen import Shape
from everlog.core.event import Position, Purge
from everlog.core.query import Cursor
from everlog.log.dead_letters import STOPPED
from everlog.pipeline.engines.choose import LOCAL
from everlog.pipeline.engines.engine import FoldedFiles, NeedsSpark, R, T
from everlog.pipeline.fold.letters import letter_of, letter_rows, letters_table
from everlog.pipeline.fold.presorted import BATCH_EVENTS, matching, with_streams
from everlog.pipeline.fold.sorted_fold import FOLDED_SCHEMA, LETTER, ROW, SORTED_SCHEMA, STOP, SortedFold, with_keys
from everlog.pipeline.fold.view_columns import STORED, laid_out
from everlog.pipeline.lake import arrow_files
from everlog.pipeline.lake.data_file import DataFile, opened
from everlog.pipeline.lake.erase import Erased, Refold, Scrubbed
from everlog.pipeline.lake.lake import EVENTS, Lake
from everlog.pipeline.lake.table import Table
from everlog.pipeline.source import ranges
from everlog.pipeline.source.rows import ARROW_SCHEMA
from everlog.pipeline.sql import duck
from everlog.pipeline.sql.query import Query
from everlog.pipeline.tables.readings import NO_SHAPES, Readings, ranked, shapes_task
from everlog.pipeline.tables.typed import NEEDED, QUARANTINE_SCHEMA, Typist, type_all
from everlog.views.dead_letters import ViewLetter
from everlog.views.view import Order, View

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

BYTES_MAX = 64 * 1024 * 1024
"""The memory that the events of a lake may take."""

_TOO_LARGE = f"the events take more than {BYTES_MAX // 1024**2} MB of memory"
_WITH_PAYLOAD = pa.schema([ARROW_SCHEMA.field(name) for name in ("position", "type", "payload")])
_SET_ASIDE = pa.schema([QUARANTINE_SCHEMA.field(name) for name in ("position", "type", "reading")])


class LocalEngine:
    """Serves one run: it holds the events of the lake once they were read."""

    name = LOCAL

    def __init__(self, *, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._events: pa.Table | None = None
        self._written: tuple[list[DataFile], pa.Table | None] = [], None

    # ---- events

    def write_events(self, lake: Lake, url: str, *, after: Position, cursor: Cursor) -> list[DataFile]:
        chosen = ranges.PositionRange(url, ranges.look(url).mark, after, cursor.position)
        batches, held_bytes = list[pa.RecordBatch](), 0
        for batch in ranges.batches(chosen):
            batches.append(batch)
            held_bytes += batch.nbytes
            if held_bytes > self._bytes_max:
                raise NeedsSpark(_TOO_LARGE)
        rows = pa.Table.from_batches(batches, ARROW_SCHEMA).combine_chunks()
        self._events = None
        self._written = arrow_files.write(lake.events, rows, cursor=cursor), rows
        return self._written[0]

    def _rows(self, lake: Lake, *, after: int = 0, upto: int) -> pa.Table:
        """Return the events of a lake above a position and not above another; all of them are held."""
        if self._events is None:
            files, rows = self._written
            if not files or lake.events.files() != files:  # else the lake has what was just written, and nothing else
                if arrow_files.takes_more_than(lake.events, self._bytes_max):
                    raise NeedsSpark(_TOO_LARGE)
                rows = arrow_files.read(lake.events, ARROW_SCHEMA)
            self._events = rows
        return arrow_files.between(self._events, after, upto)

    # ---- typed tables

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
        rows = self._rows(lake, after=after, upto=upto).select(list(NEEDED))
        if types:
            rows = rows.filter(_among(rows, types))
        reports = type_all(str(lake.path), folder, Typist(readings), held, rows.to_batches())
        return [tuple(row.values()) for report in reports for row in report.to_pylist()]

    def shapes(
        self, table: Table, types: Collection[str], *, upto: int, within: Mapping[str, Shape] = NO_SHAPES
    ) -> dict[str, list[Shape]]:
        rows = arrow_files.between(arrow_files.read(table, _WITH_PAYLOAD), 0, upto)
        batches = rows.filter(_among(rows, types)).select(["type", "payload"]).to_batches()
        return ranked(row.values() for part in shapes_task(within)(batches) for row in part.to_pylist())

    def set_aside(self, lake: Lake) -> set[tuple[str, int]]:
        found = arrow_files.read(lake.quarantine, _SET_ASIDE)
        return set(zip(found.column("type").to_pylist(), found.column("reading").to_pylist(), strict=True))

    def clear_set_aside(
        self, lake: Lake, types: Collection[str], *, cursor: Cursor
    ) -> tuple[list[DataFile], list[DataFile]]:
        stale, kept = list[DataFile](), [QUARANTINE_SCHEMA.empty_table()]
        for file in lake.quarantine.files():
            rows = arrow_files.read_file(lake.quarantine, file, QUARANTINE_SCHEMA)
            theirs = _among(rows, types)
            if pc.any(theirs).as_py():
                stale.append(file)
                kept.append(rows.filter(pc.invert(theirs)))
        return stale, arrow_files.write(lake.quarantine, pa.concat_tables(kept), cursor=cursor)

    # ---- views and SQL

    def prepare_folds(self, lake: Lake, folds: int, *, upto: Cursor) -> None:
        return None

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
        folded = fold_rows(self._rows(lake, upto=upto.position), view, catalog)
        stops = [letter_of(text) for text in _of(folded, STOP).column("letter").to_pylist()]
        if stops:
            return FoldedFiles(stop=min(stops, key=lambda letter: letter.position))
        letters = [letter_of(text) for text in _of(folded, LETTER).column("letter").to_pylist()]
        start = 0 if held is None else held.position
        new = sum(letter.position > start and letter.what != STOPPED for letter in letters)
        if stopped_by is not None:
            letters.append(stopped_by)
        box = letters_table(lake, view)
        put = arrow_files.write(box, letter_rows(letters), cursor=upto) if letters or box.rows() else None
        rows = laid_out(view, _of(folded, ROW).select(STORED))
        return FoldedFiles(arrow_files.write(lake.gold(view.name), rows, cursor=upto), put, new)

    def select(self, lake: Lake, query: Query, into: Table, *, cursor: Cursor) -> tuple[list[DataFile], StructType]:
        rows = self.look(lake, query)
        return arrow_files.write(into, rows, cursor=cursor), arrow_files.spark_schema(rows.schema)

    def look(self, lake: Lake, query: Query) -> pa.Table:
        held = {
            name: self._rows(lake, after=given.after, upto=max(file.last for file in given.files))
            for name, given in query.inputs.items()
            if given.table.name == EVENTS and given.files
        }
        return duck.look(query, held=held, bytes_max=self._bytes_max)

    # ---- comparison with the log

    def spread(self, work: Callable[[T], R], over: Sequence[T]) -> Iterable[R]:
        return map(work, over)

    def sample_keys(self, table: Table, count: int) -> list[str] | None:
        return None

    def differing(
        self, table: Table, held: Sequence[DataFile], again: Sequence[DataFile], *, keys: Sequence[str] | None
    ) -> tuple[dict[str, list[str]], list[str]]:
        right = _by_key(table, again) if again else None
        wrong, there = dict[str, list[str]](), set[str]()
        for file in held:
            rows = _by_key(table, [file])
            there.update(rows.column("key").to_pylist())
            if unlike := arrow_files.unlike(rows, right, by="key"):
                wrong[file.path] = unlike
        keys_now = [] if right is None else right.column("key").to_pylist()
        return wrong, [key for key in keys_now if key not in there]

    def rest(
        self, table: Table, held: Sequence[DataFile], again: Sequence[DataFile], *, cursor: Cursor
    ) -> list[DataFile]:
        rows = _by_key(table, again)
        there = _by_key(table, held).column("key").combine_chunks() if held else pa.array([], pa.string())
        return arrow_files.write(table, rows.filter(pc.invert(pc.is_in(rows.column("key"), there))), cursor=cursor)

    # ---- upkeep

    def erase(self, lake: Lake, purges: Sequence[Purge], *, epoch: str, refold: Refold) -> Erased:
        raise NeedsSpark("purged events have to be erased from the tables")

    def scrub(self, lake: Lake, purges: Sequence[Purge], *, sentinels: Sequence[str]) -> Scrubbed:
        raise NeedsSpark("the files of the lake have to be searched for what was purged")

    def compact(self, lake: Lake, *, epoch: str, small_files_max: int) -> None:
        raise NeedsSpark("many small files have to be united")


def fold_rows(events: pa.Table, view: View, catalog: Catalog) -> pa.Table:
    """Fold a view over events that this process holds; the result is that of `fold_view`, without places."""
    batches = matching(events.to_batches(), view.query)
    keyed = with_streams(batches) if view.by_stream else with_keys(view, catalog, batches)
    order = ["lamport", "id"] if view.order is Order.CAUSAL else ["position"]
    rows = pa.Table.from_batches(keyed, SORTED_SCHEMA).sort_by([(name, "ascending") for name in ("key", *order)])
    sorted_batches = rows.combine_chunks().to_batches(max_chunksize=BATCH_EVENTS)
    return pa.Table.from_batches(SortedFold(view, catalog, with_applied=False).run(sorted_batches), FOLDED_SCHEMA)


def _by_key(table: Table, files: Sequence[DataFile]) -> pa.Table:
    """Return the rows of some files of a view, by key."""
    return pa.concat_tables(opened(table.path / file.path, table=table.name).read() for file in files).sort_by("key")


def _of(folded: pa.Table, what: str) -> pa.Table:
    return folded.filter(pc.equal(folded.column("what"), what))


def _among(rows: pa.Table, types: Collection[str]) -> pa.ChunkedArray:
    return pc.is_in(rows.column("type"), pa.array(sorted(types), pa.string()))
