"""Calls that fail one after the other, or at the worst moment: the writer stops or looks again, and never guesses."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest

from everlog.errors import Damaged, EverlogError, WriterStopped
from everlog.files import DiskFiles, Handle
from everlog.os_errors import ExplainedErrors
from everlog.stores.segments.index import live_part
from everlog.stores.segments.store import SegmentsStore
from everlog.testing.builders import stamped

HOUR_US = 3_600_000_000


class FailingFiles(DiskFiles):
    """A disk on which flushes, writes, or the opening of some files can be made to fail."""

    def __init__(self) -> None:
        self.flush_error = self.write_error = 0
        self.flush_failed = False
        self.unopened: Callable[[Path, bool], bool] = lambda path, write: False

    def open(self, path: Path, *, write: bool = False, **how: object) -> Handle:
        if self.unopened(path, write):
            raise OSError(errno.EIO, "input/output error")
        return super().open(path, write=write, **how)  # type: ignore[arg-type]

    def flush(self, handle: Handle) -> None:
        if self.flush_error:
            self.flush_failed = True
            with ExplainedErrors("flush", handle.path):
                raise OSError(self.flush_error, "input/output error")
        super().flush(handle)

    def write(self, handle: Handle, data: bytes, *, at: int) -> int:
        if self.write_error and self.flush_failed:
            with ExplainedErrors("write", handle.path):
                raise OSError(self.write_error, "input/output error")
        return super().write(handle, data, at=at)


def add(store: SegmentsStore, text: str = "") -> int:
    with store.open_write() as writer:
        (made,) = writer.append([stamped(writer, store.identity.origin, stream="note/a", payload={"text": text})])
    return made.position


def texts(store: SegmentsStore) -> list[str]:
    return [recorded.event.payload["text"] for recorded in store.read()]


@pytest.mark.parametrize("second", [errno.EIO, errno.ENOSPC])
def test_a_failed_flush_stops_the_writer_also_when_the_wiping_after_it_fails(tmp_path: Path, second: int) -> None:
    """G12."""
    files = FailingFiles()
    store = SegmentsStore(tmp_path / "log", files=files)
    add(store, "one")
    files.flush_error, files.write_error = errno.EIO, second
    with pytest.raises(WriterStopped):
        add(store, "two")
    files.flush_error = files.write_error = 0
    with pytest.raises(WriterStopped):
        add(store, "three")
    store.close()


def test_an_index_file_that_cannot_be_written_fails_no_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """G3: the frame is on the disk and may have been read; the next one does not go over it."""
    monkeypatch.setattr(live_part, "PART_EVENTS_MAX", 4)
    files = FailingFiles()
    store, reader = SegmentsStore(tmp_path / "log", files=files), SegmentsStore(tmp_path / "log")
    for number in range(4):
        add(store, str(number))
    files.unopened = lambda path, write: path.parent.name == "index"
    assert add(store, "long " * 200) == 5
    assert "could not be written" in caplog.text
    assert texts(reader)[4:] == ["long " * 200]
    files.unopened = lambda path, write: False
    assert add(store, "short") == 6
    assert texts(reader) == texts(store) == ["0", "1", "2", "3", "long " * 200, "short"]
    for number in range(6, 10):
        add(store, str(number))
    store.close()
    assert len(list((tmp_path / "log" / "index").glob("*.idx"))) == 2  # also the one that failed
    again = SegmentsStore(tmp_path / "log")
    assert list(again.check()) == []
    assert len(texts(again)) == 10


def test_a_rotation_that_fails_half_way_leaves_no_closed_handle_in_use(tmp_path: Path) -> None:
    files, now = FailingFiles(), [17 * 10**14]
    store = SegmentsStore(tmp_path / "log", files=files, now_us=lambda: now[0], segment_hours_max=1)
    add(store, "one")
    now[0] += 2 * HOUR_US
    files.unopened = lambda path, write: write and path.name == "00000002.seg"
    with pytest.raises(OSError, match="input/output"):
        add(store, "two")
    files.unopened = lambda path, write: False
    others = [os.open(tmp_path / f"other-{number}", os.O_RDWR | os.O_CREAT) for number in range(5)]
    assert add(store, "three") == 2
    store.close()
    for number, descriptor in enumerate(others):
        os.close(descriptor)
        assert (tmp_path / f"other-{number}").read_bytes() == b""
    again = SegmentsStore(tmp_path / "log")
    assert texts(again) == ["one", "three"]
    assert list(again.check()) == []


def test_a_purge_whose_sweep_fails_is_finished_by_the_next_write(tmp_path: Path) -> None:
    """F63: also in the same process, and no frame is put behind the end of a segment that is complete."""
    files = FailingFiles()
    store = SegmentsStore(tmp_path / "log", files=files)
    add(store, "sentinel")
    files.unopened = lambda path, write: write and path.name == "00000002.seg"
    with pytest.raises((OSError, EverlogError)), store.open_write() as writer:
        writer.purge("note/a", actor="user:ada", reason="asked to")
    files.unopened = lambda path, write: False
    add(store, "after")
    assert texts(store) == ["after"]
    store.close()
    assert not [path for path in (tmp_path / "log").rglob("*.seg") if b"sentinel" in path.read_bytes()]
    assert list(SegmentsStore(tmp_path / "log").check()) == []


@pytest.mark.parametrize("and_put_back", [False, True])
def test_a_writer_whose_segment_was_removed_or_replaced_takes_no_more_writes(
    tmp_path: Path, and_put_back: bool
) -> None:
    """What it writes would go with the file that is gone, and nobody would ever find it."""
    store = SegmentsStore(tmp_path / "log")
    add(store)
    (segment,) = (tmp_path / "log" / "segments").glob("*.seg")
    content = segment.read_bytes()
    segment.unlink()
    if and_put_back:
        segment.write_bytes(content)
    with pytest.raises(Damaged, match="removed or replaced"):
        add(store)
    assert segment.exists() == and_put_back
    if and_put_back:
        assert segment.read_bytes() == content


def test_a_write_does_not_look_at_the_times_of_the_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose times were looked at gets new ones with the next write, and they cost its flush a second write."""
    files = DiskFiles()
    store = SegmentsStore(tmp_path / "log", files=files)
    add(store)
    looked_at: list[str] = []

    def noted(look: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
        def look_and_note(at: object, **how: object) -> os.stat_result:
            looked_at.append(str(at))
            return look(at, **how)

        return look_and_note

    for name in ("stat", "fstat", "lstat"):
        monkeypatch.setattr(os, name, noted(getattr(os, name)))
    add(store)
    monkeypatch.undo()
    assert [Path(path).name for path in looked_at] == ["lock", "segments", "lock"]
    store.close()


def test_a_writer_whose_folder_came_to_stand_for_a_copy_takes_no_more_writes(tmp_path: Path) -> None:
    """What it wrote would be found by nobody, also after somebody read there and knows the copy."""
    store = SegmentsStore(tmp_path / "log")
    add(store, "a")
    folder = tmp_path / "log" / "segments"
    copytree(folder, tmp_path / "copy")
    folder.rename(tmp_path / "before")
    folder.symlink_to(tmp_path / "copy")
    for _ in range(2):
        with pytest.raises(Damaged, match="removed or replaced"):
            add(store, "lost")
        assert texts(store) == ["a"]
    store.close()
    again = SegmentsStore(tmp_path / "log")
    assert (texts(again), list(again.check())) == (["a"], [])
    again.close()


def test_a_segment_that_is_replaced_while_a_writer_opens_it_is_not_written(tmp_path: Path) -> None:
    made = SegmentsStore(tmp_path / "log")
    for text in "ab":
        add(made, text)
    made.close()
    (segment,) = (tmp_path / "log" / "segments").glob("*.seg")
    backup = segment.read_bytes() + b"of another writer"  # what a recovery would cut off

    class Late(DiskFiles):
        def open(self, path: Path, *, write: bool = False, **how: object) -> Handle:
            if write and path == segment:
                segment.rename(tmp_path / "before")  # not removed: its number would be given out again
                segment.write_bytes(backup)
            return super().open(path, write=write, **how)  # type: ignore[arg-type]

    store = SegmentsStore(tmp_path / "log", files=Late())
    with pytest.raises(Damaged, match="removed or replaced"):
        add(store, "c")
    assert segment.read_bytes() == backup
    store.close()
