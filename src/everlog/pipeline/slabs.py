"""Slabs of records as Arrow batches: the way of every event into Spark, so each step of it is one call for thousands.

Nothing is made for a single record: the headers of a slab are decoded in one call, and every column becomes an Arrow
array in one. Python's collector is kept off meanwhile: it would look at each of a million tuples and find nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import islice
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from everlog.core.codec import HEADER_FIELDS, header_columns
from everlog.core.event import Position, Recorded
from everlog.core.query import Query
from everlog.errors import Damaged
from everlog.pipeline.collector import collector_off
from everlog.pipeline.rows import ARROW_SCHEMA, COLUMNS, batch_of
from everlog.stores.contract import Reader, Scanning, Slab
from everlog.stores.lost import lost

_INSTANT = ARROW_SCHEMA.field("occurred_at").type
_GROUP = 5_000


def batches_of(
    store: Reader, query: Query, *, after: Position, upto: Position, columns: Sequence[str] = COLUMNS
) -> Iterator[pa.RecordBatch]:
    """What the store would read, as Arrow batches of these columns, in order."""
    schema = pa.schema([ARROW_SCHEMA.field(name) for name in columns])
    if not isinstance(store, Scanning):
        for some in _grouped(store.read(query, after=after, upto=upto)):
            yield batch_of(some).select(list(columns))
        return
    checks = _left_to_check(query)
    with collector_off():
        for slab in store.scan(query, after=after, upto=upto):
            batch = _batch(slab, schema, checks)
            if batch.num_rows:
                yield batch


def _batch(slab: Slab, schema: pa.Schema, checks: Sequence[tuple[str, str]]) -> pa.RecordBatch:
    made = _Columns(slab)
    batch = pa.RecordBatch.from_arrays([made.array(field) for field in schema], schema=schema)
    fits = [pc.equal(made.array(ARROW_SCHEMA.field(name)), value) for name, value in checks]
    return batch.filter(reduce(pc.and_, fits)) if fits else batch


class _Columns:
    """The columns of a slab; those of the header are taken apart when the first of them is asked for."""

    def __init__(self, slab: Slab) -> None:
        self._slab = slab
        self._fields: Sequence[Sequence[Any]] = slab.fields

    def array(self, field: pa.Field) -> pa.Array:
        make = _MADE.get(field.name)
        if make is not None:
            return make(self._slab)
        values = self._field(field.name)
        if field.name == "occurred_at":
            return _instants(values)
        if _is_one(values):  # most events have no request and no tags, and one origin has made them all
            first = bytes(values[0]) if field.name == "tags" else values[0]
            return pa.repeat(pa.scalar(first, field.type), len(values))
        if field.name == "tags":
            return pa.array(list(map(bytes, values)), pa.string())
        return pa.array(values, field.type)

    def _field(self, name: str) -> Sequence[Any]:
        if not self._fields:
            self._fields = _taken_apart(self._slab)
        return self._fields[_PLACE[name]]


_PLACE = {name: place for place, name in enumerate(HEADER_FIELDS)}


def _taken_apart(slab: Slab) -> Sequence[Sequence[Any]]:
    try:
        return header_columns(slab.headers)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _damaged(slab, error) from error


def _damaged(slab: Slab, error: Exception) -> Damaged:
    """Which of them it was: one by one now, because nothing depends on speed any more."""
    for position, header in zip(slab.positions, slab.headers, strict=True):
        try:
            header_columns([header])  # type: ignore[arg-type]
        except (msgspec.DecodeError, UnicodeDecodeError) as reason:
            return lost(position, position, why=f"the event cannot be read: {reason}")
    return Damaged(
        f"an event after position {slab.positions[0] - 1} cannot be read", why=str(error), hint="everlog verify"
    )


def _is_one(values: Sequence[Any]) -> bool:
    """Whether all of them are the same."""
    first = values[0]
    return bool(first == values[-1]) and values.count(first) == len(values)


def _instants(values: Sequence[Any]) -> pa.Array:
    if values and isinstance(values[0], int):
        return pa.array(values, pa.int64()).cast(_INSTANT)
    return pc.cast(pa.array(values, pa.string()), _INSTANT)


def _payloads(slab: Slab) -> pa.Array:
    # An erased payload has no text at all, where an empty one has "{}".
    found = pa.array(slab.payloads, pa.string())
    if not all(slab.payloads):
        return pc.if_else(pc.equal(found, ""), pa.scalar(None, pa.string()), found)
    return found


def _or_empty(values: Sequence[bytes], slab: Slab) -> pa.Array:
    return pa.array(values or [b""] * len(slab.positions), pa.binary())


_MADE: dict[str, Callable[[Slab], pa.Array]] = {
    "position": lambda slab: pa.array(slab.positions, pa.int64()),
    "sequence": lambda slab: pa.array(slab.sequences, pa.int64()),
    "received_at": lambda slab: pa.array(slab.received_us, pa.int64()).cast(_INSTANT),
    "payload": _payloads,
    "salt": lambda slab: pa.array(slab.salts, pa.binary()),
    "signature": lambda slab: _or_empty(slab.signatures, slab),
    "path": lambda slab: _or_empty(slab.paths, slab),
}


def _left_to_check(query: Query) -> list[tuple[str, str]]:
    """What no store looks at before it has the whole event."""
    found = (("actor", query.actor), ("correlation_id", query.correlation_id))
    return [(name, value) for name, value in found if value]


def _grouped(records: Iterator[Recorded]) -> Iterator[list[Recorded]]:
    while some := list(islice(records, _GROUP)):
        yield some
