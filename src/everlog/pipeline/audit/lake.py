"""The lake compared with its log: every file by its digest, every row by what the log gives for it.

    files      the bytes of each are those that its commit names
    events     every row equals that of the log, and its commitment is computed again
    typed      the rows of a sample of positions, or of all, are typed again from the log
    views      the rows of a sample of keys, or of all, are folded again

What spans files is compared range by range, so neither a task nor the driver holds more than one range. `heal` writes
the rows of the files that are damaged again, from the log, and leaves every other file as it is.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everlog.core.event import START, Position
from everlog.core.query import EVERYTHING, Cursor
from everlog.errors import Conflict, Damaged
from everlog.log.log import Log
from everlog.pipeline.engines.engine import Engine
from everlog.pipeline.fold.letters import letters_table
from everlog.pipeline.lake.arrow_files import unlike
from everlog.pipeline.lake.data_file import DataFile, opened, proved
from everlog.pipeline.lake.erase import purges_unknown_to
from everlog.pipeline.lake.lake import EVENTS, GOLD, LETTERS, QUARANTINE, SILVER, Lake
from everlog.pipeline.lake.parquet_files import ParquetFiles
from everlog.pipeline.lake.table import Table
from everlog.pipeline.source import ranges
from everlog.pipeline.tables.readings import Readings, Seen
from everlog.pipeline.tables.typed import NEEDED, Typist, by_type
from everlog.pipeline.tables.view_table import ViewTable

RANGE_POSITIONS = 50_000
SAMPLED_RANGES, SAMPLED_POSITIONS, SAMPLED_KEYS = 8, 1_000, 20
NAMED_MAX = 20
"""Positions and keys that one damage names."""


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with one file of a table, or with a table."""

    table: str
    path: str = ""  # below the folder of the table; empty for rows that are in no file
    why: str
    first: int = 0  # the positions that the file holds
    last: int = 0
    positions: tuple[int, ...] = ()  # those that differ, if the file can be read
    keys: tuple[str, ...] = ()


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """What was compared, and what is wrong."""

    cursor: str
    files: int
    events: int
    typed: int  # rows that were typed again
    states: int  # rows that were folded again
    damages: tuple[Damage, ...]
    healed: bool = False


class _Held(NamedTuple):
    """A table, with the files that hold what was committed, and the others."""

    table: Table
    whole: list[DataFile]
    bad: list[DataFile]


class _Work(NamedTuple):
    """A range of positions to compare."""

    chosen: ranges.PositionRange
    events: bool
    typed: bool


def prove_lake(
    engine: Engine,
    log: Log,
    url: str,
    lake: Lake,
    views: Sequence[ViewTable],
    *,
    everything: bool = False,
    heal: bool = False,
) -> Proof:
    """Compare a lake with its log. With `heal`, write what is damaged again; a run must follow, to publish it."""
    epoch = log.identity.epoch
    cursor = lake.events.cursor(epoch)
    _require_comparable(log, lake, cursor)
    damages, tables = _prove_files(engine, lake)
    counts = {"events": 0, "typed": 0, "states": 0}
    if cursor is not None and EVENTS in tables:
        catalog = log.catalog.without_keys()
        readings = Readings(catalog, Seen.of(lake, epoch, catalog).types)
        found = list(_prove_rows(engine, lake, url, readings, tables, cursor, everything, counts))
        damages += found
        if heal:
            _heal_rows(lake, url, readings, tables, damages, cursor)
        if heal or not any(damage.table == EVENTS for damage in damages):
            for view in views:
                damages += _prove_view(engine, lake, view, tables, epoch, everything, heal, counts)
    if heal:
        for name in set(_not_healed(damages, tables)):
            lake.drop(lake.table(name))
    files = sum(len(held.whole) + len(held.bad) for held in tables.values())
    return Proof(cursor=str(cursor or ""), files=files, damages=tuple(damages), healed=heal, **counts)


def _require_comparable(log: Log, lake: Lake, cursor: Cursor | None) -> None:
    if lake.events.exists() and (cursor is None or purges_unknown_to(log.stored.purges(), cursor)):
        raise Conflict(
            "the lake cannot be compared with its log",
            why="the log was restored, or something was purged in it, since the last run",
            hint="everlog pipeline run",
        )


# ---- files


def _prove_files(engine: Engine, lake: Lake) -> tuple[list[Damage], dict[str, _Held]]:
    damages: list[Damage] = []
    tables: dict[str, _Held] = {}
    for table in lake.tables():
        try:
            files = table.listed()
        except Damaged as error:
            damages.append(Damage(table=table.name, why=error.why))
            continue
        tables[table.name] = held = _Held(table, [], [])
        paths = [str(table.path / file.path) for file in files]
        for file, why in zip(files, engine.spread(_wrong_bytes, paths), strict=True):
            (held.bad if why else held.whole).append(file)
            if why:
                damages.append(_of_file(table, file, why))
    return damages, tables


