"""Packing that was cut off: both files are there, and a purge must reach both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from everlog.errors import Damaged
from everlog.files import DiskFiles, Handle
from everlog.stores.segments.format.archive_source import zstd
from everlog.stores.segments.store import SegmentsStore
from everlog.stores.segments.writer import Writer
from everlog.testing.builders import stamped

HOUR_US = 3_600_000_000


def add(store: SegmentsStore, stream: str, text: str = "") -> None:
    with store.open_write() as writer:
        writer.append([stamped(writer, store.identity.origin, stream=stream, payload={"text": text})])


@pytest.fixture
def now() -> list[int]:
    return [17 * 10**14]


def open_at(path: Path, now: list[int]) -> SegmentsStore:
    return SegmentsStore(path, now_us=lambda: now[0], segment_hours_max=1)


@pytest.fixture
def doubled(tmp_path: Path, now: list[int]) -> Path:
    """A log whose first segment is there plain and packed, as a crash before the last step of packing leaves it."""
    path = tmp_path / "log"
    store = open_at(path, now)
    add(store, "note/a", "sentinel")
    now[0] += 2 * HOUR_US
    add(store, "note/b")
    now[0] += 30 * 24 * HOUR_US
    plain = (path / "segments" / "00000001.seg").read_bytes()
    assert [number for number, _, _ in store.archive(days=7)] == [1]
    store.close()
    (path / "segments" / "00000001.seg").write_bytes(plain)
    return path


def holding(path: Path, text: bytes) -> list[str]:
    return [
        file.name
        for file in sorted((path / "segments").iterdir())
        if text in (zstd.decompress(file.read_bytes()) if file.suffix == ".zst" else file.read_bytes())
    ]


def test_a_purge_reaches_a_segment_that_is_there_plain_and_packed(doubled: Path, now: list[int]) -> None:
    assert holding(doubled, b"sentinel") == ["00000001.seg", "00000001.seg.zst"]
    store = open_at(doubled, now)
    with store.open_write() as writer:
        writer.purge("note/a", actor="user:ada", reason="asked to")
    store.close()
    assert holding(doubled, b"sentinel") == []
    assert list(open_at(doubled, now).check()) == []


def test_a_packed_segment_that_a_purge_superseded_goes_with_the_next_write(tmp_path: Path, now: list[int]) -> None:
    """The purge of a packed segment, cut off between the rename of the new one and the removal of the old one."""
    path = tmp_path / "log"
    store = open_at(path, now)
    add(store, "note/a", "sentinel")
    now[0] += 2 * HOUR_US
    add(store, "note/b")
    now[0] += 30 * 24 * HOUR_US
    store.archive(days=7)
    packed = (path / "segments" / "00000001.seg.zst").read_bytes()
    with store.open_write() as writer:
        writer.purge("note/a", actor="user:ada", reason="asked to")
    store.close()
    (path / "segments" / "00000001.seg.zst").write_bytes(packed)
    store = open_at(path, now)
    add(store, "note/b")
    store.close()
    assert holding(path, b"sentinel") == []
    assert list(open_at(path, now).check()) == []


def test_a_purge_reaches_what_a_packing_that_failed_left_in_the_same_process(
    tmp_path: Path, now: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    store = open_at(path, now)
    add(store, "note/a", "sentinel")
    now[0] += 2 * HOUR_US
    add(store, "note/b")
    now[0] += 30 * 24 * HOUR_US

    def refuse(file: Path) -> None:
        raise OSError(f"no removing of {file}")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no removing"):
        patch.setattr(store.files, "unlink", refuse)
        store.archive(days=7)
    assert holding(path, b"sentinel") == ["00000001.seg", "00000001.seg.zst"]
    with store.open_write() as writer:
        writer.purge("note/a", actor="user:ada", reason="asked to")
    store.close()
    assert holding(path, b"sentinel") == []


def test_the_packed_segment_stays_when_the_plain_one_is_damaged(doubled: Path, now: list[int]) -> None:
    plain = doubled / "segments" / "00000001.seg"
    content = bytearray(plain.read_bytes())
    content[-40] ^= 1
    plain.write_bytes(content)
    store = open_at(doubled, now)
    with pytest.raises(Damaged):
        add(store, "note/b")
    store.close()
    assert holding(doubled, b"sentinel") == ["00000001.seg", "00000001.seg.zst"]


@pytest.fixture
def three(tmp_path: Path, now: list[int]) -> SegmentsStore:
    """A log of three segments, and a month later."""
    store = open_at(tmp_path / "log", now)
    for stream in ("note/a", "note/b", "note/c"):
        add(store, stream)
        now[0] += 2 * HOUR_US
    now[0] += 30 * 24 * HOUR_US
    return store


def streams(store: SegmentsStore) -> list[str]:
    return [recorded.event.stream for recorded in store.read()]


class PackedMeanwhile(DiskFiles):
    """As a disk on which another process packs segments just before one of its files is opened the n-th time."""

    def __init__(self, name: str, times: int, writer: SegmentsStore) -> None:
        self._name = name
        self._times = times
        self._writer = writer

    def open(self, path: Path, **how: Any) -> Handle:
        if path.name == self._name:
            self._times -= 1
            if self._times == 0:
                assert self._writer.archive(days=7)
        return super().open(path, **how)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("name", ["00000001.seg", "00000002.seg"])
def test_a_segment_that_is_packed_while_others_look_is_neither_damage_nor_lost(
    three: SegmentsStore, now: list[int], name: str, times: int
) -> None:
    files = PackedMeanwhile(name, times, three)
    reader = SegmentsStore(three.path, now_us=lambda: now[0], files=files)
    assert streams(reader) == ["note/a", "note/b", "note/c"]
    assert reader.head() == 3
    reader.close()
    three.close()


@pytest.mark.parametrize("times", [1, 2])
def test_a_check_during_a_packing_finds_nothing_wrong(three: SegmentsStore, now: list[int], times: int) -> None:
    reader = SegmentsStore(three.path, now_us=lambda: now[0])
    reader.files = PackedMeanwhile("00000001.seg", times, three)
    assert list(reader.check()) == []
    assert holding(three.path, b"note/a") == ["00000001.seg.zst"]
    reader.close()
    three.close()


def test_a_segment_that_is_really_gone_is_still_told(three: SegmentsStore, now: list[int]) -> None:
    (three.path / "segments" / "00000002.seg").unlink()
    reader = SegmentsStore(three.path, now_us=lambda: now[0])
    assert [problem.code for problem in reader.check()][:1] == ["segment_missing"]
    reader.close()
    three.close()


def test_who_did_not_look_while_all_that_he_knew_was_packed_sees_what_is_new(tmp_path: Path, now: list[int]) -> None:
    store = open_at(tmp_path / "log", now)
    add(store, "note/a")
    reader = open_at(tmp_path / "log", now)
    assert streams(reader) == ["note/a"]
    for stream in ("note/b", "note/c"):
        now[0] += 2 * HOUR_US
        add(store, stream)
    now[0] += 30 * 24 * HOUR_US
    assert [number for number, _, _ in store.archive(days=7)] == [1, 2]
    assert reader.head() == 3
    assert streams(reader) == ["note/a", "note/b", "note/c"]
    reader.close()
    store.close()


def test_an_index_file_that_goes_while_it_is_checked_is_no_damage(tmp_path: Path, now: list[int]) -> None:
    store = open_at(tmp_path / "log", now)
    for number in range(3):
        add(store, f"note/{number}")
    now[0] += 2 * HOUR_US
    add(store, "note/last")
    read: list[str] = []

    class Removed(DiskFiles):
        def read_all(self, path: Path) -> bytes:
            if path.suffix == ".idx":
                read.append(path.name)
                path.unlink()
            return super().read_all(path)

    store.files = Removed()
    assert list(store.check()) == []
    assert read
    store.close()


def test_every_file_that_is_opened_is_closed(tmp_path: Path, now: list[int]) -> None:
    opened: dict[int, Path] = {}

    class Counting(DiskFiles):
        def open(self, path: Path, **how: Any) -> Handle:
            handle = super().open(path, **how)
            opened[handle.number] = path
            return handle

        def close(self, handle: Handle) -> None:
            del opened[handle.number]
            super().close(handle)

    store = SegmentsStore(tmp_path / "log", now_us=lambda: now[0], segment_hours_max=1, files=Counting())
    for number in range(3):
        add(store, f"note/{number}")
        now[0] += 2 * HOUR_US
    now[0] += 30 * 24 * HOUR_US
    assert [number for number, _, _ in store.archive(days=7)] == [1, 2]
    assert streams(store) == ["note/0", "note/1", "note/2"]
    with store.open_write() as writer:
        writer.purge("note/0", actor="user:ada", reason="asked to")
    assert list(store.check()) == []
    assert opened
    store.close()
    assert opened == {}


def test_a_reader_knows_of_a_purge_as_soon_as_it_is_recorded(tmp_path: Path, now: list[int]) -> None:
    """Before any segment was written again for it: also if the writer is killed then."""
    seen: list[tuple[int, list[str], int]] = []

    class Watched(SegmentsStore):
        def _sweep(self, writer: Writer) -> None:
            seen.append((reader.head(), streams(reader), len(reader.purges())))
            super()._sweep(writer)

    store = Watched(tmp_path / "log", now_us=lambda: now[0], segment_hours_max=1)
    add(store, "note/a")
    now[0] += 2 * HOUR_US
    add(store, "note/b")
    reader = open_at(tmp_path / "log", now)
    assert streams(reader) == ["note/a", "note/b"]
    with store.open_write() as writer:
        writer.purge("note/a", actor="user:ada", reason="asked to")
    assert seen == [(3, ["note/b"], 1)]
    assert list(reader.slots()) == list(store.slots())
    reader.close()
    store.close()
