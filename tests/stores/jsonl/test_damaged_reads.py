"""Damage of a day file, without git: every way to read stops at the position that nothing accounts for, and says
which file it is and where to go on.

An open handle looks at the newest file and at the folder; what is changed in place in an older file is found by who
reads those lines, and by who opens the log."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.stores.jsonl.own import Clock, day_files, own

from everlog.core.event import Position
from everlog.core.query import Cursor, Query
from everlog.errors import Busy, Damaged, EverlogError
from everlog.files import DiskFiles, Handle
from everlog.log.read.pages import page_after
from everlog.log.verify.verify import verify
from everlog.stores.jsonl.store import JsonlStore

DAY_US = 86_400_000_000
PER_DAY = 3


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(path: Path, clock: Clock) -> Iterator[JsonlStore]:
    """Three days of three events each."""
    store = JsonlStore(path, now_us=clock)
    for number in range(9):
        own(store, stream=f"note/{number % 2}", payload={"text": f"text {number + 1}"})
        if number % PER_DAY == PER_DAY - 1:
            clock.us += DAY_US
    yield store
    store.close()


def flip(file: Path, number: int = 1) -> None:
    """One bit of a payload, and the file keeps its size and its time."""
    before = file.stat()
    data = bytearray(file.read_bytes())
    at = data.find(b"text ", sum(map(len, data.splitlines(keepends=True)[:number])))
    data[at] ^= 1
    with file.open("r+b") as handle:
        handle.write(data)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def flip_and_touch(file: Path) -> None:
    data = bytearray(file.read_bytes())
    at = data.find(b"text ", len(data.splitlines()[0]) + 1)
    data[at] ^= 1
    file.write_bytes(data)


def delete(file: Path) -> None:
    file.unlink()


def cut(file: Path) -> None:
    os.truncate(file, len(file.read_bytes().splitlines(keepends=True)[0]))


def cut_within(file: Path) -> None:
    os.truncate(file, len(file.read_bytes().splitlines(keepends=True)[0]) + 20)


def lengthen(file: Path) -> None:
    with file.open("ab") as handle:
        handle.write(b'{"no":"event"}\n')


def older(file: Path) -> None:
    """An older copy, put under the name."""
    put(file, b"".join(file.read_bytes().splitlines(keepends=True)[:2]))


def put(file: Path, data: bytes) -> None:
    """Replace the file, as git and most editors do it."""
    draft = file.with_name("draft")
    draft.write_bytes(data)
    draft.rename(file)


def empty(file: Path) -> None:
    file.write_bytes(b"")


READS: dict[str, Callable[[JsonlStore], object]] = {
    "read": lambda store: list(store.read()),
    "newest first": lambda store: list(store.read(newest_first=True)),
    "one stream": lambda store: list(store.read(Query(stream="note/1"))),
    "another type": lambda store: list(store.read(Query(types=frozenset({"no.such"})))),
    "scan": lambda store: list(store.blocks()),
    "scan of a kind": lambda store: list(store.blocks(Query(kind="note"))),
    "pages": lambda store: read_pages(store),
    "a page of a stream": lambda store: read_pages(store, Query(stream="note/0")),
}


def read_pages(store: JsonlStore, query: Query = Query()) -> None:  # noqa: B008 - it is frozen
    cursor = Cursor()
    while True:
        page = page_after(store, cursor, query, limit=2)
        if page.next_cursor == cursor:
            return
        cursor = page.next_cursor


# What is done to the second day's file, and the positions that are lost by it. The third day's are three more.
DAMAGE: list[tuple[Callable[[Path], None], int, int]] = [
    (flip, 5, 5),
    (flip_and_touch, 5, 5),
    (delete, 4, 6),
    (empty, 4, 6),
    (cut, 5, 6),
    (cut_within, 5, 6),
    (older, 6, 6),
    (lengthen, 10, 10),
]


@pytest.mark.parametrize("lost", range(4, 7))
@pytest.mark.parametrize("asked", range(1, 10))
def test_the_newest_events_are_read_down_to_the_damage_and_never_past_it(
    path: Path, store: JsonlStore, lost: int, asked: int
) -> None:
    """Also if the page that was asked for would be full of the events on both sides of it."""
    flip(day_files(path)[1], lost - 4)
    other = JsonlStore(path)
    for handle in (store, other):
        found: list[int] = []
        if asked <= 9 - lost:
            found += [recorded.position for recorded in handle.read(newest_first=True, limit=asked)]
        else:
            with pytest.raises(Damaged) as stopped:
                found.extend(recorded.position for recorded in handle.read(newest_first=True, limit=asked))
            assert stopped.value.details["position"] == lost
        assert found == list(range(9, max(lost, 9 - asked), -1))
    other.close()


@pytest.mark.parametrize(("damage", "first", "last"), DAMAGE, ids=[each[0].__name__ for each in DAMAGE])
@pytest.mark.parametrize("handle", ["open", "opened again"])
@pytest.mark.parametrize("how", READS)
def test_every_read_stops_at_damage(
    store: JsonlStore, path: Path, damage: Callable[[Path], None], first: int, last: int, handle: str, how: str
) -> None:
    file = day_files(path)[1 if handle == "opened again" else 2]
    damage(file)
    if handle == "opened again":
        store.close()
        store = JsonlStore(path)
    elif damage is not lengthen:
        first, last = first + 3, last + 3
    if damage is flip and how in ("one stream", "another type", "a page of a stream"):
        list(store.slots())  # what they want is all there; from here on the index knows of the damage
    with pytest.raises(Damaged) as raised:
        READS[how](store)
    details = raised.value.details
    assert (details["position"], details["after"]) == (first, last)
    assert details["file"] == f"events/{file.name}"
    assert "verify" in raised.value.hint
    if damage in (flip, flip_and_touch):
        assert details["line"] == 2
    assert store.head() == max(9, last)
    assert [each.position for each in store.read(after=Position(last))] == list(range(last + 1, 10))
    assert [each.position for each in store.read(upto=Position(first - 1))] == list(range(1, first))
    with pytest.raises(Damaged):
        own(store)
    assert verify(store).problems
    store.close()


def test_what_stands_before_the_damage_is_given_first(store: JsonlStore, path: Path) -> None:
    day_files(path)[1].unlink()
    given: list[int] = []
    with pytest.raises(Damaged):
        given.extend(recorded.position for recorded in store.read())
    assert given == [1, 2, 3]
    given.clear()
    with pytest.raises(Damaged):
        given.extend(recorded.position for recorded in store.read(newest_first=True))
    assert given == [9, 8, 7]
    assert [each.position for each in store.read(limit=3)] == [1, 2, 3]


def test_a_lost_event_is_not_told_as_one_that_never_was(store: JsonlStore, path: Path) -> None:
    fifth = list(store.read())[4].event.id
    flip(day_files(path)[1])
    with pytest.raises(Damaged) as raised:
        store.get(fifth)
    assert raised.value.details["position"] == 5
    sixth = next(iter(store.read(after=Position(5)))).event.id
    assert store.get(sixth) is not None
    with pytest.raises(Damaged):
        store.get(type(fifth)("01J00000000000000000000000"))  # it may be the one that cannot be read


def test_a_repaired_file_is_read_as_before(store: JsonlStore, path: Path) -> None:
    file = day_files(path)[1]
    good, epoch = file.read_bytes(), store.identity.epoch
    for damage, *_ in DAMAGE:
        damage(file)
        other = JsonlStore(path)
        with pytest.raises(Damaged):
            list(other.read())
        other.close()
        put(file, good)
        assert [each.position for each in store.read()] == list(range(1, 10)), damage.__name__
        assert store.identity.epoch == epoch
        assert verify(store).problems == ()
    own(store)


def test_swapped_files_lose_nothing(store: JsonlStore, path: Path) -> None:
    """Which file a line stands in does not matter."""
    first, second, _ = day_files(path)
    before = [recorded.event for recorded in store.read()]
    one, two = first.read_bytes(), second.read_bytes()
    first.write_bytes(two)
    second.write_bytes(one)
    assert [recorded.event for recorded in store.read()] == before
    own(store)
    assert verify(store).problems == ()


def test_a_line_that_cannot_be_read_takes_a_position_in_an_index_from_nothing(store: JsonlStore, path: Path) -> None:
    """A fresh clone of a log whose file is damaged must not read as if nothing were missing."""
    file = day_files(path)[1]
    good = file.read_bytes()
    flip_and_touch(file)
    store.close()
    shutil.rmtree(path / "local")
    again = JsonlStore(path)
    with pytest.raises(Damaged) as raised:
        list(again.read())
    details = raised.value.details
    assert (details["position"], details["after"], details["line"]) == (5, 5, 2)
    assert [each.position for each in again.read(after=Position(5))] == [6, 7, 8, 9]
    epoch = again.identity.epoch
    put(file, good)  # the event is back, and its neighbours must not change their places under a reader
    assert [each.event.payload["text"] for each in again.read()] == [f"text {number}" for number in range(1, 10)]
    assert again.identity.epoch != epoch or [each.position for each in again.read()] == list(range(1, 10))
    assert verify(again).problems == ()
    own(again)
    again.close()


class FailingFiles(DiskFiles):
    """A disk that fails to read day files."""

    def __init__(self) -> None:
        self.number = 0

    def read(self, handle: Handle, size: int, *, at: int) -> bytes:
        if self.number == errno.EIO and handle.path.suffix == ".jsonl":
            raise OSError(errno.EIO, "Input/output error", str(handle.path))
        return super().read(handle, size, at=at)

    def open(self, path: Path, **options: bool) -> Handle:  # type: ignore[override]
        if self.number in (errno.EMFILE, errno.ENFILE) and path.suffix == ".jsonl":
            raise OSError(self.number, "Too many open files", str(path))
        return super().open(path, **options)


@pytest.mark.parametrize(("number", "expected"), [(errno.EIO, Damaged), (errno.EMFILE, Busy), (errno.ENFILE, Busy)])
def test_errors_of_the_disk_become_errors_of_everlog(
    store: JsonlStore, path: Path, number: int, expected: type[EverlogError]
) -> None:
    store.close()
    files = FailingFiles()
    reader = JsonlStore(path, files=files)
    files.number = number
    for name, read in READS.items():
        if name != "another type":  # for that one there is nothing to read
            with pytest.raises(expected):
                read(reader)
    files.number = 0
    assert len(list(reader.read())) == 9
    reader.close()
    shutil.rmtree(path / "local")
    files.number = number
    with pytest.raises(expected):
        JsonlStore(path, files=files)
