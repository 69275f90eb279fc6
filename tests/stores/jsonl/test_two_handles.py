"""Two handles on one log, in one process and in two: what either of them wrote stays, at a position of its own."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import CATALOG
from tests.stores.jsonl.own import Clock, day_files, own, texts

from everlog.core.event import Position
from everlog.core.query import Query
from everlog.errors import Busy, Damaged, WrongSequence
from everlog.log.log import Log
from everlog.log.verify.verify import verify
from everlog.stores.jsonl import purge
from everlog.stores.jsonl.index import look, pending, update
from everlog.stores.jsonl.store import JsonlStore
from everlog.stores.small_state import read_note
from everlog.testing.builders import stamped
from everlog.testing.filling import positions

WRITER = """
import sys
from pathlib import Path
from everlog.stores.jsonl.store import JsonlStore
from tests.stores.jsonl.own import own
store = JsonlStore(Path(sys.argv[1]))
for order in sys.stdin:
    verb, _, text = order.strip().partition(" ")
    if verb == "write":
        own(store, stream="note/2", payload={"text": text})
    elif verb == "purge":
        with store.open_write() as writer:
            writer.purge(text, actor="user:ada", reason="asked to")
    elif verb == "head":
        store.head()
    print("done", flush=True)
"""


class OtherProcess:
    """A handle in another process, which does one thing at a time."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def do(self, order: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"

    def close(self) -> None:
        self._process.communicate(timeout=60)
        assert self._process.returncode == 0


class OtherHandle:
    """The same in this process."""

    def __init__(self, path: Path) -> None:
        self._store = JsonlStore(path)

    def do(self, order: str) -> None:
        verb, _, text = order.partition(" ")
        if verb == "write":
            own(self._store, stream="note/2", payload={"text": text})
        elif verb == "purge":
            with self._store.open_write() as writer:
                writer.purge(text, actor="user:ada", reason="asked to")
        else:
            self._store.head()

    def close(self) -> None:
        self._store.close()


BOTH = pytest.mark.parametrize("other_kind", [OtherHandle, OtherProcess])


def require_whole(store: JsonlStore, expected: list[str]) -> None:
    assert texts(store) == expected
    assert verify(store).problems == ()


@BOTH
def test_what_is_written_after_the_purge_of_another_handle_stays(
    path: Path, other_kind: type[OtherHandle | OtherProcess]
) -> None:
    """G1: a purge puts another file under the name of the day; what is appended must go to that one."""
    store = JsonlStore(path)
    own(store, stream="note/1", payload={"text": "secret"})
    own(store, stream="note/3", payload={"text": "kept"})
    other = other_kind(path)
    other.do("purge note/1")
    own(store, stream="note/3", payload={"text": "after"})
    require_whole(store, ["kept", "after"])
    other.do("write theirs")
    own(store, stream="note/3", payload={"text": "more"})
    other.close()
    store.close()
    again = JsonlStore(path)
    require_whole(again, ["kept", "after", "theirs", "more"])
    assert positions(again.read()) == [2, 4, 5, 6]
    own(again)
    again.close()


@BOTH
@pytest.mark.parametrize("look", ["head", "read", "sequence"])
def test_a_look_between_two_writes_does_not_hide_what_another_handle_wrote(
    path: Path, look: str, other_kind: type[OtherHandle | OtherProcess]
) -> None:
    """G3, G4: after the look the index is up to date, but what this handle remembers of its last write is not."""
    store = JsonlStore(path)
    own(store, stream="note/2", payload={"text": "a"})
    other = other_kind(path)
    other.do("write b")
    match look:
        case "head":
            assert store.head() == 2
        case "read":
            assert texts(store) == ["a", "b"]
        case _:
            assert store._sequence("note/2") == 1  # what it remembers: only inside a write is it brought up to date
            assert store.ends().clock == 2
    own(store, stream="note/2", payload={"text": "c"})
    records = list(store.read())
    assert [(each.position, each.sequence, each.event.lamport) for each in records] == [
        (1, 1, 1),
        (2, 2, 2),
        (3, 3, 3),
    ]
    other.do("head")
    own(store, stream="note/2", payload={"text": "d"})
    other.do("write e")
    require_whole(store, ["a", "b", "c", "d", "e"])
    other.close()
    store.close()


def test_an_expectation_is_compared_with_what_another_handle_wrote(path: Path) -> None:
    """G4."""
    with Log(JsonlStore(path), CATALOG) as one, Log(JsonlStore(path), CATALOG) as two:
        said: dict[str, Any] = {"stream": "thing/1", "payload": {"value": 1}, "actor": "user:ada"}
        for log in (one, two):
            log.append("thing.said", **said)
        assert one.head() == 2
        with pytest.raises(WrongSequence):
            one.append("thing.said", **said, expect=1)
        one.append("thing.said", **said, expect=2)
        assert one.verify().ok


