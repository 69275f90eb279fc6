"""The event store of seed 001 over a log: its names, its order, and snapshots that are whole or refused."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import everlog
from everlog import aio, event_store
from everlog.core.canonical import canonical
from everlog.core.event import Position, Recorded
from everlog.core.ids import id_uuid
from everlog.errors import Damaged, HistoryChanged, InvalidField, NotFound, ReadOnly
from everlog.files import DiskFiles
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.views.snapshots.file import decompress, proved_lines


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with everlog.open(f"segments:{tmp_path / 'log'}") as log:
        yield log


@pytest.fixture
def store(log: Log, tmp_path: Path) -> aio.EventStore:
    return aio.EventStore(log, snapshots=tmp_path / "snapshots")


def note(text: str, stream: str = "note/1") -> Draft:
    return Draft(type="note.added", stream=stream, payload={"text": text})


def run(coroutine: Any) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, 20))


def texts(events: AsyncIterator[Recorded]) -> list[str]:
    async def gather() -> list[str]:
        return [recorded.event.payload["text"] async for recorded in events]

    found: list[str] = run(gather())
    return found


def test_what_was_appended_is_replayed_in_order(store: aio.EventStore) -> None:
    first = run(store.append(note("one")))
    batch = run(store.append_batch([note("two"), note("three")]))
    assert texts(store.replay_from()) == ["one", "two", "three"]
    assert texts(store.replay_from(batch[0].event.id)) == ["two", "three"]
    assert texts(store.replay_from(first.position)) == ["two", "three"]
    with pytest.raises(NotFound):
        texts(store.replay_from("01M7GJY4JREWXR7F6ZT4NFS1FE"))


def test_a_purge_hides_nothing_else_from_a_replay(store: aio.EventStore, log: Log) -> None:
    """G10: what was asked for by position is all given, although a reader with a cursor would be reset."""
    run(store.append_batch([note(str(number), "note/2" if number == 3 else "note/1") for number in range(8)]))
    log.purge("note/2", reason="asked to")
    assert texts(store.replay_from(Position(2))) == ["2", "4", "5", "6", "7"]


def test_more_than_a_page_is_replayed_without_a_gap(store: aio.EventStore) -> None:
    run(store.append_batch([note(str(number)) for number in range(1201)]))
    assert texts(store.replay_from()) == [str(number) for number in range(1201)]


def test_a_replay_reads_on_after_a_purge_of_another_handle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_store, "_PAGE", 2)
    url = f"sqlite:{tmp_path / 'log.db'}"
    with everlog.open(url) as log, everlog.open(url) as other:
        log.append_batch([note(str(number), f"note/{number % 2}") for number in range(7)])
        seen: list[str] = []

        async def replay() -> None:
            async for recorded in aio.EventStore(log).replay_from():
                seen.append(recorded.event.payload["text"])
                if len(seen) == 1:
                    other.purge("note/1", reason="asked to")
                    other.append("note.added", stream="note/2", payload={"text": "later"})

        run(replay())
        assert seen == ["0", "1", "2", "4", "6"]


@pytest.mark.parametrize("after", [2, 7, 11])
def test_a_replay_never_mixes_two_branches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    monkeypatch.setattr(event_store, "_PAGE", 5)

    def git(*arguments: str) -> None:
        names = ["-c", "user.name=ada", "-c", "user.email=ada@example.org"]
        subprocess.run(["git", *names, *arguments], cwd=tmp_path, check=True, capture_output=True)

    def keep(log: Log, texts: list[str]) -> None:
        log.append_batch([note(text) for text in texts])
        git("add", "-A")
        git("commit", "-q", "-m", "notes")

    git("init", "-q", "-b", "main")
    url = f"jsonl:{tmp_path / 'log'}"
    with everlog.open(url) as log, everlog.open(url) as other:
        keep(log, ["base"])
        git("branch", "side")
        keep(log, [f"main {number}" for number in range(11)])
        git("checkout", "-q", "side")
        keep(other, [f"side {number}" for number in range(11)])
        git("checkout", "-q", "main")
        seen: list[str] = []

        async def replay() -> None:
            async for recorded in aio.EventStore(log).replay_from():
                seen.append(recorded.event.payload["text"])
                if len(seen) == after:
                    git("checkout", "-q", "side")

        if after < 11:  # else the last page was read already
            with pytest.raises(HistoryChanged, match="has another history"):
                run(replay())
        else:
            run(replay())
        assert not [text for text in seen if text.startswith("side")]
        assert texts(aio.EventStore(log).replay_from())[1] == "side 0"


def test_a_log_that_was_put_back_is_replayed_from_any_of_its_events(tmp_path: Path) -> None:
    place, backup = tmp_path / "log", tmp_path / "backup"
    with everlog.open(f"segments:{place}") as log:
        log.append_batch([note("one"), note("two")])
    shutil.copytree(place, backup)
    with everlog.open(f"segments:{place}") as log:
        log.append_batch([note("lost")])
    shutil.rmtree(place)
    shutil.copytree(backup, place)
    with everlog.open(f"segments:{place}") as log:
        log.append_batch([note("three"), note("four")])
        assert log.identity.lives
        for recorded in log.read():
            expected = ["one", "two", "three", "four"][recorded.position - 1 :]
            assert texts(aio.EventStore(log).replay_from(recorded.event.id)) == expected


def test_events_are_found_by_time_of_arrival_and_by_type(store: aio.EventStore, log: Log) -> None:
    before = datetime.now(UTC)
    run(store.append(note("one")))
    later = datetime.now(UTC) + timedelta(seconds=1)
    assert texts(store.get_events(before, later)) == ["one"]
    assert texts(store.get_events(later, later + timedelta(days=1))) == []
    assert texts(store.get_events_by_type("note.added")) == ["one"]
    assert texts(store.get_events_by_type("no.such")) == []


def test_a_snapshot_and_what_came_after_it_are_the_whole(store: aio.EventStore) -> None:
    run(store.append_batch([note("one"), note("two")]))
    name = run(store.create_snapshot({"texts": ["one", "two"]}))
    run(store.append(note("three")))
    snapshot = run(store.restore_from_snapshot(name))
    assert snapshot.state["texts"] + texts(store.replay_from(snapshot.position)) == ["one", "two", "three"]


def test_a_damaged_snapshot_is_refused(store: aio.EventStore, tmp_path: Path) -> None:
    """R17: never used, and the caller is told what to do instead."""
    run(store.append(note("one")))
    name = run(store.create_snapshot({"n": 1}))
    (path,) = (tmp_path / "snapshots").iterdir()
    whole = path.read_bytes()
    for at in range(10, len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1
        path.write_bytes(changed)
        with pytest.raises(Damaged, match="is damaged"):
            run(store.restore_from_snapshot(name))
    path.write_bytes(whole[:20])
    with pytest.raises(Damaged):
        run(store.restore_from_snapshot(name))


def test_a_snapshot_file_of_the_first_version_is_still_read(store: aio.EventStore, log: Log, tmp_path: Path) -> None:
    run(store.append(note("one")))
    identity, name = log.identity, "01M7GJY4JREWXR7F6ZT4NFS1FE"
    body = canonical({"epoch": identity.epoch, "log_id": identity.log_id, "position": 1, "state": {"texts": ["one"]}})
    (tmp_path / "snapshots").mkdir()
    path = tmp_path / "snapshots" / f"{name}.snapshot.gz"
    path.write_bytes(gzip.compress(hashlib.sha256(body).digest() + body, 6, mtime=0))
    run(store.append(note("two")))
    snapshot = run(store.restore_from_snapshot(name))
    assert snapshot.state["texts"] + texts(store.replay_from(snapshot)) == ["one", "two"]
    path.write_bytes(gzip.compress(hashlib.sha256(body).digest() + body + b" "))
    with pytest.raises(Damaged):
        run(store.restore_from_snapshot(name))


def test_a_snapshot_is_a_file_of_the_same_form_as_that_of_a_view(store: aio.EventStore, tmp_path: Path) -> None:
    run(store.append(note("one")))
    name = run(store.create_snapshot({"texts": ["one"]}))
    (path,) = (tmp_path / "snapshots").iterdir()
    line, content, seal = proved_lines(decompress(path.read_bytes()))
    assert json.loads(line)["id"] == name
    assert json.loads(content) == {"texts": ["one"]}
    assert len(seal.sha256) == 64


def test_a_snapshot_from_before_a_purge_is_refused(store: aio.EventStore, log: Log) -> None:
    """G8, F31: its state still holds what was purged."""
    run(store.append_batch([note("one"), note("two", "note/2")]))
    name = run(store.create_snapshot({"texts": ["one", "two"]}))
    log.purge("note/1", reason="asked to")
    with pytest.raises(NotFound, match="does not fit"):
        run(store.restore_from_snapshot(name))


@pytest.mark.parametrize("how", ["restore", "create", "remove"])
def test_no_file_keeps_what_was_purged(store: aio.EventStore, log: Log, tmp_path: Path, how: str) -> None:
    """F31: the snapshot from before the purge goes, the one from after it stays, and so does what is not ours."""
    run(store.append_batch([note("one"), note("two", "note/2")]))
    old = run(store.create_snapshot({"texts": ["one", "two"]}))
    (tmp_path / "snapshots" / "mine.snapshot.gz").write_bytes(b"not a snapshot of everlog")
    log.purge("note/1", reason="asked to")
    if how == "restore":
        with pytest.raises(NotFound, match="is removed"):
            run(store.restore_from_snapshot(old))
    elif how == "remove":
        assert run(store.remove_stale_snapshots()) == [old]
    new = run(store.create_snapshot({"texts": ["two"]}))
    assert sorted(path.name for path in (tmp_path / "snapshots").iterdir()) == [
        f"{new}.snapshot.gz",
        "mine.snapshot.gz",
    ]
    assert run(store.restore_from_snapshot(new)).state == {"texts": ["two"]}


def test_two_logs_with_one_folder_leave_each_other_their_snapshots(
    store: aio.EventStore, log: Log, tmp_path: Path
) -> None:
    run(store.append(note("one")))
    mine = run(store.create_snapshot({"texts": ["one"]}))
    with everlog.open(f"sqlite:{tmp_path / 'other.db'}", actor="user:ada") as other:
        others = aio.EventStore(other, snapshots=tmp_path / "snapshots")
        run(others.append_batch([note("a"), note("b", "note/2")]))
        other.purge("note/1", reason="asked to")
        assert run(others.remove_stale_snapshots()) == []
        with pytest.raises(NotFound, match="does not fit"):
            run(others.restore_from_snapshot(mine))
    assert run(store.restore_from_snapshot(mine)).state == {"texts": ["one"]}


def test_names_and_positions_from_outside_are_checked(store: aio.EventStore, log: Log) -> None:
    with pytest.raises(InvalidField):
        run(store.restore_from_snapshot("../../etc/passwd"))
    with pytest.raises(NotFound):
        run(store.restore_from_snapshot("01M7GJY4JREWXR7F6ZT4NFS1FE"))
    with pytest.raises(InvalidField):
        run(store.create_snapshot({}, position=Position(9)))
    with pytest.raises(InvalidField):
        run(aio.EventStore(log).create_snapshot({}))


def test_a_snapshot_that_another_process_removes_first_is_not_missed(
    store: aio.EventStore, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(store.append_batch([note("one"), note("two", "note/2")]))
    old = run(store.create_snapshot({"texts": ["one", "two"]}))
    log.purge("note/1", reason="asked to")
    unlink = DiskFiles.unlink

    def second(files: DiskFiles, path: Path) -> None:
        if path.name.startswith(old):
            path.unlink()
        unlink(files, path)

    monkeypatch.setattr(DiskFiles, "unlink", second)
    new = run(store.create_snapshot({"texts": ["two"]}))
    assert run(store.restore_from_snapshot(new)).state == {"texts": ["two"]}


def test_a_stale_snapshot_that_cannot_be_removed_is_refused_all_the_same(
    store: aio.EventStore, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(store.append(note("one")))
    old = run(store.create_snapshot({"texts": ["one"]}))
    log.purge("note/1", reason="asked to")

    def refuse(files: DiskFiles, path: Path) -> None:
        raise ReadOnly(f"cannot remove {path}", why="Read-only file system", hint="")

    monkeypatch.setattr(DiskFiles, "unlink", refuse)
    with pytest.raises(NotFound, match="does not fit") as refused:
        run(store.restore_from_snapshot(old))
    assert "could not be removed" in refused.value.why


# ---- every signature of the seed


def test_the_seed_s_own_names_of_arguments_are_accepted(store: aio.EventStore) -> None:
    import inspect

    signatures = {
        "append": ["event"],
        "append_batch": ["events"],
        "get_events": ["start_time", "end_time"],
        "get_events_by_type": ["event_type"],
        "replay_from": ["start_event_id"],
        "create_snapshot": [],
        "restore_from_snapshot": ["snapshot_id"],
    }
    for method, names in signatures.items():
        found = inspect.signature(getattr(store, method)).parameters
        assert list(found)[: len(names)] == names, method
        required = [name for name, one in found.items() if one.default is one.empty]
        assert set(required) <= set(names), method


SEED_EVENT = {
    "event_type": "note.added",
    "event_id": "0196a5c0-7c00-7abc-8def-0123456789ab",
    "timestamp": 1_746_600_000_123_456_789,
    "schema_version": 1,
    "payload": {"text": "of the seed"},
    "metadata": {
        "timestamp": 1,
        "source": "agent:planner",
        "correlation_id": "run-7",
        "causation_id": None,
        "sequence": 12,
        "checksum": "ab" * 32,
        "tags": {"severity": "low"},
    },
}


def test_dicts_are_appended_with_the_seed_s_names_and_with_ours(store: aio.EventStore, log: Log) -> None:
    first = run(store.append(SEED_EVENT))
    event = first.event
    assert (event.type, event.stream, event.actor) == ("note.added", "source/agent:planner", "agent:planner")
    assert (event.correlation_id, event.causation_id, dict(event.tags)) == ("run-7", "", {"severity": "low"})
    assert str(id_uuid(event.id)) == SEED_EVENT["event_id"]
    assert event.occurred_at == datetime(2025, 5, 7, 6, 40, 0, 123457, UTC)
    ours = {"type": "note.added", "stream": "note/1", "payload": {"text": "ours"}, "causation_id": event.id}
    second, third = run(store.append_batch([ours, note("a draft")]))
    assert (second.event.causation_id, third.event.payload["text"]) == (event.id, "a draft")
    assert texts(store.replay_from(event.id)) == ["of the seed", "ours", "a draft"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"stream": "note/1", "payload": {}},
        {"type": "note.added", "payload": {"text": "no stream, no source"}},
        {"type": "note.added", "stream": "note/1", "colour": "red"},
        {"type": "note.added", "stream": "note/1", "metadata": "none"},
        {"type": "note.added", "stream": "note/1", "timestamp": "today"},
        {"type": "note.added", "stream": "note/1", "timestamp": 2**80},
        {"type": "note.added", "stream": "note/1", "occurred_at": datetime(2026, 1, 1)},
        ["note.added"],
        "note.added",
        None,
    ],
)
def test_a_dict_that_is_no_event_is_refused_and_nothing_is_recorded(
    store: aio.EventStore, log: Log, wrong: Any
) -> None:
    for attempt in (store.append(wrong), store.append_batch([note("good"), wrong])):
        with pytest.raises(InvalidField):
            run(attempt)
    assert log.head() == 0


def test_times_are_datetimes_or_nanoseconds(store: aio.EventStore) -> None:
    recorded = run(store.append_batch([note("one"), note("two")]))
    arrived = recorded[0].received_at
    at_ns = int((arrived - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1)) * 1000
    for start, end, found in [
        (at_ns, at_ns + 10**10, ["one", "two"]),
        (0, at_ns, []),
        (at_ns + 1, at_ns + 10**10, []),
        (0, at_ns + 1, ["one", "two"]),
        (arrived, at_ns + 10**10, ["one", "two"]),
        (0, arrived + timedelta(seconds=9), ["one", "two"]),
    ]:
        assert texts(store.get_events(start, end)) == found, start - at_ns if isinstance(start, int) else start
    for wrong in ("now", 1.5, None, datetime(2026, 1, 1), 2**90):
        with pytest.raises(InvalidField):
            texts(store.get_events(wrong, at_ns))  # type: ignore[arg-type]


def test_its_own_snapshots_are_accepted_wherever_one_goes_on(store: aio.EventStore, log: Log) -> None:
    run(store.append(note("one")))
    marked = run(store.create_snapshot())
    assert run(store.restore_from_snapshot(marked)).state is None
    name = run(store.create_snapshot({"notes": 1}))
    run(store.append(note("two")))
    snapshot = run(store.restore_from_snapshot(name))
    assert run(store.restore_from_snapshot(snapshot)) is snapshot
    assert texts(store.replay_from(snapshot)) == ["two"]
    again = run(store.restore_from_snapshot(run(store.create_snapshot(snapshot))))
    assert (again.state, again.position) == ({"notes": 1}, snapshot.position)

    log.purge("note/1", reason="asked for")
    for attempt in (store.restore_from_snapshot(snapshot), store.restore_from_snapshot(name)):
        with pytest.raises(NotFound):
            run(attempt)
    with pytest.raises(NotFound):
        texts(store.replay_from(snapshot))
