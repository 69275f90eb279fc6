"""The fold of rows that are sorted by key and order: what a task of Spark does, without anything of Spark.

    events with keys, sorted  ->  everlog.views.fold  ->  rows, letters, applied positions

The fold itself is the one that live views use, so the two cannot diverge: the same upcasters, the same dead letters,
the same rows. Only the last key of a batch is carried into the next one: a stream of millions takes no more memory
than one batch.

A row of the result is one of:

    row      the state of a key, with what a later fold must know; also stored rows without new events
    letter   an event that could not be applied, or waits behind one
    applied  positions that were applied, as the bits of a block
    late     a key with an event that precedes its stored state: it has to be folded again from its beginning
    stopped  an event whose key cannot be computed: nothing from there on counts
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everlog.catalog.catalog import Catalog
from everlog.core.event import Event, Recorded
from everlog.errors import InvalidField
from everlog.log.dead_letters import STOPPED
from everlog.pipeline.source.collector import collector_off
from everlog.pipeline.source.rows import ARROW_SCHEMA, records_of, require_commitments
from everlog.views.builds.content import BLOCK
from everlog.views.builds.rows import CausalOrder, Row, kept_of, kept_parts, row_of
from everlog.views.dead_letters import letter, letters_from
from everlog.views.fold import NOBODY, Folded, fold, kept_rows
from everlog.views.view import Order, View

ROW, LETTER, APPLIED, LATE, STOP = "row", "letter", "applied", "late", "stopped"

STATE_FIELDS = (
    pa.field("key", pa.string()),
    pa.field("count", pa.int64()),
    pa.field("sources", pa.string()),
    pa.field("state", pa.string()),
)
"""What is known of a key besides its order: the number of its events, their streams, and its state."""

SORTED_SCHEMA = pa.schema([*ARROW_SCHEMA, *STATE_FIELDS, pa.field("stop", pa.string())])
"""What is folded: events with their keys, and stored rows, whose `position`, `lamport` and `id` are the last ones."""

FOLDED_SCHEMA = pa.schema(
    [
        pa.field("what", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("lamport", pa.int64()),
        pa.field("id", pa.string()),
        *STATE_FIELDS,
        pa.field("letter", pa.string()),
        pa.field("bits", pa.binary()),
    ]
)

_json = msgspec.json.Encoder().encode
_sources = msgspec.json.Decoder(list[str]).decode


# ---- keys


def with_keys(view: View, catalog: Catalog, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the events, each with the key that the view gives it.

    An event that the view leaves out keeps only its position: it counts as applied, and the rest need not be moved.
    An event whose key cannot be computed has its dead letter in `stop`.
    """
    for batch in batches:
        with collector_off():
            keys, stops = _keys(view, catalog, records_of(batch))
        columns = [batch.column(name) for name in ARROW_SCHEMA.names]
        key_column = pa.array(keys, pa.string())
        if key_column.null_count:
            there = pc.is_valid(key_column)
            columns[1:] = [pc.if_else(there, column, pa.scalar(None, column.type)) for column in columns[1:]]
        nothing = [pa.nulls(len(keys), field.type) for field in STATE_FIELDS[1:]]
        stop_column = pa.array([stops.get(place) for place in range(len(keys))], pa.string())
        yield pa.RecordBatch.from_arrays([*columns, key_column, *nothing, stop_column], schema=SORTED_SCHEMA)


def _keys(view: View, catalog: Catalog, records: Sequence[Recorded]) -> tuple[list[str | None], dict[int, str]]:
    """Return the keys that can be computed, and the dead letter of each event whose key cannot."""
    with suppress(Exception):  # the loop below reports which event failed
        keys = [*map(view.key, catalog.upcast_all([recorded.event for recorded in records]))]
        if all(key is None or type(key) is str for key in keys):
            return keys, {}
    keys = []
    stops: dict[int, str] = {}
    only = _KeysOnly(view)
    for place, recorded in enumerate(records):
        # By the fold itself: what stops a view here stops it anywhere.
        done = fold(only, {}, [recorded], upcast=catalog.upcast)
        if (failed := done.stopped) is not None:
            made = letter(recorded, STOPPED, reason=failed.reason, trace=failed.trace, at_us=_now_us())
            stops[place] = _json(made).decode()
            keys.append(None)
        else:
            keys.append(done.every()[0][0])
    return keys, stops


class _KeysOnly(View):
    """Computes the keys of another view, and folds nothing."""

    def __init__(self, view: View) -> None:
        self._view = view

    def key(self, event: Event) -> str | None:
        return self._view.key(event)

    def apply(self, state: Any, event: Event) -> Any:
        return state


# ---- the fold


