"""The file layer on a real disk: what it promises its callers, and how it tells them of trouble."""

from __future__ import annotations

import _thread
import errno
import fcntl
import multiprocessing
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from everlog.errors import Busy, EverlogError, ReadOnly, StorageFull, WriterStopped
from everlog.files import DiskFiles, leftover_temps, replace_file
from everlog.lock_file import LockFile

FILES = DiskFiles()


# --- files ------------------------------------------------------------------------------------------------


def test_what_was_written_is_read_back_by_offset(tmp_path: Path) -> None:
    handle = FILES.open(tmp_path / "f", create=True)
    assert FILES.append(handle, b"first") == 0
    assert FILES.append(handle, b"second") == 5
    FILES.write_all(handle, b"F", at=0)
    FILES.flush(handle)
    FILES.fsync(handle)

    assert FILES.read(handle, 5, at=0) == b"First"
    assert FILES.read(handle, 100, at=5) == b"second"
    assert FILES.size(handle) == 11
    FILES.truncate(handle, 3)
    assert FILES.read_all(tmp_path / "f") == b"Fir"
    FILES.close(handle)


def test_a_file_is_created_once_and_with_its_mode(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        FILES.close(FILES.open(tmp_path / "f", exclusive=True))
        FILES.make_dir(tmp_path / "d")
        FILES.close(FILES.open(tmp_path / "k", create=True, mode=0o600))
    finally:
        os.umask(old)

    with pytest.raises(FileExistsError):
        FILES.open(tmp_path / "f", exclusive=True)
    modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in FILES.names(tmp_path)}
    assert modes == {"d": 0o750, "f": 0o640, "k": 0o600}


def test_names_come_and_go(tmp_path: Path) -> None:
    FILES.make_dir(tmp_path / "d")
    FILES.make_dir(tmp_path / "d")
    FILES.close(FILES.open(tmp_path / "a", create=True))
    FILES.rename(tmp_path / "a", tmp_path / "d" / "b")
    FILES.fsync_dir(tmp_path / "d")

    assert not FILES.exists(tmp_path / "a")
    assert FILES.names(tmp_path / "d") == ["b"]
    FILES.unlink(tmp_path / "d" / "b")
    assert FILES.names(tmp_path / "d") == []


