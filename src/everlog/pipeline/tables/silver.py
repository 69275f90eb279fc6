"""Typed tables: one per event type, kept up to date from the events, and rebuilt when a type is read differently.

One pass over the new events fills all of them: a task types its rows and writes one file for each type that it met.
Then each table gets its commit, and the quarantine the last one: its cursor says how far all of them are. After a
crash in between, the tables that were committed already take nothing twice, because their own cursors say so.

A type is read differently when its model, its version or an upcaster changed, or when the catalog has come to know
it. Its table is then rebuilt from all of its events, and those in the quarantine are judged again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from everlog.catalog.catalog import Catalog
from everlog.core.event import START
from everlog.core.query import Cursor
from everlog.errors import NewerFormat
from everlog.pipeline.engines.engine import Engine
from everlog.pipeline.lake.arrow_files import spark_schema
from everlog.pipeline.lake.data_file import DataFile
from everlog.pipeline.lake.lake import QUARANTINE, SILVER, Lake
from everlog.pipeline.lake.table import Table, rebuild_hint
from everlog.pipeline.tables.typed import QUARANTINE_SCHEMA, UNREAD, reading_of

VERSION, READING = "version", "reading"


class Typed(NamedTuple):
    """What a run did."""

    rows: int = 0
    set_aside: int = 0
    rebuilt: tuple[str, ...] = ()


def bring_up_to_date(engine: Engine, lake: Lake, catalog: Catalog, *, upto: Cursor) -> Typed:
    """Type the events that are new, up to the cursor that the events' table is at."""
    for table in lake.tables(SILVER):
        _refuse_newer(table, catalog)
    changed = _read_differently(engine, lake, catalog, upto.epoch)
    done = _rebuild(engine, lake, catalog, changed, upto=upto) if changed else Typed()
    if lake.quarantine.holds(upto):
        return done
    first_time = lake.quarantine.cursor(upto.epoch) is None
    held = {table.name: _position(table, upto.epoch) for table in lake.tables(SILVER)}
    start = _position(lake.quarantine, upto.epoch)
    written = _write(engine, lake, catalog, upto, after=start, held=held)
    _commit(lake, catalog, written, upto, overwrite=first_time)
    rows = sum(file.rows for name, files in written.items() if name != QUARANTINE for file in files)
    return Typed(rows, sum(file.rows for file in written.get(QUARANTINE, [])), done.rebuilt)


def _rebuild(engine: Engine, lake: Lake, catalog: Catalog, types: Sequence[str], *, upto: Cursor) -> Typed:
    """Rebuild the tables of these types from all events that were typed before, and judge the quarantine again."""
    held = lake.quarantine.cursor(upto.epoch)
    if held is None:
        return Typed()  # nothing was typed yet: the run itself will do it
    readings = {event_type: reading_of(catalog, event_type) for event_type in types}
    for event_type, reading in readings.items():
        # Whatever happens from here on, the next run sees that this type is not done.
        if reading is not None and not lake.silver(event_type).exists():
            marks = {VERSION: reading.version, READING: UNREAD}
            lake.silver(event_type).commit([], cursor=held, marks=marks, schema=spark_schema(reading.schema))
    written = _write(engine, lake, catalog, held, types=types)
    # The quarantine first: as long as a table does not have its commit, all of this is done again.
    stale, kept = engine.clear_set_aside(lake, types, cursor=held)
    lake.quarantine.commit([*kept, *written.get(QUARANTINE, [])], remove=stale, cursor=held)
    for event_type, reading in readings.items():
        table = lake.silver(event_type)
        if reading is None:  # the catalog no longer has it
            lake.drop(table)
            continue
        table.commit(
            written.get(table.name, []),
            cursor=held,
            marks={VERSION: reading.version, READING: reading.number},
            schema=spark_schema(reading.schema),
            mode="overwrite",
        )
    return Typed(rebuilt=tuple(types))


def _read_differently(engine: Engine, lake: Lake, catalog: Catalog, epoch: str) -> list[str]:
    """Return the types whose rows in the lake were made by another reading than the catalog has now."""
    if lake.quarantine.cursor(epoch) is None:
        return []
    found: set[tuple[str, int | None]] = {(table.path.name, table.mark(READING)) for table in lake.tables(SILVER)}
    if lake.quarantine.files():
        found |= engine.set_aside(lake)
    changed = set()
    for event_type, number in found:
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


def _position(table: Table, epoch: str) -> int:
    held = table.cursor(epoch)
    return START if held is None else held.position


# ---- files, and their commits


def _write(
    engine: Engine,
    lake: Lake,
    catalog: Catalog,
    cursor: Cursor,
    *,
    after: int = START,
    types: Collection[str] = (),
    held: Mapping[str, int] | None = None,
) -> dict[str, list[DataFile]]:
    """Type events in one pass; return the files that were written, by table. Nothing is committed yet."""
    folder = lake.events.new_folder(cursor)
    found: dict[str, list[DataFile]] = {}
    with _discarding(lake, folder):
        for name, *file in engine.type_events(
            lake, catalog, folder, after=after, upto=cursor.position, types=types, held=held or {}
        ):
            found.setdefault(name, []).append(DataFile(*file))
    return found


@contextmanager
def _discarding(lake: Lake, folder: str) -> Iterator[None]:
    """Remove what was written inside, if that fails: files must not stay behind on a full disk."""
    try:
        yield
    except BaseException as error:
        for path in lake.path.glob(f"{SILVER}/*"):
            lake.table(f"{SILVER}/{path.name}").discard(folder, error)
        lake.quarantine.discard(folder, error)
        raise


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
        of_another_epoch = table.cursor(upto.epoch) is None
        table.commit(
            files,
            cursor=upto,
            marks={VERSION: reading.version, READING: reading.number},
            schema=spark_schema(reading.schema),
            mode="overwrite" if of_another_epoch else "append",
        )
    if overwrite:  # tables of types that have no event in this epoch
        for table in lake.tables(SILVER):
            if table.cursor(upto.epoch) is None:
                lake.drop(table)
    lake.quarantine.commit(
        written.get(QUARANTINE, []),
        cursor=upto,
        schema=spark_schema(QUARANTINE_SCHEMA),
        mode="overwrite" if overwrite else "append",
    )
