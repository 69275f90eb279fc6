"""Typed tables: one an event type, kept up to date from the events, and made anew when a type is read in another way.

One pass over the new events fills all of them: a task types its rows and writes a file for each type that it met.
Then each table gets its commit, and the quarantine the last one: its cursor says how far all of them are. After a
crash in between, the tables that have their commit already take nothing twice, because their own cursors say so.

A type is read in another way when its model, its version or an upcaster changed, or when the catalog has come to know
it. Its table is then made from all of its events, and what was set aside of it is judged again.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from everlog.catalog.catalog import Catalog
from everlog.core.event import START
from everlog.core.query import Cursor
from everlog.errors import NewerFormat
from everlog.pipeline import few
from everlog.pipeline.failures import carried, own_errors
from everlog.pipeline.lake import QUARANTINE, SILVER, Lake
from everlog.pipeline.parquet_files import REPORT, ParquetFiles
from everlog.pipeline.rows import ARROW_SCHEMA
from everlog.pipeline.table import DataFile, Table, rebuild_hint
from everlog.pipeline.typed import NEEDED, QUARANTINE_SCHEMA, UNREAD, Typist, reading_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VERSION, READING = "version", "reading"
_NEEDED_SCHEMA = pa.schema([ARROW_SCHEMA.field(name) for name in NEEDED])
_ASIDE_SCHEMA = pa.schema([QUARANTINE_SCHEMA.field(name) for name in ("position", "type", READING)])


class Typed(NamedTuple):
    """What a run did."""

    rows: int = 0
    set_aside: int = 0
    rebuilt: tuple[str, ...] = ()


def bring_up_to_date(spark: SparkSession, lake: Lake, catalog: Catalog, *, upto: Cursor) -> Typed:
    """Type the events that are new, up to the cursor that the events' table is at."""
    for table in lake.tables(SILVER):
        _refuse_newer(table, catalog)
    changed = _read_otherwise(lake, catalog, upto.epoch, lambda: _set_aside(spark, lake))
    done = Typed()
    if changed:
        done = _rebuild(spark, lake, catalog, changed, upto=upto)
    if lake.quarantine.holds(upto):
        return done
    held = lake.quarantine.cursor(upto.epoch)
    start = START if held is None else held.position
    after = {table.name: _position(table, upto.epoch) for table in lake.tables(SILVER)}
    new = lake.events.read(spark, files=[file for file in lake.events.files() if file.last > start])
    new = new.where(f"position > {start} AND position <= {upto.position}")
    written = _write(new, lake, catalog, upto, after=after)
    _commit(lake, catalog, written, upto, overwrite=held is None)
    return _sum(done, written)


def bring_up_to_date_here(lake: Lake, catalog: Catalog, *, upto: Cursor) -> Typed | None:
    """The same in this process, for few events. None if a type is read in another way now: that takes Spark."""
    for table in lake.tables(SILVER):
        _refuse_newer(table, catalog)
    aside = few.read(lake.quarantine, _ASIDE_SCHEMA, upto=upto.position)
    pairs = zip(aside.column("type").to_pylist(), aside.column(READING).to_pylist(), strict=True)
    if _read_otherwise(lake, catalog, upto.epoch, lambda: pairs):
        return None
    if lake.quarantine.holds(upto):
        return Typed()
    held = lake.quarantine.cursor(upto.epoch)
    after = {table.name: _position(table, upto.epoch) for table in lake.tables(SILVER)}
    start = START if held is None else held.position
    new = few.read(lake.events, _NEEDED_SCHEMA, after=start, upto=upto.position)
    folder = lake.events.new_folder(upto)
    with _discarding(lake, folder):
        reports = type_all(str(lake.path), folder, Typist(catalog), after, new.to_batches())
        written = _by_table(row.values() for report in reports for row in report.to_pylist())
    _commit(lake, catalog, written, upto, overwrite=held is None)
    return _sum(Typed(), written)


