"""The promises about an erasure: payload and salt are gone, and everything that was computed from them holds. For a
suite beside `StoreContract`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from everlog.core.codec import Packed, header_bytes, header_hash
from everlog.core.event import Purged, Recorded
from everlog.core.ids import EventId
from everlog.core.query import Query
from everlog.errors import NotFound
from everlog.files import DiskFiles
from everlog.log.verify.verify import verify
from everlog.stores.contract import Scanning, Store
from everlog.stores.memory import MemoryStore
from everlog.testing.builders import Boom, stamped
from everlog.testing.copy_contract import put, slots_of
from everlog.testing.group_contract import is_signed, is_sound, purge, record_signed

BY = EventId("01M7GJY4JREWXR7F6ZT4NFS1FE")
SECRET = "kept-until-it-was-erased"
OPEN = "never-erased"
SALT = b"\xfa\xb1" * 8  # in base64 too, it is like no other bytes of a log


class EraseContract:
    def test_an_erased_event_keeps_all_but_payload_and_salt(self, store: Store) -> None:
        before = fill_with_a_secret(store)
        erase(store, before[3])

        for found in (list(store.read()), [store.get(each.event.id) for each in before]):
            assert [each for each in found if each != before[3]] == [*before[:3], found[3], *before[4:]]
        left = store.get(before[3].event.id)
        assert left is not None
        assert (left.position, left.sequence, left.received_us) == (4, before[3].sequence, before[3].received_us)
        assert (left.event.payload, left.event.salt, left.event.erased_by) == ({}, b"", BY)
        assert left.event.commitment == before[3].event.commitment
        assert header_bytes(left.event) == header_bytes(before[3].event)
        assert store.head() == len(before)
        assert (list(store.check()), verify(store).ok) == ([], True)

    def test_every_way_of_reading_shows_the_same(self, store: Store) -> None:
        before = fill_with_a_secret(store)
        erase(store, before[3])
        (left,) = store.read(after=before[2].position, limit=1)

        assert list(store.read(Query(stream="note/1"), upto=before[3].position))[-1] == left
        assert list(store.read(newest_first=True))[-4] == left
        place = next(place for place in store.slots() if place.position == 4)
        assert isinstance(place, Packed)
        assert (place.payload, place.salt, place.erased_by) == (b"", b"", BY)
        if isinstance(store, Scanning):
            (block,) = store.blocks(after=before[2].position, upto=before[3].position)
            assert (bytes(_bytes(block.payloads[0])), block.salts[0]) == (b"", b"")

    def test_the_bytes_are_gone_from_every_file(self, open_again: Callable[[], Store], tmp_path: Path) -> None:
        """While the log is open, with a second handle beside it, and when it is closed and opened again."""
        store, beside = open_again(), open_again()
        before = fill_with_a_secret(store)
        assert list(beside.read()) == before
        erase(store, before[3])
        assert SECRET.encode() not in everything_in(tmp_path)
        assert SALT not in everything_in(tmp_path)
        store.close()
        beside.close()
        assert SECRET.encode() not in everything_in(tmp_path)

        again = open_again()
        append_own(again)
        assert SECRET.encode() not in everything_in(tmp_path)
        again.close()

    def test_an_erasure_survives_reopening(self, open_again: Callable[[], Store]) -> None:
        first = open_again()
        before = fill_with_a_secret(first)
        erase(first, before[3])
        expected = list(first.read()), list(first.slots())
        first.close()

        store = open_again()
        assert (list(store.read()), list(store.slots())) == expected
        with store.open_write() as writer:
            assert writer.erase([before[3].event.id], by=BY) == []
        append_own(store)
        assert verify(store).ok
        store.close()

    def test_a_second_handle_sees_an_erasure(self, open_again: Callable[[], Store]) -> None:
        """G13: it has read the payload before, and its next read must not find it."""
        one, other = open_again(), open_again()
        before = fill_with_a_secret(one)
        assert other.get(before[3].event.id) == before[3]
        erase(one, before[3])

        assert other.get(before[3].event.id) == one.get(before[3].event.id)
        assert list(other.read()) == list(one.read())
        with other.open_write() as writer:
            assert writer.erase([before[3].event.id], by=BY) == []
        one.close()
        other.close()

    def test_a_failed_erasure_leaves_the_payload(self, store: Store) -> None:
        before = fill_with_a_secret(store)
        with pytest.raises(Boom), store.open_write() as writer:
            assert writer.erase([before[3].event.id], by=BY) == [4]
            raise Boom
        with store.open_write() as writer, pytest.raises(Boom), writer.attempt():
            writer.erase([before[3].event.id], by=BY)
            raise Boom

        assert list(store.read()) == before

    def test_an_erasure_commits_with_the_event_that_allows_it(self, store: Store) -> None:
        before = fill_with_a_secret(store)
        with store.open_write() as writer:
            (allowed,) = writer.append([stamped(writer, store.identity.origin, stream="note/9")], fresh=True)
            writer.erase([each.event.id for each in before[:2]], by=allowed.event.id)
            shown = writer.get(before[0].event.id)
            assert shown is not None
            assert (shown.event.payload, shown.event.erased_by) == ({}, allowed.event.id)

        found = [recorded.event.erased_by for recorded in store.read()]
        assert found == [allowed.event.id, allowed.event.id, *[""] * (len(before) - 1)]
        assert verify(store).ok

    def test_what_is_not_here_cannot_be_erased(self, store: Store) -> None:
        before = fill_with_a_secret(store)
        purge(store, "note/2")
        for unknown in (BY, before[0].event.id):
            with pytest.raises(NotFound), store.open_write() as writer:
                writer.erase([before[3].event.id, unknown], by=BY)

        assert next(store.read(Query(stream="note/1"))).event.salt

    def test_an_erased_event_can_be_purged(self, store: Store) -> None:
        before = fill_with_a_secret(store)
        erase(store, before[3])
        purge(store, "note/1")

        place = next(place for place in store.slots() if place.position == 4)
        assert isinstance(place, Purged)
        assert place.hash == header_hash(header_bytes(before[3].event))
        assert (list(store.check()), verify(store).ok) == ([], True)

    def test_neighbours_of_a_purged_event_can_be_erased(self, store: Store) -> None:
        before = fill_with_a_secret(store)
        purge(store, "note/1")
        left = list(store.read())
        erase(store, *left)

        assert [recorded.event.erased_by for recorded in store.read()] == [BY] * len(left)
        hashes = {each.event.id: header_bytes(each.event) for each in before}
        assert all(header_bytes(each.event) == hashes[each.event.id] for each in store.read())
        assert (list(store.check()), verify(store).ok) == ([], True)

    def test_a_signature_holds_after_an_erasure(self, store: Store) -> None:
        receipts = record_signed(store, ["note/1", "note/2", "note/3"])
        erase(store, receipts[1])

        assert all(is_signed(recorded) for recorded in store.read())
        assert [recorded.event.erased_by for recorded in store.read()] == ["", BY, ""]
        assert is_sound(store)

    def test_a_copy_has_the_erasures(self, store: Store) -> None:
        source = MemoryStore()
        before = fill_with_a_secret(source)
        erase(source, before[3], before[5])
        put(store, slots_of(source))

        assert list(store.slots()) == list(source.slots())
        assert list(store.read()) == list(source.read())


def fill_with_a_secret(store: Store) -> list[Recorded]:
    """Record own events in three writes; position 4 has a secret, and is the second of its write and stream."""
    origin = store.identity.origin
    recorded: list[Recorded] = []
    for size in (2, 3, 2):
        with store.open_write() as writer:
            for _ in range(size):
                number = writer.position + 1
                payload = {"text": SECRET if number == 4 else f"{OPEN} {number}"}
                salt = SALT if number == 4 else bytes(range(number, number + 16))
                made = stamped(writer, origin, stream=f"note/{1 + number % 2}", payload=payload, salt=salt)
                recorded += writer.append([made], fresh=True)
    return recorded


def append_own(store: Store) -> None:
    with store.open_write() as writer:
        writer.append([stamped(writer, store.identity.origin)], fresh=True)


def erase(store: Store, *records: Recorded) -> None:
    with store.open_write() as writer:
        found = writer.erase([recorded.event.id for recorded in records], by=BY)
        assert found == [recorded.position for recorded in records]


def everything_in(folder: Path) -> bytes:
    """Return the bytes of all files. A log whose files lack what was never erased is stored in some other way."""
    files = DiskFiles()
    found = b"".join(files.read_all(path) for path in sorted(folder.rglob("*")) if not path.is_dir())
    assert not found or OPEN.encode() in found, "the files do not hold payloads as they are"
    return found


def _bytes(text: bytes | str) -> bytes:
    return text.encode() if isinstance(text, str) else text
