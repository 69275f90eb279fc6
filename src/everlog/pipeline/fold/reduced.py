"""The reductions of a declared view over many events at once: what a task of Spark does, without anything of Spark.

    events -> `reduced` to one row per key -> `united` with others -> `rows`, as a fold has them

Arrow and numpy find the events that count; only these are decoded, and their values are read as the fold reads them.
So numbers, texts and objects keep their exact form, and the digest is that of the fold.

Each field has its columns: for a set its texts; for the first or last event the value as text (of a payload as JSON,
of a time in microseconds), and where it is in the view's order: `rank` and `id`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everlog.pipeline.fold.sorted_fold import FOLDED_SCHEMA, ROW
from everlog.views.builds.rows import SOURCES_MAX
from everlog.views.declared import PAYLOAD, Count, DeclaredView, Distinct, First, Last, Reduction, moment_text
from everlog.views.view import Order, state_bytes

_TEXTS = pa.list_(pa.string())
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NULL = msgspec.Raw(b"null")

_json = msgspec.json.Encoder().encode
_values = msgspec.json.Decoder(list[Any]).decode


def can_be_reduced(one: Reduction) -> bool:
    """Return True for what is computed here; views with anything else are folded."""
    return isinstance(one, Count) or (isinstance(one, First | Last | Distinct) and one.of.count(".") < 2)


def columns_of(view: DeclaredView) -> list[str]:
    """Return the columns of an event that the reductions and the query need."""
    wanted = {"position", view.by}
    wanted |= {one.of.partition(".")[0] for one in view.fields.values() if not isinstance(one, Count)}
    wanted |= {"type"} if view.query.types else set()
    wanted |= {"scope"} if view.query.scope else set()
    wanted |= {"stream"} if view.query.kind or not view.by_stream else set()
    return sorted(wanted | ({"lamport", "id"} if view.order is Order.CAUSAL else set()))


def schema_of(view: DeclaredView) -> pa.Schema:
    """Return the columns of a key before all of its events were read."""
    fields = [
        pa.field("key", pa.string()),
        pa.field("count", pa.int64()),
        pa.field("position", pa.int64()),  # the greatest
        pa.field("rank", pa.int64()),  # the last one in the view's order
        pa.field("id", pa.string()),
        pa.field("sources", _TEXTS),  # at most one more than are kept: then there are too many
    ]
    for name, reduction in view.fields.items():
        if isinstance(reduction, Distinct):
            fields.append(pa.field(f"{name} set", _TEXTS))
        elif not isinstance(reduction, Count):
            fields.append(pa.field(f"{name} rank", pa.int64()))
            fields.append(pa.field(f"{name} id", pa.string()))
            fields.append(pa.field(f"{name} value", pa.string()))
    return pa.schema(fields)


def reduced(view: DeclaredView, events: pa.Table) -> pa.Table:
    """Reduce events to one row per key."""
    events = _in_order(view, events)
    keys, codes = _coded(_texts(events, view.by))
    groups = _Groups(codes, len(keys))
    causal = view.order is Order.CAUSAL
    ranks = _whole(events["lamport" if causal else "position"])
    ids = _whole(events["id"]) if causal else pa.nulls(len(ranks), pa.string())
    last = groups.last()
    found: dict[str, pa.Array] = {
        "key": keys,
        "count": pa.array(groups.count()),
        "position": pa.array(groups.greatest(_whole(events["position"]).to_numpy())),
        "rank": ranks.take(last),
        "id": ids.take(last),
        "sources": pa.nulls(len(keys), _TEXTS) if view.by_stream else _few(groups.sets(_texts(events, "stream"))),
    }
    payloads = _Payloads(events, groups)
    for name, reduction in view.fields.items():
        match reduction:
            case Count():
                continue
            case Distinct(of):
                texts = payloads.texts(of.removeprefix(PAYLOAD)) if of.startswith(PAYLOAD) else _texts(events, of)
                found[f"{name} set"] = groups.sets(texts)
            case First(of) | Last(of):
                at_end = isinstance(reduction, Last)
                if of.startswith(PAYLOAD):
                    winners, values = payloads.winners(of.removeprefix(PAYLOAD), at_end=at_end)
                else:
                    winners = last if at_end else groups.first()
                    values = _texts(events, of).take(winners)
                found[f"{name} rank"] = ranks.take(winners)
                found[f"{name} id"] = ids.take(winners)
                found[f"{name} value"] = values
    schema = schema_of(view)
    return pa.Table.from_arrays([found[name] for name in schema.names], schema=schema)


def united(view: DeclaredView, parts: pa.Table) -> pa.Table:
    """Unite rows, of which some keys have several, to one row per key."""
    keys, codes = _coded(_whole(parts["key"]))
    if len(keys) == parts.num_rows:
        return parts
    groups = _Groups(codes, len(keys))
    found: dict[str, pa.Array] = {
        "key": keys,
        "count": pa.array(groups.total(_whole(parts["count"]).to_numpy())),
        "position": pa.array(groups.greatest(_whole(parts["position"]).to_numpy())),
        "sources": pa.nulls(len(keys), _TEXTS) if view.by_stream else _few(groups.united(_whole(parts["sources"]))),
    }
    found |= _winning(parts, groups, "", ("rank", "id"), at_end=True)
    for name, reduction in view.fields.items():
        if isinstance(reduction, Distinct):
            found[f"{name} set"] = groups.united(_whole(parts[f"{name} set"]))
        elif not isinstance(reduction, Count):
            at_end = isinstance(reduction, Last)
            found |= _winning(parts, groups, f"{name} ", ("rank", "id", "value"), at_end=at_end)
    schema = schema_of(view)
    return pa.Table.from_arrays([found[name] for name in schema.names], schema=schema)


def rows(view: DeclaredView, whole: pa.Table) -> pa.RecordBatch:
    """Return the rows of a fold, for keys whose events are all included."""
    count = whole.num_rows
    states: list[dict[str, Any]] = [{} for _ in range(count)]
    for name, reduction in view.fields.items():
        for state, value in zip(states, _field_values(name, reduction, whole), strict=True):
            if value is not None:
                state[name] = value
    causal = view.order is Order.CAUSAL
    sources = _lists(whole["sources"])
    given: dict[str, Any] = {
        "what": [ROW] * count,
        "position": _whole(whole["position"]),
        "lamport": _whole(whole["rank"]) if causal else [0] * count,
        "id": _whole(whole["id"]) if causal else [""] * count,
        "key": _whole(whole["key"]),
        "count": _whole(whole["count"]),
        "sources": [None if not few or len(few) > SOURCES_MAX else _json(few).decode() for few in sources],
        "state": [state_bytes(state).decode() for state in states],
    }
    arrays = []
    for field in FOLDED_SCHEMA:
        column = given.get(field.name)
        arrays.append(column if isinstance(column, pa.Array) else pa.array(column or [None] * count, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=FOLDED_SCHEMA)


def _field_values(name: str, reduction: Any, whole: pa.Table) -> Sequence[Any]:
    """Return the values of a field as a state has them; None where there is none."""
    match reduction:
        case Count():
            return _whole(whole["count"]).to_pylist()  # type: ignore[no-any-return]
        case Distinct():
            return [texts or None for texts in _lists(whole[f"{name} set"])]
    texts = _whole(whole[f"{name} value"]).to_pylist()
    if reduction.of.startswith(PAYLOAD):
        return _values("[" + ",".join(["null" if text is None else text for text in texts]) + "]")
    if reduction.of == "occurred_at":
        return [moment_text(_EPOCH + timedelta(microseconds=int(text))) for text in texts]
    return texts  # type: ignore[no-any-return]


class _Groups:
    """Ordered rows in groups: the first of each group, the last, how many, which values."""

    def __init__(self, codes: np.ndarray, count: int) -> None:
        self._codes = codes
        self._count = count

    def last(self, among: np.ndarray | None = None) -> np.ndarray:
        """Return the last row of each group, among all or among these, which are in order; -1 if it has none."""
        among = np.arange(len(self._codes)) if among is None else among
        found = np.full(self._count, -1)
        found[self._codes[among]] = among  # the last assignment wins
        return found

    def first(self, among: np.ndarray | None = None) -> np.ndarray:
        return self.last((np.arange(len(self._codes)) if among is None else among)[::-1])

    def of(self, groups: np.ndarray) -> np.ndarray:
        """Return all rows of some groups, in order."""
        wanted = np.zeros(self._count, dtype=bool)
        wanted[groups] = True
        return np.flatnonzero(wanted[self._codes])

    def count(self) -> np.ndarray:
        return np.bincount(self._codes, minlength=self._count)

    def total(self, numbers: np.ndarray) -> np.ndarray:
        found = np.zeros(self._count, dtype=np.int64)
        np.add.at(found, self._codes, numbers)
        return found

    def greatest(self, numbers: np.ndarray) -> np.ndarray:
        found = np.zeros(self._count, dtype=np.int64)
        np.maximum.at(found, self._codes, numbers)
        return found

    def sets(self, texts: pa.Array, of: np.ndarray | None = None) -> pa.Array:
        """Return the different texts of each group, sorted. `of` are the rows that the texts belong to."""
        groups = self._codes if of is None else self._codes[of]
        if texts.null_count:
            groups, texts = groups[texts.is_valid().to_numpy(zero_copy_only=False)], texts.drop_null()
        names, numbers = _coded(texts)
        order = pc.sort_indices(names).to_numpy()  # by bytes, which in UTF-8 is by character
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        width = max(len(names), 1)
        pairs = np.unique(groups.astype(np.int64) * width + place[numbers])
        ends = np.cumsum(np.bincount(pairs // width, minlength=self._count))
        offsets = pa.array(np.concatenate(([0], ends)), pa.int32())
        return pa.ListArray.from_arrays(offsets, names.take(order[pairs % width]), type=_TEXTS)

    def united(self, lists: pa.Array) -> pa.Array:
        return self.sets(pc.list_flatten(lists), pc.list_parent_indices(lists).to_numpy())


class _Payloads:
    """The payloads of events, decoded only where necessary."""

    def __init__(self, events: pa.Table, groups: _Groups) -> None:
        self._texts = _whole(events["payload"]) if "payload" in events.schema.names else pa.nulls(events.num_rows)
        self._groups = groups

    def winners(self, name: str, *, at_end: bool) -> tuple[pa.Array, pa.Array]:
        """Return the first or last event of each group that has this field, and its value; null where none has it."""
        choose = self._groups.last if at_end else self._groups.first
        winners = choose()
        values = self._fields(name, winners)
        lacking = np.array([group for group, value in enumerate(values) if value is None], dtype=np.int64)
        if len(lacking):  # then all of their events have to be decoded
            mine = self._groups.of(lacking)
            there = [row for row, value in zip(mine, self._fields(name, mine), strict=True) if value is not None]
            winners[lacking] = choose(np.array(there, dtype=np.int64))[lacking]
            found = lacking[winners[lacking] >= 0]
            for group, value in zip(found, self._fields(name, winners[found]), strict=True):
                values[group] = value
        return pa.array(winners, mask=winners < 0), pa.array(values, pa.string())

    def texts(self, name: str) -> pa.Array:
        """Return the field of every event, which is text where it exists."""
        found = self._fields(name, np.arange(len(self._texts)))
        values = _values(b"[" + b",".join([b"null" if one is None else one for one in found]) + b"]")
        return pa.array(values, pa.string())

    def _fields(self, name: str, rows: np.ndarray) -> list[bytes | None]:
        """Return a field of the payloads of some rows, as JSON; None if it is missing or null."""
        texts = self._texts.take(pa.array(rows)).cast(pa.binary()).to_pylist()
        joined = b",".join([b"{}" if text is None else text for text in texts])  # erased
        return [None if one.value == _NULL else bytes(one.value) for one in _field_reader(name)(b"[" + joined + b"]")]


def _field_reader(name: str) -> Any:
    found = msgspec.defstruct("Field", [("value", msgspec.Raw, _NULL)], rename={"value": name}, gc=False)
    return msgspec.json.Decoder(list[found]).decode  # type: ignore[valid-type]


def _in_order(view: DeclaredView, events: pa.Table) -> pa.Table:
    if view.order is Order.CAUSAL:
        return events.sort_by([("lamport", "ascending"), ("id", "ascending")])
    positions = _whole(events["position"]).to_numpy()
    return events if (positions[1:] > positions[:-1]).all() else events.sort_by("position")


def _winning(
    parts: pa.Table, groups: _Groups, prefix: str, names: Iterable[str], *, at_end: bool
) -> dict[str, pa.Array]:
    """Return the winner among the winners of a group."""
    by = [(f"{prefix}rank", "ascending"), (f"{prefix}id", "ascending")]
    order = pc.sort_indices(parts, by).to_numpy()
    order = order[_whole(parts[f"{prefix}rank"]).is_valid().to_numpy(zero_copy_only=False)[order]]
    winners = groups.last(order) if at_end else groups.first(order)
    rows = pa.array(winners, mask=winners < 0)
    return {f"{prefix}{name}": _whole(parts[f"{prefix}{name}"]).take(rows) for name in names}


def _few(sets: pa.Array) -> pa.Array:
    """Keep no more of each than needed to see that there are too many."""
    return pc.list_slice(sets, 0, SOURCES_MAX + 1)


def _coded(texts: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Return the different values, and the number of each."""
    found = texts.dictionary_encode()
    return found.dictionary, found.indices.to_numpy()


def _texts(events: pa.Table, name: str) -> pa.Array:
    """Return a column of the header as text."""
    column = _whole(events[name])
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us")).cast(pa.int64()).cast(pa.string())
    return column.fill_null("") if column.null_count else column


def _lists(column: pa.ChunkedArray) -> list[list[str]]:
    """Return lists of texts; empty for null. By offsets: Arrow itself makes an object of every list first."""
    lists = _whole(column)
    if lists.null_count == len(lists):
        return [[]] * len(lists)
    lists = pc.coalesce(lists, pa.scalar([], _TEXTS))
    texts, ends = pc.list_flatten(lists).to_pylist(), np.cumsum(pc.list_value_length(lists).to_numpy()).tolist()
    return [texts[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
