"""The lock on a real disk: one holder at a time, whoever is killed, forked or waits meanwhile."""

from __future__ import annotations

import _thread
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.at_once import at_once
from tests.places import on_disk as tmp_path

from everlog.errors import Busy, EverlogError
from everlog.files import DiskFiles
from everlog.lock_file import LockFile

__all__ = ["tmp_path"]

FILES = DiskFiles()


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


def test_a_place_in_the_queue_that_nobody_wants_holds_the_lock_for_a_moment_only(tmp_path: Path) -> None:
    """Who was refused keeps a place. When its turn comes, its thread has the lock until it runs and gives it back:
    somebody with little patience may find the lock held though nobody wants it, and gets it a moment later."""
    one, two, three = (LockFile(tmp_path / "lock") for _ in range(3))
    one.acquire()
    with pytest.raises(Busy):
        two.acquire(0.005)
    waiter = two._waiter
    assert waiter is not None
    with waiter._state:  # as if the thread did not come to run
        one.release()
        with pytest.raises(Busy):
            three.acquire(0.02)
    three.acquire(5)
    three.close()
    two.close()
    one.close()


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

    at_once(*[work] * 4)
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


# --- planted ----------------------------------------------------------------------------------------------


class LockFileDeletedAfterUse(LockFile):  # F10, G13: whoever waited on the old file holds a lock nobody sees
    def release(self) -> None:
        self.path.unlink()
        super().release()

    def has_its_name(self) -> bool:
        return True


def lets_two_in(kind: type[LockFile], path: Path) -> bool:
    """One holds, one waits; the first lets go; a third comes while the second is at work. Did it get in as well?"""
    first, second, third = kind(path), kind(path), kind(path)
    first.acquire()
    inside = threading.Event()
    leave = threading.Event()

    def wait_and_work() -> None:
        second.acquire(5)
        inside.set()
        leave.wait(5)

    thread = threading.Thread(target=wait_and_work)
    thread.start()
    while not second._waiter:  # it has opened the file and stands in the queue
        time.sleep(0.001)
    first.release()
    assert inside.wait(5)
    try:
        third.acquire(0)
        both = True
    except Busy:
        both = False
    leave.set()
    thread.join()
    for lock in (first, second, third):
        LockFile.close(lock) if not lock._held else LockFile.release(lock)
        LockFile.close(lock)
    return both


def test_planted_bug_is_caught_in_a_lock_file_that_is_deleted(tmp_path: Path) -> None:
    assert lets_two_in(LockFileDeletedAfterUse, tmp_path / "bad")
    assert not lets_two_in(LockFile, tmp_path / "good")
