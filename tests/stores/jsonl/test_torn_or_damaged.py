"""What is cut from the end of a day file, and what is damage: nothing that was acknowledged is taken for a tear."""

from __future__ import annotations

import logging
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from tests.stores.jsonl.own import codes, day_files, texts

from everlog.catalog.builtin import BUILT_IN
from everlog.errors import Damaged
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.stores.jsonl.day_files import OpenDayFile, looks_torn
from everlog.stores.jsonl.store import JsonlStore
from everlog.testing.builders import stamped
from everlog.testing.filling import positions


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


def put(store: JsonlStore, *texts: str, stream: str = "note/1") -> None:
    """One write."""
    with store.open_write() as writer:
        for text in texts:
            made = stamped(writer, store.identity.origin, stream=stream, payload={"text": text})
            writer.append([made], fresh=True)


def day_file(path: Path) -> Path:
    (file,) = (path / "events").iterdir()
    return file


def test_the_rest_of_a_write_that_the_index_knows_is_not_cut_when_its_end_is_lost(path: Path) -> None:
    store = JsonlStore(path)
    put(store, "before")
    put(store, "a", "b", "c", "d", "e")
    store.close()
    file = day_file(path)
    whole = file.read_bytes()
    rest = b"".join(whole.splitlines(keepends=True)[:-1])
    file.write_bytes(rest)

    again = JsonlStore(path)
    assert positions(again.read(limit=5)) == [1, 2, 3, 4, 5]
    with pytest.raises(Damaged, match="damaged at position 6"):
        list(again.read())
    assert codes(again) == ["log_cut_off"]
    with pytest.raises(Damaged, match="in no file any more"):
        put(again, "more")
    assert file.read_bytes() == rest

    file.write_bytes(whole)
    put(again, "more")
    assert (positions(again.read()), codes(again)) == ([1, 2, 3, 4, 5, 6, 7], [])
    again.close()


def test_a_record_of_a_purge_that_the_index_knows_is_not_cut_either(path: Path) -> None:
    store = JsonlStore(path)
    put(store, "kept", stream="note/kept")
    put(store, "gone", stream="note/gone")
    with store.open_write() as writer:
        writer.purge("note/gone", actor="user:ada", reason="asked to")
    store.close()
    file = day_file(path)
    torn = file.read_bytes()[:-20]
    file.write_bytes(torn)
    again = JsonlStore(path)
    with pytest.raises(Damaged, match="takes no writes"):
        put(again, "more")
    assert (file.read_bytes(), "line_unreadable" in codes(again)) == (torn, True)
    again.close()


@pytest.mark.parametrize("index", ["kept", "gone"])
def test_a_byte_that_became_zero_at_the_end_of_a_sector_is_damage(path: Path, index: str) -> None:
    """A part of a sector that never came is more than one byte."""
    store = JsonlStore(path)
    put(store, "@" * 2000)
    store.close()
    file = day_file(path)
    data = bytearray(file.read_bytes())
    assert data[1023] == ord("@")
    data[1023] = 0
    file.write_bytes(data)
    if index == "gone":
        for each in (path / "local").glob("index.db*"):
            each.unlink()
    again = JsonlStore(path)
    assert "line_unreadable" in codes(again)
    with pytest.raises(Damaged, match="takes no writes"):
        put(again, "more")
    assert file.read_bytes() == data
    again.close()


@pytest.mark.parametrize(
    ("begin", "zeros", "torn"),
    [
        (0, (512, 1024), True),  # a whole sector
        (100, (0, 412), True),  # all that the write had in its first sector
        (511, (0, 1), True),  # which may be a single byte
        (0, (1000, 1024), True),  # a sector of which a part came
        (0, (1024, 1300), True),  # the last one, up to the end of the file
        (0, (1023, 1024), False),  # the last byte of a sector
        (0, (1017, 1024), False),  # too few
        (0, (1024, 1040), False),  # the first ones of a sector
    ],
)
def test_only_many_zeros_up_to_a_sector_or_the_end_are_what_never_came(
    begin: int, zeros: tuple[int, int], torn: bool
) -> None:
    tail = bytearray(b"{" + b"x" * 1298 + b"\n")
    tail[zeros[0] : zeros[1]] = bytes(zeros[1] - zeros[0])
    assert looks_torn(bytes(tail), begin, begin) is torn


def test_a_read_leaves_a_torn_tail_and_the_next_write_cuts_it(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """G11: a read never writes."""
    store = JsonlStore(path)
    put(store, "one")
    store.close()
    file = day_file(path)
    whole = file.read_bytes()
    torn = whole + whole[:50]
    file.write_bytes(torn)
    with caplog.at_level(logging.WARNING, "everlog"):
        reader = JsonlStore(path)
        assert (positions(reader.read()), codes(reader), reader.head()) == ([1], [], 1)
        writer = JsonlStore(path)
        assert writer.head() == 1
        assert file.read_bytes() == torn
        assert "50 bytes of a write that was never finished are ignored" in caplog.text
        assert "cut 50 bytes" not in caplog.text
        put(writer, "two")
        assert "cut 50 bytes" in caplog.text
    assert file.read_bytes().startswith(whole + b'{"actor"')
    torn = file.read_bytes() + whole[:50]
    file.write_bytes(torn)
    for each in (writer, reader):  # a handle that has cut once does not cut when it reads, either
        assert (positions(each.read()), codes(each)) == ([1, 2], [])
        assert file.read_bytes() == torn
        each.close()


class Killed(BaseException):
    pass


def test_who_looked_before_the_copy_had_an_origin_takes_half_a_batch_for_torn(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    JsonlStore(path).close()
    shutil.rmtree(path / "local")  # a fresh clone
    reader, writer = JsonlStore(path), JsonlStore(path)
    assert reader.identity.origin == ""
    put(writer, "first")
    assert reader.head() == 1
    append = OpenDayFile.append

    def half(self: OpenDayFile, data: bytes, *, at: int) -> None:
        append(self, data[: data.index(b"\n") + 1], at=at)
        raise Killed

    monkeypatch.setattr(OpenDayFile, "append", half)
    with pytest.raises(Killed):
        put(writer, "a", "b", "c")
    assert positions(reader.read()) == [1]
    reader.close()
    writer.close()


@pytest.mark.parametrize("left", [b'{"actor', b"\0" * 40], ids=["half a line", "zeros"])
def test_a_torn_line_takes_nothing_of_the_batch_before_it(path: Path, left: bytes) -> None:
    with closing(JsonlStore(path)) as store:
        log = Log(store, BUILT_IN, actor="user:ada")
        log.append_batch([Draft("note.added", "note/1", {"text": text}) for text in "ab"])
    (file,) = day_files(path)
    with file.open("ab") as end:
        end.write(left)
    for index in (path / "local").glob("index.db*"):
        index.unlink()
    with closing(JsonlStore(path)) as store, closing(JsonlStore(path)) as other:
        assert texts(store) == ["a", "b"]
        Log(other, BUILT_IN, actor="user:ada").append("note.added", stream="note/1", payload={"text": "c"})
        assert texts(store) == texts(other) == ["a", "b", "c"]
        assert codes(store) == []
