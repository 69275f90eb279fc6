"""What is the JSONL store's own business: its files, its index, what merges and checkouts do to it."""

from __future__ import annotations

import json
import logging
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from everlog.catalog.builtin import BUILT_IN
from everlog.core.codec import header_bytes
from everlog.core.event import Position
from everlog.core.query import Query
from everlog.errors import Busy, Damaged, NewerFormat, NotALog, NotFound, ReadOnly
from everlog.files import DiskFiles, Handle, Lock
from everlog.log.log import Log
from everlog.log.verify import verify
from everlog.stores.contract import Sealed
from everlog.stores.jsonl import catching_up
from everlog.stores.jsonl import store as store_module
from everlog.stores.jsonl.lines import event_line
from everlog.stores.jsonl.store import JsonlStore
from everlog.testing.builders import NOON, Chain, seal_any, stamped
from everlog.testing.faults import RecordingFiles
from everlog.testing.steps import Sync
from everlog.testing.store_contract import append, positions

DAY_US = 86_400_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


class Clock:
    def __init__(self) -> None:
        self.us = 1_800_000_000_000_000

    def __call__(self) -> int:
        return self.us


def own(store: JsonlStore, stream: str = "note/1", **fields: object) -> None:
    with store.write() as writer:
        writer.append([stamped(writer, store.identity.origin, stream=stream, **fields)], fresh=True)


def texts(store: JsonlStore) -> list[str]:
    return [recorded.event.payload["text"] for recorded in store.read()]


def day_files(path: Path) -> list[Path]:
    return sorted((path / "events").iterdir())


def codes(store: JsonlStore) -> list[str]:
    return [problem.code for problem in store.check()]


# ---- files


def test_an_append_is_one_write_and_one_flush_before_the_answer() -> None:
    files = RecordingFiles()
    store = JsonlStore(Path("/log"), files=files, index_in_memory=True)
    own(store)
    before = len(files.trace)
    own(store)
    kinds = [type(step).__name__ for step in files.trace[before:]]
    assert [step for step in files.trace[before:] if isinstance(step, Sync)] != []
    assert kinds[:2] == ["Write", "Sync"]
    assert kinds.count("Sync") == 1
    store.close()


def test_a_file_a_utc_day_and_never_one_before_the_newest(path: Path) -> None:
    """A clock that was set back goes on in the newest file: the order of lines is the order of positions."""
    clock = Clock()
    store = JsonlStore(path, now_us=clock)
    own(store)
    clock.us += DAY_US
    own(store)
    clock.us -= 5 * DAY_US
    own(store)
    assert [(file.name, file.read_bytes().count(b"\n")) for file in day_files(path)] == [
        ("2027-01-15.jsonl", 1),
        ("2027-01-16.jsonl", 2),
    ]
    assert positions(store.read()) == [1, 2, 3]
    store.close()


def test_only_a_newline_ends_a_line(path: Path) -> None:
    text = "a\u2028b\u0085c\rd\u2029e\x0bf\x1cg"
    store = JsonlStore(path)
    append(store, seal_any(payload={"text": text}))
    store.close()
    shutil.rmtree(path / "local")
    again = JsonlStore(path)
    assert texts(again) == [text]
    again.close()


def test_files_are_not_open_to_others(path: Path) -> None:
    store = JsonlStore(path)
    own(store)
    for file in [path, *path.rglob("*")]:
        mode = stat.S_IMODE(file.stat().st_mode)
        assert mode & 0o027 == 0, (file, oct(mode))
    assert stat.S_IMODE((path / "events").stat().st_mode) == 0o750
    assert stat.S_IMODE(day_files(path)[0].stat().st_mode) == 0o640
    store.close()


@pytest.mark.parametrize("content", [b"", b"{", b'{"value": 1}', b'{"value": "x"}', None])
def test_the_clock_file_is_never_trusted_below_the_log(path: Path, content: bytes | None) -> None:
    """F09."""
    store = JsonlStore(path)
    append(store, seal_any(lamport=41))
    store.close()
    if content is None:
        (path / "clock.json").unlink()
    else:
        (path / "clock.json").write_bytes(content)
    again = JsonlStore(path)
    with again.write() as writer:
        assert writer.tick() == 42
    again.close()
    assert json.loads((path / "clock.json").read_bytes())["value"] == 42


