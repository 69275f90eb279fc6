"""Notes of a JSONL log that are gone are reported; what a crash left of a line that was never acknowledged is not."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.stores.jsonl.own import codes, own

import everlog
from everlog.consumers.group import Group
from everlog.core.query import Query
from everlog.errors import Damaged
from everlog.files import DiskFiles, Handle
from everlog.stores.jsonl import notes
from everlog.stores.jsonl.store import JsonlStore
from everlog.stores.small_state import read_note, read_notes
from everlog.testing.builders import put_note
from everlog.transfer.copy import copy_log
from everlog.wiring import copy_target


@pytest.fixture
def file(path: Path) -> Path:
    return path / "local" / "notes.jsonl"


@pytest.fixture
def end(path: Path) -> Path:
    return path / "local" / "notes.end"


@pytest.fixture
def store(path: Path) -> Iterator[JsonlStore]:
    """A log with four notes and an event; another handle is opened by the tests that need one."""
    with closing(JsonlStore(path)) as store:
        for number in range(4):
            put(store, f"n{number}", f"text {number}")
        own(store)
        yield store


def put(store: JsonlStore, key: str, text: str | None) -> None:
    with store.open_write() as writer:
        put_note(writer, key, text)


def kept(store: JsonlStore) -> dict[str, str]:
    return read_notes(store.small_state, "")


def is_reported(path: Path, open_one: JsonlStore) -> bool:
    """Whether verify and readers hear of it, in a handle that was open and in a new one, which must agree."""
    found = []
    with closing(JsonlStore(path)) as other:
        for store in (open_one, other):
            lost = store.small_state.lost_notes()
            assert (codes(store) == ["notes_damaged"]) is (lost is not None)
            found.append(lost is not None)
    assert len(set(found)) == 1, found
    return found[0]


def cut_to_lines(count: int) -> Callable[[bytes], bytes]:
    return lambda data: b"".join(data.splitlines(keepends=True)[:count])


def zeroed_from_line(count: int) -> Callable[[bytes], bytes]:
    return lambda data: cut_to_lines(count)(data).ljust(len(data), b"\0")


LOSSES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut behind a line": cut_to_lines(3),
    "cut within a line": lambda data: data[:-10],
    "zeros for a line": zeroed_from_line(3),
    "zeros for its last bytes": lambda data: data[:-20] + bytes(20),
    "all zeros": lambda data: bytes(len(data)),
}


def lose(file: Path, how: str) -> None:
    if how == "removed":
        file.unlink()
    else:
        file.write_bytes(LOSSES[how](file.read_bytes()))


@pytest.mark.parametrize("how", ["removed", *LOSSES])
def test_notes_that_lost_their_end_are_reported_until_that_is_accepted(
    path: Path, store: JsonlStore, file: Path, how: str
) -> None:
    """G10: whatever is written after it."""
    assert not is_reported(path, store)
    lose(file, how)
    left = kept(store)
    assert len(left) < 4
    assert is_reported(path, store)
    put(store, "later", "kept")
    assert is_reported(path, store)
    own(store, stream="note/2")
    with store.open_write() as writer:
        writer.purge("note/2", actor="user:ada", reason="asked to")
    assert is_reported(path, store)
    put(store, "last", "kept")
    store.rebuild_index()
    assert is_reported(path, store)
    store.rebuild_index(accept_missing=True)
    assert not is_reported(path, store)
    assert kept(store) == {**left, "later": "kept", "last": "kept"}
    put(store, "n0", "again")
    assert not is_reported(path, store)
    lose(file, "cut behind a line")
    assert is_reported(path, store)


class Full(DiskFiles):
    """There is no room for the end of the notes."""

    def write(self, handle: Handle, data: bytes, *, at: int) -> int:
        if handle.path.name == "notes.end":
            raise OSError(errno.ENOSPC, "no space left")
        return super().write(handle, data, at=at)


@pytest.mark.parametrize("rewritten", [False, True])
def test_an_older_copy_of_the_notes_is_reported(path: Path, store: JsonlStore, file: Path, rewritten: bool) -> None:
    """Also if the file was rewritten since and is shorter now."""
    older = file.read_bytes()
    if rewritten:
        for number in range(1, 4):
            put(store, f"n{number}", None)
        for stream in ("note/1", "note/2"):
            own(store, stream=stream)
            with store.open_write() as writer:
                writer.purge(stream, actor="user:ada", reason="asked to")
        assert file.stat().st_size < len(older)
    else:
        put(store, "n4", "text 4")
    newer = file.read_bytes()
    file.write_bytes(cut_to_lines(1)(newer))  # also before the next line is written
    assert is_reported(path, store)
    file.write_bytes(older)
    assert is_reported(path, store)
    file.write_bytes(newer)
    assert not is_reported(path, store)
    file.write_bytes(older)
    with closing(JsonlStore(path, files=Full())) as other:  # as a kill leaves it
        other.rebuild_index(accept_missing=True)
    assert not is_reported(path, store)


def test_a_file_of_notes_that_is_rewritten_is_whole_at_every_moment(
    path: Path, store: JsonlStore, file: Path, end: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill may leave the end of the file before, or one of the longer file that was replaced."""
    monkeypatch.setattr(notes, "_DEAD_LINES_MAX", 5)
    shortest = len(file.read_bytes())
    for number in range(40):
        before = end.read_bytes()
        put(store, "progress", str(number))
        now = end.read_bytes()
        end.write_bytes(before)
        assert not is_reported(path, store)
        end.write_bytes(now)
        assert not is_reported(path, store)
        shortest = min(shortest, file.stat().st_size)
    assert kept(store)["progress"] == "39"
    lose(file, "cut behind a line")
    assert is_reported(path, store)


