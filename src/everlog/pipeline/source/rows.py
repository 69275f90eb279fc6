"""A record as a row, and back: one schema for Spark, Arrow and the lake.

The columns are the fields of a record. Their order never changes; a new one is added at the end. `payload` is the
exact canonical text that was logged (null once erased), `tags` is canonical JSON, `path` the hashes in sequence. So
nothing is lost: a row gives back the event, its header's bytes and its hash.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark

from everlog.core.canonical import canonical, encode_plain
from everlog.core.codec import Packed, commitment, header_bytes, read_payload
from everlog.core.event import EVENT_FIELDS, Event, Header, Position, Recorded, microseconds
from everlog.errors import Damaged

_INSTANT = pa.timestamp("us", tz="UTC")

ARROW_SCHEMA = pa.schema(
    [
        ("position", pa.int64()),
        ("sequence", pa.int64()),
        ("received_at", _INSTANT),
        ("id", pa.string()),
        ("type", pa.string()),
        ("version", pa.int32()),
        ("stream", pa.string()),
        ("lamport", pa.int64()),
        ("origin", pa.string()),
        ("origin_seq", pa.int64()),
        ("occurred_at", _INSTANT),
        ("actor", pa.string()),
        ("scope", pa.string()),
        ("request_id", pa.string()),
        ("causation_id", pa.string()),
        ("correlation_id", pa.string()),
        ("idempotency_key", pa.string()),
        ("tags", pa.string()),
        ("payload", pa.string()),
        ("salt", pa.binary()),
        ("commitment", pa.binary()),
        ("previous", pa.binary()),
        ("signature", pa.binary()),
        ("path", pa.binary()),
    ]
)

COLUMNS: tuple[str, ...] = tuple(ARROW_SCHEMA.names)

_SPARK_TYPES: dict[pa.DataType, spark.DataType] = {
    pa.int64(): spark.LongType(),
    pa.int32(): spark.IntegerType(),
    pa.string(): spark.StringType(),
    pa.binary(): spark.BinaryType(),
    _INSTANT: spark.TimestampType(),
}
EVENT_SCHEMA = spark.StructType([spark.StructField(field.name, _SPARK_TYPES[field.type]) for field in ARROW_SCHEMA])

_HASH_BYTES = 32
_moments = msgspec.json.Decoder(list[datetime]).decode
_NO_TAGS = "{}"


def row_of(recorded: Recorded) -> tuple[Any, ...]:
    """Return the values of a record, in the order of the columns; times have a time zone."""
    event = recorded.event
    return (
        recorded.position,
        recorded.sequence,
        recorded.received_at,
        event.id,
        event.type,
        event.version,
        event.stream,
        event.lamport,
        event.origin,
        event.origin_seq,
        event.occurred_at,
        event.actor,
        event.scope,
        event.request_id,
        event.causation_id,
        event.correlation_id,
        event.idempotency_key,
        encode_plain(event.tags).decode() if event.tags else _NO_TAGS,
        _payload_text(event),
        event.salt,
        event.commitment,
        event.previous,
        event.signature,
        b"".join(event.path),
    )


def batch_of(records: Iterable[Recorded]) -> pa.RecordBatch:
    """Return records as one Arrow batch."""
    columns = list(zip(*map(row_of, records), strict=True)) or [()] * len(COLUMNS)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, ARROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def record_of(row: Sequence[Any]) -> Recorded:
    """Return the record of a row, with the event as it was logged, not upcast. Times of a Spark row need no zone."""
    values = (
        *_header_values(row),
        read_payload(row[18]) if row[18] else {},
        bytes(row[19] or b""),
        bytes(row[22] or b""),
        _split(bytes(row[23] or b"")),
    )
    event = Event(*values)
    return Recorded(Position(row[0]), row[1], microseconds(_moment(row[2])), event)


def records_of(batch: pa.RecordBatch) -> list[Recorded]:
    """Return the records of an Arrow batch with (at least) these columns, in order, with the events as logged.

    It works column by column: a fold reads every event this way, and `record_of` for each takes four times as long.
    """
    columns = {name: _values(batch.column(name), name) for name in COLUMNS}
    columns["payload"] = [{} if text is None else read_payload(text) for text in columns["payload"]]
    events = map(Event, *(columns[name] for name in _EVENT_COLUMNS))
    return list(map(Recorded, columns["position"], columns["sequence"], columns["received_at"], events))


_EVENT_COLUMNS = EVENT_FIELDS[: EVENT_FIELDS.index("erased_by")]  # which event allowed an erasure is not in the lake

_OFTEN_ONE = frozenset(
    [
        *("type", "version", "origin", "scope", "request_id", "causation_id", "correlation_id", "idempotency_key"),
        *("tags", "signature", "path"),
    ]
)
"""Columns that often have the same value in every row of a batch."""


def _values(column: pa.Array, name: str) -> list[Any]:
    """Return the values of a column as a record has them, except that a payload is its text."""
    # A null is equal to nothing and would not be counted.
    often = name in _OFTEN_ONE and len(column) > 1 and not column.null_count
    if often and pc.all(pc.equal(column, column[0])).as_py():
        return [_values(column[:1], name)[0]] * len(column)
    if name == "received_at":
        column = column.cast(pa.timestamp("us")).cast(pa.int64())
    elif name == "occurred_at":
        # As text, all at once: Arrow's own list of times looks up the zone for each and takes fifty times as long.
        texts = column.cast(pa.timestamp("us")).cast(pa.string()).to_pylist()
        return _moments('["' + 'Z","'.join(texts) + 'Z"]') if texts else []
    elif name == "payload":
        column = column.cast(pa.binary())
    elif column.null_count:
        column = column.fill_null(b"" if pa.types.is_binary(column.type) else _NO_TAGS if name == "tags" else "")
    values: list[Any] = column.to_pylist()
    if name == "tags":
        return [{} if text == _NO_TAGS else read_payload(text) for text in values]
    if name == "path":
        return [_split(hashes) if hashes else () for hashes in values]
    return values


def require_commitments(batch: pa.RecordBatch) -> None:
    """Refuse rows whose payload is not the one that they commit to. An erased payload has no salt, and no proof."""
    salts, payloads = batch.column("salt").fill_null(b""), batch.column("payload").cast(pa.binary())
    together = pc.binary_join_element_wise(salts, payloads.fill_null(b""), b"").to_pylist()
    committed = batch.column("commitment").to_pylist()
    if [sha256(one).digest() for one in together] == committed:
        return
    rows = zip(salts.to_pylist(), payloads.to_pylist(), committed, strict=True)
    wrong = [number for number, row in enumerate(rows) if row[0] and not _commits(*row)]
    if wrong:
        position = batch.column("position")[wrong[0]].as_py()
        raise Damaged(
            f"the payload of event #{position} in the lake is not the one that it commits to",
            why=f"its commitment, computed again, differs; so do those of {len(wrong)} of {batch.num_rows} events",
            hint="everlog pipeline verify --heal",
            table="events",
            position=position,
        )


def _commits(salt: bytes, payload: bytes | None, committed: bytes) -> bool:
    return payload is not None and commitment(salt, payload) == committed


def packed_of(row: Sequence[Any]) -> Packed:
    """Return the stored bytes of a row's record: what is hashed, committed to and signed."""
    header = Header(*_header_values(row))
    return Packed(
        Position(row[0]),
        row[1],
        microseconds(_moment(row[2])),
        header_bytes(header),
        row[18].encode() if row[18] is not None else b"",
        bytes(row[19] or b""),
        bytes(row[22] or b""),
        _split(bytes(row[23] or b"")),
    )


def _header_values(row: Sequence[Any]) -> tuple[Any, ...]:
    tags = read_payload(row[17]) if row[17] and row[17] != _NO_TAGS else {}
    return (*row[3:10], _moment(row[10]), *row[11:17], tags, bytes(row[20]), bytes(row[21] or b""))


def _payload_text(event: Event) -> str | None:
    return canonical(event.payload).decode() if event.salt else None


def _moment(value: datetime) -> datetime:
    # Spark returns the times of a row in the machine's time zone, without naming it.
    return value if value.tzinfo is not None else value.astimezone()


def _split(path: bytes) -> tuple[bytes, ...]:
    return tuple(path[start : start + _HASH_BYTES] for start in range(0, len(path), _HASH_BYTES))