def test_a_second_writer_is_told_who_holds_the_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """G13."""
    monkeypatch.setattr(store_module, "LOCK_TIMEOUT_S", 0.05)
    one, other = JsonlStore(path), JsonlStore(path)
    with one.write():
        with pytest.raises(Busy) as refused, other.write():
            pass
        assert refused.value.hint
    own(other)
    assert one.head() == 1
    one.close()
    other.close()


def test_a_folder_that_is_no_log_is_refused_and_left_alone(path: Path) -> None:
    with pytest.raises(NotFound):
        JsonlStore(path, create=False)
    assert not path.exists()
    path.mkdir()
    (path / "log.json").write_text('{"log_id": "x", "created_us": 1}')
    with pytest.raises(NotALog):
        JsonlStore(path)
    (path / "log.json").write_text('{"log_id": "x", "created_us": 1, "everlog": "jsonl", "format": 99}')
    with pytest.raises(NewerFormat, match="99"):
        JsonlStore(path)
    (path / "log.json").write_text("{")
    with pytest.raises(Damaged):
        JsonlStore(path)


def test_the_seeds_own_files_become_a_log(path: Path) -> None:
    (path / "events").mkdir(parents=True)
    lines = [
        {
            "event_id": f"01HN3R5K8D1234567890ABCDE{number}",
            "event_type": "WPStatusChanged",
            "event_version": 1,
            "lamport_clock": number,
            "entity_id": "WP03",
            "entity_type": "WorkPackage",
            "timestamp": "2026-01-27T10:30:00Z",
            "actor": "builder",
            "causation_id": None,
            "correlation_id": None,
            "payload": {"new_status": "doing"},
        }
        for number in (1, 2)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (path / "events" / "2026-01-27.jsonl").write_text(text)
    with pytest.raises(NotFound, match="is not a log"):
        JsonlStore(path, create=False)
    store = JsonlStore(path)
    assert positions(store.read(Query(stream="workpackage/WP03"))) == [1, 2]
    own(store)
    report = verify(store)
    assert (report.problems, report.events, store.clock()) == ((), 3, 3)
    store.close()
    assert (path / "events" / "2026-01-27.jsonl").read_text() == text


# ---- damage


def test_a_line_that_cannot_be_read_is_set_aside_and_named(path: Path) -> None:
    """G10: with its file, its number and the reason; the rest is read, nothing is written over it."""
    store = JsonlStore(path)
    for text in ("one", "two", "three"):
        own(store, payload={"text": text})
    (file,) = day_files(path)
    good = file.read_bytes()
    first, second, third = good.splitlines(keepends=True)
    damaged = first + second.replace(b"two", b"TWO") + third
    file.write_bytes(damaged)

    assert texts(store) == ["one", "three"]
    report = verify(store)
    reasons = [problem.reason for problem in report.problems if problem.code == "line_unreadable"]
    assert reasons == [f"events/{file.name} line 2: its checksum does not fit: the disk or somebody changed it"]
    with pytest.raises(Damaged, match="takes no writes"):
        own(store)
    assert file.read_bytes() == damaged

    file.write_bytes(good)  # mended: everything is where it was
    assert texts(store) == ["one", "two", "three"]
    own(store)
    assert (positions(store.read()), list(store.check())) == ([1, 2, 3, 4], [])
    store.close()


def test_conflict_markers_are_refused_with_their_line(path: Path) -> None:
    store = JsonlStore(path)
    own(store)
    (file,) = day_files(path)
    file.write_bytes(b"<<<<<<< HEAD\n" + file.read_bytes() + b"=======\n>>>>>>> theirs\n")
    assert positions(store.read()) == [1]
    told = [problem.reason for problem in store.check() if problem.code == "conflict_marker"]
    assert [reason.partition(":")[0] for reason in told] == [f"events/{file.name} line {n}" for n in (1, 3, 4)]
    with pytest.raises(Damaged, match="damaged"):
        own(store)
    store.close()


def test_a_torn_tail_is_cut_and_told(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = JsonlStore(path)
    own(store)
    store.close()
    (file,) = day_files(path)
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:50])
    again = JsonlStore(path)
    with caplog.at_level(logging.WARNING, "everlog"):
        own(again)
    assert "cut 50 bytes" in caplog.text
    assert file.read_bytes().count(b"\n") == 2
    assert (positions(again.read()), list(again.check())) == ([1, 2], [])
    again.close()


