"""How the events of a type are read: as the catalog declares them, else as the lake has seen them.

What was seen is in the file `inferred.json` of the lake. It is written before a table that follows from it, and its
shapes only grow, except by a purge: after a crash, a table whose mark differs is rebuilt.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from everlog.catalog.catalog import Catalog
from everlog.catalog.seen import Shape, json_schema, misfit, shape_of, united
from everlog.core.canonical import canonical
from everlog.pipeline.lake.folders import files_for, put_file
from everlog.pipeline.lake.lake import Lake
from everlog.pipeline.session.failures import carried
from everlog.pipeline.source.rows import ARROW_SCHEMA
from everlog.pipeline.tables.columns import Column, columns_of
from everlog.views.builds.fingerprint import source_of

EVOLVE, FREEZE, ASK = "evolve", "freeze", "ask"
INFERRED_FILE = "inferred.json"
NO_SHAPES: Mapping[str, Shape] = MappingProxyType({})
SHAPES = "type string, shape binary, events long"
SHAPES_SCHEMA = pa.schema([("type", pa.string()), ("shape", pa.binary()), ("events", pa.int64())])
SHAPES_MAX = 1000
"""The shapes of one type that a task holds; the less common half of more becomes one."""

ENVELOPE = (
    "position",
    "sequence",
    "received_at",
    "id",
    "stream",
    "version",
    "lamport",
    "origin",
    "occurred_at",
    "actor",
    "scope",
    "request_id",
    "causation_id",
    "correlation_id",
    "tags",
)
"""The columns that every typed table begins with; `version` is the one that was logged."""


class Reading(NamedTuple):
    """How the events of one type are read."""

    version: int  # 0 if the type is not declared: then every version is read
    number: int  # changes with anything that decides the content of a typed row
    columns: Sequence[Column]
    schema: pa.Schema
    seen: Shape | None = None  # of a type that is not declared


class Seen(msgspec.Struct):
    """What a lake has seen of the types that nobody declared."""

    epoch: str = ""
    knows: int = 0  # the newest purge whose events are not in the shapes
    types: dict[str, Shape] = {}

    @classmethod
    def of(cls, lake: Lake, epoch: str, catalog: Catalog) -> Seen:
        """Return what was seen in this epoch of the log; what is frozen stays so in every epoch."""
        path = lake.path / INFERRED_FILE
        files = files_for(path)
        if files.exists(path):
            found = msgspec.json.decode(files.read_all(path), type=cls)
            if found.epoch == epoch:
                return found
            kept = {name: shape for name, shape in found.types.items() if catalog.contract(name) == FREEZE}
            return cls(epoch, types=kept)
        return cls(epoch)

    def keep(self, lake: Lake) -> None:
        path = lake.path / INFERRED_FILE
        put_file(files_for(path), path, msgspec.json.encode(self))


class Readings:
    """How every type is read: by a catalog, and by what was seen."""

    def __init__(self, catalog: Catalog, seen: Mapping[str, Shape]) -> None:
        self.catalog = catalog
        self.seen = dict(seen)

    def of(self, event_type: str) -> Reading | None:
        """Return how a type is read; None if its events are set aside."""
        if self.catalog.knows(event_type):
            schema = self.catalog.json_schema(event_type)
            ((_, version, upcasters),) = self.catalog.readings([event_type])
            return _reading(version, schema, [[at, source_of(function)] for at, function in upcasters])
        shape = self.seen.get(event_type)
        contract = self.catalog.contract(event_type)
        if shape is None or contract == ASK:
            return None
        made_by: list[object] = ["inferred", FREEZE] if contract == FREEZE else ["inferred"]
        return _reading(0, json_schema(shape), made_by)._replace(seen=shape)


def _reading(version: int, schema: Mapping[str, object], more: list[object]) -> Reading:
    number = int.from_bytes(hashlib.sha256(canonical([version, schema, more])).digest()[:8]) >> 1
    columns = columns_of(schema, taken=ENVELOPE)
    fields = [*(ARROW_SCHEMA.field(name) for name in ENVELOPE), *(pa.field(one.name, one.type) for one in columns)]
    return Reading(version, max(number, 1), columns, pa.schema(fields))


def shapes_task(within: Mapping[str, Shape]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what a task runs: batches with type and payload in, one row (`SHAPES_SCHEMA`) per type and shape out."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carried():
            found: dict[str, Counter[bytes]] = defaultdict(Counter)
            for batch in batches:
                for event_type, text in zip(*(batch.column(i).to_pylist() for i in (0, 1)), strict=True):
                    shape = None if text is None else _shape(text, within.get(event_type))
                    if shape is not None:
                        counts = found[event_type]
                        counts[_encode(shape)] += 1
                        if len(counts) > SHAPES_MAX:
                            found[event_type] = _fewer(counts)
            rows = [(name, *row) for name, counts in found.items() for row in counts.items()]
            arrays = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(SHAPES_SCHEMA)]
            yield pa.RecordBatch.from_arrays(arrays, schema=SHAPES_SCHEMA)

    return run


def _shape(text: str, within: Shape | None) -> Shape | None:
    """Return the shape of a payload; None if it does not fit, or is not an object and set aside in any case."""
    try:
        payload = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        return None
    return None if within is not None and misfit(within, payload) else shape_of(payload)


def _encode(shape: Shape) -> bytes:
    return msgspec.msgpack.encode(shape, order="deterministic")


def _fewer(counts: Counter[bytes]) -> Counter[bytes]:
    ordered = _most_common(counts)
    common, rare = ordered[: SHAPES_MAX // 2], ordered[SHAPES_MAX // 2 :]
    found = Counter({encoded: counts[encoded] for encoded in common})
    if (one := united(map(_decoded, rare))) is not None:
        found[_encode(one)] += 1  # those that are common keep precedence over it
    return found


def _most_common(counts: Counter[bytes]) -> list[bytes]:
    return sorted(counts, key=lambda encoded: (-counts[encoded], encoded))


def _decoded(encoded: bytes) -> Shape:
    return msgspec.msgpack.decode(encoded, type=Shape)


def ranked(rows: Iterable[Iterable[Any]]) -> dict[str, list[Shape]]:
    """Return the shapes of each type from the rows of all tasks, the most common one first."""
    found: dict[str, Counter[bytes]] = defaultdict(Counter)
    for event_type, encoded, events in rows:
        found[event_type][bytes(encoded)] += events
    return {event_type: list(map(_decoded, _most_common(counts))) for event_type, counts in found.items()}
