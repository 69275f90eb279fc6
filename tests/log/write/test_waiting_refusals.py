"""Refusals that wait in the file beside a log: taken once, by one of many, and never in the way of anything."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.at_once import at_once
from tests.conftest import CATALOG
from tests.log.write.test_refusals import attempt, refuse

from everlog.errors import InvalidField, StorageFull
from everlog.files import DiskFiles
from everlog.lock_file import FILE_MODE
from everlog.log.log import Log
from everlog.log.write import refusals
from everlog.log.write.refusal_rows import rows_of
from everlog.stores import waiting_lines
from everlog.stores.jsonl.store import JsonlStore
from everlog.stores.memory import MemoryStore
from everlog.stores.segments.store import SegmentsStore
from everlog.stores.small_state import read_notes
from everlog.stores.sqlite.store import SqliteStore
from everlog.transfer.copy import Target, copy_log

FILES = {"sqlite": "log-refusals", "jsonl": "log/local/refusals.jsonl", "segments": "log/refusals.jsonl"}
STORES: dict[str, Callable[..., Any]] = {"sqlite": SqliteStore, "jsonl": JsonlStore, "segments": SegmentsStore}
SPAWN = multiprocessing.get_context("spawn")

Opener = Callable[[], Log]


@pytest.fixture(params=sorted(FILES))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def file(kind: str, tmp_path: Path) -> Path:
    """Where refusals of this store wait. The log has one event."""
    with opened(kind, tmp_path) as log:
        attempt(log)
    return tmp_path / FILES[kind]


@pytest.fixture
def reopen(kind: str, tmp_path: Path, clock: Any) -> Opener:
    return partial(opened, kind, tmp_path, clock)


def opened(kind: str, place: Path, now_us: Callable[[], int] | None = None) -> Log:
    timed: dict[str, Any] = {} if now_us is None else {"now_us": now_us}
    return Log(STORES[kind](place / "log", **timed), CATALOG, **timed)


def leave(reopen: Opener, times: int = 1, **fields: Any) -> None:
    """Be refused, and close the log."""
    with reopen() as log:
        refuse(log, times, **fields)


def kept(log: Log) -> int:
    return len(read_notes(log.writer.small_state, "refusal/"))


def test_what_waits_at_the_end_goes_to_a_file_and_with_the_next_write_into_the_log(
    reopen: Opener, file: Path, clock: Any
) -> None:
    leave(reopen, 2)
    clock.us += 1000
    assert file.read_bytes().count(b"\n") == 2
    assert stat.S_IMODE(file.stat().st_mode) == FILE_MODE & ~_umask()
    with reopen() as log, reopen() as reader:
        refuse(log, 1)
        assert (len(log.refusals()), len(reader.refusals()), kept(log)) == (3, 2, 0)
        before = reader.refusals()
        log.writer.earlier_outcome("op", "k", {}, in_write=True)  # this records nothing
        assert file.exists()
        attempt(log)
        assert not file.exists()
        assert (len(log.refusals()), len(reader.refusals()), kept(log)) == (3, 3, 3)
        assert log.refusals()[1:] == before
        assert log.verify().ok


def _umask() -> int:
    before = os.umask(0)
    os.umask(before)
    return before


def test_no_flush_is_made_at_the_end(reopen: Opener, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("flush", "fsync", "fsync_dir"):
        monkeypatch.setattr(DiskFiles, name, _forbidden)
    leave(reopen, 2)
    assert file.exists()


def _forbidden(*given: object, **named: object) -> None:
    raise AssertionError("this was flushed")


def test_a_refusal_is_read_back_exactly(reopen: Opener, file: Path) -> None:
    with reopen() as log:
        with pytest.raises(InvalidField):
            attempt(log, stream="thing/\ud800", actor="user:ä\n" + "x" * 3000, payload={"value": 2**70})
        (before,) = log.refusals()
    with reopen() as log:
        assert log.refusals() == [before]
        attempt(log)
        assert log.refusals() == [before]


# ---- the limit


def test_the_limit_holds_across_the_file_the_rows_and_what_waits_here(reopen: Opener, file: Path, clock: Any) -> None:
    clock.us -= clock.us % 60_000_000
    for taken in (False, True, False):
        leave(reopen, 60)
        if taken:
            with reopen() as log:
                attempt(log)
    with reopen() as log:
        refuse(log, 130)
        for _ in range(2):
            assert len(log.refusals(limit=None)) == 100
            assert [(one.actor, one.left_out) for one in log.writer.refusals.left_out()] == [("user:ada", 210)]
            attempt(log)
        assert kept(log) == 100


def test_a_full_file_is_taken_into_the_log_at_once(
    reopen: Opener, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_lines, "BYTES_MAX", 3500)
    for _ in range(10):
        leave(reopen)
        assert not file.exists() or file.stat().st_size < 3500
    assert file.exists()
    with reopen() as log:
        assert len(log.refusals()) == 10
        assert 0 < kept(log) < 10


# ---- several processes


def be_refused(kind: str, place: Path, times: int, gate: Any) -> None:
    gate.wait()
    for _ in range(times):
        with opened(kind, place) as log:
            refuse(log, 1, actor=f"user:p{os.getpid()}")


def append_some(kind: str, place: Path, times: int, gate: Any) -> None:
    gate.wait()
    for _ in range(times):
        with opened(kind, place) as log:
            attempt(log)


def test_processes_that_add_and_take_at_once_lose_nothing_and_take_nothing_twice(
    kind: str, file: Path, tmp_path: Path
) -> None:
    gate = SPAWN.Barrier(4)
    writers = 1 if kind == "segments" else 2  # a segments log has one writer
    works = [append_some] * writers + [be_refused] * (4 - writers)
    racers = [SPAWN.Process(target=work, args=(kind, tmp_path, 25, gate)) for work in works]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(120)
        assert racer.exitcode == 0
    with opened(kind, tmp_path) as log:
        attempt(log)
        assert not file.exists()
        assert kept(log) == 25 * (4 - writers)
        assert log.writer.refusals.left_out() == []
        counts = read_notes(log.writer.small_state, "refused/").values()
        assert sum(int(text.rsplit(",", 1)[1].rstrip("]")) for text in counts) == 25 * (4 - writers)


def test_a_reader_beside_sees_every_refusal_at_every_moment(reopen: Opener, file: Path) -> None:
    ended = threading.Event()
    left, missing = 0, []

    def look() -> None:
        with reopen() as reader:
            while not ended.is_set():
                least = left
                found = len(reader.refusals(limit=None))
                if not least <= found <= left + 1:
                    missing.append((least, found, left))

    def leave_and_take() -> None:
        nonlocal left
        try:
            for number in range(40):
                leave(reopen, actor=f"user:a{number}")
                left += 1
                with reopen() as log:
                    attempt(log)
        finally:
            ended.set()

    at_once(look, leave_and_take)
    assert missing == []


# ---- a kill between the two steps


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.log.write.test_refusals import attempt
from tests.log.write.test_waiting_refusals import opened
from everlog.stores.waiting_lines import WaitingLines
WaitingLines.remove = lambda self, taken: os.kill(os.getpid(), signal.SIGKILL)
attempt(opened(sys.argv[1], Path(sys.argv[2])))
"""