def _rebuild(spark: SparkSession, lake: Lake, catalog: Catalog, types: Sequence[str], *, upto: Cursor) -> Typed:
    """Make the tables of these types from all events that were typed before, and judge again what was set aside."""
    from pyspark.sql import functions as sql

    held = lake.quarantine.cursor(upto.epoch)
    if held is None:
        return Typed()  # nothing was typed yet: the run itself will do it
    theirs = sql.col("type").isin(list(types))
    readings = {event_type: reading_of(catalog, event_type) for event_type in types}
    for event_type, reading in readings.items():
        # Whatever happens from here on, the next run sees that this type is not done.
        if reading is not None and not lake.silver(event_type).exists():
            marks = {VERSION: reading.version, READING: UNREAD}
            lake.silver(event_type).commit([], cursor=held, marks=marks, schema=few.spark_schema(reading.schema))
    events = lake.events.read(spark).where(f"position <= {held.position}").where(theirs)
    written = _write(events, lake, catalog, held)
    # What is set aside first: as long as a table has not its commit, all of this is done again.
    stale = lake.quarantine.files_with(spark, lambda rows: rows.where(theirs))
    rest = lake.quarantine.read(spark, files=stale).where(~theirs).coalesce(1)
    kept = lake.quarantine.write(rest, cursor=held) if stale else []
    lake.quarantine.commit([*kept, *written.get(QUARANTINE, [])], remove=stale, cursor=held)
    for event_type, reading in readings.items():
        table = lake.silver(event_type)
        if reading is None:  # the catalog has forgotten it
            lake.drop(table)
            continue
        table.commit(
            written.get(table.name, []),
            cursor=held,
            marks={VERSION: reading.version, READING: reading.number},
            schema=few.spark_schema(reading.schema),
            mode="overwrite",
        )
    return Typed(rebuilt=tuple(types))


def _set_aside(spark: SparkSession, lake: Lake) -> Iterable[tuple[str, int]]:
    """The types that were set aside, and how they were read then."""
    return [(row[0], row[1]) for row in lake.quarantine.read(spark).select("type", READING).distinct().collect()]


def _read_otherwise(
    lake: Lake, catalog: Catalog, epoch: str, set_aside: Callable[[], Iterable[tuple[str, int]]]
) -> list[str]:
    """The types whose rows in the lake were made by another reading than the catalog has now."""
    if lake.quarantine.cursor(epoch) is None:
        return []
    changed = set()
    for table in lake.tables(SILVER):
        event_type = table.path.name
        reading = reading_of(catalog, event_type)
        if table.mark(READING) != (UNREAD if reading is None else reading.number):
            changed.add(event_type)
    if lake.quarantine.files():
        for event_type, number in set(set_aside()):
            reading = reading_of(catalog, event_type)
            if number != (UNREAD if reading is None else reading.number):
                changed.add(event_type)
    return sorted(changed)


def _refuse_newer(table: Table, catalog: Catalog) -> None:
    reading = reading_of(catalog, table.path.name)
    version = table.mark(VERSION) or 0
    if reading is not None and version > reading.version:
        raise NewerFormat(
            f"the table {table.name} was made for version {version} of its type",
            why=f"this program knows {table.path.name} up to version {reading.version}",
            hint=f"run it with the newer program; to go back all the same: {rebuild_hint(table.name)}",
            table=table.name,
        )


# ---- the job


def _write(
    events: DataFrame, lake: Lake, catalog: Catalog, cursor: Cursor, *, after: Mapping[str, int] | None = None
) -> dict[str, list[DataFile]]:
    """Type events in one pass; the files that were written, by table. Nothing is committed yet."""
    folder = lake.events.new_folder(cursor)
    task = typing_task(str(lake.path), folder, catalog, after or {})
    with _discarding(lake, folder), own_errors("typing the events"):
        return _by_table(events.select(*NEEDED).mapInArrow(task, REPORT).collect())


