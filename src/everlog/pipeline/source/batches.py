"""Blocks of records as Arrow batches. Every event enters Spark this way, so each step is one call for thousands.

No object is made for a single record: the headers of a block are decoded in one call, and each column becomes an
Arrow array in one. The garbage collector is off meanwhile: it would visit each of a million tuples and find nothing.
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
from everlog.pipeline.source.collector import collector_off
from everlog.pipeline.source.rows import ARROW_SCHEMA, COLUMNS, batch_of
from everlog.stores.contract import Block, Reader, Scanning
from everlog.stores.lost import lost

_INSTANT = ARROW_SCHEMA.field("occurred_at").type
_GROUP = 5_000


def batches_of(
    store: Reader, query: Query, *, after: Position, upto: Position, columns: Sequence[str] = COLUMNS
) -> Iterator[pa.RecordBatch]:
    """Yield the records that a query selects, as Arrow batches of these columns, in order."""
    schema = pa.schema([ARROW_SCHEMA.field(name) for name in columns])
    if not isinstance(store, Scanning):
        for some in _grouped(store.read(query, after=after, upto=upto)):
            yield batch_of(some).select(list(columns))
        return
    checks = _left_to_check(query)
    with collector_off():
        for block in store.blocks(query, after=after, upto=upto):
            batch = _batch(block, schema, checks)
            if batch.num_rows:
                yield batch


def _batch(block: Block, schema: pa.Schema, checks: Sequence[tuple[str, str]]) -> pa.RecordBatch:
    made = _Columns(block)
    batch = pa.RecordBatch.from_arrays([made.array(field) for field in schema], schema=schema)
    fits = [pc.equal(made.array(ARROW_SCHEMA.field(name)), value) for name, value in checks]
    return batch.filter(reduce(pc.and_, fits)) if fits else batch


class _Columns:
    """The columns of a block; the headers are decoded when the first column that needs them is requested."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self._fields: Sequence[Sequence[Any]] = block.fields

    def array(self, field: pa.Field) -> pa.Array:
        make = _MADE.get(field.name)
        if make is not None:
            return make(self._block)
        values = self._field(field.name)
        if field.name == "occurred_at":
            return _instants(values)
        if _is_one(values):  # most events have no request and no tags, and one origin
            first = bytes(values[0]) if field.name == "tags" else values[0]
            return pa.repeat(pa.scalar(first, field.type), len(values))
        if field.name == "tags":
            return pa.array(list(map(bytes, values)), pa.string())
        return pa.array(values, field.type)

    def _field(self, name: str) -> Sequence[Any]:
        if not self._fields:
            self._fields = _taken_apart(self._block)
        return self._fields[_PLACE[name]]


_PLACE = {name: place for place, name in enumerate(HEADER_FIELDS)}


def _taken_apart(block: Block) -> Sequence[Sequence[Any]]:
    try:
        return header_columns(block.headers)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _damaged(block, error) from error


def _damaged(block: Block, error: Exception) -> Damaged:
    """Find the damaged event, one by one: speed does not matter any more."""
    for position, header in zip(block.positions, block.headers, strict=True):
        try:
            header_columns([header])  # type: ignore[arg-type]
        except (msgspec.DecodeError, UnicodeDecodeError) as reason:
            return lost(position, position, why=f"the event cannot be read: {reason}")
    return Damaged(
        f"one of the events from position {block.positions[0]} on cannot be read",
        why=str(error),
        hint="everlog verify",
    )


def _is_one(values: Sequence[Any]) -> bool:
    """Return True if all values are equal."""
    first = values[0]
    return bool(first == values[-1]) and values.count(first) == len(values)


def _instants(values: Sequence[Any]) -> pa.Array:
    if values and isinstance(values[0], int):
        return pa.array(values, pa.int64()).cast(_INSTANT)
    return pc.cast(pa.array(values, pa.string()), _INSTANT)


def _payloads(block: Block) -> pa.Array:
    # An erased payload has no text at all; an empty one has "{}".
    found = pa.array(block.payloads, pa.string())
    if not all(block.payloads):
        return pc.if_else(pc.equal(found, ""), pa.scalar(None, pa.string()), found)
    return found


def _or_empty(values: Sequence[bytes], block: Block) -> pa.Array:
    return pa.array(values or [b""] * len(block.positions), pa.binary())


_MADE: dict[str, Callable[[Block], pa.Array]] = {
    "position": lambda block: pa.array(block.positions, pa.int64()),
    "sequence": lambda block: pa.array(block.sequences, pa.int64()),
    "received_at": lambda block: pa.array(block.received_us, pa.int64()).cast(_INSTANT),
    "payload": _payloads,
    "salt": lambda block: pa.array(block.salts, pa.binary()),
    "signature": lambda block: _or_empty(block.signatures, block),
    "path": lambda block: _or_empty(block.paths, block),
}


def _left_to_check(query: Query) -> list[tuple[str, str]]:
    """Return the conditions that no store checks before it has the whole event."""
    found = (("actor", query.actor), ("correlation_id", query.correlation_id))
    return [(name, value) for name, value in found if value]


def _grouped(records: Iterator[Recorded]) -> Iterator[list[Recorded]]:
    while some := list(islice(records, _GROUP)):
        yield some
