"""The promises about a purge: what goes, what stays, and that it is atomic. Part of `StoreContract`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from everlog.core.event import Position, Purged
from everlog.core.query import Query
from everlog.errors import AlreadyPurged, NotFound
from everlog.stores.contract import Store
from everlog.testing.builders import Boom, seal_any
from everlog.testing.filling import append, fill_two_streams, positions


class PurgeContract:
    def test_a_purge_reserves_a_position_that_no_event_gets(self, store: Store) -> None:
        """G3, G9: the gap is recorded, and the next event comes after it."""
        fill_two_streams(store)
        with store.open_write() as writer:
            purge = writer.purge("note/1", actor="user:ada", reason="asked to")
        append(store, seal_any(stream="note/2"))

        assert (purge.reserved, purge.count, purge.sequence) == (5, 2, 2)
        assert positions(store.read()) == [2, 4, 6]
        assert store.purges() == [purge]
        assert store.purges(after=Position(4)) == [purge]
        assert store.purges(after=Position(5)) == []

    def test_a_purged_event_is_gone_from_every_way_of_reading(self, store: Store) -> None:
        made = fill_two_streams(store)
        with store.open_write() as writer:
            writer.purge("note/1", actor="user:ada", reason="asked to")

        assert store.get(made[0].event.id) is None
        assert positions(store.read(Query(stream="note/1"))) == []
        assert positions(store.read(Query(kind="note"))) == [2, 4]
        places = list(store.slots())
        assert [place.position for place in places] == [1, 2, 3, 4]
        assert [isinstance(place, Purged) for place in places] == [True, False, True, False]
        assert isinstance(places[0], Purged)
        assert (places[0].hash, places[0].id) == (made[0].hash, made[0].event.id)

    def test_a_purge_of_some_events_leaves_the_others_of_the_stream(self, store: Store) -> None:
        """A node that follows the purge of another one removes what that one had."""
        made = fill_two_streams(store)
        newest = made[2].event.id
        with store.open_write() as writer:
            purge = writer.purge("note/1", actor="user:ada", reason="asked to", only=lambda gone: gone.id == newest)
        (later,) = append(store, seal_any(stream="note/1"))

        assert (purge.reserved, purge.count, purge.sequence, later.sequence) == (5, 1, 2, 3)
        assert positions(store.read(Query(stream="note/1"))) == [1, 6]
        with store.open_write() as writer:
            rest = writer.purge("note/1", actor="user:ada", reason="the rest")
        assert (rest.count, rest.sequence) == (2, 3)
        assert [place.position for place in store.slots() if isinstance(place, Purged)] == [1, 3, 6]

    def test_the_rest_of_a_stream_is_purged_after_its_newest_event(self, store: Store) -> None:
        made = fill_two_streams(store)
        newest = made[2].event.id
        with store.open_write() as writer:
            writer.purge("note/1", actor="user:ada", reason="asked to", only=lambda gone: gone.id == newest)
        with store.open_write() as writer:
            rest = writer.purge("note/1", actor="user:ada", reason="the rest")
        assert (rest.count, rest.sequence) == (1, 2)

    def test_a_purged_stream_goes_on_after_its_last_sequence(self, store: Store) -> None:
        """A number of one event must never become the number of another."""
        fill_two_streams(store)
        with store.open_write() as writer:
            writer.purge("note/1", actor="user:ada", reason="asked to")
        (later,) = append(store, seal_any(stream="note/1"))

        assert later.sequence == 3

    def test_one_write_over_many_streams_goes_on_where_each_of_them_was(
        self, open_store: Callable[[], Store]
    ) -> None:
        """Live, purged and new streams, in a store that has just been opened and has cached none of them."""
        first = open_store()
        fill_two_streams(first)
        with first.open_write() as writer:
            writer.purge("note/1", actor="user:ada", reason="asked to")
        first.close()

        store = open_store()
        streams = ["note/3", "note/1", "note/2", "note/3", "note/1", "note/4"]
        with store.open_write() as writer:
            made = writer.append([seal_any(stream=stream) for stream in streams])
        again = append(store, seal_any(stream="note/4"), seal_any(stream="note/1"))
        store.close()

        assert [recorded.sequence for recorded in made] == [1, 3, 3, 2, 4, 1]
        assert [recorded.sequence for recorded in again] == [2, 5]

    def test_a_purged_event_cannot_come_back(self, store: Store) -> None:
        made = fill_two_streams(store)
        with store.open_write() as writer:
            writer.purge("note/1", actor="user:ada", reason="asked to")
        with pytest.raises(AlreadyPurged), store.open_write() as writer:
            writer.append([made[0]])

    def test_a_stream_without_events_cannot_be_purged(self, store: Store) -> None:
        fill_two_streams(store)
        with pytest.raises(NotFound), store.open_write() as writer:
            writer.purge("note/7", actor="user:ada", reason="asked to")
        with store.open_write() as writer:
            writer.purge("note/1", actor="user:ada", reason="asked to")
        with pytest.raises(NotFound), store.open_write() as writer:
            writer.purge("note/1", actor="user:ada", reason="again")

        assert len(store.purges()) == 1

    def test_a_purge_names_the_scopes_it_touched(self, store: Store) -> None:
        """F32."""
        append(store, seal_any(stream="note/1", scope="b"), seal_any(stream="note/1", scope="a/x"))
        with store.open_write() as writer:
            purge = writer.purge("note/1", actor="user:ada", reason="asked to")

        assert purge.scopes == ("a/x", "b")
        assert store.purges() == [purge]

    def test_a_purge_and_what_is_left_of_it_are_one_write(self, store: Store) -> None:
        """G2: a program records on another stream what must remain known of a purged one."""
        fill_two_streams(store)
        with store.open_write() as writer:
            writer.append([seal_any(stream="note/3")])
            purge = writer.purge("note/1", actor="user:ada", reason="asked to")
            (left,) = writer.append([seal_any(stream="note/4")])

        assert (purge.reserved, left.position, store.head()) == (6, 7, 7)
        assert positions(store.read()) == [2, 4, 5, 7]
        assert store.purges() == [purge]
        (later,) = append(store, seal_any(stream="note/4"))
        assert (later.position, later.sequence) == (8, 2)

    def test_a_failed_purge_leaves_everything(self, store: Store) -> None:
        fill_two_streams(store)
        with pytest.raises(Boom), store.open_write() as writer:
            writer.purge("note/1", actor="user:ada", reason="asked to")
            raise Boom

        assert positions(store.read()) == [1, 2, 3, 4]
        assert (store.purges(), store.head()) == ([], 4)
