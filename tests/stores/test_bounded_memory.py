"""A handle forgets what it knows of streams and names before that grows without end, and answers the same."""

from __future__ import annotations

from collections.abc import Callable, Sized
from pathlib import Path
from typing import Any

import pytest
from tests.support.postgres_schemas import Schemas

from everlog.core.query import Query
from everlog.log.log import Log
from everlog.stores.contract import Store
from everlog.stores.jsonl import store as jsonl
from everlog.stores.jsonl.index import schema
from everlog.stores.postgres import insert as postgres_insert
from everlog.stores.postgres import store as postgres
from everlog.stores.postgres.store import PostgresStore
from everlog.stores.segments import store as segments
from everlog.stores.sqlite import insert as sqlite_insert
from everlog.stores.sqlite import tail

MAX = 3


def _streams_and_names(store: Any) -> list[Sized]:
    if isinstance(store, PostgresStore):
        return [store._sequences, store._inserter._names]
    if isinstance(store, jsonl.JsonlStore):
        return [store._sequences, store._updater.index._names]
    if isinstance(store, segments.SegmentsStore):
        return [store._sequences]
    return [store._tail._sequences, *store._inserter._names.values()]


@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "segments", "postgres"])
def test_two_handles_that_remember_little_count_every_stream_right(
    kind: str,
    make_log: Callable[..., Log],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    for module in (jsonl, postgres, segments, tail):
        monkeypatch.setattr(module, "_STREAMS_REMEMBERED_MAX", MAX)
    for names in (schema, postgres_insert, sqlite_insert):
        monkeypatch.setattr(names, "_NAMES_REMEMBERED_MAX", MAX)
    if kind == "postgres":
        schemas: Schemas = request.getfixturevalue("postgres_schemas")
        url = schemas.new()
        stores: list[Store] = [PostgresStore(url), PostgresStore(url)]
        logs = [Log(store, request.getfixturevalue("catalog")) for store in stores]
    else:
        logs = [make_log(kind, tmp_path / "log") for _ in range(1 if kind == "segments" else 2)]
    for turn in range(1, 5):  # two by each, so that it meets what it has just forgotten
        for number in range(16):
            log = logs[turn // 3 % len(logs)]
            done = log.append("thing.said", stream=f"thing/{number}", scope=f"scope-{number}", expect=turn - 1)
            assert done.sequence == turn
            # One write may bring a name of each kind beyond the limit.
            assert max(map(len, _streams_and_names(log._store))) <= MAX + 3
    for log in logs:
        assert [one.sequence for one in log.read(Query(stream="thing/15"))] == [1, 2, 3, 4]
        log.close()