def test_events_that_vanish_stop_the_writing_until_they_are_back(path: Path) -> None:
    """F04: a file that is gone or empty is never taken for an empty log."""
    clock = Clock()
    store = JsonlStore(path, now_us=clock)
    own(store)
    clock.us += DAY_US
    own(store)
    _, second = day_files(path)
    kept = second.read_bytes()
    second.unlink()

    assert (positions(store.read()), store.head()) == ([1], 2)
    assert codes(store) == ["log_cut_off"]
    with pytest.raises(Damaged, match="in no file any more"):
        own(store)
    second.write_bytes(b"")
    with pytest.raises(Damaged, match="in no file any more"):
        own(store)
    second.write_bytes(kept)
    own(store)
    assert (positions(store.read()), list(store.check())) == ([1, 2, 3], [])
    store.close()


def test_going_on_without_what_is_lost_makes_a_new_origin(path: Path) -> None:
    """F11: the numbers of the lost events are never given out again."""
    store = JsonlStore(path)
    own(store)
    own(store)
    before = store.identity
    (file,) = day_files(path)
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])
    assert store.head() == 2
    with pytest.raises(Damaged):
        store.rebuild_index()
    assert store.rebuild_index(accept_missing=True) == 1
    assert store.identity.origin != before.origin
    assert store.identity.epoch != before.epoch
    own(store)
    assert (positions(store.read()), verify(store).problems) == ([1, 2], ())
    store.close()


def test_a_file_of_another_name_is_told(path: Path) -> None:
    store = JsonlStore(path)
    own(store)
    (path / "events" / "old.jsonl").write_text("{}\n")
    assert codes(store) == ["foreign_file"]
    store.close()


# ---- the index


def test_an_index_that_is_gone_or_damaged_is_made_anew(path: Path) -> None:
    store = JsonlStore(path)
    for number in range(3):
        own(store, stream=f"note/{number % 2}")
    epoch = store.identity.epoch
    store.close()
    index = path / "local" / "index.db"
    for spoil in (index.unlink, lambda: index.write_bytes(b"garbage" * 1000), lambda: index.write_bytes(b"")):
        spoil()
        again = JsonlStore(path)
        assert positions(again.read(Query(stream="note/0"))) == [1, 3]
        assert again.identity.epoch != epoch  # positions may have changed: cursors are told (G8)
        epoch = again.identity.epoch
        own(again, stream="note/9")
        assert list(again.check()) == []
        with again.write() as writer:
            writer.purge("note/9", actor="user:ada", reason="asked to")
        again.close()


def test_an_index_that_a_power_cut_took_back_catches_up_without_a_new_epoch(path: Path) -> None:
    store = JsonlStore(path)
    own(store)
    epoch = store.identity.epoch
    store.close()
    shutil.copy(path / "local" / "index.db", path / "old")
    store = JsonlStore(path)
    append(store, *[seal_any(payload={"text": str(number)}) for number in range(5)])
    before = list(store.read())
    store.close()
    shutil.copy(path / "old", path / "local" / "index.db")

    again = JsonlStore(path)
    assert list(again.read()) == before
    assert again.identity.epoch == epoch
    again.close()


