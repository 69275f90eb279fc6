"""In every history of a few nodes, all agree at the end: heads, verdicts and digests. 2,000 with --full."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from tests.support.postgres_schemas import Schemas
from tests.sync.histories import OPS, History

SHORT, FULL, STEPS = 26, 2_000, 30
PARTS = 13
FOUND = (113, 150, 152, 188, 207, 231, 253, 314, 382, 436, 602, 873, 1155)
"""Histories beyond the short ones that have found a defect."""


@pytest.fixture(scope="module")
def schemas(request: pytest.FixtureRequest) -> Schemas | None:
    """Where nodes in PostgreSQL are; None on a machine without it."""
    try:
        found: Schemas = request.getfixturevalue("postgres_schemas")
    except pytest.skip.Exception as reason:
        print(f"no node is in PostgreSQL: {reason}")
        return None
    return found


def run(seed: int, folder: Path, schemas: Schemas | None) -> Counter[str]:
    folder.mkdir()
    history = History(seed, folder, schemas)
    try:
        history.run(STEPS)
        history.require_agreement()
        if history.remove_what_was_lost():
            history.require_agreement(nothing_lost=True)
    except BaseException:
        print(f"history {seed}: {history.stores} {dict(history.seen)}")
        raise
    finally:
        history.close()
    return history.seen


@pytest.mark.parametrize("part", range(PARTS))
def test_all_nodes_agree_after_any_history(part: int, tmp_path: Path, schemas: Schemas | None) -> None:
    seen: Counter[str] = Counter()
    for seed in (*range(part, SHORT, PARTS), *FOUND[part : part + 1]):
        seen += run(seed, tmp_path / str(seed), schemas)
    assert seen["sync"]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_all_nodes_agree_after_2000_histories(part: int, tmp_path: Path, schemas: Schemas | None) -> None:
    seen: Counter[str] = Counter()
    for seed in range(SHORT + part, FULL, PARTS):
        seen += run(seed, tmp_path / str(seed), schemas)
    assert set(seen) >= set(OPS)


@pytest.mark.skipif("EVERLOG_TEST_HISTORY" not in os.environ, reason="names one history to run again")
def test_one_history(tmp_path: Path, schemas: Schemas | None) -> None:
    run(int(os.environ["EVERLOG_TEST_HISTORY"]), tmp_path / "one", schemas)