def _wrong_bytes(path: str) -> str:
    """Return what is wrong with the bytes of a file; empty if nothing is."""
    try:
        proved(path)
    except Damaged as error:
        return error.why.partition(": ")[2]
    return ""


def _of_file(table: Table, file: DataFile, why: str, **more: tuple[int, ...] | tuple[str, ...]) -> Damage:
    return Damage(table=table.name, path=file.path, why=why, first=file.first, last=file.last, **more)  # type: ignore[arg-type]


# ---- events and typed rows


def _prove_rows(
    engine: Engine,
    lake: Lake,
    url: str,
    readings: Readings,
    tables: Mapping[str, _Held],
    cursor: Cursor,
    everything: bool,
    counts: dict[str, int],
) -> Iterator[Damage]:
    """Compare ranges of positions, in tasks of the engine; yield one damage for each file with wrong rows."""
    typed_upto = lake.quarantine.cursor(cursor.epoch)
    at = START if typed_upto is None else typed_upto.position
    seen = ranges.look(url)
    work = [
        _Work(one, events=True, typed=everything and one.upto <= at)
        for one in ranges.cut(url, seen, EVERYTHING, START, cursor.position, RANGE_POSITIONS)
    ]
    if not everything and at:
        firsts = sorted(random.sample(range(at), min(at, SAMPLED_RANGES)))
        sampled = [(first, min(first + SAMPLED_POSITIONS, at)) for first in firsts]
        work += [
            _Work(ranges.PositionRange(url, seen.mark, Position(a), Position(b)), False, True) for a, b in sampled
        ]
    prove = partial(_wrong_rows, str(lake.path), readings, _spans(tables))
    wrong: dict[tuple[str, str], set[int]] = {}
    for events, typed, found in engine.spread(prove, work):
        counts["events"] += events
        counts["typed"] += typed
        for table, path, unlike_here in found:
            wrong.setdefault((table, path), set()).update(unlike_here)
    by_path = {(name, file.path): file for name, held in tables.items() for file in (*held.whole, *held.bad)}
    for (name, path), positions in sorted(wrong.items()):
        named = tuple(sorted(positions)[:NAMED_MAX])
        why = f"{len(positions):,} of its rows are not those of the log" if path else "rows of the log are missing"
        if path:
            file = by_path[name, path]
            tables[name].whole.remove(file)
            tables[name].bad.append(file)
            yield _of_file(tables[name].table, file, why, positions=named)
        else:
            yield Damage(table=name, why=why, first=min(positions), last=max(positions), positions=named)


class _Spans(NamedTuple):
    """The files of the tables that have one row per event."""

    whole: dict[str, list[DataFile]]
    bad: dict[str, list[tuple[int, int]]]


def _spans(tables: Mapping[str, _Held]) -> _Spans:
    mine = {
        name: held for name, held in tables.items() if name in (EVENTS, QUARANTINE) or name.startswith(SILVER + "/")
    }
    bad = {name: [(file.first, file.last) for file in held.bad] for name, held in mine.items()}
    return _Spans({name: held.whole for name, held in mine.items()}, bad)


def _wrong_rows(
    lake: str, readings: Readings, spans: _Spans, work: _Work
) -> tuple[int, int, list[tuple[str, str, list[int]]]]:
    """Return how many events and typed rows were compared, and the positions that differ, by table and file."""
    after, upto = work.chosen.after, work.chosen.upto
    batches = list(ranges.batches(work.chosen))
    expected: dict[str, list[pa.RecordBatch]] = {EVENTS: batches}
    if work.typed:
        expected |= _typed_again(readings, batches)
    found: list[tuple[str, str, list[int]]] = []
    events = typed = 0
    for name, files in spans.whole.items():
        if not (work.events if name == EVENTS else work.typed):
            continue
        there = [file for file in files if file.last > after and file.first <= upto]
        rows = expected.get(name, [])
        if name == EVENTS:
            events = sum(map(len, rows))
        else:
            typed += sum(map(len, rows))
        found += _compared(lake, name, there, rows, (after, upto), spans.bad.get(name, []))
    return events, typed, found


def _typed_again(readings: Readings, batches: Iterable[pa.RecordBatch]) -> dict[str, list[pa.RecordBatch]]:
    typist = Typist(readings)
    made: dict[str, list[pa.RecordBatch]] = {}
    for batch in batches:
        for event_type, rows in by_type(batch.select(list(NEEDED))):
            good, aside = typist.typed(event_type, rows)
            for name, some in ((f"{SILVER}/{event_type}", good), (QUARANTINE, aside)):
                if some is not None:
                    made.setdefault(name, []).append(some)
    return made


