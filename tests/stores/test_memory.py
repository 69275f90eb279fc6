"""The reference store keeps the contract, but for surviving."""

from __future__ import annotations

import pytest

from everlog.stores.contract import Store
from everlog.stores.memory import MemoryStore
from everlog.testing.store_contract import OpenStore, StoreContract


class TestMemoryStore(StoreContract):
    durable = False

    @pytest.fixture
    def open_store(self) -> OpenStore:
        def open_it() -> Store:
            return MemoryStore()

        return open_it
