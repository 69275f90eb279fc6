"""A damaged database is read whole, or not without an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.damage_contract import DamageContract, OpenStore

from everlog.log.verify.verify import verify
from everlog.stores.sqlite.store import SqliteStore


class TestDamageOfSqliteStore(DamageContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        return tmp_path / "log.db"

    @pytest.fixture
    def open_store(self, place: Path) -> OpenStore:
        return lambda: SqliteStore(place, create=False) if place.exists() else SqliteStore(place)

    def is_known(self, path: Path, said: str, found: object, open_store: OpenStore) -> bool:
        if said == "deleted":
            return found == []  # this factory makes a log where there is none
        if said == "older copy":
            return True  # it is the whole log of an earlier moment
        store = open_store()
        try:
            return "flipped" in said and not verify(store).ok
        finally:
            store.close()
