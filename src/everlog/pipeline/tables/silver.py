"""Typed tables: one per event type, kept up to date from the events, and rebuilt when a type is read differently.

One pass over the new events fills all of them: a task types its rows and writes one file for each type that it met.
Then each table gets its commit, and the quarantine the last one: its cursor says how far all of them are. After a
crash in between, the tables that were committed already take nothing twice, because their own cursors say so.

A type is read differently when its model, its version or an upcaster changed, or when the catalog has come to know
it. Its table is then rebuilt from all of its events, and those in the quarantine are judged again.

A type that is not in the catalog is read as its payloads were seen (`readings`). What differs from that is set aside
first, like everything that cannot be typed. Then, by the contract of its type, its shape is learned, and the table is
rebuilt.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from everlog.catalog.catalog import Catalog
from everlog.catalog.seen import OBJECT, Shape, united
from everlog.core.event import START
from everlog.core.query import Cursor
from everlog.errors import NewerFormat
from everlog.pipeline.engines.engine import Engine
from everlog.pipeline.lake.arrow_files import spark_schema
from everlog.pipeline.lake.data_file import DataFile
from everlog.pipeline.lake.lake import QUARANTINE, SILVER, Lake
from everlog.pipeline.lake.table import Table, rebuild_hint
from everlog.pipeline.tables.readings import ASK, EVOLVE, FREEZE, Reading, Readings, Seen
from everlog.pipeline.tables.typed import QUARANTINE_SCHEMA, UNREAD

VERSION, READING, INFERRED = "version", "reading", "inferred"


class Typed(NamedTuple):
    """What a run did."""

    rows: int = 0
    set_aside: int = 0
    rebuilt: tuple[str, ...] = ()


def bring_up_to_date(engine: Engine, lake: Lake, catalog: Catalog, *, upto: Cursor) -> Typed:
    """Type the events that are new, up to the cursor that the events' table is at."""
    readings = _readings(engine, lake, catalog, upto)
    for table in lake.tables(SILVER):
        _refuse_newer(table, readings)
    changed = _read_differently(engine, lake, readings, upto.epoch)
    done = _rebuild(engine, lake, readings, changed, upto=upto) if changed else Typed()
    if lake.quarantine.holds(upto):
        return _learnt(engine, lake, readings, done, upto=upto)
    first_time = lake.quarantine.cursor(upto.epoch) is None
    held = {table.name: _position(table, upto.epoch) for table in lake.tables(SILVER)}
    start = _position(lake.quarantine, upto.epoch)
    written = _write(engine, lake, readings, upto, after=start, held=held)
    _commit(lake, readings, written, upto, overwrite=first_time)
    rows = sum(file.rows for name, files in written.items() if name != QUARANTINE for file in files)
    aside = sum(file.rows for file in written.get(QUARANTINE, []))
    return _learnt(engine, lake, readings, Typed(rows, aside, done.rebuilt), upto=upto)


def _readings(engine: Engine, lake: Lake, catalog: Catalog, upto: Cursor) -> Readings:
    """Return how each type is read. After a purge, what was seen is computed again: names of fields are data, too.

    It can only shrink by that: what was set aside is left out.
    """
    seen, knows = Seen.of(lake, upto.epoch, catalog), _knows(lake, upto)
    if seen.types and seen.knows < knows:
        there = engine.shapes(lake.events, list(seen.types), upto=upto.position, within=seen.types)
        now = {}
        for event_type, shape in seen.types.items():
            left = united(there.get(event_type, ()))
            if left is None and catalog.contract(event_type) == FREEZE:
                left = Shape(OBJECT)
            if left is not None:
                now[event_type] = left
            if left != shape and lake.silver(event_type).exists():
                lake.drop(lake.silver(event_type))  # with the names of its old columns
        seen = Seen(upto.epoch, knows, now)
        seen.keep(lake)
    return Readings(catalog, seen.types)


def _knows(lake: Lake, upto: Cursor) -> int:
    """Return the newest purge whose events are not in the lake any more."""
    held = lake.events.cursor(upto.epoch)
    return START if held is None else held.knows


