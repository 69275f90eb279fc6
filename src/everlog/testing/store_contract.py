"""The promises of a store as a test suite: one class, run against any store with a fixture of a few lines.

    class TestMyStore(StoreContract):
        @pytest.fixture
        def open_store(self, tmp_path: Path) -> OpenStore:
            return lambda: MyStore(tmp_path / "log")

The factory opens the *same* log again at every call, so that what survives closing can be seen. Each test names the
guarantee (G) or failure (F) it is about; docs/why/guarantees.md has the list.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta

import pytest

from everlog.core.codec import Packed, header_hash
from everlog.core.event import BEGINNING, START, Position
from everlog.core.ids import EventId
from everlog.core.query import EVERYTHING, Query
from everlog.errors import IdConflict, LogClosed
from everlog.stores.contract import CLAIM_BYTES, Store
from everlog.stores.small_state import read_claim, read_note, read_notes
from everlog.testing.builders import Boom, Chain, claimed_among, put_claim, put_note, seal_any, stamped
from everlog.testing.copy_contract import CopyContract
from everlog.testing.filling import CLAIMED, append, fill, in_threads, positions, scopes, state_of
from everlog.testing.purge_contract import PurgeContract
from everlog.testing.scan_contract import ScanContract
from everlog.testing.small_state_contract import SmallStateContract

OpenStore = Callable[[], Store]


class StoreContract(SmallStateContract, CopyContract, PurgeContract, ScanContract):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        raise NotImplementedError("say how to open the store")

    @pytest.fixture
    def open_again(self, open_store: OpenStore) -> OpenStore:
        """Opens the same log at every call, also for a store that keeps nothing when it is closed."""
        return open_store

    @pytest.fixture
    def store(self, open_store: OpenStore) -> Iterator[Store]:
        store = open_store()
        yield store
        store.close()

    # ---- appending

    def test_an_empty_store_has_nothing(self, store: Store) -> None:
        assert store.head() == START
        assert list(store.read()) == []
        assert list(store.slots()) == []
        assert store.purges() == []

    def test_what_was_appended_is_read_back_equal(self, store: Store) -> None:
        """G1: header, payload and salt are read back unchanged."""
        made = Chain().next(payload={"text": "grüße\u2028", "n": 12, "deep": [{"a": None}]}, tags={"team": "core"})
        append(store, made)

        (recorded,) = store.read()
        assert recorded.event == made.event
        assert store.get(made.event.id) == recorded
        (packed,) = store.slots()
        assert isinstance(packed, Packed)
        assert (packed.header, packed.payload) == (made.header, made.payload)

    def test_positions_are_gapless_in_commit_order(self, store: Store) -> None:
        """G3."""
        chain = Chain()
        for size in (1, 3, 2):
            append(store, *[chain.next() for _ in range(size)])

        assert positions(store.read()) == [1, 2, 3, 4, 5, 6]
        assert store.head() == 6

    def test_sequences_are_gapless_in_each_stream(self, store: Store) -> None:
        """G4."""
        chain = Chain()
        append(store, *[chain.next(stream=f"note/{n}") for n in (1, 2, 1, 1, 2)])

        found = [(recorded.event.stream, recorded.sequence) for recorded in store.read()]
        assert found == [("note/1", 1), ("note/2", 1), ("note/1", 2), ("note/1", 3), ("note/2", 2)]

    def test_a_write_sees_what_it_staged_itself(self, store: Store) -> None:
        chain = Chain()
        append(store, chain.next(stream="note/1"))
        with store.open_write() as writer:
            (second,) = writer.append([chain.next(stream="note/1")])

            assert writer.sequence("note/1") == 2
            assert writer.head() == 2
            assert writer.get(second.event.id) == second
            assert positions(writer.read()) == [1, 2]
            assert positions(writer.read(newest_first=True, limit=1)) == [2]
            assert positions(writer.read(Query(stream="note/1"), after=Position(1))) == [2]

    def test_a_failed_write_leaves_nothing(self, store: Store) -> None:
        """G2: events, clock, chain, notes and positions of a write that raised are all undone."""
        chain = Chain()
        append(store, chain.next())
        with pytest.raises(Boom), store.open_write() as writer:
            writer.append([chain.next(stream="note/9"), chain.next(stream="note/9")])
            put_note(writer, "k", "v")
            raise Boom

        assert positions(store.read()) == [1]
        assert store.head() == 1
        assert read_notes(store.small_state, "") == {}
        with store.open_write() as writer:
            assert writer.sequence("note/9") == 0
            assert writer.link(chain.origin).origin_seq == 1

    def test_a_failed_write_spends_no_position(self, store: Store) -> None:
        """F21: an append that is rolled back leaves no gap."""
        append(store, Chain().next())
        with pytest.raises(Boom), store.open_write() as writer:
            writer.append([seal_any()])
            raise Boom
        append(store, seal_any())

        assert positions(store.read()) == [1, 2]

    def test_a_failed_attempt_is_undone_alone(self, store: Store) -> None:
        """G2: one refused request in a group of many."""
        with store.open_write() as writer:
            writer.append([seal_any(stream="note/1")])
            put_note(writer, "kept", "1")
            with pytest.raises(Boom), writer.attempt():
                writer.append([seal_any(stream="note/1"), seal_any(stream="note/2")])
                put_note(writer, "kept", "2")
                put_note(writer, "lost", "3")
                writer.tick()
                raise Boom
            writer.append([seal_any(stream="note/2")])

        assert [(r.position, r.event.stream, r.sequence) for r in store.read()] == [
            (1, "note/1", 1),
            (2, "note/2", 1),
        ]
        assert read_notes(store.small_state, "") == {"kept": "1"}

    # ---- identity of events

    def test_appending_an_id_twice_records_it_once(self, store: Store) -> None:
        """G5, and seed 002's test_duplicate_event_id_is_noop: in one write and in a later one."""
        made = seal_any()
        with store.open_write() as writer:
            assert len(writer.append([made, made])) == 1
        with store.open_write() as writer:
            assert writer.append([made]) == []

        assert positions(store.read()) == [1]
        assert store.head() == 1

    def test_the_same_id_with_other_content_is_refused(self, store: Store) -> None:
        """G5, F54: the first stays as it is."""
        made = seal_any(payload={"text": "one"})
        append(store, made)
        with pytest.raises(IdConflict), store.open_write() as writer:
            writer.append([seal_any(id=made.event.id, payload={"text": "two"})])

        (kept,) = store.read()
        assert kept.event.payload == {"text": "one"}

    def test_an_unknown_id_is_not_found(self, store: Store) -> None:
        assert store.get(EventId("01M7GJY4JREWXR7F6ZT4NFS1FE")) is None

    # ---- clock and chain

    def test_the_clock_ticks_by_one_and_jumps_over_what_was_seen(self, store: Store) -> None:
        with store.open_write() as writer:
            assert [writer.tick(), writer.tick()] == [1, 2]
            assert writer.tick(seen=10) == 11
            assert writer.tick(seen=5) == 12
        with store.open_write() as writer:
            assert writer.tick() == 13

    def test_the_clock_is_never_below_an_event_that_is_here(self, store: Store) -> None:
        """F09: a writer that did not advance the clock must not use a clock value twice."""
        append(store, seal_any(lamport=7))
        with store.open_write() as writer:
            assert writer.tick() == 8

    def test_a_chain_goes_on_where_it_was(self, store: Store) -> None:
        origin = store.identity.origin
        for _ in range(3):
            with store.open_write() as writer:
                writer.append([stamped(writer, origin)], fresh=True)

        events = [recorded.event for recorded in store.read()]
        hashes = [header_hash(place.header) for place in store.slots() if isinstance(place, Packed)]
        assert [event.origin_seq for event in events] == [1, 2, 3]
        assert [event.previous for event in events] == [b"", hashes[0], hashes[1]]

    def test_each_origin_has_its_own_chain(self, store: Store) -> None:
        one, other = Chain("01TESTORGN0000000000000001"), Chain("01TESTORGN0000000000000002")
        append(store, one.next(), other.next(), one.next())
        with store.open_write() as writer:
            assert writer.link(one.origin).origin_seq == 2
            assert writer.link(other.origin).origin_seq == 1
            assert writer.link("01TESTORGN0000000000000003") == BEGINNING

    # ---- reading

    def test_filtering_keeps_positions_and_order(self, store: Store) -> None:
        """G6: for every part of a query and both directions, the same as filtering in Python."""
        fill(store)
        everything = list(store.read())
        for query in QUERIES:
            expected = [recorded.position for recorded in everything if query.matches(recorded)]
            assert positions(store.read(query)) == expected, query
            assert positions(store.read(query, newest_first=True)) == expected[::-1], query
            assert positions(store.read(query, limit=0)) == [], query
            assert positions(store.read(query, limit=2)) == expected[:2], query
            assert positions(store.read(query, limit=2, newest_first=True)) == expected[::-1][:2], query
            middle = Position(everything[len(everything) // 2].position)
            assert positions(store.read(query, after=middle)) == [p for p in expected if p > middle], query
            assert positions(store.read(query, upto=middle)) == [p for p in expected if p <= middle], query

    def test_filtering_by_time_of_arrival(self, store: Store) -> None:
        fill(store)
        moments = [recorded.received_at for recorded in store.read()]
        assert positions(store.read(Query(until=moments[0]))) == []
        assert len(positions(store.read(Query(since=moments[0])))) == len(moments)
        assert positions(store.read(Query(since=moments[-1] + timedelta(seconds=1)))) == []

    def test_a_scope_covers_what_lies_below_it_and_nothing_else(self, store: Store) -> None:
        for scope in ("acme", "acme/shop", "acme/shop/prod", "acmecorp", "acme-eu", ""):
            append(store, seal_any(scope=scope))

        assert scopes(store, "acme") == ["acme", "acme/shop", "acme/shop/prod"]
        assert scopes(store, "acme/shop") == ["acme/shop", "acme/shop/prod"]
        assert scopes(store, "") == ["acme", "acme/shop", "acme/shop/prod", "acmecorp", "acme-eu", ""]

    def test_a_rare_type_is_found_among_many(self, store: Store) -> None:
        """F27: one match at each end of a few hundred others."""
        chain = Chain()
        append(store, chain.next(type="rare.seen"))
        append(store, *[chain.next(stream=f"note/{n % 7}") for n in range(400)])
        append(store, chain.next(type="rare.seen"))

        rare = Query(types=frozenset(["rare.seen"]))
        assert positions(store.read(rare)) == [1, 402]
        assert positions(store.read(rare, after=Position(1))) == [402]
        assert positions(store.read(rare, newest_first=True, limit=1)) == [402]

    def test_a_read_goes_on_while_others_append(self, store: Store) -> None:
        """G3: a reader that has seen N never later finds something new at or below N."""
        chain = Chain()
        append(store, *[chain.next() for _ in range(5)])
        reading = store.read()
        seen: list[int] = [next(reading).position]
        append(store, *[chain.next() for _ in range(5)])
        seen += positions(reading)

        assert seen == sorted(set(seen))
        assert seen[:5] == [1, 2, 3, 4, 5]

    # ---- several writers

    def test_two_writers_never_share_a_position_or_a_clock_value(self, store: Store) -> None:
        """G13: threads here; processes in the crash suite."""
        origin = store.identity.origin

        def write(number: int) -> None:
            for _ in range(25):
                with store.open_write() as writer:
                    writer.append([stamped(writer, origin, stream=f"note/{number}")], fresh=True)

        in_threads(write, 4)
        records = list(store.read())
        assert [recorded.position for recorded in records] == list(range(1, 101))
        assert [recorded.event.lamport for recorded in records] == list(range(1, 101))
        assert [recorded.event.origin_seq for recorded in records] == list(range(1, 101))

    def test_a_reader_never_sees_half_a_batch(self, store: Store) -> None:
        """G2, G7."""
        done = threading.Event()
        halves: list[int] = []

        def read() -> None:
            while not done.is_set():
                head = store.head()
                count = len(list(store.read(upto=head)))
                if count % 10:
                    halves.append(count)

        reader = threading.Thread(target=read)
        reader.start()
        chain = Chain()
        for _ in range(20):
            append(store, *[chain.next() for _ in range(10)])
        done.set()
        reader.join()

        assert halves == []

    # ---- closing

    def test_survives_reopening(self, open_store: OpenStore) -> None:
        """G1: events, sequences, clock, chain, purges, notes and identity."""
        first = open_store()
        fill(first)
        with first.open_write() as writer:
            put_note(writer, "k", "v")
            put_claim(writer, CLAIMED, Position(1), 1)
            writer.purge("note/2", actor="user:ada", reason="asked to")
        before = state_of(first)
        first.close()

        second = open_store()
        assert state_of(second) == before
        second.close()

    def test_two_open_stores_of_one_log_see_each_other(self, open_store: OpenStore) -> None:
        """G13: what one acknowledged the other reads, and each continues from the other's state."""
        one, other = open_store(), open_store()
        for number in range(6):
            store = (one, other)[number % 2]
            with store.open_write() as writer:
                writer.append([stamped(writer, store.identity.origin)], fresh=True)

        assert positions(one.read()) == positions(other.read()) == [1, 2, 3, 4, 5, 6]
        assert [recorded.event.lamport for recorded in one.read()] == [1, 2, 3, 4, 5, 6]
        assert [recorded.sequence for recorded in other.read()] == [1, 2, 3, 4, 5, 6]
        one.close()
        other.close()

    def test_a_closed_store_refuses_with_log_closed(self, open_store: OpenStore) -> None:
        store = open_store()
        with store.open_write() as writer:
            made = stamped(writer, store.identity.origin)
            writer.append([made])
            put_note(writer, "a key", "a value")
        store.close()
        questions: dict[str, Callable[[], object]] = {
            "read": lambda: list(store.read()),
            "get": lambda: store.get(made.event.id),
            "head": store.head,
            "purges": store.purges,
            "claimed": lambda: read_claim(store.small_state, bytes(CLAIM_BYTES)),
            "claimed_among": lambda: claimed_among(store.small_state, [bytes(CLAIM_BYTES)]),
            "noted": lambda: read_note(store.small_state, "a key"),
            "notes": lambda: read_notes(store.small_state, "a"),
            "slots": lambda: list(store.slots()),
            "ends": store.ends,
            "kept": lambda: list(store.small_state.every_row()),
        }
        answered = []
        for name, ask in questions.items():
            with suppress(LogClosed):
                ask()
                answered.append(name)
        assert answered == []
        with pytest.raises(LogClosed), store.open_write():
            pass
        store.close()  # a second close is allowed

    def test_a_healthy_store_has_no_problems(self, store: Store) -> None:
        fill(store)
        with store.open_write() as writer:
            writer.append([stamped(writer, store.identity.origin)], fresh=True)
        with store.open_write() as writer:
            writer.purge("note/1", actor="user:ada", reason="asked to")

        assert list(store.check()) == []


QUERIES = [
    EVERYTHING,
    Query(stream="note/1"),
    Query(stream="note/404"),
    Query(kind="issue"),
    Query(kind="not"),
    Query(types=frozenset(["note.added"])),
    Query(types=frozenset(["issue.opened", "note.added"])),
    Query(types=frozenset(["no.such"])),
    Query(scope="acme"),
    Query(scope="acme/shop"),
    Query(scope="nobody"),
    Query(actor="agent:builder"),
    Query(correlation_id="deploy-1"),
    Query(stream="note/1", types=frozenset(["note.added"]), scope="acme"),
    Query(types=frozenset(["issue.opened"]), scope="acme/shop", actor="user:ada"),
]