class SortedFold:
    """One task: sorted batches in; rows, letters and applied positions out."""

    def __init__(
        self,
        view: View,
        catalog: Catalog,
        *,
        parked: Mapping[str, CausalOrder] = NOBODY,
        with_applied: bool = True,
    ) -> None:
        """`parked` are keys that wait behind an event that an earlier fold could not apply, with its causal order.

        Without `with_applied`, the events are those of a lake: their commitments are computed again.
        """
        self._view = view
        self._catalog = catalog
        self._parked = dict(parked)
        self._causal = view.order is Order.CAUSAL
        self._applied = Applied() if with_applied else None
        self._rows: dict[str, Row] = {}
        self._kept: dict[str, bytes] = {}  # rows before this batch, to return to
        self._last: dict[str, int] = {}  # the greatest position that a key has applied
        self._changed: set[str] = set()  # keys whose rows were not passed on yet
        self._late: set[str] = set()
        self._before: Any = None  # the last event, to detect one that comes twice

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            out = _Out()
            if batch.column("key").null_count:
                there = pc.is_valid(batch.column("key"))
                self._take_left_out(batch.filter(pc.invert(there)), out)
                batch = batch.filter(there)
            if batch.num_rows:
                goes_on: str = batch.column("key")[-1].as_py()
                with collector_off():
                    self._take(batch, out)
                    self._hand_on(self._changed - {goes_on}, out)
                    self._forget_all_but(goes_on)
            if self._applied is not None and self._applied.full:
                self._pass_on_applied(out)
            yield from out.batches()
        out = _Out()
        self._hand_on(self._changed, out)
        self._pass_on_applied(out)
        yield from out.batches()

    def _take_left_out(self, batch: pa.RecordBatch, out: _Out) -> None:
        stops = batch.column("stop")
        positions = batch.column("position")
        if stops.null_count < len(stops):
            for position, stop in zip(positions.to_pylist(), stops.to_pylist(), strict=True):
                if stop is not None:
                    out.add(STOP, position=position, letter=stop)
            positions = positions.filter(pc.is_null(stops))
        self._mark(positions)

    def _take(self, batch: pa.RecordBatch, out: _Out) -> None:
        stored = pc.is_valid(batch.column("state"))
        if pc.any(stored).as_py():
            followed = self._followed(batch)
            out.pass_on(batch.filter(pc.and_not(stored, followed)))  # nothing new: unchanged
            self._take_stored(batch.filter(pc.and_(stored, followed)))
            batch = batch.filter(pc.invert(stored))
        if self._applied is None:
            require_commitments(batch)
        batch = self._each_once(batch)
        if self._late:
            batch = batch.filter(pc.invert(pc.is_in(batch.column("key"), pa.array(self._late, pa.string()))))
        if not batch.num_rows:
            return
        keys: list[str] = batch.column("key").to_pylist()
        parked = {key: self._parked[key] for key in self._parked.keys() & set(keys)} if self._parked else NOBODY
        done = fold(
            self._view,
            self._rows,
            records_of(batch),
            upcast=self._catalog.upcast,
            upcast_all=self._catalog.upcast_all,
            load=self._load,
            parked=parked,
        )
        self._require_same(keys, done)
        kept = kept_rows(self._view, self._rows, done, self._load)
        self._kept.update(kept)
        self._changed.update(kept)
        self._late.update(done.late)
        self._changed -= done.late.keys()  # its row is wrong until it is folded again
        self._parked.update(done.parked())
        smooth = len(done.applied) == batch.num_rows
        positions = batch.column("position") if smooth else pa.array(done.applied, pa.int64())
        self._mark(positions)
        self._note_last(keys, batch.column("position").to_pylist(), None if smooth else set(done.applied))
        for made in letters_from(done, _now_us()):
            out.add(LETTER, position=made.position, key=made.key, letter=_json(made).decode())
        for key in sorted(done.late):
            out.add(LATE, key=key)

    def _take_stored(self, batch: pa.RecordBatch) -> None:
        names = ("key", "position", "count", "lamport", "id", "sources", "state")
        for key, position, count, lamport, id, sources, state in zip(
            *(batch.column(name).to_pylist() for name in names), strict=True
        ):
            self._kept[key] = kept_of(
                count, lamport, id, None if sources is None else _sources(sources), state.encode()
            )
            self._last[key] = position
            self._changed.add(key)

    def _followed(self, batch: pa.RecordBatch) -> pa.Array:
        """Return which rows are followed by another one of their key; for the last one that is not known."""
        keys = batch.column("key")
        return pa.concat_arrays([pc.equal(keys.slice(1), keys.slice(0, len(keys) - 1)), pa.array([True])])

    def _each_once(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the events without repetitions, which are side by side."""
        if not batch.num_rows:
            return batch
        column = batch.column("id" if self._causal else "position")
        size = len(column)
        same = pc.equal(column.slice(1), column.slice(0, size - 1))
        first = column[0].as_py() == self._before
        self._before = column[size - 1].as_py()
        if not first and not pc.any(same).as_py():
            return batch
        repeated = pa.concat_arrays([pa.array([first]), same])
        return batch.filter(pc.invert(repeated))

    def _load(self, keys: Collection[str]) -> Mapping[str, Row]:
        return {key: row_of(self._kept[key]) for key in keys if key in self._kept}

    def _require_same(self, keys: Sequence[str], done: Folded) -> None:
        """Refuse a view whose key of an event changes from call to call: the event would be in two rows."""
        found = done.smooth[0] if done.smooth is not None else [key for key, _, _ in done.ready]
        if list(found) != list(keys):
            again = next((pair for pair in zip(keys, found, strict=False) if pair[0] != pair[1]), (keys[-1], None))
            raise InvalidField(
                f"the view {self._view.name} gave one event the keys {again[0]!r} and {again[1]!r}",
                why="key() must depend on the event and on nothing else",
                hint="look for a set, a hash(), a clock or a random number in key()",
                field="view",
            )

    def _note_last(self, keys: Sequence[str], positions: Sequence[int], applied: set[int] | None) -> None:
        last = self._last
        if not self._causal and applied is None:
            last.update(zip(keys, positions, strict=True))
            return
        for key, position in zip(keys, positions, strict=True):
            if (applied is None or position in applied) and position > last.get(key, 0):
                last[key] = position

    def _mark(self, positions: pa.Array) -> None:
        if self._applied is not None:
            self._applied.add(positions)

    # ---- passing on

    def _hand_on(self, keys: Collection[str], out: _Out) -> None:
        for key in keys:
            count, lamport, id, sources, state = kept_parts(self._kept[key])
            out.add(
                ROW,
                position=self._last[key],
                lamport=lamport,
                id=id,
                key=key,
                count=count,
                sources=None if sources is None else _json(sources).decode(),
                state=state.decode(),
            )

    def _pass_on_applied(self, out: _Out) -> None:
        if self._applied is not None:
            for block, bits in self._applied.take():
                out.add(APPLIED, position=block, bits=bits)

    def _forget_all_but(self, key: str) -> None:
        self._rows = _only(key, self._rows)
        self._kept = _only(key, self._kept)
        self._last = _only(key, self._last)
        self._changed &= {key}
        self._late &= {key}


_Value = TypeVar("_Value")


def _only(key: str, known: dict[str, _Value]) -> dict[str, _Value]:
    return {key: known[key]} if key in known else {}


class _Out:
    """Collects rows of the result into batches."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self._passed_on: list[pa.RecordBatch] = []

    def pass_on(self, stored: pa.RecordBatch) -> None:
        """Pass stored rows on without decoding them: there may be millions, and few have new events."""
        if stored.num_rows:
            nothing = {field.name: pa.nulls(stored.num_rows, field.type) for field in FOLDED_SCHEMA}
            what = {"what": pa.repeat(ROW, stored.num_rows)}
            there = {name: stored.column(name) for name in nothing if name in stored.schema.names}
            arrays = list({**nothing, **there, **what}.values())
            self._passed_on.append(pa.RecordBatch.from_arrays(arrays, schema=FOLDED_SCHEMA))

    def add(
        self,
        what: str,
        *,
        position: int | None = None,
        lamport: int | None = None,
        id: str | None = None,
        key: str | None = None,
        count: int | None = None,
        sources: str | None = None,
        state: str | None = None,
        letter: str | None = None,
        bits: bytes | None = None,
    ) -> None:
        self._rows.append((what, position, lamport, id, key, count, sources, state, letter, bits))

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self._rows:
            columns = zip(*self._rows, strict=True)
            arrays = [pa.array(values, field.type) for values, field in zip(columns, FOLDED_SCHEMA, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=FOLDED_SCHEMA)
        yield from self._passed_on


def _now_us() -> int:
    return time.time_ns() // 1000


# ---- positions

HELD_MAX = 1_000_000
"""Positions held before their bits are passed on. The bits of one block may come in several parts."""


class Applied:
    """Which positions were applied, as bits: an audit names every one that was not, at one bit each."""

    def __init__(self) -> None:
        self._held: list[np.ndarray] = []
        self._count = 0

    @property
    def full(self) -> bool:
        return self._count >= HELD_MAX

    def add(self, positions: pa.Array) -> None:
        if len(positions):
            self._held.append(positions.to_numpy(zero_copy_only=False).astype(np.int64))
            self._count += len(positions)

    def take(self) -> Iterator[tuple[int, bytes]]:
        """The number of each block and its bits, as `everlog.views.builds.build` keeps them; then there are none."""
        if not self._held:
            return
        positions = np.concatenate(self._held)
        self._held, self._count = [], 0
        blocks, of = np.unique(positions // BLOCK, return_inverse=True)
        for start in range(0, len(blocks), BLOCK):  # in parts: a bit is a byte until it is packed
            mine = (of >= start) & (of < start + BLOCK)
            bits = np.zeros((min(BLOCK, len(blocks) - start), BLOCK), dtype=bool)
            bits[of[mine] - start, positions[mine] % BLOCK] = True
            packed = np.packbits(bits, axis=1, bitorder="little")[:, ::-1]
            for block, data in zip(blocks[start : start + BLOCK], packed, strict=True):
                yield int(block), data.tobytes()
