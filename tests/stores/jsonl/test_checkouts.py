"""What merges, purges, clones and folders that cannot be written do to a JSONL log."""

from __future__ import annotations

import logging
import shutil
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from tests.stores.jsonl.own import Clock, codes, day_files, own, texts

from everlog.core.event import Position
from everlog.errors import ReadOnly
from everlog.files import TEMP_SUFFIX, DiskFiles, Handle, Lock
from everlog.log.verify.verify import verify
from everlog.stores.contract import Encoded
from everlog.stores.jsonl import notes, purge
from everlog.stores.jsonl.lines import event_line
from everlog.stores.jsonl.store import JsonlStore
from everlog.stores.small_state import read_notes
from everlog.testing.builders import NOON, Chain, put_note, seal_any
from everlog.testing.filling import append, positions

DAY_US = 86_400_000_000


# ---- merges


def insert_lines(file: Path, at: int, *made: Encoded) -> None:
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


@pytest.mark.parametrize("at", [0, 1])
def test_another_event_with_a_known_id_does_not_take_its_place(path: Path, at: int) -> None:
    """G5: wherever a merge puts its line."""
    with closing(JsonlStore(path)) as store, closing(JsonlStore(path)) as reader:
        made = seal_any()
        append(store, made)
        assert texts(reader) == ["hello"]
        insert_lines(day_files(path)[0], at, seal_any(id=made.event.id, payload={"text": "other"}))
        for one in (reader, store):
            assert (texts(one), codes(one)) == (["hello"], ["id_conflict"])


def test_a_purge_leaves_no_byte_and_keeps_every_place(path: Path) -> None:
    """G9: also when the index is lost afterwards."""
    clock = Clock()
    store = JsonlStore(path, now_us=clock)
    for number in range(4):
        own(store, stream=f"note/{number % 2}", payload={"text": f"sentinel-{number % 2}"})
        clock.us += DAY_US // 2
    with store.open_write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")
    own(store, stream="note/1", payload={"text": "later"})
    before = [list(store.read()), list(store.slots()), store.purges()]
    assert not [file for file in path.rglob("*") if file.is_file() and b"sentinel-1" in file.read_bytes()]
    store.close()
    shutil.rmtree(path / "local")

    again = JsonlStore(path)
    assert [list(again.read()), list(again.slots()), again.purges()] == before
    assert verify(again).problems == ()
    again.close()


def test_the_file_of_notes_is_rewritten_when_most_of_it_is_obsolete(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "_DEAD_LINES_MAX", 10)
    store = JsonlStore(path)
    sizes = []
    for number in range(50):
        with store.open_write() as writer:
            put_note(writer, "progress", str(number))
        sizes.append((path / "local" / "notes.jsonl").read_bytes().count(b"\n"))
    assert max(sizes) == 10 + 4 * 1 + 1  # so many lines may be obsolete, and one is written
    assert sizes[-1] < max(sizes)
    store.close()
    again = JsonlStore(path)
    assert read_notes(again.small_state, "") == {"progress": "49"}
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
        with store.open_write() as writer:
            put_note(writer, key, value, expires_us=expires_us)
    clock.us += 2
    with store.open_write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")
    file = path / "local" / "notes.jsonl"
    assert b"sentinel" not in file.read_bytes()
    assert read_notes(store.small_state, "") == {"kept": "here", "replaced": "new"}

    file.write_bytes(b'{"sentinel"\n' + file.read_bytes())
    assert codes(store) == ["notes_damaged"]
    own(store, stream="note/2")
    with caplog.at_level(logging.WARNING, "everlog"), store.open_write() as writer:
        writer.purge("note/2", actor="user:ada", reason="asked to")
    assert "removes 1 lines that cannot be read" in caplog.text
    assert b"sentinel" not in file.read_bytes()
    assert read_notes(store.small_state, "") == {"kept": "here", "replaced": "new"}
    assert codes(store) == ["notes_damaged"]  # nobody knows what was in it
    store.close()


def test_a_purged_event_that_a_merge_brings_back_is_not_read(path: Path) -> None:
    store = JsonlStore(path)
    made = seal_any(stream="note/1")
    append(store, made)
    with store.open_write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")
    insert_lines(day_files(path)[0], 0, made)
    assert positions(store.read()) == []
    assert store.get(made.event.id) is None
    assert codes(store) == ["purged_came_back"]
    with JsonlStore(path).open_write():
        pass  # a write removes it again
    assert positions(store.read()) == []
    assert codes(store) == []
    assert day_files(path)[0].read_bytes().count(b'"purged":') == 2  # both lines
    store.close()


def test_a_purge_that_a_merge_brings_takes_effect(path: Path, tmp_path: Path) -> None:
    store = JsonlStore(path)
    made = seal_any(stream="note/1")
    append(store, made, seal_any(stream="note/2"))
    clone = tmp_path / "clone"
    shutil.copytree(path, clone, ignore=shutil.ignore_patterns("local"))
    other = JsonlStore(clone)
    with other.open_write() as writer:
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

    def has_its_name(self) -> bool:
        raise AssertionError("it was never held")

    def place(self) -> str:
        raise AssertionError("it was never held")

    def remember(self, note: bytes) -> None:
        raise AssertionError("it was never held")

    def remembered(self, size: int) -> bytes:
        raise AssertionError("it was never held")


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
    with pytest.raises(ReadOnly), reader.open_write():
        pass
    reader.close()
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize("index", ["there", "gone"])
def test_who_may_only_read_sees_nothing_of_a_purge_that_was_not_finished(
    path: Path, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lines are in the files until somebody who may write finishes it."""
    store = JsonlStore(path)
    own(store, stream="note/1")
    own(store, stream="note/2")
    monkeypatch.setattr(purge, "carry_out", _killed)
    with pytest.raises(KeyboardInterrupt), store.open_write() as write:
        write.purge("note/1", reason="asked to", actor="user:ada")
    monkeypatch.undo()
    (path.parent / "copy").mkdir()
    copy = shutil.copytree(path, path.parent / "copy" / "log")
    if index == "gone":
        for file in (copy / "local").glob("index.db*"):
            file.unlink()
    reader = JsonlStore(copy, files=ReadOnlyFiles())
    assert [recorded.event.stream for recorded in reader.read()] == ["note/2"]
    assert [record.stream for record in reader.purges()] == ["note/1"]
    reader.close()
    store.close()


def test_what_killed_writers_left_is_removed_by_the_next_who_may_write(path: Path) -> None:
    store = JsonlStore(path)
    own(store)
    store.close()
    left = [
        path / "events" / f".a{TEMP_SUFFIX}",
        path / "local" / f".b{TEMP_SUFFIX}",
        path / "local" / "index.db.new",
    ]
    for file in left:
        file.write_bytes(b"half of it")
    reader = JsonlStore(path, files=ReadOnlyFiles())
    assert positions(reader.read()) == [1]
    reader.close()
    assert all(file.exists() for file in left)
    store = JsonlStore(path)
    assert positions(store.read()) == [1]
    assert not any(file.exists() for file in left)
    store.close()


def _killed(*_: object) -> None:
    raise KeyboardInterrupt
