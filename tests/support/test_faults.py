"""The double behaves as a disk does, and fails where it was told to."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.faults import RecordingFiles
from tests.support.steps import Acked, Create, Dropped, Rename, Sync, SyncDir, Tried, Write

from everlog.errors import Busy, EverlogError, ReadOnly, StorageFull, Unavailable, WriterStopped
from everlog.files import DiskFiles, Files, replace_file

HOME = Path("/log")


def use_everything(files: Files, home: Path) -> list[object]:
    """One of each call, and what came back."""
    seen: list[object] = []

    def refused(call: Callable[[], object]) -> None:
        with pytest.raises((OSError, EverlogError)) as caught:
            call()
        error = caught.value
        seen.append(error.errno if isinstance(error, OSError) else getattr(error, "code", error))

    files.make_dir(home / "d")
    files.make_dir(home / "d")
    refused(lambda: files.make_dir(home / "none" / "deeper"))
    refused(lambda: files.open(home / "d", write=True))
    refused(lambda: files.open(home / "missing"))
    refused(lambda: files.open(home / "none" / "missing", create=True))
    refused(lambda: files.fsync_dir(home / "none"))
    refused(lambda: files.names(home / "none"))
    refused(lambda: files.unlink(home / "missing"))
    refused(lambda: files.rename(home / "missing", home / "d" / "x"))
    handle = files.open(home / "d" / "a", exclusive=True)
    refused(lambda: files.open(home / "d" / "a", exclusive=True))
    seen += [files.append(handle, b"abc"), files.append(handle, b"def")]
    files.write_all(handle, b"!", at=9)
    seen += [files.size(handle), files.read(handle, 99, at=1), files.read(handle, 2, at=50)]
    files.truncate(handle, 4)
    files.truncate(handle, 6)
    files.flush(handle)
    files.fsync(handle)
    files.rename(home / "d" / "a", home / "b")
    files.fsync_dir(home)
    files.append(handle, b"after the rename")
    files.close(handle)
    seen += [files.read_all(home / "b"), files.exists(home / "d" / "a"), files.exists(home / "d")]
    replace_file(files, home / "b", b"new")
    seen += [files.read_all(home / "b"), files.names(home), files.names(home / "d")]
    files.unlink(home / "b")
    seen.append(files.names(home))
    lock = files.lock(home / "lock")
    other = files.lock(home / "lock")
    lock.acquire()
    refused(lambda: other.acquire(0))
    lock.release()
    other.acquire(0)
    other.close()
    lock.close()
    return seen


def test_the_double_answers_as_the_disk_does(tmp_path: Path) -> None:
    assert use_everything(RecordingFiles(dirs=[HOME]), HOME) == use_everything(DiskFiles(), tmp_path)


def test_the_trace_shows_what_was_done_with_its_marks() -> None:
    files = RecordingFiles(dirs=[HOME])
    files.tried(1)
    handle = files.open(HOME / "a", create=True)
    files.write_all(handle, b"xy", at=3)
    files.flush(handle)
    files.rename(HOME / "a", HOME / "b")
    files.fsync_dir(HOME)
    files.acked(1)

    assert files.trace == [
        Tried(1),
        Create(HOME / "a", 0),
        Write(0, 3, b"xy"),
        Sync(0, data_only=True),
        Rename(HOME / "a", HOME / "b", 0),
        SyncDir(HOME),
        Acked(1),
    ]
    assert files.visible() == {HOME / "b": b"\0\0\0xy"}


def test_a_closed_handle_is_refused() -> None:
    files = RecordingFiles({HOME / "a": b""})
    handle = files.open(HOME / "a")
    files.close(handle)
    with pytest.raises(OSError, match="Bad file descriptor"):
        files.read(handle, 1, at=0)


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.EIO, Unavailable), (errno.EINTR, InterruptedError), (errno.ENOSPC, StorageFull), (errno.EROFS, ReadOnly)],
)
def test_the_nth_call_fails_and_only_that_one(number: int, kind: type[Exception]) -> None:
    files = RecordingFiles(dirs=[HOME])
    handle = files.open(HOME / "a", create=True)
    files.append(handle, b"0")
    files.fail("write", nth=2, error=number)
    files.append(handle, b"1")
    with pytest.raises(kind):
        files.append(handle, b"2")
    files.append(handle, b"3")

    assert files.read_all(HOME / "a") == b"013"


def test_a_fault_may_last() -> None:
    files = RecordingFiles(dirs=[HOME])
    files.fail("open", times=2)
    for _ in range(2):
        with pytest.raises(Unavailable, match="Input/output"):
            files.open(HOME / "a", create=True)
    assert files.calls("open") == 2
    files.open(HOME / "a", create=True)


def test_a_short_write_is_continued() -> None:
    files = RecordingFiles(dirs=[HOME])
    files.shorten_write(times=3, to_bytes=2)
    handle = files.open(HOME / "a", create=True)
    files.write_all(handle, b"0123456789", at=0)

    assert [step.data for step in files.trace if isinstance(step, Write)] == [b"01", b"23", b"45", b"6789"]
    assert files.read_all(HOME / "a") == b"0123456789"


@pytest.mark.parametrize("drop", [False, True])
def test_a_failed_flush_stops_the_writer_and_may_drop_the_data(drop: bool) -> None:
    files = RecordingFiles(dirs=[HOME])
    handle = files.open(HOME / "a", create=True)
    files.append(handle, b"x")
    files.fail("fsync", drop=drop)
    with pytest.raises(WriterStopped):
        files.fsync(handle)

    assert (Dropped(0) in files.trace) is drop
    assert not any(isinstance(step, Sync) for step in files.trace)


def test_replacing_leaves_the_old_content_and_no_temporary_file_whatever_fails() -> None:
    failures = 0
    for operation in ("open", "write", "fsync", "rename"):
        for number in (errno.EIO, errno.ENOSPC, errno.EACCES):
            files = RecordingFiles({HOME / "a": b"old"})
            files.fail(operation, error=number)
            with pytest.raises((Unavailable, StorageFull, ReadOnly, WriterStopped)):
                replace_file(files, HOME / "a", b"new")
            failures += 1
            assert files.visible() == {HOME / "a": b"old"}
    assert failures == 12


def test_a_temporary_file_that_cannot_be_removed_is_mentioned() -> None:
    files = RecordingFiles({HOME / "a": b"old"})
    files.fail("rename")
    files.fail("unlink")
    with pytest.raises(Unavailable, match="Input/output") as caught:
        replace_file(files, HOME / "a", b"new")
    assert "could not be removed" in caught.value.__notes__[0]


def test_a_failed_last_flush_of_a_replacement_is_reported() -> None:
    files = RecordingFiles({HOME / "a": b"old"})
    files.fail("fsync_dir")
    with pytest.raises(WriterStopped):
        replace_file(files, HOME / "a", b"new")
    assert files.visible() == {HOME / "a": b"new"}


def test_after_a_kill_the_files_are_as_the_kernel_shows_them() -> None:
    files = RecordingFiles({HOME / "a": b"old"})
    handle = files.open(HOME / "a", write=True)
    files.write_all(handle, b"new", at=0)
    files.lock(HOME / "lock").acquire()
    files.fail("open")
    later = files.after_kill()

    assert later.read_all(HOME / "a") == b"new"
    assert later.base == {HOME / "a": b"old"}
    later.lock(HOME / "lock").acquire(0)
    with pytest.raises(Busy):
        files.lock(HOME / "lock").acquire(0)
