"""The index may lag: what is appended counts for every handle and process before the index has it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from tests.stores.jsonl.own import Clock, day_files, own, texts

from everlog.catalog.builtin import BUILT_IN
from everlog.errors import Damaged, LogClosed
from everlog.log.log import Log
from everlog.log.verify.verify import verify
from everlog.stores.jsonl.index import in_use, pending
from everlog.stores.jsonl.store import JsonlStore

CALLS_MAX = 16
"""System calls per append: 14 here, and two more on a Python that asks for random bytes in pieces."""


def indexed(path: Path) -> int:
    """Return the number of events in the index file, as any other program sees it."""
    with closing(sqlite3.connect(path / "local" / "index.db")) as index:
        return int(index.execute("SELECT count(*) FROM events").fetchone()[0])


def rows(path: Path) -> dict[str, list[Any]]:
    """Return everything in the index file except its epoch and the times of the files."""
    asked = {
        "files": "SELECT name, size, checksum FROM files ORDER BY name",
        "events": "SELECT name, position, at, events.size, stream, sequence, type, scope, received_us, crc"
        " FROM events JOIN files USING (file) ORDER BY position",
        "names": "SELECT family, name FROM names ORDER BY name_id",
        "claims": "SELECT * FROM claims ORDER BY name",
        "ids": "SELECT * FROM ids ORDER BY id",
        "chains": "SELECT * FROM chains ORDER BY origin",
        "groups": "SELECT * FROM groups ORDER BY origin, first_seq",
        "clock": "SELECT clock FROM about",
    }
    with closing(sqlite3.connect(path / "local" / "index.db")) as index:
        return {name: index.execute(sql).fetchall() for name, sql in asked.items()}


def child(path: Path, body: str) -> subprocess.Popen[str]:
    """Start a process with an open log, which prints a line when it is done and then waits for its end."""
    code = f"""
