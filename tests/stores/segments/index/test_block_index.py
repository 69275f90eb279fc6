"""What the index knows of the inside of a large frame: the same records, less reading, and no damage hidden."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlog.core.event import Position, Recorded
from everlog.core.query import Query
from everlog.errors import Damaged
from everlog.files import DiskFiles, Handle
from everlog.stores.segments import reader
from everlog.stores.segments.format.frame import HASH_BYTES, LENGTH, decode_frame, encode_frame, mark_of, record_bytes
from everlog.stores.segments.index import block_index
from everlog.stores.segments.index.block_index import LARGE
from everlog.stores.segments.index.live_part import LivePart
from everlog.stores.segments.store import SegmentsStore
from everlog.testing.builders import event, stamped

STREAMS = 7
HOUR_US = 3_600_000_000


class CountingFiles(DiskFiles):
    read_bytes = 0

    def read(self, handle: Handle, size: int, *, at: int) -> bytes:
        found = super().read(handle, size, at=at)
        self.read_bytes += len(found)
        return found


def add(store: SegmentsStore, count: int, *, streams: int = STREAMS) -> None:
    with store.open_write() as writer:
        origin = store.identity.origin
        for number in range(count):
            text = f"{number:05} " + "x" * (number % 50)
            writer.append([stamped(writer, origin, stream=f"note/{number % streams}", payload={"text": text})])


def of_stream(store: SegmentsStore, stream: str, **options: bool) -> list[Recorded]:
    return list(store.read(Query(stream=stream), **options))  # type: ignore[arg-type]


def by_looking(store: SegmentsStore, stream: str) -> list[Recorded]:
    return [recorded for recorded in store.read() if recorded.event.stream == stream]


@pytest.mark.parametrize("sizes", [(64,), (63, 64, 1, 65), (200, 200), (1, 500, 2, 17, 16 * 9)])
def test_a_stream_is_read_as_it_stands_in_the_frames(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    store = SegmentsStore(tmp_path / "log")
    for size in sizes:
        add(store, size)
    for _ in range(2):
        for stream in ("note/0", "note/3", f"note/{STREAMS - 1}", "note/none"):
            expected = by_looking(store, stream)
            assert of_stream(store, stream) == expected
            assert of_stream(store, stream, newest_first=True) == expected[::-1]
            some = list(store.read(Query(stream=stream), after=Position(20), upto=Position(90), limit=5))
            assert some == [one for one in expected if 20 < one.position <= 90][:5]
        store.close()
        store = SegmentsStore(tmp_path / "log")  # once more through the index file
    store.close()


@pytest.mark.parametrize("count", [1, 15, 16, 17, 65_535, 65_536, 70_000])
def test_where_the_records_of_a_frame_begin(count: int) -> None:
    """MessagePack says the length of a list in one, three or five bytes."""
    record = Recorded(Position(1), 1, 1, event())
    data = encode_frame(mark_of("log", 1), 1234, 5, 2**40, [record] * count)
    body = memoryview(data)[LENGTH.size : -HASH_BYTES]
    found = decode_frame(memoryview(data), 0, mark=mark_of("log", 1), offset=1234)
    assert found is not None
    start, raws = record_bytes(found[0], body)
    assert len(raws) == count
    assert body[start : start + len(raws[0])] == bytes(raws[0])


def test_only_some_groups_of_a_large_frame_are_read(tmp_path: Path) -> None:
    files = CountingFiles()
    store = SegmentsStore(tmp_path / "log", files=files)
    add(store, 2000, streams=1000)
    files.read_bytes = 0
    assert len(of_stream(store, "note/700")) == 2
    assert 0 < files.read_bytes < (tmp_path / "log/segments/00000001.seg").stat().st_size / 20
    store.close()


def damaged_at(path: Path, text: bytes) -> None:
    data = bytearray(path.read_bytes())
    place = data.index(text)
    data[place] ^= 1
    path.write_bytes(data)


def test_damage_elsewhere_in_a_frame_hides_nothing_of_a_stream(tmp_path: Path) -> None:
    with_index(tmp_path)
    damaged_at(tmp_path / "log/segments/00000001.seg", b"01999 ")
    store = SegmentsStore(tmp_path / "log")
    assert len(of_stream(store, "note/5")) == 3
    with pytest.raises(Damaged):
        of_stream(store, "note/999")
    with pytest.raises(Damaged):
        list(store.read())
    store.close()


def test_damage_of_an_event_of_the_stream_is_told(tmp_path: Path) -> None:
    with_index(tmp_path)
    damaged_at(tmp_path / "log/segments/00000001.seg", b"00700 ")
    store = SegmentsStore(tmp_path / "log")
    with pytest.raises(Damaged, match="positions 1 to 2400 "):
        of_stream(store, "note/700")
    assert len(of_stream(store, "note/5")) == 3
    store.close()


def with_index(tmp_path: Path) -> None:
    """One large frame, and its index file."""
    store = SegmentsStore(tmp_path / "log")
    add(store, 2400, streams=1000)
    store.close()
    assert list((tmp_path / "log" / "index").glob("*.idx"))


def test_a_wrong_hash_in_the_index_leads_to_the_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_index, "SUM_BYTES", 15)  # as if they had been made by another rule
    store = SegmentsStore(tmp_path / "log")
    add(store, 300)
    monkeypatch.setattr(block_index, "SUM_BYTES", 16)
    assert of_stream(store, "note/1") == by_looking(store, "note/1")
    store.close()


def test_a_packed_segment_is_read_the_same_way(tmp_path: Path) -> None:
    now = [17 * 10**14]
    store = SegmentsStore(tmp_path / "log", now_us=lambda: now[0], segment_hours_max=1)
    add(store, 2400)
    now[0] += 2 * HOUR_US
    add(store, 1)
    now[0] += 30 * 24 * HOUR_US
    assert [number for number, _, _ in store.archive(days=7)] == [1]
    for stream in ("note/0", "note/6"):
        assert of_stream(store, stream) == by_looking(store, stream)
    store.close()


def test_a_purged_stream_is_not_found_inside(tmp_path: Path) -> None:
    store = SegmentsStore(tmp_path / "log")
    add(store, 300)
    before = by_looking(store, "note/2")
    with store.open_write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")
    assert of_stream(store, "note/1") == []
    assert of_stream(store, "note/2") == before
    store.close()


def test_a_large_frame_is_a_block_of_its_own(tmp_path: Path) -> None:
    store = SegmentsStore(tmp_path / "log")
    for size in (1, LARGE, 1, 1):
        add(store, size)
    (part,) = store._look().live.parts
    assert isinstance(part, LivePart)
    assert part.befores == [0, 1, 1 + LARGE]
    assert list(part.block_index) == [1]
    stretches = list(reader.stretches(store._look(), Query(stream="note/0"), Position(0), Position(3 + LARGE)))
    assert [stretch.block_index is not None for stretch in stretches] == [False, True, False]
    store.close()
