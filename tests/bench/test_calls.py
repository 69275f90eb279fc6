"""How many functions of Python a lone append calls: a cost that does not depend on the machine."""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from types import FrameType

import pytest
from benchmarks.bench.events import CATALOG, Pool, fields

from everlog import wiring

CALLS_MAX = 160


@pytest.mark.parametrize("scheme", ["segments", "sqlite"])
def test_a_lone_append_with_a_key_stays_within_its_calls(scheme: str, tmp_path: Path) -> None:
    pool, counts = Pool(200), []
    log = wiring.open(f"{scheme}:{tmp_path / 'log'}", catalog=CATALOG)
    log.append_batch(pool.take(200))
    for draft in pool.take(100):  # claims of SQLite are known without a question after 32 writes
        calls = 0

        def count(frame: FrameType, event: str, arg: object) -> None:
            nonlocal calls
            calls += event == "call"

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            log.append(draft.type, key=pool.key(), **fields(draft))
        finally:
            sys.setprofile(before)
        counts.append(calls)
    log.close()
    assert median(counts[50:]) <= CALLS_MAX, sorted(counts[50:])
