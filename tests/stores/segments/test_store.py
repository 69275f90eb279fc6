"""The segments store keeps the contract, and what is its own business: one writer, files, recovery, damage."""

from __future__ import annotations

import hashlib
import shutil
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from everlog.catalog.builtin import BUILT_IN
from everlog.core.codec import Packed, header_bytes, header_hash
from everlog.core.event import Position
from everlog.core.ids import new_id
from everlog.core.query import Query
from everlog.errors import Busy, Damaged, IdConflict
from everlog.files import DiskFiles, Handle
from everlog.log.log import Log
from everlog.stores.contract import Encoded, Store
from everlog.stores.segments.format import frame
from everlog.stores.segments.store import SegmentsStore
from everlog.testing.builders import Chain, seal_any, stamped
from everlog.testing.chain_contract import ChainContract, chain_of, of_a_peer
from everlog.testing.erase_contract import BY, EraseContract, erase, fill_with_a_secret
from everlog.testing.filling import append, positions
from everlog.testing.group_contract import GroupContract
from everlog.testing.store_contract import OpenStore, StoreContract


class OneWriter:
    """What the contracts promise of two handles, for a store with one writer: the other one reads what it
    acknowledges, and continues when it is closed."""

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

    def test_two_handles_extend_one_chain(self, open_again: OpenStore) -> None:
        """G13: one leaves a hole, and the other fills it."""
        made = of_a_peer(7)
        ends = []
        one = open_again()
        for some in (made[:2], made[3:5], made[2:3], made[6:], made[5:6]):
            other = open_again()
            append(one, *some)
            left = chain_of(one)
            one.close()
            assert chain_of(other) == left
            ends.append((left.end.origin_seq, left.holes))
            one = other
        one.close()
        assert ends == [(2, []), (2, [(3, 3)]), (5, []), (5, [(6, 6)]), (7, [])]

    def test_a_second_handle_sees_an_erasure(self, open_again: OpenStore) -> None:
        """G13: it has read the payload before, and its next read must not find it."""
        one, other = open_again(), open_again()
        before = fill_with_a_secret(one)
        assert other.get(before[3].event.id) == before[3]
        erase(one, before[3])

        assert other.get(before[3].event.id) == one.get(before[3].event.id)
        assert list(other.read()) == list(one.read())
        one.close()
        with other.open_write() as writer:
            assert writer.erase([before[3].event.id], by=BY) == []
        other.close()