def _compared(
    lake: str,
    name: str,
    files: Sequence[DataFile],
    expected: Sequence[pa.RecordBatch],
    reach: tuple[int, int],
    lost: Sequence[tuple[int, int]],
) -> Iterator[tuple[str, str, list[int]]]:
    """Yield the positions of each file whose rows are not the expected ones, and those that no file has."""
    right = pa.Table.from_batches(expected).sort_by("position") if expected else None
    there: set[int] = set()
    for file in files:
        rows = _rows_between(f"{lake}/{name}/{file.path}", name, *reach)
        positions = rows.column("position").to_pylist()
        twice = there.intersection(positions)
        there.update(positions)
        wrong = sorted(twice.union(unlike(rows, right, by="position")))
        if wrong:
            yield name, file.path, wrong
    missing = set(() if right is None else right.column("position").to_pylist()) - there
    if gone := [position for position in missing if not any(low <= position <= high for low, high in lost)]:
        yield name, "", gone


def _rows_between(path: str, table: str, after: int, upto: int) -> pa.Table:
    positions = pc.field("position")
    rows = opened(path, table=table).read()
    return rows.filter((positions > after) & (positions <= upto)).sort_by("position")


def _heal_rows(
    lake: Lake, url: str, readings: Readings, tables: dict[str, _Held], damages: Sequence[Damage], cursor: Cursor
) -> None:
    """Write the rows of the bad files again, and those that are missing: first the events, then what is typed."""
    mark = ranges.look(url).mark
    for name, held in sorted(tables.items()):
        if name != EVENTS and name != QUARANTINE and not name.startswith(SILVER + "/"):
            continue
        spans = [(file.first, file.last) for file in held.bad if file.last]
        spans += [(one.first, one.last) for one in damages if one.table == name and not one.path and one.last]
        if not spans and not held.bad:
            continue
        at = held.table.cursor(cursor.epoch)
        folder = held.table.new_folder(cursor)
        files = ParquetFiles(str(lake.path), folder)
        for first, last in _united(spans):
            kept = _positions_in(held, first, last)
            for start in range(first - 1, min(last, at.position if at else last), RANGE_POSITIONS):
                end = Position(min(start + RANGE_POSITIONS, last))
                batches = list(ranges.batches(ranges.PositionRange(url, mark, Position(start), end)))
                made = {EVENTS: batches} if name == EVENTS else _typed_again(readings, batches)
                for rows in made.get(name, []):
                    missing = rows.filter(pc.invert(pc.is_in(rows.column("position"), kept)))
                    if missing.num_rows:
                        files.add(name, missing)
        reports = [tuple(row.values()) for report in files.close() for row in report.to_pylist()]
        added = [DataFile(*row[1:]) for row in reports]
        held.table.commit(added, remove=held.bad, same_rows=True)
        held.whole.extend(added)
        held.bad.clear()


def _united(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return found


def _positions_in(held: _Held, first: int, last: int) -> pa.Array:
    """Return the positions that whole files have in a span."""
    there = [file for file in held.whole if file.last >= first and file.first <= last]
    read = [opened(held.table.path / file.path).read(columns=["position"]).column("position") for file in there]
    return pa.array(np.concatenate([one.to_numpy() for one in read]) if read else [], pa.int64())


# ---- views


def _prove_view(
    engine: Engine,
    lake: Lake,
    view: ViewTable,
    tables: Mapping[str, _Held],
    epoch: str,
    everything: bool,
    heal: bool,
    counts: dict[str, int],
) -> Iterator[Damage]:
    """Fold a view again and compare its rows, and its letters."""
    held = tables.get(f"{GOLD}/{view.name}")
    if held is None or not view.is_current(held.table, epoch):
        return  # the next run derives it
    table, at = held.table, held.table.cursor(epoch)
    assert at is not None
    keys = None if everything or held.bad else engine.sample_keys(table, SAMPLED_KEYS)
    folded = engine.fold(lake, view.view, view.catalog, held=None, upto=at, keys=keys)
    counts["states"] += sum(file.rows for file in folded.files)
    wrong, missing = engine.differing(table, held.whole, folded.files, keys=keys)
    for path, found in sorted(wrong.items()):
        file = next(file for file in held.whole if file.path == path)
        held.whole.remove(file)
        held.bad.append(file)
        yield _of_file(table, file, "its states are not those of the log", keys=tuple(found[:NAMED_MAX]))
    if missing and not held.bad:
        yield Damage(table=table.name, why="keys of the log are missing", keys=tuple(missing[:NAMED_MAX]))
    if heal and (held.bad or missing):
        if keys is not None:  # only some were folded
            table.remove(folded.files)
            folded = engine.fold(lake, view.view, view.catalog, held=None, upto=at)
        table.commit(engine.rest(table, held.whole, folded.files, cursor=at), remove=held.bad, same_rows=True)
        held.bad.clear()
    table.remove(folded.files)
    if folded.letters:
        letters_table(lake, view.view).remove(folded.letters)


def _not_healed(damages: Sequence[Damage], tables: Mapping[str, _Held]) -> Iterator[str]:
    """Yield the tables that are not healed file by file: they are dropped, and the run derives them."""
    for name in {damage.table for damage in damages}:
        if name not in tables or tables[name].bad:
            yield name
            if name.startswith(LETTERS + "/"):
                yield f"{GOLD}/{name.partition('/')[2]}"
