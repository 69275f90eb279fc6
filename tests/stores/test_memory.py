"""The reference store keeps the contract, but for surviving: what it holds ends with it."""

from __future__ import annotations

import pytest

from everlog.core.codec import Packed, unpack
from everlog.core.event import Recorded
from everlog.core.query import Query
from everlog.stores.contract import Store
from everlog.stores.memory import MemoryStore
from everlog.testing.builders import seal_any
from everlog.testing.chain_contract import ChainContract
from everlog.testing.erase_contract import EraseContract
from everlog.testing.filling import append
from everlog.testing.group_contract import GroupContract
from everlog.testing.store_contract import OpenStore, StoreContract


class _NeverClosed(MemoryStore):
    def close(self) -> None:
        """What it holds would end with it."""


class TestMemoryStore(StoreContract, ChainContract, EraseContract, GroupContract):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        def open_it() -> Store:
            return MemoryStore()

        return open_it

    @pytest.fixture
    def open_again(self) -> OpenStore:
        store = _NeverClosed()
        return lambda: store

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

    def test_one_write_over_many_streams_goes_on_where_each_of_them_was(self, open_store: OpenStore) -> None:
        """The same without opening it again."""
        store = _NeverClosed()
        super().test_one_write_over_many_streams_goes_on_where_each_of_them_was(lambda: store)

    def test_two_open_stores_of_one_log_see_each_other(self, open_store: OpenStore) -> None:
        """There are no two of one log."""
        one, other = open_store(), open_store()
        append(one, seal_any())
        assert (one.head(), other.head()) == (1, 0)


def test_a_stream_is_read_without_a_look_at_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs decide from streams, and are tested in memory."""
    store = MemoryStore()
    for number in range(50):
        append(store, seal_any(stream=f"note/{number % 25}"))
    looked: list[int] = []

    def unpacked(place: Packed) -> Recorded:
        looked.append(place.position)
        return unpack(place)

    monkeypatch.setattr("everlog.stores.memory.unpack", unpacked)
    assert [recorded.position for recorded in store.read(Query(stream="note/3"))] == [4, 29]
    assert looked == [4, 29]
