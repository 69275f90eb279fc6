"""Damaged segments are read whole, or not without an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.damage_contract import DamageContract, OpenStore

from everlog.stores.segments.store import SegmentsStore


class TestDamageOfSegmentsStore(DamageContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        return tmp_path / "log"

    @pytest.fixture
    def open_store(self, place: Path) -> OpenStore:
        return lambda: SegmentsStore(place, segment_bytes_max=4096)
