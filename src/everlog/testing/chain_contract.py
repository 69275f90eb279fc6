"""The promises about chains: holes, forks, and events that come in any order. For a suite beside `StoreContract`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from everlog.core.chain import NO_CHAIN
from everlog.core.chain import Chain as Known
from everlog.core.event import BEGINNING, Link
from everlog.log.verify.verify import verify
from everlog.stores.contract import Encoded, Store
from everlog.stores.memory import MemoryStore
from everlog.testing.builders import Boom, Chain, seal_any, stamped
from everlog.testing.copy_contract import put, slots_of
from everlog.testing.filling import append

PEER = "01TESTPEER0000000000000001"


class ChainContract:
    def test_a_missing_number_is_a_hole_until_it_arrives(self, store: Store) -> None:
        made = of_a_peer(6)
        append(store, *made[:3])
        append(store, *made[4:])
        assert chain_of(store).holes == [(4, 4)]
        assert chain_of(store).end == Link(3, made[2].hash)
        assert chain_of(store).greatest == Link(6, made[5].hash)

        append(store, made[3])
        assert chain_of(store).simple
        assert chain_of(store).end == Link(6, made[5].hash)
        assert list(store.check()) == []

    def test_an_event_far_ahead_does_not_move_the_end(self, store: Store) -> None:
        made = of_a_peer(90)
        append(store, made[89])
        assert (chain_of(store).end, chain_of(store).holes) == (BEGINNING, [(1, 89)])
        append(store, *made[:2])

        assert chain_of(store).end == Link(2, made[1].hash)
        assert chain_of(store).holes == [(3, 89)]
        assert list(store.check()) == []

    def test_two_events_with_one_number_are_a_fork(self, store: Store) -> None:
        one, other = of_a_peer(3), of_a_peer(3)
        append(store, *one)
        append(store, other[1])

        found = chain_of(store)
        assert [(fork.origin_seq, fork.hash, fork.position) for fork in found.forks] == [(2, other[1].hash, 4)]
        assert found.end == Link(3, one[2].hash)
        assert list(store.check()) == []
        assert verify(store).ok

    def test_an_event_of_another_chain_does_not_close_a_hole(self, store: Store) -> None:
        """Its number fits, and its hash does not: the end stays where the events are linked."""
        one, other = of_a_peer(3), of_a_peer(3)
        append(store, one[0])
        append(store, other[1])

        assert chain_of(store).end == Link(1, one[0].hash)
        assert not chain_of(store).simple
        assert list(store.check()) == []

    def test_events_in_any_order_make_one_chain(self, store: Store) -> None:
        made = of_a_peer(40)
        for start in (30, 10, 20, 0):
            append(store, *reversed(made[start : start + 10]))

        assert chain_of(store).simple
        assert chain_of(store).end == Link(40, made[39].hash)
        assert list(store.check()) == []
        assert verify(store).ok

    def test_a_chain_survives_reopening(self, open_again: Callable[[], Store]) -> None:
        """G1: the end, what lies beyond a hole, and forks."""
        one, other = of_a_peer(9), of_a_peer(9)
        first = open_again()
        append(first, *one[:3], *one[5:])
        append(first, other[2], seal_any())
        with first.open_write() as writer:
            writer.append([stamped(writer, first.identity.origin)], fresh=True)
        before = [chain_of(first), chain_of(first, first.identity.origin)]
        first.close()

        second = open_again()
        assert [chain_of(second), chain_of(second, second.identity.origin)] == before
        append(second, one[3], one[4])
        assert chain_of(second).end == Link(9, one[8].hash)
        assert len(chain_of(second).forks) == 1
        assert list(second.check()) == []
        second.close()

    def test_two_handles_extend_one_chain(self, open_again: Callable[[], Store]) -> None:
        """G13: one leaves a hole, and the other fills it."""
        made = of_a_peer(7)
        one, other = open_again(), open_again()
        append(one, *made[:2])
        append(other, *made[3:5])
        assert chain_of(one) == chain_of(other)
        assert chain_of(one).holes == [(3, 3)]
        append(one, made[2])
        assert chain_of(other).end == Link(5, made[4].hash)
        append(other, made[6])
        append(one, made[5])

        assert chain_of(one) == chain_of(other)
        assert chain_of(one).end == Link(7, made[6].hash)
        one.close()
        other.close()

    def test_a_second_handle_lists_all_chains(self, open_again: Callable[[], Store]) -> None:
        """G13: also after a purge of all that one of them has."""
        one, other = open_again(), open_again()
        assert one.chains() == {}
        made, own = of_a_peer(3), one.identity.origin
        append(one, *made)
        with one.open_write() as writer:
            writer.append([stamped(writer, own, stream="note/7")])
        assert other.chains() == one.chains()
        assert set(other.chains()) == {PEER, own}
        with one.open_write() as writer:
            writer.purge("note/7", actor="user:ada", reason="asked to")
        assert other.chains() == one.chains()
        assert other.chains()[own].end.origin_seq == 1
        one.close()
        other.close()

    def test_a_failed_write_leaves_the_chain(self, store: Store) -> None:
        made = of_a_peer(5)
        append(store, *made[:2])
        before = chain_of(store)
        with pytest.raises(Boom), store.open_write() as writer:
            writer.append([made[2], made[4]])
            raise Boom
        with store.open_write() as writer, pytest.raises(Boom), writer.attempt():
            writer.append([made[4]])
            raise Boom

        assert chain_of(store) == before

    def test_a_purge_leaves_the_chain(self, store: Store) -> None:
        made = of_a_peer(6)
        append(store, *made[:2], *made[3:])
        before = chain_of(store)
        with store.open_write() as writer:
            writer.purge("note/1", actor="user:ada", reason="asked to")

        assert chain_of(store) == before
        append(store, made[2])
        assert chain_of(store).end == Link(6, made[5].hash)
        assert list(store.check()) == []

    def test_a_copy_has_the_same_chains(self, store: Store) -> None:
        source, one, other = MemoryStore(), of_a_peer(9), of_a_peer(9)
        append(source, *one[4:7])
        append(source, *one[:2], other[5])
        with source.open_write() as writer:
            writer.purge("note/1", actor="user:ada", reason="asked to")
        append(source, one[8])
        put(store, slots_of(source), at_once=3)

        assert chain_of(store) == chain_of(source)
        assert chain_of(store, "01TESTPEER0000000000000002") == NO_CHAIN

    def test_a_copy_has_every_event_of_a_fork(self, store: Store) -> None:
        """Several in a row, which are linked to each other."""
        source, one, other = MemoryStore(), of_a_peer(6), of_a_peer(6)
        append(source, *one)
        append(source, *other[2:5])
        put(store, slots_of(source))

        assert len(chain_of(store).forks) == 3
        assert chain_of(store) == chain_of(source)


def of_a_peer(count: int) -> list[Encoded]:
    """Return events of one chain, different ones at every call."""
    chain = Chain(PEER)
    return [chain.next() for _ in range(count)]


def chain_of(store: Store, origin: str = PEER) -> Known:
    with store.open_write() as writer:
        found = writer.chain(origin)
    assert store.chains().get(origin, NO_CHAIN) == found
    return found
