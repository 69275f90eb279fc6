"""PostgreSQL keeps the contract, and what is its own."""

from __future__ import annotations

import pytest

from everlog.stores.postgres.store import PostgresStore
from everlog.testing.store_contract import OpenStore, StoreContract


class TestPostgresStore(StoreContract):
    @pytest.fixture
    def open_store(self, postgres_url: str) -> OpenStore:
        return lambda: PostgresStore(postgres_url)