def test_a_write_that_was_cut_short_is_no_damage_and_is_cut_off(path: Path, store: JsonlStore, file: Path) -> None:
    """It was never acknowledged."""
    before = kept(store)
    whole = file.read_bytes()
    for torn in (b'{"at":1,"notes":{"n9":["te', b'{"at":1' + bytes(100), bytes(512), whole.splitlines()[0]):
        file.write_bytes(whole + torn)
        assert not is_reported(path, store)
        assert kept(store) == before
    put(store, "later", "kept")
    assert file.read_bytes().startswith(whole + b'{"at":1,"notes":{"later"')
    assert kept(store) == {**before, "later": "kept"}
    assert not is_reported(path, store)


@pytest.mark.parametrize("content", [b"", b"garbage\n", bytes(60), None])
def test_without_a_known_end_the_notes_are_as_they_are(
    path: Path, store: JsonlStore, file: Path, end: Path, content: bytes | None
) -> None:
    before = kept(store)
    if content is None:
        end.unlink()
    else:
        end.write_bytes(content)
    assert not is_reported(path, store)
    assert kept(store) == before
    put(store, "later", "kept")
    lose(file, "cut behind a line")
    assert is_reported(path, store)


def test_an_end_that_cannot_be_kept_does_not_fail_a_write(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with closing(JsonlStore(path, files=Full())) as store, caplog.at_level(logging.WARNING, "everlog"):
        put(store, "later", "kept")
        assert "end of the notes" in caplog.text
        assert read_note(store.small_state, "later") == "kept"
        assert not is_reported(path, store)


def test_a_last_line_that_lacks_only_its_newline_is_whole(path: Path, store: JsonlStore, file: Path) -> None:
    before = kept(store)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert kept(store) == before
    assert not is_reported(path, store)
    put(store, "later", "kept")
    assert file.read_bytes().startswith(whole)
    assert kept(store) == {**before, "later": "kept"}
    assert not is_reported(path, store)


class Interrupted(DiskFiles):
    """Another handle writes just before this one looks how far the notes were acknowledged."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: list[Callable[[], None]] = []

    def exists(self, path: Path) -> bool:
        if path.name == "notes.end" and self.meanwhile:
            self.meanwhile.pop()()
        return super().exists(path)


@pytest.mark.parametrize("is_first", [False, True])
def test_notes_that_grow_while_they_are_read_are_no_damage(path: Path, is_first: bool) -> None:
    files = Interrupted()
    with closing(JsonlStore(path)) as writing, closing(JsonlStore(path, files=files)) as reading:
        if not is_first:
            put(writing, "n0", "text 0")
        files.meanwhile.append(lambda: put(writing, "n1", "text 1"))
        assert reading.small_state.lost_notes() is None
        assert not files.meanwhile
        assert kept(reading)["n1"] == "text 1"
        assert reading.small_state.lost_notes() is None


def test_the_error_names_the_file_and_the_way_on(store: JsonlStore, file: Path) -> None:
    lose(file, "cut behind a line")
    with pytest.raises(Damaged, match="lacks lines") as raised:
        store.small_state.refuse_lost_notes()
    assert (raised.value.exit_code, raised.value.details["file"]) == (8, "local/notes.jsonl")
    assert "docs/how-to/rescue.md" in raised.value.hint


def test_what_lists_or_copies_notes_stops_where_some_are_lost(path: Path, tmp_path: Path, file: Path) -> None:
    with everlog.open(f"jsonl:{path}", actor="user:ada") as log:
        log.append("note.added", stream="note/1", payload={"text": "one"})
        group = Group(log, "readers", Query(kind="note"))
        with group.member("one") as member:
            for delivery in member.deliveries(to_end=True):
                delivery.ack()
        assert group.dead_letters() == []
        lose(file, "empty")
        with pytest.raises(Damaged, match=r"notes\.jsonl"):
            group.dead_letters()
        with pytest.raises(Damaged, match=r"notes\.jsonl"):
            copy_log(log._store, copy_target(f"jsonl:{tmp_path / 'copy'}", base=Path()))
        assert not (tmp_path / "copy").exists()
        assert len(list(log.read())) == 1
