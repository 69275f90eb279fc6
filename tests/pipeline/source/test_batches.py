"""Slabs become Arrow batches with what was asked for, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from everlog.core.event import START
from everlog.core.query import Query
from everlog.log.log import Log
from everlog.pipeline.source.batches import batches_of

QUERIES = (
    Query(),
    Query(actor="user:a"),
    Query(correlation_id="one"),
    Query(actor="user:a", correlation_id="one"),
    Query(actor="user:b", correlation_id="one", stream="note/1"),
    Query(actor="user:c", correlation_id="one"),
)


@pytest.mark.parametrize("kind", ["memory", "jsonl", "segments", "sqlite"])
def test_batches_hold_what_reading_gives(make_log: Callable[..., Log], kind: str) -> None:
    log = make_log(kind)
    for number in range(12):
        log.append(
            "note.added",
            stream=f"note/{number % 2}",
            payload={"text": "x"},
            actor=f"user:{'abb'[number % 3]}",
            correlation_id="one" if number < 7 else "two",
        )
    for query in QUERIES:
        expected = [record.position for record in log._store.read(query)]
        batches = batches_of(log._store, query, after=START, upto=log.head())
        assert [position for batch in batches for position in batch["position"].to_pylist()] == expected, query