def test_a_thread_that_reads_between_writes_does_not_hide_another_handle(path: Path) -> None:
    """The look may come from any thread and from any question: notes, claims, purges."""
    one, two = JsonlStore(path), JsonlStore(path)
    questions: list[Callable[[], object]] = [
        one.head,
        one.ends,
        one.purges,
        lambda: read_note(one.small_state, "x"),
        lambda: list(one.slots()),
        one.bad_lines,
    ]
    for number, question in enumerate(questions):
        own(one, payload={"text": f"one {number}"})
        own(two, payload={"text": f"two {number}"})
        question()
        own(one, payload={"text": f"again {number}"})
    assert positions(one.read()) == list(range(1, 3 * len(questions) + 1))
    assert verify(one).problems == ()
    assert verify(two).problems == ()
    one.close()
    two.close()


def test_a_file_that_is_replaced_within_one_tick_of_the_clock_is_noticed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder has the time that it had when it was looked at."""
    monkeypatch.setattr(look, "_RACY_NS", 600 * 10**9)  # however slow this machine is
    clock = Clock()
    store = JsonlStore(path, now_us=clock)
    own(store)
    clock.us += 86_400_000_000
    own(store)
    events = path / "events"
    older = min(events.iterdir())
    now = time.time_ns()
    os.utime(events, ns=(now, now))
    assert store.head() == 2
    older.rename(older.with_suffix(".kept"))
    os.utime(events, ns=(now, now))
    with pytest.raises(Damaged):
        list(store.read(Query(types=frozenset({"no.such"}))))  # no line is read for that
    store.close()


@pytest.mark.parametrize("killed", [False, True])
def test_whoever_sees_a_purge_does_not_see_what_it_removed(
    path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    """A reader that is reset by a purge reads on at once. What it finds then stays: nobody resets it again."""
    store, reader = JsonlStore(path), JsonlStore(path)
    own(store, stream="note/1", payload={"text": "secret"})
    own(store, stream="note/3", payload={"text": "kept"})
    assert texts(reader) == ["secret", "kept"]
    real, seen = purge.carry_out, []

    def look() -> None:
        seen.append(([(purge.stream, purge.count) for purge in reader.purges()], texts(reader)))

    def carry_out(*given: Any) -> None:
        look()
        if killed:
            raise KeyboardInterrupt
        real(*given)

    monkeypatch.setattr(purge, "carry_out", carry_out)
    with pytest.raises(KeyboardInterrupt) if killed else nullcontext(), store.open_write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")
    monkeypatch.undo()
    look()
    assert seen == [([("note/1", 1)], ["kept"])] * 2
    store.close()
    own(reader, stream="note/3", payload={"text": "after"})
    require_whole(reader, ["kept", "after"])
    assert b"secret" not in b"".join(file.read_bytes() for file in day_files(path))
    reader.close()


@pytest.mark.parametrize("killed", [False, True])
def test_whoever_sees_what_allowed_an_erasure_does_not_see_the_payload(
    path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    """A reader gets the log as it was before, or as it is after; until the bytes are gone it may have to wait."""
    store, reader = JsonlStore(path), JsonlStore(path)
    own(store, stream="note/1", payload={"text": "secret"})
    secret = next(store.read())
    own(store, stream="note/3", payload={"text": "kept"})
    assert texts(reader) == ["secret", "kept"]
    real, seen = purge.carry_out, []
    monkeypatch.setattr(update, "_REREAD_LOCK_S", 0.05)

    def look() -> None:
        try:
            seen.append([recorded.event.payload.get("text") for recorded in reader.read()])
        except (Busy, Damaged):
            seen.append([])

    def carry_out(*given: Any) -> None:
        look()
        if killed:
            raise KeyboardInterrupt
        real(*given)

    monkeypatch.setattr(purge, "carry_out", carry_out)
    with pytest.raises(KeyboardInterrupt) if killed else nullcontext(), store.open_write() as writer:
        writer.append([stamped(writer, store.identity.origin, payload={"text": "allowed"})], fresh=True)
        writer.erase([secret.event.id], by=secret.event.id)
    monkeypatch.undo()
    look()
    assert seen[0] in ([], ["secret", "kept"])
    assert seen[1] == [None, "kept", "allowed"]
    store.close()
    own(reader, stream="note/3", payload={"text": "after"})
    assert verify(reader).problems == ()
    assert b"secret" not in b"".join(file.read_bytes() for file in day_files(path))
    reader.close()


@pytest.mark.parametrize("index_is_lost", [False, True])
def test_a_purge_that_a_crash_stopped_is_seen_together_with_what_it_removed(
    path: Path, monkeypatch: pytest.MonkeyPatch, index_is_lost: bool
) -> None:
    """The line of the purge is on the disk, and nothing else was done. Who finishes it shows both at once, too."""
    store = JsonlStore(path)
    own(store, stream="note/1", payload={"text": "secret"})
    own(store, stream="note/3", payload={"text": "kept"})
    index_file = store._updater.index.path
    assert index_file is not None

    def killed(*given: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store._updater, "record_write", killed)
    with pytest.raises(KeyboardInterrupt), store.open_write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")
    store.close()
    if index_is_lost:
        index_file.unlink()
    real, seen = purge.carry_out, []

    def carry_out(*given: Any) -> None:
        with closing(sqlite3.connect(index_file)) as index:
            tables = ("purges", "purged", "events")
            seen.append([index.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables])  # noqa: S608
        real(*given)

    monkeypatch.setattr(purge, "carry_out", carry_out)
    again = JsonlStore(path)
    own(again, stream="note/3", payload={"text": "after"})
    assert seen == [[1, 1, 1]]
    require_whole(again, ["kept", "after"])
    again.close()


def test_a_thread_that_waits_for_a_new_index_does_not_hold_up_a_write(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another handle made the index anew. A thread that reads waits for the log's lock, which a write of the same
    handle has: the write must not need what the thread holds, or neither goes on until the time is over."""
    monkeypatch.setattr(update, "_LOCK_TIMEOUT_S", 3.0)
    store, other = JsonlStore(path), JsonlStore(path)
    own(store, payload={"text": "one"})
    other.rebuild_index()
    waits = threading.Event()
    found: list[list[str]] = []
    real_begin, real_acquire = store._updater.begin_write, store._lock.acquire

    def acquire(timeout: float | None = None) -> None:
        if threading.current_thread() is reader and timeout:
            waits.set()
        real_acquire(timeout)

    def begin_write() -> None:
        reader.start()
        assert waits.wait(20)
        real_begin()

    reader = threading.Thread(target=lambda: found.append(texts(store)))
    monkeypatch.setattr(store._lock, "acquire", acquire)
    monkeypatch.setattr(store._updater, "begin_write", begin_write)
    begun = time.monotonic()
    own(store, payload={"text": "two"})
    taken = time.monotonic() - begun
    reader.join(20)
    assert found == [["one", "two"]]
    assert taken < 2.5
    other.close()
    store.close()


