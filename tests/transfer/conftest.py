"""Logs to move, in every store that has a URL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from everlog.stores.contract import Identity, Store
from everlog.stores.memory import MemoryStore
from everlog.transfer.copy import Target
from everlog.wiring import copy_target, open_store

# A new store joins with one line: what its URL looks like in a folder.
URLS = {
    "jsonl": "jsonl:{}",
    "segments": "segments:{}",
    "sqlite": "sqlite:{}.db",
}


@pytest.fixture(params=sorted(URLS))
def url(request: pytest.FixtureRequest) -> str:
    found: str = URLS[request.param]
    return found


Open = Callable[[str], Store]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Opens logs of this test's folder by URL, and closes them."""
    stores = []

    def open_it(url: str) -> Store:
        store = open_store(url, base=tmp_path)
        stores.append(store)
        return store

    yield open_it
    for store in stores:
        store.close()


class MemoryTarget:
    """A target without a disk: the same draft at every opening, closed in name only."""

    def __init__(self) -> None:
        self.store: MemoryStore | None = None
        self.swapped = 0

    @property
    def target(self) -> Target:
        return Target(name="memory", draft="memory", open=self._open, swap=self._swap)

    def _open(self, identity: Identity) -> Store:
        self.store = self.store or StaysOpen(identity=identity)
        return self.store

    def _swap(self) -> None:
        self.swapped += 1


class StaysOpen(MemoryStore):
    def close(self) -> None:
        """It is looked at afterwards."""


def target_in(folder: Path, url: str) -> Target:
    return copy_target(url, base=folder)