class TestSegmentsStore(OneWriter, StoreContract, ChainContract, EraseContract, GroupContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        def open_it() -> Store:
            return SegmentsStore(tmp_path / "log")

        return open_it


class TestSegmentsStoreInSmallPieces(OneWriter, StoreContract, ChainContract, EraseContract):
    """The same with groups of three events and segments that are full after a few frames, so that every seam is
    met."""

    @pytest.fixture
    def open_store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenStore:
        monkeypatch.setattr("everlog.stores.segments.index.live_part.BLOCK_POSITIONS", 4)
        monkeypatch.setattr("everlog.stores.staged_group.GROUP_MAX", 3)
        monkeypatch.setattr("everlog.stores.open_write.GROUP_MAX", 3)
        monkeypatch.setattr("everlog.stores.segments.groups.HELD_PER_RECORD", 1)
        monkeypatch.setattr("everlog.stores.segments.index.live_part.PART_EVENTS_MAX", 16)
        monkeypatch.setattr("everlog.stores.segments.writer.PART_EVENTS_MIN", 1)

        def open_it() -> Store:
            return SegmentsStore(tmp_path / "log", segment_bytes_max=4096, space_bytes=512)

        return open_it


def test_an_event_whose_bytes_are_not_canonical_is_refused_with_its_write(tmp_path: Path) -> None:
    """It comes from a damaged log: what is stored must give back the bytes that its hash is over."""
    chain = Chain()
    given = chain.next(stream="note/1", payload={"b": "x", "a": 1.0})
    text = b'{"b":"x", "a":1.0}'
    event = replace(given.event, commitment=hashlib.sha256(given.event.salt + text).digest())
    header = header_bytes(event)
    odd = Encoded(event, header, text, header_hash(header))
    with closing(SegmentsStore(tmp_path / "log")) as store:
        with pytest.raises(Damaged, match=f"event {event.id} cannot be stored"):
            append(store, chain.next(stream="note/2"), odd)
        assert list(store.read()) == []
        append(store, chain.next(stream="note/2", payload={"b": "x", "a": 1.0}))
        assert [place.payload for place in store.slots() if isinstance(place, Packed)] == [b'{"a":1,"b":"x"}']
        assert list(store.check()) == []


def test_a_length_that_broke_is_not_asked_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four gigabytes, where there are a few kilobytes."""
    chain, asked = Chain(), list[int]()
    with closing(SegmentsStore(tmp_path / "log")) as store:
        for _ in range(4):
            append(store, chain.next(stream="note/1"))
        path, offset = store.layout.segment(1), store.state.parts[0].offsets[0]
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(b"\xff" * frame.LENGTH.size)
        read = DiskFiles.read

        def counted(files: DiskFiles, handle: Handle, size: int, *, at: int) -> bytes:
            asked.append(size)
            return read(files, handle, size, at=at)

        monkeypatch.setattr(DiskFiles, "read", counted)
        with pytest.raises(Damaged, match="cannot be read"):
            list(store.blocks())
    assert asked
    assert max(asked) <= path.stat().st_size


def test_a_lone_event_whose_id_or_time_lies_before_others_is_found(tmp_path: Path) -> None:
    """Ids that a caller brings, and a clock that was set back: nothing says that the newest is the greatest (G5)."""
    now = [5_000_000]
    store = SegmentsStore(tmp_path / "log", now_us=lambda: now[0])
    log = Log(store, BUILT_IN)
    given = new_id()
    log.append("note.added", stream="note/1", payload={"text": "first"})
    now[0] = 1_000_000
    log.append("note.added", stream="note/1", payload={"text": "given"}, id=given)
    found = log.get(given)
    assert found is not None
    assert log.append("note.added", stream="note/1", payload={"text": "given"}, id=given) == found
    with pytest.raises(IdConflict):
        log.append("note.added", stream="note/1", payload={"text": "other"}, id=given)
    early = datetime.fromtimestamp(2, UTC)
    assert [one.event.payload["text"] for one in log.read(Query(until=early))] == ["given"]
    assert [one.event.payload["text"] for one in log.read(Query(since=early))] == ["first"]
    log.close()


def test_a_log_that_was_put_back_under_an_open_handle_takes_a_new_origin(tmp_path: Path) -> None:
    """The handle has stepped back, as after a purge. When it becomes the writer again, it looks at the lock file."""
    path, backup = tmp_path / "log", tmp_path / "backup"

    def own_event() -> None:
        with store.open_write() as writer:
            writer.append([stamped(writer, writer.own_origin())], fresh=True)

    with closing(SegmentsStore(path)) as store:
        own_event()
        before = store.identity
    shutil.copytree(path, backup, ignore=shutil.ignore_patterns("lock*"))
    with closing(SegmentsStore(path)) as store:
        own_event()
        assert store._writer is not None
        store._writer.outdated = True
        for name in ("segments", "index"):
            shutil.rmtree(path / name)
        shutil.copytree(backup, path, dirs_exist_ok=True)
        own_event()
        assert (store.identity.origin != before.origin, store.identity.former) == (True, (before.origin,))
        assert store.head() == 2


@pytest.mark.parametrize("size", [10, 2_000, 90_000])  # frames far below what is read at once, near it and above it
def test_a_read_from_any_position_gives_what_follows_it(tmp_path: Path, size: int) -> None:
    """Of the frame that it begins in, only what follows is decoded."""
    count = 20 if size > 10_000 else 300
    chain = Chain()
    with closing(SegmentsStore(tmp_path / "log")) as store:
        append(store, *[chain.next(stream=f"note/{n % 3}", payload={"value": f"{n}" * size}) for n in range(count)])
        with store.open_write() as write:
            write.purge("note/1", actor="user:a", reason="test")
        append(store, *[chain.next(stream="note/0") for _ in range(3)])
        whole = list(store.read())
        for after in range(0, count + 5, 1 if size == 10 else 11):
            found = list(store.read(after=Position(after)))
            assert found == [record for record in whole if record.position > after]
            first = found[:1]
            assert [record.event.previous for record in first] == [
                record.event.previous for record in whole if record.position > after
            ][:1]