import sys, everlog
log = everlog.open("jsonl:" + sys.argv[1])
def add(text, **how):
    return log.append("note.added", stream="note/1", payload={{"text": text}}, actor="user:ada", **how)
{body}
print("done", flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", code, str(path)]
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    assert started.stdout.readline() == "done\n"
    return started


def end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_an_append_does_not_touch_the_index_and_a_question_brings_it_up_to_date(path: Path) -> None:
    with closing(JsonlStore(path)) as store:
        own(store, payload={"text": "first"})
        assert texts(store) == ["first"]
        for number in range(5):
            own(store, payload={"text": str(number)})
        assert indexed(path) == 1
        assert texts(store) == ["first", *"01234"]
        assert indexed(path) == 6
        own(store, payload={"text": "last"})
        assert indexed(path) == 6
    assert indexed(path) == 7
    assert b'"value":7' in (path / "clock.json").read_bytes()


@pytest.mark.parametrize(("limit", "value"), [("PENDING_MAX", 4), ("PENDING_BYTES_MAX", 1_400)])
def test_the_index_lags_by_so_many_lines_and_bytes(
    path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(pending, limit, value)
    with closing(JsonlStore(path)) as store:
        lags = set()
        for written in range(1, 14):
            own(store)
            lags.add(written - indexed(path))
    assert lags == {0, 1, 2, 3}


def test_two_handles_append_in_turns_and_each_starts_from_what_the_other_wrote(path: Path) -> None:
    one, two = JsonlStore(path), JsonlStore(path)
    for number in range(12):
        store = (one, two)[number // 2 % 2]
        with store.open_write() as writer:
            assert (writer.sequence("note/1"), int(writer.position)) == (number, number)
        own(store, payload={"text": str(number)})
    assert texts(one) == texts(two) == [str(number) for number in range(12)]
    assert verify(one).problems == ()
    one.close()
    two.close()


def test_two_processes_append_in_turns_with_an_index_that_lags(path: Path) -> None:
    with closing(Log(JsonlStore(path), BUILT_IN, actor="user:ada")) as log:
        for number in range(6):
            log.append("note.added", stream="note/1", payload={"text": f"here {number}"}, key=f"here {number}")
            other = child(path, f"add('there {number}', key='there {number}', expect={2 * number + 1})")
            end(other)  # its index lags for ever
            assert log.append(
                "note.added", stream="note/1", payload={"text": f"there {number}"}, key=f"there {number}"
            )
        found = [recorded.event.payload["text"] for recorded in log.read()]
        assert found == [f"{place} {number}" for number in range(6) for place in ("here", "there")]
        assert log.verify().problems == ()


def test_a_writer_that_is_killed_before_its_index_is_up_to_date_has_lost_nothing(path: Path) -> None:
    end(child(path, "for number in range(7): add(str(number))"))
    assert indexed(path) < 7
    with closing(JsonlStore(path)) as store:
        assert texts(store) == list("0123456")
        own(store, payload={"text": "after"})
        assert [(int(each.position), each.sequence) for each in store.read()][-1] == (8, 8)
        assert verify(store).problems == ()


def test_a_reader_sees_what_a_lagging_writer_wrote_also_while_somebody_holds_the_lock(path: Path) -> None:
    writer, holder, reader = JsonlStore(path), JsonlStore(path), JsonlStore(path)
    own(writer, payload={"text": "0"})
    assert texts(reader) == ["0"]
    for number in (1, 2, 3):
        own(writer, payload={"text": str(number)})
    with holder.open_write() as held:
        assert int(held.position) == 4
    for number in (4, 5):
        own(writer, payload={"text": str(number)})
    assert indexed(path) < 6
    holder._lock.acquire(5)
    try:
        assert texts(reader) == list("012345")
        assert int(reader.head()) == 6
    finally:
        holder._lock.release()
    for store in (writer, holder, reader):
        store.close()


def test_a_thread_that_reads_during_a_write_sees_what_was_acknowledged_and_nothing_else(path: Path) -> None:
    found: list[list[str]] = []
    with closing(JsonlStore(path)) as store:
        own(store, payload={"text": "0"})
        own(store, payload={"text": "1"})
        with store.open_write() as writer:
            reader = threading.Thread(target=lambda: found.append(texts(store)))
            reader.start()
            reader.join(20)
            assert writer.sequence("note/1") == 2
    assert found == [["0", "1"]]


def test_a_refused_write_does_not_forget_what_is_pending(path: Path) -> None:
    with closing(JsonlStore(path)) as store:
        own(store)
        own(store)
        with pytest.raises(ZeroDivisionError), store.open_write():
            raise ZeroDivisionError
        with store.open_write() as writer:
            assert (writer.sequence("note/1"), int(writer.position)) == (2, 2)


def test_a_key_that_only_a_pending_line_has_is_taken(path: Path) -> None:
    with closing(Log(JsonlStore(path), BUILT_IN, actor="user:ada")) as log:
        log.append("note.added", stream="note/1", payload={"text": "first"})
        made = log.append("note.added", stream="note/1", payload={"text": "once"}, key="k")
        assert indexed(path) < 2
        again = log.append("note.added", stream="note/1", payload={"text": "once"}, key="k")
        assert again.event.id == made.event.id
        assert int(log.head()) == 2


@pytest.mark.parametrize("other_looks_first", [False, True])
@pytest.mark.parametrize(
    "gone", ["the last line", "all but the first", "all but the first, in a new file", "the file"]
)
def test_pending_lines_that_disappear_are_damage_for_everyone_once_their_writer_looks(
    path: Path, gone: str, other_looks_first: bool
) -> None:
    writer, other = JsonlStore(path), JsonlStore(path)
    own(writer, payload={"text": "0"})
    assert texts(writer) == texts(other) == ["0"]
    own(writer, payload={"text": "1"})
    own(writer, payload={"text": "2"})
    assert indexed(path) == 1
    (day,) = day_files(path)
    good = day.read_bytes()
    lines = good.splitlines(keepends=True)
    if gone == "the file":
        day.unlink()
    elif gone.endswith("new file"):
        (path.parent / "new").write_bytes(lines[0])
        (path.parent / "new").replace(day)
    else:
        day.write_bytes(b"".join(lines[:2] if gone == "the last line" else lines[:1]))
    if other_looks_first:
        with suppress(Damaged):
            texts(other)
    with pytest.raises(Damaged):
        own(writer, payload={"text": "3"})
    for store in (writer, other):
        with pytest.raises(Damaged):
            texts(store)
        with pytest.raises(Damaged):
            own(store, payload={"text": "3"})
    day.write_bytes(good)
    assert texts(writer) == texts(other) == ["0", "1", "2"]
    own(other, payload={"text": "3"})
    assert [(int(each.position), each.sequence) for each in writer.read()] == [(n, n) for n in range(1, 5)]
    assert verify(writer).problems == ()
    writer.close()
    other.close()


def test_on_a_full_disk_the_index_is_kept_in_memory_until_there_is_space(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(JsonlStore(path)) as store:
        own(store, payload={"text": "0"})
        assert texts(store) == ["0"]
        ((pages,),) = store._updater.index.connection.execute("PRAGMA page_count")
        store._updater.index.connection.execute(f"PRAGMA max_page_count = {pages}")
        for number in range(1, 60):
            own(store, stream=f"note/{number}-{'long' * 20}", payload={"text": str(number)})
        for _ in range(2):  # the second question is not about a new index: nothing was dropped
            assert texts(store) == [str(number) for number in range(60)]
        assert caplog.text.count("is full: its index is kept in memory") == 1
        assert indexed(path) == 1
        monkeypatch.setattr(in_use, "_FULL_DISK_S", 0)
        own(store, payload={"text": "60"})
        assert texts(store) == [str(number) for number in range(61)]
        assert indexed(path) == 61
        assert verify(store).problems == ()


def test_an_index_that_lagged_is_the_one_that_a_rebuild_makes(path: Path) -> None:
    clock = Clock()
    one, two = JsonlStore(path, now_us=clock), JsonlStore(path, now_us=clock)
    for number in range(20):
        clock.us += 20_000_000_000  # some days
        own((one, two)[number % 3 == 0], stream=f"note/{number % 4}")
        if number % 7 == 0:
            texts(two)
    one.close()
    two.close()
    assert len(day_files(path)) > 3
    lagged = rows(path)
    with closing(JsonlStore(path, now_us=clock)) as store:
        store.rebuild_index()
    assert rows(path) == lagged


def test_an_append_makes_few_system_calls(path: Path) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("there is no strace here: apt-get install strace")
    trace = path.parent / "trace"
    code = (
        "import sys, everlog\n"
        "log = everlog.open('jsonl:' + sys.argv[1], actor='user:ada')\n"
        "for number in range(160): log.append('note.added', stream=f'note/{number % 3}', payload={'text': 'x'})\n"
        "import os; os._exit(0)\n"
    )
    command = [strace, "-f", "-o", str(trace), sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=False)
    if "Operation not permitted" in done.stderr:
        pytest.skip("strace may not be used here (ptrace)")
    assert done.returncode == 0, done.stderr
    calls = [line.split(maxsplit=1)[1] for line in trace.read_text().splitlines()]
    flushes = [number for number, call in enumerate(calls) if re.match(r"fdatasync\(", call)]
    # The median: right after a file was created, its folder is listed before every write.
    per_append = median([after - before for before, after in pairwise(flushes[-100:])])
    assert per_append <= CALLS_MAX, calls[flushes[-11] : flushes[-10]]


def test_lines_that_only_a_killed_writer_knew_are_counted_as_missing_when_they_are_cut(path: Path) -> None:
    """The log looks like one that was put back, so it is read and goes on."""
    end(child(path, "for number in range(5): add(str(number))"))
    (file,) = day_files(path)
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:3]))
    with closing(JsonlStore(path)) as store, closing(JsonlStore(path)) as other:
        for each in (store, other):
            assert texts(each) == ["0", "1", "2"]
            assert each.missing_own_events() == 2
        Log(other, BUILT_IN, actor="user:ada").append("note.added", stream="note/1", payload={"text": "more"})
        assert (store.missing_own_events(), other.missing_own_events()) == (0, 0)


def test_who_asks_while_the_index_is_replaced_waits_for_the_new_one(path: Path) -> None:
    store = JsonlStore(path)
    own(store)
    updater, found = store._updater, list[object]()
    asking = threading.Thread(target=lambda: found.append(updater.index))
    with updater._mutex:
        index, updater._index = updater._index, None
        asking.start()
        asking.join(0.2)
        assert (asking.is_alive(), found) == (True, [])
        updater._index = index
    asking.join()
    assert found == [index]
    store.close()
    with pytest.raises(LogClosed):
        updater.index  # noqa: B018
