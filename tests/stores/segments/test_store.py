"""The segments store keeps the contract, and what is its own business: one writer, files, recovery, damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlog.errors import Busy
from everlog.stores.contract import Store
from everlog.stores.segments.store import SegmentsStore
from everlog.testing.builders import seal_any
from everlog.testing.store_contract import OpenStore, StoreContract, append, positions


class TestSegmentsStore(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        def open_it() -> Store:
            return SegmentsStore(tmp_path / "log")

        return open_it

    def test_two_open_stores_of_one_log_see_each_other(self, open_store: OpenStore) -> None:
        """G13: there is one writer; the second is told who, and reads what the first acknowledges."""
        one, other = open_store(), open_store()
        append(one, seal_any())
        assert positions(other.read()) == [1]
        with pytest.raises(Busy, match="another writer has"):
            append(other, seal_any())
        append(one, seal_any())
        assert positions(other.read()) == [1, 2]
        one.close()
        append(other, seal_any())
        assert positions(other.read()) == [1, 2, 3]
        other.close()


class TestSegmentsStoreInSmallPieces(StoreContract):
    """The same with segments that are full after a few frames, so that every seam is met."""

    @pytest.fixture
    def open_store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenStore:
        monkeypatch.setattr("everlog.stores.segments.index.BLOCK_POSITIONS", 4)
        monkeypatch.setattr("everlog.stores.segments.inside.LARGE", 3)
        monkeypatch.setattr("everlog.stores.segments.inside.GROUP", 2)
        monkeypatch.setattr("everlog.stores.segments.index.PART_EVENTS_MAX", 16)
        monkeypatch.setattr("everlog.stores.segments.writing.PART_EVENTS_MIN", 1)

        def open_it() -> Store:
            return SegmentsStore(tmp_path / "log", segment_bytes_max=4096, space_bytes=512)

        return open_it

    test_two_open_stores_of_one_log_see_each_other = TestSegmentsStore.test_two_open_stores_of_one_log_see_each_other