def test_a_missing_file_stays_a_plain_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FILES.open(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        FILES.make_dir(tmp_path / "none" / "deeper")


def test_descriptors_are_not_inherited_by_programs(tmp_path: Path) -> None:
    handle = FILES.open(tmp_path / "f", create=True)

    assert fcntl.fcntl(handle.number, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    FILES.close(handle)


def test_a_short_write_is_continued_until_the_error_behind_it_shows(tmp_path: Path) -> None:
    def child() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (7, resource.RLIM_INFINITY))
        handle = FILES.open(tmp_path / "f", create=True)
        try:
            FILES.write_all(handle, b"0123456789", at=0)
        except OSError as error:
            os._exit(0 if error.errno == errno.EFBIG else 2)
        os._exit(1)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()

    assert process.exitcode == 0
    assert (tmp_path / "f").read_bytes() == b"0123456"


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, StorageFull),
        (errno.EDQUOT, StorageFull),
        (errno.EROFS, ReadOnly),
        (errno.EACCES, ReadOnly),
        (errno.EPERM, ReadOnly),
        (errno.EIO, OSError),
    ],
)
def test_errors_of_the_system_are_told_in_our_words(
    number: int, kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = FILES.open(tmp_path / "f", create=True)

    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(kind) as caught:
        FILES.write_all(handle, b"x", at=0)
    if isinstance(caught.value, EverlogError):
        assert str(tmp_path / "f") in caught.value.what
        assert caught.value.hint
        assert isinstance(caught.value.__cause__, OSError)
    FILES.close(handle)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("way", ["fsync", "fsync_dir"])
def test_g12_any_failed_flush_stops_the_writer(
    number: int, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = FILES.open(tmp_path / "f", create=True)

    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(WriterStopped):
        FILES.fsync(handle) if way == "fsync" else FILES.fsync_dir(tmp_path)
    FILES.close(handle)


def test_g12_a_failed_fdatasync_stops_the_writer() -> None:
    reading, writing = os.pipe()  # a pipe cannot be flushed: EINVAL, from the real call
    try:
        with pytest.raises(WriterStopped):
            FILES.flush(type(FILES.open(Path(os.devnull)))(writing, Path("pipe")))
    finally:
        os.close(reading)
        os.close(writing)


# --- replacing --------------------------------------------------------------------------------------------


def test_replacing_a_file_leaves_only_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "state"
    replace_file(FILES, path, b"old", mode=0o600)
    replace_file(FILES, path, b"new", mode=0o600)

    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert FILES.names(tmp_path) == ["state"]


def test_a_leftover_of_a_killed_writer_is_recognised_and_not_in_the_way(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from everlog.files import *\n"
        "class Killed(DiskFiles):\n"
        "    def rename(self, source, target): os.kill(os.getpid(), 9)\n"
        "replace_file(Killed(), Path(sys.argv[1]), b'new')"
    )
    path = tmp_path / "state"
    path.write_bytes(b"old")
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == -9

    assert path.read_bytes() == b"old"
    assert len(leftover_temps(FILES, tmp_path)) == 1
    replace_file(FILES, path, b"newer")
    assert path.read_bytes() == b"newer"


# --- the lock ---------------------------------------------------------------------------------------------


def test_a_lock_has_one_holder_and_can_be_taken_again(tmp_path: Path) -> None:
    one, two = FILES.lock(tmp_path / "lock"), FILES.lock(tmp_path / "lock")
    one.acquire(0)
    with pytest.raises(Busy):
        two.acquire(0)
    one.release()
    two.acquire(0)
    two.release()
    with one, pytest.raises(Busy):
        two.acquire(0.01)
    one.close()
    two.close()


def test_an_unlocked_lock_cannot_be_released(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        LockFile(tmp_path / "lock").release()


def test_the_holder_is_named(tmp_path: Path) -> None:
    with _holder(tmp_path / "lock") as process:
        lock = LockFile(tmp_path / "lock")
        with pytest.raises(Busy) as caught:
            lock.acquire(0.05)
        lock.close()
    if Path("/proc/locks").exists():
        assert f"process {process.pid} (" in caught.value.why
        assert "import sys" in caught.value.why
        assert caught.value.details["pid"] == process.pid
    else:
        assert caught.value.why == "another process holds it"
    assert caught.value.hint


def test_f10_the_lock_of_a_killed_holder_is_free(tmp_path: Path) -> None:
    lock = LockFile(tmp_path / "lock")
    with _holder(tmp_path / "lock") as process:
        process.kill()
        lock.acquire(5)
    lock.release()
    lock.close()


def test_a_wait_ends_when_the_holder_lets_go(tmp_path: Path) -> None:
    one, two = LockFile(tmp_path / "lock"), LockFile(tmp_path / "lock")
    one.acquire()
    timer = threading.Timer(0.05, one.release)
    timer.start()
    started = time.monotonic()
    two.acquire(5)

    assert 0.04 < time.monotonic() - started < 2
    timer.join()
    two.close()
    one.close()


def test_a_wait_that_timed_out_costs_no_more_threads_and_still_gets_the_lock(tmp_path: Path) -> None:
    one, two = LockFile(tmp_path / "lock"), LockFile(tmp_path / "lock")
    one.acquire()
    before = _thread._count()
    for _ in range(5):
        with pytest.raises(Busy):
            two.acquire(0.005)
    assert _thread._count() == before + 1
    one.release()
    two.acquire(1)
    with pytest.raises(Busy):
        one.acquire(0)
    two.release()
    one.acquire(1)
    one.close()
    two.close()


def test_closing_while_a_wait_is_pending_leaves_the_lock_free(tmp_path: Path) -> None:
    one, two, three = (LockFile(tmp_path / "lock") for _ in range(3))
    one.acquire()
    with pytest.raises(Busy):
        two.acquire(0.005)
    two.close()
    one.release()
    three.acquire(1)
    three.close()
    one.close()


def test_f10_a_deleted_lock_file_does_not_let_two_in(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    waiting, late = LockFile(path), LockFile(path)
    waiting.acquire()
    waiting.release()  # it has the old file open
    path.unlink()
    late.acquire(0)
    with pytest.raises(Busy):
        waiting.acquire(0.01)
    late.release()
    waiting.acquire(0)
    waiting.close()
    late.close()


def test_threads_share_a_lock_one_at_a_time(tmp_path: Path) -> None:
    lock = LockFile(tmp_path / "lock")
    inside = 0
    most = 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(50):
            with lock:
                inside += 1
                most = max(most, inside)
                time.sleep(0)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    lock.acquire()
    with pytest.raises(Busy, match="another thread"):
        lock.acquire(0.01)
    lock.close()


def test_a_forked_child_neither_holds_nor_frees_nor_keeps_the_lock(tmp_path: Path) -> None:
    lock = LockFile(tmp_path / "lock")
    lock.acquire()

    def child_cannot_have_it() -> bool:
        try:
            lock.release()
        except RuntimeError:
            try:
                lock.acquire(0)
            except Busy:
                return True
        return False

    assert _in_child(child_cannot_have_it)
    with pytest.raises(Busy):  # the child's attempts freed nothing
        LockFile(tmp_path / "lock").acquire(0)

    child = os.fork()
    if child == 0:
        time.sleep(5)
        os._exit(0)
    try:
        lock.close()
        other = LockFile(tmp_path / "lock")
        other.acquire(0.5)  # a living child that inherited the descriptor does not keep it
        other.close()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_r10_processes_never_overlap_and_all_get_their_turn(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_bytes(b"0")

    def work() -> bool:
        lock = LockFile(tmp_path / "lock")
        for _ in range(100):
            lock.acquire(10)
            counter.write_bytes(b"%d" % (int(counter.read_bytes()) + 1))
            lock.release()
        return True

    children = [_start(work) for _ in range(6)]
    assert [child.wait() for child in children] == [True] * 6
    assert counter.read_bytes() == b"600"


def test_a_free_lock_is_taken_in_microseconds(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    lock = LockFile(tmp_path / "lock")
    best = min(_timed(lock) for _ in range(20))
    lock.close()
    record_property("acquire_release_us", round(best * 1e6, 2))
    print(f"acquire + release: {best * 1e6:.2f} µs")
    assert best < 100e-6


def _timed(lock: LockFile) -> float:
    started = time.perf_counter()
    for _ in range(100):
        lock.acquire(1)
        lock.release()
    return (time.perf_counter() - started) / 100


class _holder:  # noqa: N801 - reads as a phrase: with _holder(path)
    """Another program that holds the lock."""

    def __init__(self, path: Path) -> None:
        code = (
            "import sys, time; from pathlib import Path; from everlog.lock_file import LockFile\n"
            "LockFile(Path(sys.argv[1])).acquire(); print('held', flush=True); time.sleep(60)"
        )
        command = [sys.executable, "-c", code, str(path)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)

    def __enter__(self) -> subprocess.Popen[bytes]:
        assert self.process.stdout
        assert self.process.stdout.readline() == b"held\n"
        return self.process

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate()


class _start:  # noqa: N801
    """A forked child; `wait` is True if its work returned True."""

    def __init__(self, work: Callable[[], bool]) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            done = False
            try:
                done = work()
            finally:
                os._exit(0 if done else 1)

    def wait(self) -> bool:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]) == 0


def _in_child(work: Callable[[], bool]) -> bool:
    return _start(work).wait()


def test_a_lock_whose_second_file_cannot_be_opened_can_be_tried_again(tmp_path: Path) -> None:
    """Once out of descriptors must not mean out of order for ever."""
    (tmp_path / "lock.queue").mkdir()
    lock = LockFile(tmp_path / "lock")
    for _ in range(2):
        with pytest.raises((OSError, EverlogError)):
            lock.acquire(0.1)
    (tmp_path / "lock.queue").rmdir()
    lock.acquire(0.1)
    lock.release()
    lock.close()
