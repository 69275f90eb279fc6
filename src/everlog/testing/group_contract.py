"""The promises about signatures of groups: they are read with every event, and they survive a purge. For a
suite beside `StoreContract`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import pytest

from everlog.core.codec import Packed, header_bytes, header_hash, split_proof
from everlog.core.event import Event, Purged, Recorded
from everlog.core.merkle import root, root_of_path
from everlog.errors import Conflict
from everlog.log.verify.verify import verify
from everlog.stores.contract import Scanning, Store
from everlog.stores.memory import MemoryStore
from everlog.testing.builders import seal_any, stamped
from everlog.testing.copy_contract import put, slots_of
from everlog.testing.filling import append


class GroupContract:
    def test_every_event_of_a_signed_group_has_the_signature_and_its_path(self, store: Store) -> None:
        receipts = record_signed(store, [f"note/{n % 3}" for n in range(300)])
        record_signed(store, ["note/1"])

        found = list(store.read())
        assert found[:300] == receipts
        assert [sign_of(place) for place in store.slots()] == [
            *[((1, 128), True)] * 128,
            *[((129, 128), True)] * 128,
            *[((257, 44), True)] * 44,
            ((301, 1), True),
        ]
        for recorded in (found[0], found[127], found[128], found[299], found[300]):
            assert is_signed(recorded)
            assert store.get(recorded.event.id) == recorded
        assert list(store.check()) == []
        assert is_sound(store)

    def test_a_block_has_the_signatures(self, store: Store) -> None:
        if not isinstance(store, Scanning):
            pytest.skip("this store does not read in blocks")
        append(store, seal_any())
        record_signed(store, ["note/1"] * 9)
        pairs = [
            pair
            for block in store.blocks()
            for pair in zip(block.signatures or [b""], block.paths or [b""], strict=True)
        ]
        assert pairs == [(recorded.event.signature, b"".join(recorded.event.path)) for recorded in store.read()]

    def test_a_signature_survives_the_purge_of_some_events(self, open_again: Callable[[], Store]) -> None:
        first = open_again()
        receipts = record_signed(first, ["note/1", "note/2", "note/1", "note/3", "note/1"])
        purge(first, "note/1")
        purge(first, "note/3")
        before = list(first.slots())
        first.close()

        store = open_again()
        assert list(store.slots()) == before
        assert [type(place) for place in before] == [Purged, Packed, Purged, Purged, Purged]
        assert [sign_of(place) for place in before] == [((1, 5), True)] * 5
        (left,) = store.read()
        assert left == receipts[1]
        assert is_signed(left)
        assert list(store.check()) == []
        assert is_sound(store)
        store.close()

    def test_a_signature_survives_the_purge_of_all_events(self, open_again: Callable[[], Store]) -> None:
        first = open_again()
        record_signed(first, ["note/1", "note/1", "note/1"])
        purge(first, "note/1")
        append(first, seal_any(stream="note/2"))
        before = list(first.slots())
        first.close()

        store = open_again()
        assert list(store.slots()) == before
        assert [sign_of(place) for place in before] == [*[((1, 3), True)] * 3, ((0, 0), False)]
        assert list(store.check()) == []
        assert is_sound(store)
        store.close()

    def test_a_second_handle_reads_signed_groups(self, open_again: Callable[[], Store]) -> None:
        """G13: before and after a purge by the other one."""
        one, other = open_again(), open_again()
        receipts = record_signed(one, ["note/1", "note/2", "note/2"])
        assert list(other.read()) == receipts
        purge(one, "note/2")

        assert list(other.read()) == receipts[:1]
        assert is_signed(next(other.read()))
        one.close()
        other.close()

    def test_a_copy_has_the_signatures(self, store: Store) -> None:
        """Also of groups of which nothing, or little, is left."""
        source = a_signed_log()
        put(store, slots_of(source), at_once=50)

        for place, original in zip(store.slots(), source.slots(), strict=True):
            assert place == original
        assert list(store.read()) == list(source.read())
        assert list(store.check()) == []
        back = MemoryStore()
        put(back, slots_of(store), at_once=50)
        assert list(back.slots()) == list(source.slots())

    def test_a_signed_group_is_copied_at_once(self, store: Store) -> None:
        source = MemoryStore()
        record_signed(source, ["note/1"] * 5)
        places = slots_of(source)
        with store.open_write() as writer:
            writer.copy_in(places[:2])
        with pytest.raises(Conflict), store.open_write() as writer:
            writer.copy_in(places[2:])

    def test_events_without_a_signature_stay_so(self, store: Store) -> None:
        append(store, seal_any(stream="note/1"))
        record_signed(store, ["note/1"])
        append(store, seal_any(stream="note/1"))

        assert [bool(recorded.event.signature) for recorded in store.read()] == [False, True, False]
        assert [sign_of(place) for place in store.slots()] == [((0, 0), False), ((1, 1), True), ((0, 0), False)]


def record_signed(store: Store, streams: Sequence[str]) -> list[Recorded]:
    """Append own events in one write, and sign each of its groups."""
    with store.open_write() as writer:
        recorded = [
            made
            for stream in streams
            for made in writer.append([stamped(writer, store.identity.origin, stream=stream)], fresh=True)
        ]
        for group in writer.groups():
            writer.sign(group, signature_of(root(group.hashes)))
    return recorded


def a_signed_log() -> MemoryStore:
    """Return a log with signed groups: whole, with holes, and purged."""
    moments = iter(range(1_700_000_000_000_000, 2**60, 1_000_003))
    store = MemoryStore(now_us=lambda: next(moments))
    record_signed(store, [f"note/{n % 3}" for n in range(200)])
    append(store, seal_any(stream="note/4"))
    record_signed(store, ["note/7", "note/8", "note/7"])
    record_signed(store, ["note/9", "note/9"])
    for stream in ("note/2", "note/7", "note/9"):
        purge(store, stream)
    record_signed(store, ["note/9"])
    return store


def purge(store: Store, stream: str) -> None:
    with store.open_write() as writer:
        writer.purge(stream, actor="user:ada", reason="asked to")


def signature_of(root: bytes) -> bytes:
    return hashlib.sha512(b"signed" + root).digest()


def is_signed(recorded: Recorded) -> bool:
    """Return whether the signature is that of the root to which the path leads, from its place in the group."""
    event: Event = recorded.event
    signature, first, count = split_proof(event.signature)
    found = root_of_path(header_hash(header_bytes(event)), event.origin_seq - first, count, event.path)
    return found is not None and signature == signature_of(found)


def is_sound(store: Store) -> bool:
    """Return whether nothing but the signatures is wrong: these are made up, and no origin here is a key."""
    return {problem.code for problem in verify(store).problems} <= {"signature_unexpected", "signature_invalid"}


def sign_of(place: Packed | Purged) -> tuple[tuple[int, int], bool]:
    return place.signed_with, bool(place.signature)