@pytest.mark.parametrize("piece_bytes", [1, 700, 5_000])
def test_an_index_is_made_the_same_in_pieces_of_any_size(
    path: Path, piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece never ends within a write: half a batch at its end would be taken for torn."""
    store = JsonlStore(path)
    for size in (1, 3, 1, 5, 2):
        append(store, *[seal_any(payload={"text": "x" * 40 * number}) for number in range(size)])
    with store.write() as writer:
        writer.purge(next(store.read()).event.stream, actor="user:ada", reason="asked to")
    own(store)
    before = [list(store.read()), list(store.packed()), store.purges()]
    monkeypatch.setattr(catching_up, "PIECE_BYTES", piece_bytes)
    store.rebuild_index()
    assert [list(store.read()), list(store.packed()), store.purges()] == before
    assert list(store.check()) == []
    store.close()


def test_another_process_sees_an_index_that_was_made_anew(path: Path) -> None:
    one, other = JsonlStore(path), JsonlStore(path)
    own(one)
    assert other.head() == 1
    one.rebuild_index()
    own(one)
    assert positions(other.read()) == [1, 2]
    assert other.identity == one.identity
    own(other)
    assert positions(one.read()) == [1, 2, 3]
    one.close()
    other.close()


def test_an_index_that_cannot_be_told_does_not_fail_the_write(path: Path) -> None:
    store = JsonlStore(path)
    own(store)
    with store.write() as writer:
        writer.append([stamped(writer, store.identity.origin)], fresh=True)
        store._keeper.index.connection.execute("DROP TABLE events")
    assert positions(store.read()) == [1, 2]
    store._keeper.index.connection.execute("DROP TABLE events")
    assert positions(store.read()) == [1, 2]  # while reading it is noticed, too
    store._keeper.index.connection.execute("DROP TABLE purges")
    store.close()
    again = JsonlStore(path)
    own(again)
    assert positions(again.read()) == [1, 2, 3]
    again.close()


# ---- merges


def insert_lines(file: Path, at: int, *made: Sealed) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    lines[at:at] = [event_line(each, NOON) for each in made]
    draft = file.with_name("draft")
    draft.write_bytes(b"".join(lines))
    draft.rename(file)  # as git does it


def test_what_a_merge_brings_arrives_at_the_end_in_causal_order(path: Path) -> None:
    """G3: whatever place the lines have in the files, a reader that has seen N finds nothing new at or below N."""
    store = JsonlStore(path)
    for text in ("a", "b"):
        own(store, payload={"text": text})
    epoch = store.identity.epoch
    (file,) = day_files(path)
    peer = Chain("01TESTPEER0000000000000001")
    p1, p2, p3 = (peer.next(payload={"text": f"peer {number}"}) for number in (1, 2, 3))
    insert_lines(file, 1, p3, p1)
    (path / "events" / "2001-01-01.jsonl").write_bytes(event_line(p2, NOON))

    assert texts(store) == ["a", "b", "peer 1", "peer 2", "peer 3"]
    assert positions(store.read()) == [1, 2, 3, 4, 5]
    assert store.identity.epoch == epoch
    own(store, payload={"text": "c"})
    store.close()
    again = JsonlStore(path)
    assert texts(again) == ["a", "b", "peer 1", "peer 2", "peer 3", "c"]
    assert verify(again).problems == ()
    assert again.identity.epoch == epoch
    again.close()


def test_own_lines_that_the_index_lost_before_a_merge_begin_a_new_epoch(path: Path) -> None:
    """G8: where readers saw them cannot be told any more."""
    store = JsonlStore(path)
    own(store)
    store.close()
    shutil.copy(path / "local" / "index.db", path / "old")
    store = JsonlStore(path)
    own(store)
    epoch = store.identity.epoch
    store.close()
    shutil.copy(path / "old", path / "local" / "index.db")
    insert_lines(day_files(path)[0], 0, seal_any())

    again = JsonlStore(path)
    assert positions(again.read()) == [1, 2, 3]
    assert again.identity.epoch != epoch
    assert verify(again).problems == ()
    again.close()


def test_the_same_event_in_two_lines_is_one_event(path: Path) -> None:
    store = JsonlStore(path)
    made = seal_any()
    append(store, made)
    insert_lines(day_files(path)[0], 0, made)
    assert positions(store.read()) == [1]
    assert list(store.check()) == []
    other = seal_any(id=made.event.id, payload={"text": "other"})
    insert_lines(day_files(path)[0], 0, other)
    assert texts(store) == ["hello"]
    assert codes(store) == ["id_conflict"]
    store.close()


def test_a_purge_leaves_no_byte_and_keeps_every_place(path: Path) -> None:
    """G9: also when the index is lost afterwards."""
    clock = Clock()
    store = JsonlStore(path, now_us=clock)
    for number in range(4):
        own(store, stream=f"note/{number % 2}", payload={"text": f"sentinel-{number % 2}"})
        clock.us += DAY_US // 2
    with store.write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")
    own(store, stream="note/1", payload={"text": "later"})
    before = [list(store.read()), list(store.packed()), store.purges()]
    assert not [file for file in path.rglob("*") if file.is_file() and b"sentinel-1" in file.read_bytes()]
    store.close()
    shutil.rmtree(path / "local")

    again = JsonlStore(path)
    assert [list(again.read()), list(again.packed()), again.purges()] == before
    assert verify(again).problems == ()
    again.close()


def test_a_purge_takes_expired_and_replaced_notes_along_and_lines_that_cannot_be_read(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    store = JsonlStore(path, now_us=clock)
    own(store)
    for key, value, expires_us in (
        ("expired", "sentinel", clock.us + 1),
        ("replaced", "sentinel", None),
        ("replaced", "new", None),
        ("removed", "sentinel", None),
        ("removed", None, None),
        ("kept", "here", clock.us + DAY_US),
    ):
        with store.write() as writer:
            writer.note(key, value, expires_us=expires_us)
    clock.us += 2
    with store.write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")
    file = path / "local" / "notes.jsonl"
    assert b"sentinel" not in file.read_bytes()
    assert store.notes("") == {"kept": "here", "replaced": "new"}

    data = file.read_bytes()
    file.write_bytes(b'{"sentinel"\n' + data)
    assert codes(store) == ["notes_damaged"]
    own(store, stream="note/2")
    with caplog.at_level(logging.WARNING, "everlog"), store.write() as writer:
        writer.purge("note/2", actor="user:ada", reason="asked to")
    assert "removes 1 lines that cannot be read" in caplog.text
    assert (file.read_bytes(), codes(store)) == (data, [])
    store.close()


def test_a_purged_event_that_a_merge_brings_back_is_not_read(path: Path) -> None:
    store = JsonlStore(path)
    made = seal_any(stream="note/1")
    append(store, made)
    with store.write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")
    insert_lines(day_files(path)[0], 0, made)
    assert positions(store.read()) == []
    assert store.get(made.event.id) is None
    assert codes(store) == ["purged_came_back"]
    store.close()


def test_a_purge_that_a_merge_brings_takes_effect(path: Path, tmp_path: Path) -> None:
    store = JsonlStore(path)
    made = seal_any(stream="note/1")
    append(store, made, seal_any(stream="note/2"))
    clone = tmp_path / "clone"
    shutil.copytree(path, clone, ignore=shutil.ignore_patterns("local"))
    other = JsonlStore(clone)
    with other.write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")
    other.close()
    shutil.copy(day_files(clone)[0], day_files(path)[0])
    assert positions(store.read()) == [2]
    (purge,) = store.purges()
    assert (purge.reserved, purge.count) == (Position(3), 1)
    assert verify(store).problems == ()
    store.close()


# ---- copies, clones, folders that cannot be written


def git(place: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments],
        cwd=place,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_clone_is_an_origin_of_its_own_and_reading_leaves_the_tree_clean(tmp_path: Path) -> None:
    """F11, G11."""
    one = tmp_path / "one"
    one.mkdir()
    git(one, "init", "-q")
    store = JsonlStore(one / "log")
    own(store)
    git(one, "add", "-A")
    git(one, "commit", "-qm", "events")
    assert git(one, "status", "--porcelain") == ""
    assert sorted(git(one, "ls-files").split()) == [
        "log/.gitignore",
        f"log/events/{day_files(one / 'log')[0].name}",
        "log/log.json",
    ]
    git(tmp_path, "clone", "-q", "one", "two")
    clone = JsonlStore(tmp_path / "two" / "log", create=False)
    assert positions(clone.read()) == [1]
    assert git(tmp_path / "two", "status", "--porcelain") == ""
    own(clone)
    assert clone.identity.log_id == store.identity.log_id
    assert clone.identity.origin not in ("", store.identity.origin)
    assert [recorded.event.origin_seq for recorded in clone.read()] == [1, 1]
    assert verify(clone).problems == ()
    clone.close()
    store.close()


class ReadOnlyFiles(DiskFiles):
    """A disk that this user may only read."""

    def open(self, path: Path, **options: object) -> Handle:
        if options:
            raise ReadOnly(f"cannot open {path}")
        return super().open(path)

    def make_dir(self, path: Path, *, mode: int = 0) -> None:
        raise ReadOnly(f"cannot make {path}")

    def rename(self, source: Path, target: Path) -> None:
        raise ReadOnly(f"cannot rename {source}")

    def unlink(self, path: Path) -> None:
        raise ReadOnly(f"cannot remove {path}")

    def lock(self, path: Path) -> Lock:  # type: ignore[override]
        return _NoLock()


class _NoLock:
    def acquire(self, timeout: float | None = None) -> None:
        raise ReadOnly("cannot open the lock")

    def release(self) -> None:
        raise AssertionError("it was never held")

    def close(self) -> None:
        return None


@pytest.mark.parametrize("index", ["there", "stale", "gone"])
def test_a_folder_that_cannot_be_written_can_be_read(path: Path, index: str) -> None:
    """G11."""
    store = JsonlStore(path)
    own(store)
    store.close()
    shutil.copy(path / "local" / "index.db", path.parent / "old")
    store = JsonlStore(path)
    own(store)
    epoch = store.identity.epoch
    store.close()
    if index == "stale":
        shutil.copy(path.parent / "old", path / "local" / "index.db")
    elif index == "gone":
        shutil.rmtree(path / "local")
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}

    reader = JsonlStore(path, files=ReadOnlyFiles())
    assert positions(reader.read()) == [1, 2]
    assert (reader.identity.epoch == epoch) == (index != "gone")
    assert verify(reader).problems == ()
    with pytest.raises(ReadOnly), reader.write():
        pass
    reader.close()
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


# ---- through the log


@pytest.fixture
def log(path: Path) -> Iterator[Log]:
    with Log(JsonlStore(path), BUILT_IN, actor="user:ada") as opened:
        yield opened


def test_a_cursor_from_before_a_rebuild_is_reset(log: Log) -> None:
    """G8."""
    log.append("note.added", stream="note/1", payload={"text": "one"})
    cursor = log.page_after(0).next_cursor
    assert log.page_after(cursor).reset is None
    store = log.store
    assert isinstance(store, JsonlStore)
    store.rebuild_index()
    reset = log.page_after(cursor).reset
    assert reset is not None
    assert reset.reason == "restored"


def test_headers_come_back_as_they_were_hashed(log: Log) -> None:
    for text in ("one", "zwei", "\u2028"):
        log.append(
            "note.added", stream="note/1", payload={"text": text}, tags={"b": "é", "a": "1"}, key=text.strip() or "k"
        )
    assert log.verify().problems == ()
    for recorded in log.read():
        assert header_bytes(recorded.event)


@pytest.mark.parametrize("made_anew", [False, True])
def test_a_log_is_opened_while_somebody_writes_but_not_while_the_index_is_made_anew(
    path: Path, monkeypatch: pytest.MonkeyPatch, made_anew: bool
) -> None:
    """SQLite would keep the journal of the old index under the name that belongs to the new one."""
    monkeypatch.setattr("everlog.stores.jsonl.keeper._LOCK_TIMEOUT_S", 0.05)
    store = JsonlStore(path)
    own(store)
    store.close()
    draft = path / "local" / "index.db.new"
    if made_anew:
        draft.touch()
    lock = DiskFiles().lock(path / "local" / "lock")
    lock.acquire(1)
    try:
        if made_anew:
            with pytest.raises(Busy):
                JsonlStore(path)
        else:
            other = JsonlStore(path)
            assert positions(other.read()) == [1]
            other.close()
    finally:
        lock.release()
        lock.close()
    store = JsonlStore(path)  # whoever has the lock knows that nobody makes it any more
    assert positions(store.read()) == [1]
    assert not draft.exists()
    store.close()
