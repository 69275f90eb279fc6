"""What the crash table found when it was first run, each as a test of its own that names the cause."""

from __future__ import annotations

import errno
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.crash.subjects import ROOT, SUBJECTS, Clock, small_and_quiet
from tests.crash.workloads import new_disk, put
from tests.support.faults import RecordingFiles

from everlog.errors import Damaged, WriterStopped
from everlog.log.verify.verify import verify
from everlog.stores.segments.store import SegmentsStore
from everlog.stores.small_state import read_note
from everlog.stores.sqlite.store import SqliteStore
from everlog.testing.builders import put_note, seal_any
from everlog.testing.filling import append

JSONL, SEGMENTS = SUBJECTS["jsonl"], SUBJECTS["segments"]


def with_a_flip(files: RecordingFiles, path: Path, at: int) -> RecordingFiles:
    content = bytearray(files.visible()[path])
    content[at] ^= 1
    return RecordingFiles({**files.visible(), path: bytes(content)}, dirs=files.dirs)


@pytest.mark.parametrize("from_end", [1, 2, 30])
def test_a_damaged_last_note_is_told_and_not_taken_for_a_torn_one(from_end: int) -> None:
    """Its newline is there, or all but that: no crash leaves such a line."""
    files = new_disk(JSONL)
    with closing(JSONL.open(files)) as store:
        put(store, [3])
    path = ROOT / "local" / "notes.jsonl"
    damaged = with_a_flip(files, path, len(files.visible()[path]) - from_end)
    with closing(JSONL.open(damaged)) as store:
        assert "notes_damaged" in [problem.code for problem in store.check()]
        with store.open_write() as writer:
            put_note(writer, "later", "kept")
    with closing(JSONL.open(damaged)) as store:
        assert read_note(store.small_state, "later") == "kept"
        assert "notes_damaged" in [problem.code for problem in store.check()]


def test_a_note_that_lacks_only_its_newline_is_torn_and_no_damage() -> None:
    files = new_disk(JSONL)
    with closing(JSONL.open(files)) as store:
        put(store, [3])
    path = ROOT / "local" / "notes.jsonl"
    visible = {**files.visible(), path: files.visible()[path][:-1]}
    del visible[path.with_name("notes.end")]  # it is written when the line is on the disk
    torn = RecordingFiles(visible, dirs=files.dirs)
    with closing(JSONL.open(torn)) as store:
        assert list(store.check()) == []


@pytest.mark.parametrize("name", ["log.json", "local/origin.json"])
def test_another_letter_in_who_a_jsonl_log_is_is_noticed(name: str) -> None:
    files = new_disk(JSONL)
    content = files.visible()[ROOT / name]
    at = content.index(b'": "0') + 7  # inside the id, so that the file is still JSON of the right shape
    with pytest.raises(Damaged, match="cannot be read"):
        JSONL.open(with_a_flip(files, ROOT / name, at)).close()


def test_another_letter_in_who_an_sqlite_log_is_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    SqliteStore(path).close()
    with closing(sqlite3.connect(path)) as other, other:
        for (name,) in other.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            other.execute(f"DROP TRIGGER {name}")
        other.execute("UPDATE identity SET log_id = replace(log_id, '0', '8')")
    with pytest.raises(Damaged, match="who the log is"):
        SqliteStore(path).close()


def test_a_schema_that_is_not_text_is_told_as_damage(tmp_path: Path) -> None:
    """SQLite quotes it in its message, which Python then cannot decode."""
    path = tmp_path / "log.db"
    SqliteStore(path).close()
    data = path.read_bytes()
    place = data.rindex(b"CREATE TABLE purged") + len(b"CREATE TABLE ")
    path.write_bytes(data[:place] + b"\xe5" + data[place + 1 :])
    with pytest.raises(Damaged):
        SqliteStore(path, create=False).close()


def test_a_writer_whose_lock_file_was_removed_acknowledges_nothing_more(tmp_path: Path) -> None:
    with closing(SegmentsStore(tmp_path / "log")) as old:
        append(old, seal_any())
        (tmp_path / "log" / "lock").unlink()
        with closing(SegmentsStore(tmp_path / "log")) as new:
            append(new, seal_any())
            with pytest.raises(WriterStopped, match="removed or replaced"):
                append(old, seal_any())
            append(new, seal_any())
    with closing(SegmentsStore(tmp_path / "log")) as store:
        assert len(list(store.read())) == 3
        assert verify(store).problems == ()


def test_a_disk_without_room_for_space_ahead_still_takes_what_fits() -> None:
    with small_and_quiet():
        files = new_disk(SEGMENTS)
        store = SEGMENTS.open(files, clock=Clock())
        put(store, [1])
        put(store, [2])
        files.fail("write", nth=1, error=errno.ENOSPC)  # the zeros that are written ahead
        put(store, [3])
        files.fail("write", nth=1, error=errno.ENOSPC)  # the mark of a clean end
        store.close()
        with closing(SEGMENTS.open(files)) as again:
            assert [recorded.event.payload["n"] for recorded in again.read()] == [1, 2, 3]
            assert verify(again).problems == ()