def test_a_kill_after_the_commit_and_before_the_file_is_emptied(
    kind: str, reopen: Opener, file: Path, tmp_path: Path
) -> None:
    leave(reopen, 130)  # 100 are recorded, and 30 are only counted
    killed = subprocess.run([sys.executable, "-c", KILLED, kind, str(tmp_path)], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert file.exists()
    with reopen() as log:
        assert log.head() == 2
        assert (len(log.refusals(limit=None)), [one.left_out for one in log.writer.refusals.left_out()]) == (
            100,
            [30],
        )
    leave(reopen, 2, actor="user:bob")
    with reopen() as log:
        for _ in range(2):
            assert (len(log.refusals(limit=None)), [one.left_out for one in log.writer.refusals.left_out()]) == (
                102,
                [30],
            )
            attempt(log)
        assert not file.exists()
        assert kept(log) == 102


def test_a_kill_before_the_commit_leaves_the_file_as_it_was(reopen: Opener, file: Path) -> None:
    leave(reopen, 3)
    before = file.read_bytes()
    with reopen() as log:
        undo = log.writer._stages.run

        def run(write: Any) -> Any:
            undo(write)
            raise StorageFull("the disk is full")

        log.writer._stages.run = run  # type: ignore[method-assign]
        with pytest.raises(StorageFull):
            attempt(log)
        assert (len(log.refusals()), kept(log), file.read_bytes()) == (3, 0, before)
        log.writer._stages.run = undo  # type: ignore[method-assign]
        attempt(log)
        assert (len(log.refusals()), kept(log), file.exists()) == (3, 3, False)


@pytest.mark.parametrize("ended_by", [StorageFull, KeyboardInterrupt])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "in a group"])
def test_a_write_of_refusals_that_fails_leaves_the_file_as_it_was(
    reopen: Opener, file: Path, monkeypatch: pytest.MonkeyPatch, beside: bool, ended_by: type[BaseException]
) -> None:
    leave(reopen, 2)
    before = file.read_bytes()
    with reopen() as log:
        refuse(log, 1)
        ours, made = log.writer.refusals, []

        def fail(*given: Any) -> Any:
            made.append(given)
            if len(made) == 2:  # after those of the file, for those that wait here
                raise ended_by("the disk is full")
            return rows_of(*given)

        def in_a_group(write: Any) -> None:
            with pytest.raises(ended_by), write.attempt():
                ours._write(write)

        with monkeypatch.context() as patched:
            patched.setattr(refusals, "rows_of", fail)
            if beside:
                log.writer.write(in_a_group)
            else:
                with pytest.raises(ended_by):
                    log.writer.write(ours._write)
        assert len(made) == 2
        log.writer.write(lambda write: None)  # records nothing
        assert (file.read_bytes(), kept(log), len(log.refusals())) == (before, 0, 3)
        attempt(log)
        assert (file.exists(), kept(log), len(log.refusals())) == (False, 3, 3)


