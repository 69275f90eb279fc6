"""The promises about copies: every slot, the clock and the small state. Part of `StoreContract`.

The log that is copied is a memory store with everything that a copy must keep: streams that were purged, once
and twice, a purge at the very end, events of other origins, signatures, an erased payload, notes that expire.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from everlog.core.codec import Packed
from everlog.core.event import Position, Purge, Purged
from everlog.core.query import Query
from everlog.errors import AlreadyPurged, Conflict
from everlog.stores.contract import Store, encode_event
from everlog.stores.memory import MemoryStore
from everlog.stores.small_state import CLAIMS, NOTES, Row, claim_value
from everlog.testing.builders import Boom, Chain, put_claim, put_note, seal_any, stamped
from everlog.transfer.survey import slot_batches

Place = Packed | Purged | Purge


class CopyContract:
    def test_slots_of_another_log_are_kept_as_they_stand(self, store: Store) -> None:
        """Positions, sequences, times of arrival, bytes, signatures, what is left of purged events."""
        source = a_full_log()
        put(store, slots_of(source))

        found, wanted = list(store.slots()), list(source.slots())
        assert len(found) == len(wanted)
        for place, original in zip(found, wanted, strict=True):  # pytest takes 10 s to show how two whole logs differ
            assert place == original
        assert list(store.read()) == list(source.read())
        assert list(store.read(newest_first=True)) == list(source.read(newest_first=True))
        assert (store.purges(), store.head()) == (source.purges(), source.head())
        assert list(store.check()) == []
        for query in (Query(stream="note/3"), Query(stream="note/1"), Query(types=frozenset(["issue.opened"]))):
            assert list(store.read(query)) == list(source.read(query)), query

    def test_a_copied_log_goes_on_where_the_other_was(self, store: Store) -> None:
        """F09: no sequence and no number of a chain is used twice, not even that of a purged event."""
        source = a_full_log()
        put(store, slots_of(source))
        streams = ["note/1", "note/2", "note/3", "note/4", "issue/1"]
        found = []
        for log in (source, store):
            with log.open_write() as writer:
                sequences = [writer.sequence(stream) for stream in streams]
                found.append((sequences, writer.link(OWN), writer.link(PEER), writer.head()))
        assert found[0] == found[1]
        with store.open_write() as writer:
            (recorded,) = writer.append([stamped(writer, OWN, stream="note/1")], fresh=True)
        assert recorded.position == source.head() + 1
        assert recorded.sequence == found[0][0][0] + 1

    def test_places_survive_reopening(self, open_store: Callable[[], Store]) -> None:
        """G1."""
        source = a_full_log()
        store = open_store()
        put(store, slots_of(source))
        before = list(store.slots()), store.purges(), store.head(), store.ends().clock
        store.close()

        again = open_store()
        assert (list(again.slots()), again.purges(), again.head(), again.ends().clock) == before
        again.close()

    def test_a_purged_event_of_a_copied_log_cannot_come_back(self, store: Store) -> None:
        source, purged = MemoryStore(), Chain(PEER).next(stream="note/1")
        with source.open_write() as writer:
            writer.append([purged])
        with source.open_write() as writer:
            writer.purge("note/1", actor="user:ada", reason="asked to")
        put(store, slots_of(source))

        assert store.get(purged.event.id) is None
        with pytest.raises(AlreadyPurged), store.open_write() as writer:
            writer.append([purged])

    def test_a_purge_lists_the_events_it_removed(self, store: Store) -> None:
        """G3: each gap is recorded with the purge that made it."""
        source = a_full_log()
        put(store, slots_of(source))
        for purge in store.purges():
            removed = [place for place in store.slots() if getattr(place, "reserved", 0) == purge.reserved]
            assert len(removed) == purge.count > 0

    def test_places_must_follow_the_head(self, store: Store) -> None:
        """A copy goes into an empty log, in order and without a gap."""
        places = slots_of(a_full_log())
        put(store, places[:1])
        for wrong in (places[:5], places[2:5]):
            with pytest.raises(Conflict), store.open_write() as writer:
                writer.copy_in(wrong)

        assert store.head() == 1

    def test_a_sequence_that_does_not_follow_is_refused(self, store: Store) -> None:
        one, two = (place for place in slots_of(a_full_log())[:2] if isinstance(place, Packed))
        with pytest.raises(Conflict), store.open_write() as writer:
            writer.copy_in([one, replace(two, sequence=two.sequence + 7)])

        assert (store.head(), list(store.slots())) == (0, [])

    def test_failed_places_are_undone(self, store: Store) -> None:
        """G2: the whole write, or a part of it alone."""
        places = slots_of(a_full_log())
        with pytest.raises(Boom), store.open_write() as writer:
            writer.copy_in(places)
            raise Boom
        assert (store.head(), list(store.slots()), store.purges()) == (0, [], [])

        with store.open_write() as writer:
            writer.copy_in(places[:4])
            with pytest.raises(Boom), writer.attempt():
                writer.copy_in(places[4:])
                raise Boom
            assert writer.head() == 4
        assert [place.position for place in store.slots()] == [1, 2, 3, 4]
        assert store.purges() == []
        put(store, places[4:])
        assert list(store.slots()) == [place for place in places if not isinstance(place, Purge)]

    def test_the_clock_is_read_without_a_write(self, store: Store) -> None:
        assert store.ends().clock == 0
        with store.open_write() as writer:
            writer.tick(seen=40)
        assert store.ends().clock == 41

    def test_the_clock_of_a_copy_is_not_below_its_events(self, store: Store) -> None:
        source = a_full_log()
        put(store, slots_of(source))
        assert store.ends().clock == max(recorded.event.lamport for recorded in source.read())

    def test_small_state_is_read_with_its_expiry(self, store: Store) -> None:
        with store.open_write() as writer:
            put_note(writer, "refusal/1", "no", expires_us=2**60)
            put_note(writer, "cursor/x", "7")
            put_note(writer, "old", "1", expires_us=1)
            writer.append([seal_any()])
            put_claim(writer, b"1" * 16, Position(1), 1)
        kept = sorted(store.small_state.every_row())

        assert kept == [
            Row(CLAIMS, (b"1" * 16).hex(), claim_value(1, 1)),
            Row(NOTES, "cursor/x", b"7"),
            Row(NOTES, "refusal/1", b"no", 2**60),
        ]


OWN = "01TESTPLCE0000000000000001"
PEER = "01TESTPLCE0000000000000002"


def a_full_log() -> MemoryStore:
    """Return a log with everything that a copy must keep."""
    moments = iter(range(1_700_000_000_000_000, 2**60, 1_000_003))
    store = MemoryStore(now_us=lambda: next(moments))
    peer = Chain(PEER)

    def own(*streams: str, **fields: Any) -> None:
        with store.open_write() as writer:
            for stream in streams:
                writer.append([stamped(writer, OWN, stream=stream, **fields)], fresh=True)

    def purge(stream: str) -> None:
        with store.open_write() as writer:
            writer.purge(stream, actor="user:ada", reason="asked to")

    own("note/3", "note/3", "note/1", "note/2", "note/1")
    own(*[f"issue/{number % 3}" for number in range(200)], type="issue.opened", scope="acme/shop")
    with store.open_write() as writer:
        writer.append([peer.next(stream="note/4", payload={"text": "grüße\u2028", "n": -0.5}, scope="acme")])
        signed = replace(peer.next(stream="note/4").event, signature=b"s" * 64, path=(b"p" * 32, b"q" * 32))
        erased = replace(peer.next(stream="note/4").event, payload={}, salt=b"")
        writer.append([encode_event(signed), encode_event(erased)])
    purge("note/1")
    own("note/1", "note/2")
    purge("note/1")
    own("note/1", tags={"team": "core"})
    purge("note/2")  # the last position is that of a purge
    return store


def slots_of(store: Store) -> list[Place]:
    """Return every slot and every purge of a log, in order of position."""
    places: list[Place] = [*store.slots(), *store.purges()]
    return sorted(places, key=_position)


def put(store: Store, places: Sequence[Place], *, at_once: int = 50) -> None:
    """Copy them in, in several writes."""
    for batch in slot_batches(places, at_once):
        with store.open_write() as writer:
            writer.copy_in(batch)


def _position(place: Place) -> Position:
    return place.reserved if isinstance(place, Purge) else place.position
