"""`verify` needs no more memory for a long log than for a short one. Everything that is held is made small here, so
that a few thousand events are many."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.postgres_schemas import Schemas

from everlog.log.verify.verify import verify
from everlog.stores.contract import Store
from everlog.stores.jsonl.store import JsonlStore
from everlog.stores.segments.store import SegmentsStore
from everlog.stores.sqlite.store import SqliteStore
from everlog.testing.builders import Chain

SHORT, LONG = 2_000, 8_000
WRITE = 100
BYTES_PER_EVENT_MAX = 20  # it was 50 to 300 when a store held every stream, every line or every frame's index
SMALL = {
    "log.verify.audit.STREAMS_MAX": 100,
    "log.verify.spill.PIECE": 500,
    "log.verify.spill.READ_BYTES_MAX": 1024,
    "stores.sqlite.scan.WINDOW_MAX": 100,
    "stores.sqlite.check._ROWS_AT_ONCE": 100,
    "stores.jsonl.day_files.SCAN_BYTES": 16 * 1024,
    "stores.jsonl.index.read.PAGE_ROWS": 100,
    "stores.segments.index.live_part.PART_EVENTS_MAX": 500,
    "stores.segments.format.frames.CHUNK_BYTES_MAX": 64 * 1024,
}


@pytest.fixture
def make_store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], Store]:
    for name, small in SMALL.items():
        monkeypatch.setattr(f"everlog.{name}", small)

    def make(kind: str, name: str) -> Store:
        if kind == "sqlite":
            return SqliteStore(tmp_path / name)
        if kind == "jsonl":
            return JsonlStore(tmp_path / name)
        if kind == "segments":
            return SegmentsStore(tmp_path / name)
        from everlog.stores.postgres.store import PostgresStore

        schemas: Schemas = request.getfixturevalue("postgres_schemas")
        return PostgresStore(schemas.new())

    return make


@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "segments", "postgresql"])
def test_verify_of_a_log_four_times_as_long_needs_no_more_memory(
    kind: str, make_store: Callable[[str, str], Store]
) -> None:
    peaks = []
    for name, count in (("warm", WRITE), ("short", SHORT), ("long", LONG)):
        store = make_store(kind, name)
        try:
            _fill(store, count)
            peaks.append(_peak_of_verify(store, count))
        finally:
            store.close()
    _, short, long = peaks

    assert (long - short) / (LONG - SHORT) < BYTES_PER_EVENT_MAX


def _peak_of_verify(store: Store, count: int) -> int:
    """In bytes, of what this process allocates in Python."""
    tracemalloc.start()
    try:
        report = verify(store)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (report.problems, report.events) == ((), count)
    return peak


def _fill(store: Store, count: int) -> None:
    chain = Chain(store.identity.origin)
    for start in range(0, count, WRITE):
        made = [chain.next(stream=f"note/{number}") for number in range(start, start + WRITE)]
        with store.open_write() as write:
            write.append(made)
            write.tick(seen=made[-1].event.lamport)