def test_a_write_that_is_interrupted_after_the_refusals_were_staged_leaves_the_file(
    reopen: Opener, file: Path
) -> None:
    leave(reopen, 2)

    def work(write: Any) -> None:
        log.writer.refusals._write(write)
        raise KeyboardInterrupt

    with reopen() as log:
        refuse(log, 1)
        with pytest.raises(KeyboardInterrupt):
            log.writer.write(work)
        log.writer.write(lambda write: None)  # records nothing
        assert (file.exists(), kept(log), len(log.refusals())) == (True, 0, 3)


def test_what_is_added_between_the_commit_and_the_emptying_stays(
    reopen: Opener, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(reopen, 2)
    remove = waiting_lines.WaitingLines.remove

    def late(self: waiting_lines.WaitingLines, taken: bytes) -> None:
        monkeypatch.setattr(waiting_lines.WaitingLines, "remove", remove)
        leave(reopen, 1)
        remove(self, taken)

    monkeypatch.setattr(waiting_lines.WaitingLines, "remove", late)
    with reopen() as log:
        attempt(log)
        assert (file.read_bytes().count(b"\n"), kept(log), len(log.refusals())) == (1, 2, 3)
        attempt(log)
        assert (file.exists(), kept(log), len(log.refusals())) == (False, 3, 3)
    assert not list(file.parent.glob(f"{file.name}*"))


def test_a_process_that_is_late_does_not_remove_the_lines_of_others(reopen: Opener, file: Path) -> None:
    leave(reopen, 1)
    with reopen() as log:
        waiting = log.writer.small_state.waiting
        assert waiting is not None
        stale = waiting.read()
        attempt(log)
    leave(reopen, 1, actor="user:ada", stream="thing/1")
    assert file.stat().st_size == len(stale)  # the same size, and other content
    waiting.remove(stale)
    assert file.stat().st_size == len(stale)
    with reopen() as log:
        assert len(log.refusals()) == 2


# ---- damage


def cut(data: bytes) -> bytes:
    return data[:-10]


def flip(data: bytes) -> bytes:
    at = data.rindex(b"no.such")  # it is still valid JSON: only the checksum shows it
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def swap_logs(data: bytes) -> bytes:
    first, second, *_ = data.split(b"\n")
    return first + b"\n" + second.replace(second[8:34], b"0" * 26) + b"\n"


@pytest.mark.parametrize("damage", [cut, flip, swap_logs, lambda data: data + b"{}", lambda data: data + b"\0" * 99])
def test_damaged_lines_are_left_out_and_counted(
    reopen: Opener, file: Path, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    leave(reopen, 2)
    before = file.read_bytes()
    file.write_bytes(damage(before))
    there = 2 if file.read_bytes().startswith(before) else 1
    with reopen() as log:
        assert (len(log.refusals()), log.writer.refusals.damaged()) == (there, 1)
    leave(reopen, 1)
    with reopen() as log:
        assert (len(log.refusals()), log.writer.refusals.damaged()) == (there + 1, 1)
        with caplog.at_level(logging.WARNING, logger="everlog"):
            attempt(log)
        assert "cannot be read" in caplog.text
        assert (len(log.refusals()), log.writer.refusals.damaged(), kept(log)) == (there + 1, 1, there + 1)
        assert not file.exists()
        assert log.verify().ok


@pytest.mark.parametrize(
    "content", [b"my own notes\n", b"PK\x03\x04", b"x" * 300_000], ids=["text", "bytes", "large"]
)
def test_a_file_of_another_program_is_left_alone(reopen: Opener, file: Path, content: bytes) -> None:
    file.write_bytes(content)
    leave(reopen, 2)
    with reopen() as log:
        assert (len(log.refusals()), kept(log), log.writer.refusals.damaged()) == (2, 2, 0)
        attempt(log)
    assert file.read_bytes() == content


def test_a_folder_or_a_pipe_in_its_place_is_left_alone(reopen: Opener, file: Path) -> None:
    for make in (Path.mkdir, os.mkfifo):
        make(file)
        leave(reopen, 2)
        with reopen() as log:
            assert len(log.refusals()) == kept(log)
            attempt(log)
        file.rmdir() if file.is_dir() else file.unlink()
    with reopen() as log:
        assert len(log.refusals()) == 4


def test_a_full_disk_leaves_no_part_of_a_line_and_no_error(
    reopen: Opener, file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leave(reopen, 1)
    before, write = file.read_bytes(), DiskFiles.write
    full = False

    def some(self: DiskFiles, handle: Any, data: bytes, *, at: int) -> int:
        nonlocal full
        if full:
            raise StorageFull("the disk is full")
        full = True
        return write(self, handle, data[:20], at=at)

    monkeypatch.setattr(DiskFiles, "write", some)
    if "log-refusals" in file.name:  # SQLite writes its own files
        monkeypatch.setattr(SqliteStore, "_commit", _full)
    leave(reopen, 1)
    assert "could not be recorded" in caplog.text
    assert file.read_bytes() == before


def _full(*given: object) -> None:
    raise StorageFull("the disk is full")


def test_a_stopped_process_that_holds_the_file_delays_nobody_for_long(reopen: Opener, file: Path) -> None:
    leave(reopen, 1)
    files = DiskFiles()
    handle = files.open(file, write=True)
    files.hold(handle, wait_s=0)
    with reopen() as log:
        attempt(log)
        assert (kept(log), len(log.refusals())) == (0, 1)
        refuse(log, 1)
    files.close(handle)
    with reopen() as log:
        assert (kept(log), len(log.refusals())) == (1, 2)  # the second one did not wait for the file
        attempt(log)
        assert (kept(log), len(log.refusals())) == (2, 2)


# ---- a purge, a copy


def test_a_purge_removes_the_refusals_about_its_stream_from_the_file(reopen: Opener, file: Path) -> None:
    with reopen() as log:
        attempt(log, stream="thing/2")
    leave(reopen, 2, stream="thing/1")
    leave(reopen, 1, stream="thing/2")
    left = file.with_name(file.name + ".new")
    left.write_bytes(file.read_bytes())  # as a kill leaves it
    with reopen() as log:
        log.purge("thing/1", reason="a test")
        assert [one.stream for one in log.refusals()] == ["thing/2"]
        assert not file.exists()
        assert not left.exists()
    with reopen() as log:
        assert [one.stream for one in log.refusals()] == ["thing/2"]
        assert log.verify().ok


@pytest.mark.parametrize("closed", [True, False])
def test_a_purge_reaches_the_refusals_that_wait_in_another_handle(
    kind: str, reopen: Opener, file: Path, clock: Any, closed: bool
) -> None:
    if kind == "segments" and not closed:
        pytest.skip("a segments log has one writer: no other handle records anything meanwhile")
    with reopen() as log:
        attempt(log, stream="thing/2")
        with reopen() as other:
            refuse(other, 2, stream="thing/1")
            refuse(other, 1, stream="thing/2")
            clock.us += 1000
            log.purge("thing/1", reason="a test")
            assert [one.stream for one in other.refusals()] == ["thing/2"]
            clock.us += 1000
            refuse(other, 1, stream="thing/1")  # after the purge
            if not closed:
                attempt(other, stream="thing/3")
        assert [one.stream for one in log.refusals()] == ["thing/1", "thing/2"]
        target = MemoryStore()
        target.close = lambda: None  # type: ignore[method-assign]
        copy_log(log._store, Target(name="m", draft="m", open=lambda identity: target, swap=lambda: None))
        assert sum(row.key.startswith("refusal/") for row in target.small_state.every_row()) == 2
        clock.us += 1000
        attempt(log, stream="thing/3")
        assert (kept(log), file.exists()) == (2, False)
        assert [one.stream for one in log.refusals()] == ["thing/1", "thing/2"]


def test_a_copy_has_the_refusals_that_wait(reopen: Opener, file: Path) -> None:
    leave(reopen, 130)
    target = MemoryStore()
    target.close = lambda: None  # type: ignore[method-assign]
    with reopen() as log:
        copy_log(log._store, Target(name="m", draft="m", open=lambda identity: target, swap=lambda: None))
        notes = {row.key: row.value for row in target.small_state.every_row()}
        assert file.exists()
        attempt(log)
        rows = {row.key: row.value for row in log.writer.small_state.every_row() if row.key.startswith("refus")}
    assert sum(key.startswith("refusal/") for key in notes) == 100
    assert notes == {key: value for key, value in rows.items() if key != "refusals/taken"}
