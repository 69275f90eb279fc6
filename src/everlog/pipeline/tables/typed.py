"""Events as typed rows: upcast, validated by the models, or set aside with a reason.

What a task of Spark does, without anything of Spark: a batch of event rows in, one batch per event type out, and one
of those that are set aside. Every event is in exactly one of them.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from everlog.catalog.seen import COLUMNS_MAX, FIELDS_MAX, Shape, misfit
from everlog.core.event import Event
from everlog.core.ids import EventId
from everlog.errors import EverlogError
from everlog.pipeline.lake.lake import QUARANTINE, SILVER
from everlog.pipeline.lake.parquet_files import ParquetFiles
from everlog.pipeline.session.failures import carried
from everlog.pipeline.source.rows import ARROW_SCHEMA, require_commitments
from everlog.pipeline.tables.readings import ENVELOPE, FREEZE, Reading, Readings

_SET_ASIDE = (
    "position",
    "sequence",
    "received_at",
    "id",
    "type",
    "version",
    "stream",
    "occurred_at",
    "actor",
    "scope",
    "payload",
)
QUARANTINE_SCHEMA = pa.schema(
    [
        *(ARROW_SCHEMA.field(name) for name in _SET_ASIDE),
        pa.field("code", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("reading", pa.int64()),  # how its type was read: when that changes, it is judged again
    ]
)
NEEDED = (*ENVELOPE, "type", "payload", "salt", "commitment")
"""The columns of an event that typing needs."""

REASON_CHARS_MAX = 2000
UNREAD = 0
IMPORTED = "_imported"
NEVER = datetime(1970, 1, 1, tzinfo=UTC)

_decode_all = msgspec.json.Decoder(list[dict[str, Any]]).decode
_decode_one = msgspec.json.Decoder(dict[str, Any]).decode


class Refused(NamedTuple):
    """An event that is set aside: the number of its row in the batch, and why."""

    row: int
    code: str
    reason: str


class Typist:
    """Types batches of event rows. There is one per task: what it prepares for a type is kept."""

    def __init__(self, readings: Readings) -> None:
        self._all, self._catalog = readings, readings.catalog
        self._readings: dict[str, Reading | None] = {}

    def reading(self, event_type: str) -> Reading | None:
        if event_type not in self._readings:
            self._readings[event_type] = self._all.of(event_type)
        return self._readings[event_type]

    def typed(self, event_type: str, batch: pa.RecordBatch) -> tuple[pa.RecordBatch | None, pa.RecordBatch | None]:
        """Return the typed rows of one type, and those that are set aside; None where there are none."""
        reading = self.reading(event_type)
        if reading is None:
            code, reason = "unknown_type", f"the event type {event_type} is not known"
            return None, _set_aside(batch, [Refused(row, code, reason) for row in range(batch.num_rows)], UNREAD)
        payloads, refused = self._payloads(event_type, reading, batch)
        good = _without(batch, refused)
        try:
            made = _row_batch(reading, good, payloads)
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            kept = [row for row in range(batch.num_rows) if row not in {one.row for one in refused}]
            worse = _inconvertible(reading, kept, payloads)
            lost = {one.row for one in worse}
            payloads = [payload for row, payload in zip(kept, payloads, strict=True) if row not in lost]
            refused = sorted([*refused, *worse])
            made = _row_batch(reading, _without(batch, refused), payloads)
        return (made if made.num_rows else None), (_set_aside(batch, refused, reading.number) if refused else None)

    def _payloads(
        self, event_type: str, reading: Reading, batch: pa.RecordBatch
    ) -> tuple[list[dict[str, Any] | None], list[Refused]]:
        """Return the payloads of the rows that can be read, and the rows that cannot."""
        texts: list[str | None] = batch.column("payload").to_pylist()
        versions = batch.column("version")
        if reading.seen is not None:
            return _as_seen(event_type, reading.seen, texts, self._catalog.contract(event_type))
        if not batch.column("payload").null_count and pc.all(pc.equal(versions, reading.version)).as_py():
            try:  # nearly always all of them are valid
                return [self._check(event_type, payload) for payload in _decode_all(f"[{','.join(texts)}]")], []  # type: ignore[arg-type]
            except (EverlogError, msgspec.DecodeError):
                pass  # the loop below finds which one it was
        payloads: list[dict[str, Any] | None] = []
        refused: list[Refused] = []
        for row, (text, version) in enumerate(zip(texts, versions.to_pylist(), strict=True)):
            try:
                payloads.append(self._payload(event_type, reading, batch, row, text, version))
            except _Aside as aside:
                refused.append(Refused(row, aside.code, aside.reason))
            except EverlogError as error:
                refused.append(Refused(row, error.code, str(error)))
            except msgspec.DecodeError as error:
                refused.append(Refused(row, "not_canonical", f"its payload is not a JSON object: {error}"))
        return payloads, refused

    def _payload(
        self, event_type: str, reading: Reading, batch: pa.RecordBatch, row: int, text: str | None, version: int
    ) -> dict[str, Any] | None:
        if text is None:
            return None  # erased: the event has no content any more
        if version == reading.version:
            return self._check(event_type, _decode_one(text))
        if version > reading.version:
            raise _Aside(
                "newer_version",
                f"it is version {version} of {event_type}, and this program knows version {reading.version}",
            )
        event_id: str = batch.column("id")[row].as_py()
        return self._check(event_type, self._catalog.upcast(_bare(event_id, event_type, version, text)).payload)

    def _check(self, event_type: str, payload: dict[str, Any]) -> dict[str, Any]:
        payload.pop(IMPORTED, None)  # what an import has kept beside the fields of the type; the events have it
        return self._catalog.validate(event_type, self._catalog.opened(event_type, payload))[1]


def _bare(event_id: str, event_type: str, version: int, text: str) -> Event:
    """Return an event with no more than an upcaster needs: an upcaster is a function from payload to payload."""
    header: tuple[Any, ...] = (
        EventId(event_id),
        event_type,
        version,
        "",
        0,
        "",
        0,
        NEVER,
        "",
        "",
        "",
        "",
        "",
        "",
        {},
        b"",
        b"",
    )
    values = (*header, _decode_one(text), b"there")
    return Event(*values)


def _as_seen(
    event_type: str, shape: Shape, texts: Sequence[str | None], contract: str
) -> tuple[list[dict[str, Any] | None], list[Refused]]:
    """Return the payloads of a type that is not declared, and the rows that differ from what was seen of it."""
    payloads: list[dict[str, Any] | None] = []
    refused: list[Refused] = []
    for row, text in enumerate(texts):
        try:
            payload = None if text is None else _decode_one(text)
        except msgspec.DecodeError as error:
            refused.append(Refused(row, "not_canonical", f"its payload is not a JSON object: {error}"))
            continue
        if payload is not None and (path := misfit(shape, payload)):
            refused.append(Refused(row, *_new_shape(event_type, path, contract)))
        else:
            payloads.append(payload)
    return payloads, refused


def _new_shape(event_type: str, path: str, contract: str) -> tuple[str, str]:
    if contract == FREEZE:
        return (
            "new_shape",
            f"{path} is of another shape than all events of {event_type} before it; its contract is freeze",
        )
    return "too_many_fields", (
        f"{path} is not in the table of {event_type}: with this event it would have more than {FIELDS_MAX} fields, "
        f"or more than {COLUMNS_MAX} with those inside of others"
    )


class _Aside(Exception):
    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


def _row_batch(
    reading: Reading, batch: pa.RecordBatch, payloads: Sequence[Mapping[str, Any] | None]
) -> pa.RecordBatch:
    arrays = [*(batch.column(name) for name in ENVELOPE), *(column.array(payloads) for column in reading.columns)]
    return pa.RecordBatch.from_arrays(arrays, schema=reading.schema)


def _inconvertible(
    reading: Reading, rows: Sequence[int], payloads: Sequence[Mapping[str, Any] | None]
) -> list[Refused]:
    """Return the rows that the model accepts but a column cannot hold."""
    found = []
    for row, payload in zip(rows, payloads, strict=True):
        for column in reading.columns:
            try:
                column.array([payload])
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                found.append(Refused(row, "not_a_column", f"$.{column.field} is no {column.type}: {error}"))
                break
    return found


def _without(batch: pa.RecordBatch, refused: Sequence[Refused]) -> pa.RecordBatch:
    if not refused:
        return batch
    gone = {one.row for one in refused}
    return batch.take(pa.array([row for row in range(batch.num_rows) if row not in gone], pa.int64()))


def _set_aside(batch: pa.RecordBatch, refused: Sequence[Refused], reading: int) -> pa.RecordBatch:
    rows = batch.take(pa.array([one.row for one in refused], pa.int64()))
    facts: list[Callable[[Refused], Any]] = [
        lambda one: one.code,
        lambda one: one.reason[:REASON_CHARS_MAX],
        lambda one: reading,
    ]
    columns = [rows.column(name) for name in _SET_ASIDE]
    columns += [
        pa.array([fact(one) for one in refused], field.type)
        for fact, field in zip(facts, list(QUARANTINE_SCHEMA)[-3:], strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=QUARANTINE_SCHEMA)


# ---- a whole task


def typing_task(
    lake: str, folder: str, readings: Readings, held: Mapping[str, int]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what a task of Spark runs: it types its batches, writes one file per table, and reports them."""
    from pyspark import cloudpickle

    shipped: bytes = cloudpickle.dumps(readings)  # type: ignore[no-untyped-call]
    paths = tuple(path for path in sys.path if path)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carried():
            sys.path.extend(path for path in paths if path not in sys.path)  # models are imported from there
            yield from type_all(lake, folder, Typist(pickle.loads(shipped)), held, batches)

    return run


def type_all(
    lake: str, folder: str, typist: Typist, held: Mapping[str, int], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Type batches of events, write one file per table, and report them (`REPORT`).

    `held` is the position up to which a table has its rows already.
    """
    files = ParquetFiles(lake, folder)
    try:
        for batch in batches:
            require_commitments(batch)
            for event_type, rows in by_type(batch):
                table = f"{SILVER}/{event_type}"
                good, aside = typist.typed(event_type, rows)
                if good is not None and table in held:
                    good = _above(good, held[table])
                if good is not None and good.num_rows:
                    files.add(table, good)
                if aside is not None:
                    files.add(QUARANTINE, aside)
    except BaseException:
        files.abandon()
        raise
    yield from files.close()


def by_type(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each type, in their order."""
    types = batch.column("type").dictionary_encode()
    for code, event_type in enumerate(types.dictionary.to_pylist()):
        rows = batch if len(types.dictionary) == 1 else batch.filter(pc.equal(types.indices, code))
        yield event_type, rows


def _above(rows: pa.RecordBatch, position: int) -> pa.RecordBatch:
    return rows.filter(pc.greater(rows.column("position"), position))
