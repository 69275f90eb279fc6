"""The end of a log that an index file covers: whoever writes behind it looks at it, whatever the index says."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.faults import RecordingFiles

from everlog.core.event import Position
from everlog.errors import Damaged
from everlog.files import Handle
from everlog.stores.segments import writer
from everlog.stores.segments.closed_end import take_back_closed
from everlog.stores.segments.format.header import HEAD_READ_BYTES
from everlog.stores.segments.format.layout import Layout
from everlog.stores.segments.index import live_part
from everlog.stores.segments.store import SegmentsStore
from everlog.testing.builders import Chain, stamped

ROOT = Path("/logs/log")
LAYOUT = Layout(ROOT)

SHAPES = {  # for each time the log is open, how many events each of its writes has
    "one event": [[1]],
    "some writes": [[1] * 40],
    "a block that is full": [[1] * 32],
    "a large frame before the mark": [[3, 200]],
    "an index file for each of two closings": [[1] * 5, [1] * 5],
    "several segments": [[9] * 9],
}


class Log:
    """A closed log on a disk in memory, to be damaged in one way after the other."""

    def __init__(self, sessions: list[list[int]], *, segment_bytes_max: int = 10**8, close: bool = True) -> None:
        self.files = RecordingFiles({}, dirs=[Path("/logs")])
        chain, self.events = Chain(), 0
        for sizes in sessions:
            store = SegmentsStore(ROOT, files=self.files, now_us=lambda: 1, segment_bytes_max=segment_bytes_max)
            for size in sizes:
                with store.open_write() as writer:
                    writer.append([chain.next(stream=f"note/{number}") for number in range(size)])
                self.events += size
            self.mark_at = store.state.live.end
            if close:
                store.close()
        self.live = LAYOUT.segment(max(LAYOUT.numbers(self.files)))
        self.content = self.files.visible()[self.live]

    @property
    def index_files(self) -> list[Path]:
        return [path for path in self.files.visible() if path.suffix == ".idx"]

    def with_flip(self, place: int, bit: int, *, indexed: bool) -> RecordingFiles:
        """The same with one bit changed."""
        content = bytearray(self.content)
        content[place] ^= 1 << bit
        return self.holding(bytes(content), indexed=indexed)

    def holding(self, content: bytes, *, indexed: bool) -> RecordingFiles:
        visible = self.files.visible()
        kept = {path: data for path, data in visible.items() if indexed or path.suffix != ".idx"}
        return RecordingFiles({**kept, self.live: content}, dirs=self.files.dirs)


def open_on(files: RecordingFiles) -> SegmentsStore:
    return SegmentsStore(ROOT, files=files, create=False, now_us=lambda: 1)


def add(store: SegmentsStore) -> None:
    with store.open_write() as writer:
        writer.append([stamped(writer, store.identity.origin)])


def codes(store: SegmentsStore) -> list[str]:
    return [problem.code for problem in store.check()]


def positions(store: SegmentsStore, *, upto: int | None = None) -> list[int]:
    return [recorded.position for recorded in store.read(upto=None if upto is None else Position(upto))]


def assert_goes_on(files: RecordingFiles, log: Log) -> None:
    """What verify says comes true: no event was lost, and the next write puts the mark back."""
    store = open_on(files)
    assert codes(store) == ["mark_lost"]
    assert positions(store) == list(range(1, log.events + 1))
    add(store)
    assert files.visible()[log.live].startswith(log.content)
    assert codes(store) == []
    store.close()
    again = open_on(files)
    assert codes(again) == []
    assert positions(again) == list(range(1, log.events + 2))
    add(again)
    again.close()
    without = {path: data for path, data in files.visible().items() if path.suffix != ".idx"}
    last = open_on(RecordingFiles(without, dirs=files.dirs))
    assert codes(last) == []
    assert positions(last) == list(range(1, log.events + 3))
    add(last)
    last.close()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PART_EVENTS_MIN", 1)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_mark_with_any_byte_changed_is_put_back_with_and_without_the_index(shape: str, indexed: bool) -> None:
    log = Log(SHAPES[shape], segment_bytes_max=8000 if shape == "several segments" else 10**8)
    assert log.index_files
    assert len(log.content) - log.mark_at < 80
    for place in range(log.mark_at, len(log.content)):
        assert_goes_on(log.with_flip(place, place % 8, indexed=indexed), log)


@pytest.fixture(scope="module")
def full_size() -> Log:
    log = Log([[1] * 100 + [100] * 25])
    assert log.events >= writer.PART_EVENTS_MIN
    return log


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("behind", [0, 3, 6, 13, 30, 37, 66])
def test_a_mark_under_an_index_of_the_usual_size_is_put_back(full_size: Log, behind: int, indexed: bool) -> None:
    assert full_size.index_files
    place = min(full_size.mark_at + behind, len(full_size.content) - 1)
    assert_goes_on(full_size.with_flip(place, 4, indexed=indexed), full_size)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("indexed", [True, False])
def test_a_mark_that_became_something_else_altogether_is_put_back(indexed: bool) -> None:
    log = Log([[1] * 5])
    size = len(log.content) - log.mark_at
    for mark in (b"?" * size, bytes(size), b"", bytes(size - 1) + b"?", b"?" * 7):
        assert_goes_on(log.holding(log.content[: log.mark_at] + mark, indexed=indexed), log)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("known", ["gone", "not the last word"])
def test_a_changed_mark_that_nothing_vouches_for_is_refused_by_verify_as_by_a_writer(known: str) -> None:
    """Only the known end says that nothing stood behind it; the index does not."""
    log = Log([[1] * 5])
    if known == "not the last word":
        take_back_closed(log.files, LAYOUT, log_id=open_on(log.files).identity.log_id)
    else:
        log.files.unlink(LAYOUT.end)
    for place in range(log.mark_at, len(log.content)):
        files = log.with_flip(place, 4, indexed=True)
        store = open_on(files)
        (code,) = codes(store)
        assert code in ("damaged_bytes", "segment_cut")
        before = files.visible()
        with pytest.raises(Damaged, match="takes no writes"):
            add(store)
        store.close()
        assert files.visible() == before
        again = open_on(files)
        assert positions(again, upto=5) == [1, 2, 3, 4, 5]
        with pytest.raises(Damaged, match="position 6"):  # nobody knows that there was none
            positions(again)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("indexed", [True, False])
def test_events_that_are_damaged_near_the_end_stop_the_writing_with_and_without_the_index(indexed: bool) -> None:
    log = Log([[1] * 5])
    store = open_on(log.files)
    (part,) = (part for part in store.state.parts if part.events)
    for place in range(part.offsets[-1], log.mark_at, 23):
        files = log.with_flip(place, place % 8, indexed=indexed)
        store = open_on(files)
        assert "damaged_bytes" in codes(store)
        with pytest.raises(Damaged, match="takes no writes"):
            add(store)
        store.close()


@pytest.mark.usefixtures("small")
def test_a_frame_that_is_the_end_without_a_mark_is_looked_at_too() -> None:
    """After a purge the index goes to the frame that says so; then the writer was killed."""
    log = Log([[1] * 5], close=False)
    killed = SegmentsStore(ROOT, files=log.files.after_kill(), now_us=lambda: 1)
    with killed.open_write() as writer:
        writer.purge("note/0", actor="user:ada", reason="asked to")
    files = killed.files
    assert isinstance(files, RecordingFiles)
    live, path = killed.state.live, LAYOUT.segment(killed.state.live.number)
    assert LAYOUT.part(live.number, live.start) in files.visible()
    left = files.after_kill()
    content = left.visible()[path]
    assert codes(open_on(left)) == []
    for place in range(live.start, live.end):
        changed = content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]
        damaged = RecordingFiles({**left.visible(), path: changed}, dirs=left.dirs)
        store = open_on(damaged)
        (code,) = codes(store)
        assert code in ("damaged_bytes", "segment_cut")
        with pytest.raises(Damaged, match="takes no writes"):
            add(store)
        store.close()


@pytest.mark.usefixtures("small")
def test_damage_over_the_ends_of_several_index_files_is_found_from_the_first_of_them_on() -> None:
    log = Log([[1] * 5, [1] * 5, [1] * 5])
    first, second, third = sorted(int(path.stem.split("-")[1]) for path in log.index_files)
    assert first < second < third
    mark_at = second - (len(log.content) - log.mark_at)  # every session ends in a mark, all of one size
    content = log.content[: mark_at + 1] + b"?" * (len(log.content) - mark_at - 1)
    store = open_on(log.holding(content, indexed=True))
    assert codes(store) == ["segment_cut"]
    assert positions(store, upto=5) == [1, 2, 3, 4, 5]
    with pytest.raises(Damaged, match="positions 6 to 15"):
        positions(store)
    with pytest.raises(Damaged, match="takes no writes"):
        add(store)
    store.close()


# ---- what it costs


class Counting(RecordingFiles):
    """A disk that knows how much of a segment was read."""

    bytes_read = 0

    def read(self, handle: Handle, size: int, *, at: int) -> bytes:
        found = super().read(handle, size, at=at)
        if handle.path.suffix == ".seg":
            self.bytes_read += len(found)
        return found


def read_to_open(log: Log, content: bytes) -> int:
    disk = Counting(log.holding(content, indexed=True).visible(), dirs=log.files.dirs)
    open_on(disk).close()
    return disk.bytes_read


@pytest.mark.parametrize("behind", [b"", b"\0\0\1\0 half a write"])
def test_to_look_at_the_end_takes_a_block_and_not_the_log(full_size: Log, behind: bytes) -> None:
    assert full_size.mark_at > 4 * live_part.BLOCK_BYTES  # else nothing was compared
    assert 0 < read_to_open(full_size, full_size.content + behind) < 2 * live_part.BLOCK_BYTES


def test_frames_that_others_stand_behind_are_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_part, "PART_EVENTS_MAX", 1000)
    log = Log([[1500, 1]], close=False)
    assert len(log.index_files) == 1
    assert log.mark_at > 2 * HEAD_READ_BYTES
    assert 0 < read_to_open(log, log.content) < HEAD_READ_BYTES + 1000
