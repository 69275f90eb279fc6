"""Where the events of a signed group are looked for in the index: near the last one first, and then everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.stores.jsonl.own import own

from everlog.core.event import Position
from everlog.stores.jsonl.index.groups import _around
from everlog.stores.jsonl.store import JsonlStore


@pytest.mark.parametrize(
    ("place", "pages"),
    [
        (0, [[1, 2], [3, 4], [5, 6], [7]]),
        (1, [[1], [2, 3], [4, 5], [6, 7]]),
        (3, [[2, 3], [1], [4, 5], [6, 7]]),
        (7, [[6, 7], [4, 5], [2, 3], [1]]),
    ],
)
def test_every_event_is_looked_at_once_from_a_place_on(path: Path, place: int, pages: list[list[Position]]) -> None:
    store = JsonlStore(path)
    for number in range(7):
        own(store, stream=f"note/{number % 2}")
    assert store.head() == 7
    found = [[row[0] for row in rows] for rows in _around(store._updater.index, place, 2)]
    assert found == [*pages, []]
    store.close()
