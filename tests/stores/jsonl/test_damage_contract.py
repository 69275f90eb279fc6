"""Damaged day files are read whole, or not without an error; the index is made again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.damage_contract import DamageContract, OpenStore

from everlog.stores.jsonl.store import JsonlStore


class TestDamageOfJsonlStore(DamageContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        return tmp_path / "log"

    @pytest.fixture
    def open_store(self, place: Path) -> OpenStore:
        return lambda: JsonlStore(place)