@pytest.mark.parametrize("lost", ["nothing", "the index", "all that git does not keep"])
def test_the_clock_value_of_a_purged_event_is_not_used_again_if_clock_json_is_older(
    path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """A writer was killed before it wrote clock.json, and a purge removed its event. Now only what is left of the
    event and the line of the purge have the value."""
    killed, other = JsonlStore(path), JsonlStore(path)
    own(killed, stream="note/1")

    def kill(*given: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(killed._folder, "write_clock", kill)
    own(killed, stream="note/2")
    with pytest.raises(KeyboardInterrupt):
        killed.close()
    with other.open_write() as writer:
        writer.purge("note/2", actor="user:ada", reason="asked to")
    if lost == "nothing":
        other.rebuild_index()
    else:
        other.close()
        if lost == "the index":
            (path / "local" / "index.db").unlink()
        else:
            (path / "clock.json").unlink()
            shutil.rmtree(path / "local")
        other = JsonlStore(path)
    own(other, stream="note/3")
    assert [each.event.lamport for each in other.read()] == [1, 3]
    assert verify(other).problems == ()
    other.close()


def test_the_file_of_a_position_is_named_although_another_handle_rebuilt_the_index(path: Path) -> None:
    """`verify` names the file of a problem at any time, and the file that it has open is not the index any more."""
    clock = Clock()
    store, other = JsonlStore(path, now_us=clock), JsonlStore(path, now_us=clock)
    own(store)
    assert store.file_of(Position(1)) == f"events/{day_files(path)[0].name}"
    other.rebuild_index()
    clock.us += 86_400_000_000
    own(other)
    assert store.file_of(Position(2)) == f"events/{day_files(path)[1].name}"
    store.close()
    other.close()


def test_a_write_that_was_undone_takes_a_new_origin_back(path: Path, tmp_path: Path) -> None:
    """A copy of the log takes a new origin with its first own event, and only with that."""
    with closing(JsonlStore(path)) as store:
        own(store)
        before = store.identity.origin
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)

    def write(*, undone: bool) -> None:
        with store.open_write() as writer:
            writer.append([stamped(writer, writer.own_origin())], fresh=True)
            assert writer.own_origin() not in ("", before)
            if undone:
                raise ZeroDivisionError

    with closing(JsonlStore(copy)) as store, closing(JsonlStore(copy)) as other:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                write(undone=True)
            for one in (store, other):
                assert (one.identity.origin, one.identity.former, one.head()) == (before, (), 1)
        write(undone=False)
        assert (store.identity.former, store.head(), other.head()) == ((before,), 2, 2)
        assert store.identity.lives == ((1, store.identity.origin),)
        assert verify(store).problems == ()


def test_a_handle_that_emptied_its_journal_still_waits_for_another_that_writes_the_index(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To empty the journal it does not wait for anybody. That is over when it is done."""
    monkeypatch.setattr(pending, "PENDING_MAX", 1)
    store, other = JsonlStore(path), JsonlStore(path)
    own(store, payload={"text": "one"})
    own(store, payload={"text": "two"})
    held = threading.Event()

    def hold() -> None:
        with other._updater.index.change():
            held.set()
            time.sleep(0.3)

    assert other.head() == 2
    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(30)
    store._updater.index.set_branch("main")
    holder.join()
    assert store._updater.index.branch == other._updater.index.branch == "main"
    store.close()
    other.close()
