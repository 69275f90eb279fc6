"""Declared views on Spark: the same rows as the fold, without a call of Python per event.

    files of events -> reduced to one row per key -> distributed by key -> united, and rendered as a state

A task reads its files with Arrow and computes what counts for each key: the first and the last event, how many, which
values (`reduced`). Spark brings together what several tasks found for a key, in a few large values. Where the result
could differ from the fold (an event that has to be upcast first, a set of values that are not text) it is not done at
all: `why_not` returns the reason, and the view is folded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everlog.catalog.catalog import Catalog
from everlog.pipeline.fold.fold import EVENTS_PER_PARTITION, matches, partitions_for
from everlog.pipeline.fold.presorted import matching
from everlog.pipeline.fold.reduced import can_be_reduced, columns_of, reduced, rows, united
from everlog.pipeline.fold.sorted_fold import FOLDED_SCHEMA
from everlog.pipeline.fold.view_code import Shipped, ship
from everlog.pipeline.lake.data_file import DataFile, opened
from everlog.pipeline.lake.table import Table
from everlog.pipeline.session.failures import carried
from everlog.views.declared import PAYLOAD, DeclaredView, Distinct

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PARTITIONS_PER_CORE = 4
"""The shuffle partitions of a session are several per core. Here it is one task per core: the fewer there are, the
fewer of them report the same key."""

EVENTS_PER_TASK = 4_000_000
EVENTS_PER_BIN = 1_000_000
READ_EVENTS = 65_536
GATHERED_BYTES = 128 * 1024 * 1024
KEYS_HELD_MAX = 500_000
BATCH_ROWS = 10_000

_PACKED = "bin int, part binary"
_PACKED_SCHEMA = pa.schema([("bin", pa.int32()), ("part", pa.binary())])


def why_not(events: DataFrame, view: DeclaredView, catalog: Catalog) -> str:
    """Return why these events cannot be reduced; empty if they can."""
    from pyspark.sql import functions as sql

    if name := next((name for name, one in view.fields.items() if not can_be_reduced(one)), ""):
        return f"{name} is a {type(view.fields[name]).__name__}, or of a field inside of another"
    if view.by.startswith(PAYLOAD):
        return "its key is in the payload"
    if sealed := sorted(catalog.stand_ins(view.types)):
        return f"{sealed[0]} has personal fields, which are sealed"
    taken = events.where(matches(view.query))
    old = sql.lit(False)
    for event_type, latest, _ in catalog.readings(view.types):
        if latest > 1:
            old |= (sql.col("type") == event_type) & (sql.col("version") < latest)
    texts = sql.lit(True)
    for name in _sets_of_payload(view):
        # The text is canonical: it has no space after the colon.
        is_text = sql.contains(sql.col("payload"), sql.lit(f'"{name}":"'))
        texts &= _payload_value(name).isNull() | is_text
    found = taken.where(old | ~texts).select("position", old.alias("old")).limit(1).collect()
    if not found:
        return ""
    what = "is of an old version" if found[0]["old"] else "has a value that is not text in a set"
    return f"event #{found[0]['position']} {what}"


def fold_declared(
    spark: SparkSession, table: Table, view: DeclaredView, *, files: Sequence[DataFile], upto: int
) -> DataFrame:
    """Return the rows of a declared view over some files of events, up to a position, as `fold_view` does.

    Call `why_not` first.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    events = sum(file.rows for file in files)
    cores = max(partitions_for(spark) // PARTITIONS_PER_CORE, 1)
    shares = _shares(table, files, max(cores, -(-events // EVENTS_PER_TASK)))
    bins = max(cores, -(-events // EVENTS_PER_BIN)) if events > EVENTS_PER_PARTITION else 1
    shipped = ship(view, Catalog())
    numbers = spark.range(0, len(shares), 1, numPartitions=len(shares))
    parts = numbers.mapInArrow(partial(_reduce, shipped, shares, upto, bins), _PACKED)
    return parts.repartition(bins, "bin").mapInArrow(partial(_unite, shipped), from_arrow_schema(FOLDED_SCHEMA))


def _shares(table: Table, files: Sequence[DataFile], tasks: int) -> list[list[str]]:
    """Return the files of each task: neighbours, with about the same number of events."""
    shares: list[list[str]] = [[] for _ in range(tasks)]
    all_rows = sum(file.rows for file in files) or 1
    for file, end in zip(files, accumulate(file.rows for file in files), strict=True):
        middle = end - file.rows / 2
        shares[min(int(middle * tasks / all_rows), tasks - 1)].append(str(table.path / file.path))
    return [share for share in shares if share] or [[]]


def _payload_value(name: str) -> Column:
    from pyspark.sql import functions as sql

    return sql.get_json_object(sql.col("payload"), f"$['{name}']")


def _sets_of_payload(view: DeclaredView) -> list[str]:
    return [
        reduction.of.removeprefix(PAYLOAD)
        for reduction in view.fields.values()
        if isinstance(reduction, Distinct) and reduction.of.startswith(PAYLOAD)
    ]


# ---- in the workers


def _reduce(
    shipped: Shipped, shares: Sequence[Sequence[str]], upto: int, bins: int, numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    with carried():
        view, _ = shipped.unpack()
        assert isinstance(view, DeclaredView)
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                batches = matching(_batches(shares[number], columns_of(view), upto), view.query)
                for part in _united(view, (reduced(view, events) for events in _gathered(batches))):
                    yield from _packed(part, bins)


def _united(view: DeclaredView, parts: Iterable[pa.Table], *, at_most: int = KEYS_HELD_MAX) -> Iterator[pa.Table]:
    """Unite parts of few keys, until there are so many keys that memory would grow with them."""
    held: list[pa.Table] = []
    for part in parts:
        held.append(part)
        if sum(one.num_rows for one in held) >= at_most:
            held = [united(view, pa.concat_tables(held))]
            if held[0].num_rows >= at_most // 2:
                yield held.pop()
    if held:
        yield united(view, pa.concat_tables(held))


def _batches(files: Sequence[str], columns: Sequence[str], upto: int) -> Iterator[pa.RecordBatch]:
    for file in files:
        for batch in opened(file).iter_batches(READ_EVENTS, columns=columns, use_threads=False):
            there = pc.less_equal(batch.column("position"), upto)
            yield batch if pc.all(there).as_py() else batch.filter(there)


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Gather as many events as fit into a little memory: then a key is reported less often."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            size += batch.nbytes
        if size >= GATHERED_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _packed(part: pa.Table, bins: int) -> Iterator[pa.RecordBatch]:
    """Distribute the rows by key. Each share is one value, so that Spark need not decode it."""
    chosen = np.fromiter((crc32(key.encode()) % bins for key in part["key"].to_pylist()), np.int64, part.num_rows)
    for number in range(bins):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, part.schema) as stream:
            stream.write_table(part.filter(pa.array(chosen == number)) if bins > 1 else part)
        arrays = [pa.array([number], pa.int32()), pa.array([sink.getvalue().to_pybytes()], pa.binary())]
        yield pa.RecordBatch.from_arrays(arrays, schema=_PACKED_SCHEMA)


def _unite(shipped: Shipped, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with carried():
        view, _ = shipped.unpack()
        assert isinstance(view, DeclaredView)
        held: dict[int, list[pa.Table]] = {}
        for batch in batches:
            for number, part in zip(batch["bin"].to_pylist(), batch["part"], strict=True):
                held.setdefault(number, []).append(pa.ipc.open_stream(part.as_buffer()).read_all())
        while held:  # one bin after the other: Spark may give two of them to one task
            _, parts = held.popitem()
            whole = united(view, pa.concat_tables(parts))
            for start in range(0, whole.num_rows, BATCH_ROWS):
                yield rows(view, whole.slice(start, BATCH_ROWS))
