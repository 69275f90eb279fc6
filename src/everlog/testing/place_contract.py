"""The promises about copies: what `Writer.place`, `Store.clock` and `Store.kept` are for. Part of `StoreContract`.

The log that is copied is a memory store with everything in it that a copy must carry: streams that were purged, once
and twice, a purge at the very end, events of other origins, signatures, an erased payload, notes that expire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from everlog.core.codec import Packed
from everlog.core.event import Position, Purge, Purged
from everlog.core.query import Query
from everlog.errors import AlreadyPurged, Conflict
from everlog.stores.contract import Claim, Claimed, Note, Store, seal
from everlog.stores.memory import MemoryStore
from everlog.testing.builders import Boom, Chain, seal_any, stamped

Place = Packed | Purged | Purge


class PlaceContract:
    def test_places_of_another_log_are_kept_as_they_stand(self, store: Store) -> None:
        """Positions, sequences, times of arrival, bytes, signatures, what is left of purged events."""
        source = a_full_log()
        put(store, places_of(source))

        assert list(store.packed()) == list(source.packed())
        assert list(store.read()) == list(source.read())
        assert list(store.read(newest_first=True)) == list(source.read(newest_first=True))
        assert (store.purges(), store.head()) == (source.purges(), source.head())
        assert list(store.check()) == []
        for query in (Query(stream="note/3"), Query(stream="note/1"), Query(types=frozenset(["issue.opened"]))):
            assert list(store.read(query)) == list(source.read(query)), query

    def test_a_copied_log_goes_on_where_the_other_was(self, store: Store) -> None:
        """F09: neither a sequence nor a place in a chain is given out twice, not even one that was purged."""
        source = a_full_log()
        put(store, places_of(source))
        streams = ["note/1", "note/2", "note/3", "note/4", "issue/1"]
        found = []
        for log in (source, store):
            with log.write() as writer:
                sequences = [writer.sequence(stream) for stream in streams]
                found.append((sequences, writer.link(OWN), writer.link(PEER), writer.head()))
        assert found[0] == found[1]
        with store.write() as writer:
            (recorded,) = writer.append([stamped(writer, OWN, stream="note/1")], fresh=True)
        assert recorded.position == source.head() + 1
        assert recorded.sequence == found[0][0][0] + 1

    def test_places_survive_reopening(self, open_store: Callable[[], Store]) -> None:
        """G1."""
        source = a_full_log()
        store = open_store()
        put(store, places_of(source))
        before = list(store.packed()), store.purges(), store.head(), store.clock()
        store.close()

        again = open_store()
        assert (list(again.packed()), again.purges(), again.head(), again.clock()) == before
        again.close()

    def test_a_purged_event_of_a_copied_log_cannot_come_back(self, store: Store) -> None:
        source, purged = MemoryStore(), Chain(PEER).next(stream="note/1")
        with source.write() as writer:
            writer.append([purged])
        with source.write() as writer:
            writer.purge("note/1", actor="user:ada", reason="asked to")
        put(store, places_of(source))

        assert store.get(purged.event.id) is None
        with pytest.raises(AlreadyPurged), store.write() as writer:
            writer.append([purged])

    def test_a_purge_says_which_events_it_removed(self, store: Store) -> None:
        """G3: each hole is on record with the purge that made it."""
        source = a_full_log()
        put(store, places_of(source))
        for purge in store.purges():
            removed = [place for place in store.packed() if getattr(place, "reserved", 0) == purge.reserved]
            assert len(removed) == purge.count > 0

    def test_places_must_follow_the_head(self, store: Store) -> None:
        """A copy goes into a log that has none of it, in order and without a gap."""
        places = places_of(a_full_log())
        put(store, places[:1])
        for wrong in (places[:5], places[2:5]):
            with pytest.raises(Conflict), store.write() as writer:
                writer.place(wrong)

        assert store.head() == 1

    def test_a_sequence_that_does_not_follow_is_refused(self, store: Store) -> None:
        one, two = (place for place in places_of(a_full_log())[:2] if isinstance(place, Packed))
        with pytest.raises(Conflict), store.write() as writer:
            writer.place([one, replace(two, sequence=two.sequence + 7)])

        assert (store.head(), list(store.packed())) == (0, [])

    def test_failed_places_are_undone(self, store: Store) -> None:
        """G2: the whole write, or a part of it alone."""
        places = places_of(a_full_log())
        with pytest.raises(Boom), store.write() as writer:
            writer.place(places)
            raise Boom
        assert (store.head(), list(store.packed()), store.purges()) == (0, [], [])

        with store.write() as writer:
            writer.place(places[:4])
            with pytest.raises(Boom), writer.attempt():
                writer.place(places[4:])
                raise Boom
            assert writer.head() == 4
        assert [place.position for place in store.packed()] == [1, 2, 3, 4]
        assert store.purges() == []
        put(store, places[4:])
        assert list(store.packed()) == [place for place in places if not isinstance(place, Purge)]

    def test_the_clock_is_told_without_a_write(self, store: Store) -> None:
        assert store.clock() == 0
        with store.write() as writer:
            writer.tick(seen=40)
        assert store.clock() == 41

    def test_the_clock_of_a_copy_is_not_below_its_events(self, store: Store) -> None:
        source = a_full_log()
        put(store, places_of(source))
        assert store.clock() == max(recorded.event.lamport for recorded in source.read())

    def test_what_is_kept_beside_the_events_is_told_with_its_end(self, store: Store) -> None:
        with store.write() as writer:
            writer.note("refusal/1", "no", expires_us=2**60)
            writer.note("cursor/x", "7")
            writer.note("old", "1", expires_us=1)
            writer.append([seal_any()])
            writer.claim(b"1" * 16, Position(1), 1)
        kept = sorted(store.kept(), key=repr)

        assert kept == [
            Claimed(b"1" * 16, Claim(Position(1), 1)),
            Note("cursor/x", "7", None),
            Note("refusal/1", "no", 2**60),
        ]


OWN = "01TESTPLCE0000000000000001"
PEER = "01TESTPLCE0000000000000002"


def a_full_log() -> MemoryStore:
    """A log with all that a copy must carry."""
    moments = iter(range(1_700_000_000_000_000, 2**60, 1_000_003))
    store = MemoryStore(now_us=lambda: next(moments))
    peer = Chain(PEER)

    def own(*streams: str, **fields: Any) -> None:
        with store.write() as writer:
            for stream in streams:
                writer.append([stamped(writer, OWN, stream=stream, **fields)], fresh=True)

    def purge(stream: str) -> None:
        with store.write() as writer:
            writer.purge(stream, actor="user:ada", reason="asked to")

    own("note/3", "note/3", "note/1", "note/2", "note/1")
    own(*[f"issue/{number % 3}" for number in range(200)], type="issue.opened", scope="acme/shop")
    with store.write() as writer:
        writer.append([peer.next(stream="note/4", payload={"text": "grüße\u2028", "n": -0.5}, scope="acme")])
        signed = replace(peer.next(stream="note/4").event, signature=b"s" * 64, path=(b"p" * 32, b"q" * 32))
        erased = replace(peer.next(stream="note/4").event, payload={}, salt=b"")
        writer.append([seal(signed), seal(erased)])
    purge("note/1")
    own("note/1", "note/2")
    purge("note/1")
    own("note/1", tags={"team": "core"})
    purge("note/2")  # the last place is a purge's
    return store


def places_of(store: Store) -> list[Place]:
    """Every place and every purge of a log, in order of position."""
    places: list[Place] = [*store.packed(), *store.purges()]
    return sorted(places, key=_position)


def put(store: Store, places: Sequence[Place], *, at_once: int = 50) -> None:
    """Place them, in several writes."""
    for batch in _batches(places, at_once):
        with store.write() as writer:
            writer.place(batch)


def _batches(places: Sequence[Place], size: int) -> Iterator[Sequence[Place]]:
    return (places[first : first + size] for first in range(0, len(places), size))


def _position(place: Place) -> Position:
    return place.reserved if isinstance(place, Purge) else place.position