def _learnt(engine: Engine, lake: Lake, readings: Readings, done: Typed, *, upto: Cursor) -> Typed:
    """Learn from what was set aside because it is of a new type or shape, and type it."""
    if not lake.quarantine.files():
        return done
    catalog = readings.catalog
    types = [
        event_type
        for event_type, _ in sorted(engine.set_aside(lake))
        if not catalog.knows(event_type)
        and (catalog.contract(event_type) == EVOLVE or event_type not in readings.seen)
        and catalog.contract(event_type) != ASK
    ]
    if not types:
        return done
    seen = dict(readings.seen)
    for event_type, shapes in engine.shapes(lake.quarantine, types, upto=upto.position).items():
        wider = united(shapes, seen.get(event_type))
        if wider is None and catalog.contract(event_type) == EVOLVE:
            wider = Shape(OBJECT)  # every payload has too many fields: the table has none of them
        if wider is not None:
            seen[event_type] = wider
    changed = [event_type for event_type in types if seen.get(event_type) != readings.seen.get(event_type)]
    if not changed:
        return done
    Seen(upto.epoch, _knows(lake, upto), seen).keep(lake)
    before = lake.quarantine.rows()
    there = [event_type for event_type in changed if lake.silver(event_type).exists()]
    _rebuild(engine, lake, Readings(catalog, seen), changed, upto=upto)
    found = before - lake.quarantine.rows()
    return Typed(done.rows + found, max(done.set_aside - found, 0), tuple(sorted({*done.rebuilt, *there})))


def _rebuild(engine: Engine, lake: Lake, readings: Readings, types: Sequence[str], *, upto: Cursor) -> Typed:
    """Rebuild the tables of these types from all events that were typed before, and judge the quarantine again."""
    held = lake.quarantine.cursor(upto.epoch)
    if held is None:
        return Typed()  # nothing was typed yet: the run itself will do it
    made = {event_type: readings.of(event_type) for event_type in types}
    for event_type, reading in made.items():
        # Whatever happens from here on, the next run sees that this type is not done.
        if reading is not None and not lake.silver(event_type).exists():
            marks = {**_marks(reading), READING: UNREAD}
            lake.silver(event_type).commit([], cursor=held, marks=marks, schema=spark_schema(reading.schema))
    written = _write(engine, lake, readings, held, types=types)
    # The quarantine first: as long as a table does not have its commit, all of this is done again.
    stale, kept = engine.clear_set_aside(lake, types, cursor=held)
    lake.quarantine.commit([*kept, *written.get(QUARANTINE, [])], remove=stale, cursor=held)
    for event_type, reading in made.items():
        table = lake.silver(event_type)
        if reading is None:  # the catalog no longer has it
            lake.drop(table)
            continue
        table.commit(
            written.get(table.name, []),
            cursor=held,
            marks=_marks(reading),
            schema=spark_schema(reading.schema),
            mode="overwrite",
        )
    return Typed(rebuilt=tuple(types))


def _marks(reading: Reading) -> dict[str, int]:
    return {VERSION: reading.version, READING: reading.number, INFERRED: int(reading.seen is not None)}


def _read_differently(engine: Engine, lake: Lake, readings: Readings, epoch: str) -> list[str]:
    """Return the types whose rows in the lake were made by another reading than the catalog has now."""
    if lake.quarantine.cursor(epoch) is None:
        return []
    found: set[tuple[str, int | None]] = {(table.path.name, table.mark(READING)) for table in lake.tables(SILVER)}
    found |= {(event_type, None) for event_type in readings.seen if not lake.silver(event_type).exists()}
    if lake.quarantine.files():
        found |= engine.set_aside(lake)
    changed = set()
    for event_type, number in found:
        reading = readings.of(event_type)
        if number != (UNREAD if reading is None else reading.number) and (number is not None or reading is not None):
            changed.add(event_type)
    return sorted(changed)


def _refuse_newer(table: Table, readings: Readings) -> None:
    reading = readings.of(table.path.name)
    version = table.mark(VERSION) or 0
    if reading is not None and reading.seen is None and version > reading.version:
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
    readings: Readings,
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
            lake, readings, folder, after=after, upto=cursor.position, types=types, held=held or {}
        ):
            found.setdefault(name, []).append(DataFile(*file))
    return found


@contextmanager
def _discarding(lake: Lake, folder: str) -> Iterator[None]:
    """Remove what was written inside, if that fails: files must not stay behind on a full disk."""
    try:
        yield
    except BaseException as error:
        lake.discard(folder, error, below=SILVER)
        lake.quarantine.discard(folder, error)
        raise


def _commit(
    lake: Lake, readings: Readings, written: Mapping[str, list[DataFile]], upto: Cursor, *, overwrite: bool
) -> None:
    for name, files in sorted(written.items()):
        if name == QUARANTINE:
            continue
        table = lake.table(name)
        reading = readings.of(table.path.name)
        if reading is None:
            raise AssertionError(f"{name} was written, and its type is not known")
        of_another_epoch = table.cursor(upto.epoch) is None
        table.commit(
            files,
            cursor=upto,
            marks=_marks(reading),
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
