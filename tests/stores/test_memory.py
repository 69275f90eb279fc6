"""The reference store keeps the contract, but for surviving: what it holds ends with it."""

from __future__ import annotations

import pytest

from everlog.stores.contract import Store
from everlog.stores.memory import MemoryStore
from everlog.testing.builders import seal_any
from everlog.testing.store_contract import OpenStore, StoreContract, append


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        def open_it() -> Store:
            return MemoryStore()

        return open_it

    def test_survives_reopening(self, open_store: OpenStore) -> None:
        """It does not, and says so by being another log."""
        first = open_store()
        append(first, seal_any())
        first.close()

        second = open_store()
        assert second.head() == 0
        assert second.identity != first.identity

    def test_places_survive_reopening(self, open_store: OpenStore) -> None:
        """As little as events do."""
        self.test_survives_reopening(open_store)

    def test_two_open_stores_of_one_log_see_each_other(self, open_store: OpenStore) -> None:
        """There are no two of one log."""
        one, other = open_store(), open_store()
        append(one, seal_any())
        assert (one.head(), other.head()) == (1, 0)