@contextmanager
def _discarding(lake: Lake, folder: str) -> Iterator[None]:
    """Removes what was written inside, if that fails: a full disk is the last place to leave something behind."""
    try:
        yield
    except BaseException as error:
        for path in lake.path.glob(f"{SILVER}/*"):
            lake.table(f"{SILVER}/{path.name}").discard(folder, error)
        lake.quarantine.discard(folder, error)
        raise


def _by_table(reports: Iterable[Iterable[Any]]) -> dict[str, list[DataFile]]:
    found: dict[str, list[DataFile]] = {}
    for name, *file in reports:
        found.setdefault(name, []).append(DataFile(*file))
    return found


def typing_task(
    lake: str, folder: str, catalog: Catalog, after: Mapping[str, int]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does: types its batches, writes a file for each table, reports them."""
    from pyspark import cloudpickle

    shipped: bytes = cloudpickle.dumps(catalog)  # type: ignore[no-untyped-call]
    paths = tuple(path for path in sys.path if path)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carried():
            sys.path.extend(path for path in paths if path not in sys.path)  # models are imported from there
            yield from type_all(lake, folder, Typist(pickle.loads(shipped)), after, batches)

    return run


def type_all(
    lake: str, folder: str, typist: Typist, after: Mapping[str, int], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Type batches of events, write a file for each table, and report them."""
    files = ParquetFiles(lake, folder)
    try:
        for batch in batches:
            for event_type, rows in by_type(batch):
                table = f"{SILVER}/{event_type}"
                good, aside = typist.typed(event_type, rows)
                if good is not None and table in after:
                    good = _above(good, after[table])
                if good is not None and good.num_rows:
                    files.add(table, good)
                if aside is not None:
                    files.add(QUARANTINE, aside)
    except BaseException:
        files.abandon()
        raise
    yield from files.close()


def by_type(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each type, in their order."""
    import pyarrow.compute as pc

    types = batch.column("type").dictionary_encode()
    for code, event_type in enumerate(types.dictionary.to_pylist()):
        rows = batch if len(types.dictionary) == 1 else batch.filter(pc.equal(types.indices, code))
        yield event_type, rows


def _above(rows: pa.RecordBatch, position: int) -> pa.RecordBatch:
    import pyarrow.compute as pc

    return rows.filter(pc.greater(rows.column("position"), position))


# ---- the commits


def _commit(
    lake: Lake, catalog: Catalog, written: Mapping[str, list[DataFile]], upto: Cursor, *, overwrite: bool
) -> None:
    for name, files in sorted(written.items()):
        if name == QUARANTINE:
            continue
        table = lake.table(name)
        reading = reading_of(catalog, table.path.name)
        if reading is None:
            raise AssertionError(f"{name} was written, and its type is not known")
        mine = table.cursor(upto.epoch) is None  # nothing of this epoch is in it: what is there is of another
        table.commit(
            files,
            cursor=upto,
            marks={VERSION: reading.version, READING: reading.number},
            schema=few.spark_schema(reading.schema),
            mode="overwrite" if mine else "append",
        )
    if overwrite:  # tables of types that this epoch has no event of
        for table in lake.tables(SILVER):
            if table.cursor(upto.epoch) is None:
                lake.drop(table)
    lake.quarantine.commit(
        written.get(QUARANTINE, []),
        cursor=upto,
        schema=few.spark_schema(QUARANTINE_SCHEMA),
        mode="overwrite" if overwrite else "append",
    )


def _position(table: Table, epoch: str) -> int:
    held = table.cursor(epoch)
    return START if held is None else held.position


def _sum(done: Typed, written: Mapping[str, list[DataFile]]) -> Typed:
    rows = sum(file.rows for name, files in written.items() if name != QUARANTINE for file in files)
    aside = sum(file.rows for file in written.get(QUARANTINE, []))
    return done._replace(rows=done.rows + rows, set_aside=done.set_aside + aside)
