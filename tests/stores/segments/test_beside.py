"""Readers, views and checks beside writers that are killed and recover, purge, pack and close: nothing acknowledged
is missing, nothing that was shown is gone, and nobody is alarmed for nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from everlog.core.event import Position, Purged
from everlog.files import DiskFiles, Handle
from everlog.stores.segments import columns
from everlog.stores.segments.format.frame import encode_frame, mark_of
from everlog.stores.segments.format.frames import Found, TailKind, Walk
from everlog.stores.segments.format.source import PlainSource
from everlog.stores.segments.store import SegmentsStore
from everlog.testing.builders import stamped

SCRIPT = Path(__file__).with_name("beside.py")
KILLS = 16
RUNS, RUNS_FULL = 1, 11


def start(role: str, path: Path, *more: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), role, str(path), *map(str, more)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def beside(path: Path, roles: list[str], *, seed: int, what: str) -> tuple[list[tuple[str, str]], dict[str, Any]]:
    """Kill writers beside these; what was acknowledged, and what each of them found."""
    SegmentsStore(path).close()
    others = {role: start(role, path) for role in roles}
    try:
        for role, process in others.items():
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise AssertionError(f"{role}: {process.communicate()[1]}")
        output, errors = start("writers", path, seed, KILLS, what).communicate(timeout=120)
        found = {}
        for role, process in others.items():
            process.terminate()
            said, also = process.communicate(timeout=120)
            assert process.returncode == 0, f"{role}: {also}"
            found[role] = json.loads(said.splitlines()[-1])
    finally:
        for process in others.values():
            process.kill()
            process.wait()
    assert "failed" not in output, output + errors
    acked = [(words[0], words[1]) for words in map(str.split, output.splitlines()) if len(words) == 2]
    assert acked, errors
    return acked, found


def runs(config: pytest.Config) -> range:
    return range(RUNS_FULL if config.getoption("--full") else RUNS)


def test_a_reader_and_a_view_beside_killed_writers_miss_nothing_and_keep_nothing_that_is_gone(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    for run in runs(pytestconfig):
        path = tmp_path / str(run)
        acked, found = beside(path, ["reader", "view", "fresh"], seed=run, what="close")
        store = SegmentsStore(path, create=False)
        there = {(str(record.position), record.event.id) for record in store.read()}
        assert [one for one in acked if one not in there] == []
        assert list(store.check()) == []
        store.close()
        assert {role: one["wrong"] for role, one in found.items() if one["wrong"]} == {}
        assert min(one["times"] for one in found.values()) > 0


def test_readers_and_verify_beside_purges_and_packing_raise_no_false_alarm(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    for run in runs(pytestconfig):
        path = tmp_path / str(run)
        _, found = beside(path, ["reader", "view", "fresh", "check"], seed=100 + run, what="close purge archive")
        assert {role: one["wrong"] for role, one in found.items() if one["wrong"]} == {}
        store = SegmentsStore(path)
        with store.open_write():
            pass
        assert list(store.check()) == []
        store.close()


# ---- the same, one step at a time


def add(store: SegmentsStore, stream: str = "note/1", size: int = 1000) -> None:
    with store.open_write() as writer:
        writer.append([stamped(writer, store.identity.origin, stream=stream, payload={"pad": "x" * size})])


@pytest.mark.parametrize("archived", [False, True])
def test_a_reader_finds_its_segment_written_anew_and_shorter(tmp_path: Path, archived: bool) -> None:
    """It knew the segment as the live one, up to a byte that the file does not have any more."""
    writer = SegmentsStore(tmp_path / "log")
    for number in range(5):
        add(writer, f"note/{number % 2}")
    reader = SegmentsStore(tmp_path / "log")
    assert reader.head() == 5
    with writer.open_write() as open_write:
        open_write.purge("note/0", actor="user:ada", reason="asked to")
    if archived:
        writer.archive(days=0)
    assert reader.head() == 6
    assert [record.position for record in reader.read()] == [2, 4]
    assert list(reader.check()) == []
    writer.close()
    reader.close()


class Shrinking(PlainSource):
    """A segment that becomes shorter after it was read for the first time."""

    def read(self, at: int, size: int) -> bytes:
        found = super().read(at, size)
        with self._handle.path.open("r+b") as file:
            file.truncate(4)
        return found


def test_a_walk_through_a_file_that_becomes_shorter_ends_without_an_error(tmp_path: Path) -> None:
    mark = mark_of("log", 1)
    frame = encode_frame(mark, 8, 1, 1, None, [], _rest())
    path = tmp_path / "00000001.seg"
    path.write_bytes(bytes(8) + frame + b"\0\0\1\0 half a write")
    walk = Walk(Shrinking(DiskFiles(), path), mark=mark, start=8, head=Position(0))
    assert [type(found) for found in walk] == [Found]
    assert walk.tail is TailKind.END


class Late(DiskFiles):
    """A disk on which a read shows space of a moment ago in front of a frame of now."""

    def __init__(self, hidden: range, times: int) -> None:
        self.hidden = hidden
        self.left = times

    def read(self, handle: Handle, size: int, *, at: int) -> bytes:
        found = bytearray(super().read(handle, size, at=at))
        if self.left and 0 < at <= self.hidden.start and at + len(found) >= self.hidden.stop:
            self.left -= 1
            found[self.hidden.start - at : self.hidden.stop - at] = bytes(len(self.hidden))
        return bytes(found)


def test_a_frame_that_was_written_while_the_one_behind_it_was_read_is_no_gap(tmp_path: Path) -> None:
    store = SegmentsStore(tmp_path / "log")
    add(store)
    start_at = store.state.live.end
    add(store)
    end = store.state.live.end
    add(store)
    for hidden, times in ((range(start_at, end), 1), (range(start_at, end), 2), (range(start_at, start_at + 100), 2)):
        files = Late(hidden, times)
        reader = SegmentsStore(tmp_path / "log", files=files)
        assert files.left == 0
        assert [record.position for record in reader.read()] == [1, 2, 3]
        assert reader.state.first_problem() is None
        reader.close()
    store.close()


class Missing(DiskFiles):
    """A disk whose list of a folder lacks a file for once: it was exchanged while the folder was listed."""

    def __init__(self, name: str, nth: int) -> None:
        self.name = name
        self.nth = nth

    def names(self, directory: Path) -> list[str]:
        found = super().names(directory)
        self.nth -= self.name in found
        return [name for name in found if name != self.name or self.nth != 0]


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_list_that_lacks_a_file_for_a_moment_is_looked_at_again(tmp_path: Path, nth: int) -> None:
    store = SegmentsStore(tmp_path / "log", segment_bytes_max=1)
    for _ in range(4):
        add(store)
    store.close()
    files = Missing("00000002.seg", nth)
    reader = SegmentsStore(tmp_path / "log", files=files)
    assert [record.position for record in reader.read()] == [1, 2, 3, 4]
    assert list(reader.check()) == []
    assert files.nth < 0
    reader.close()


def _rest() -> Any:
    from everlog.stores.segments.format.frame import CLOSED, Rest

    return Rest(CLOSED, Position(0), Position(0))


def test_a_segment_that_was_written_anew_twice_still_says_how_far_it_went(tmp_path: Path) -> None:
    store = SegmentsStore(tmp_path / "log", segment_bytes_max=1)
    with store.open_write() as writer:
        for number in range(2):
            writer.append([stamped(writer, store.identity.origin, stream=f"note/{number}")])
    add(store, "note/2")
    for stream in ("note/1", "note/2"):
        with store.open_write() as writer:
            writer.purge(stream, actor="user:ada", reason="asked to")
    assert store.state.segments[0].generation == 2
    assert store.state.segments[0].head == 2
    assert [record.position for record in store.read()] == [1]
    store.close()


READS: dict[str, Callable[[SegmentsStore], Iterator[list[int]]]] = {
    "read": lambda store: ([one.position] for one in store.read()),
    "newest first": lambda store: ([one.position] for one in store.read(newest_first=True)),
    "blocks": lambda store: (list(block.positions) for block in store.blocks()),
    "slots": lambda store: ([place.position] for place in store.slots()),
    "groups": lambda store: (
        [one.recorded.position for one, _, _ in group.linked()]
        for group in store.groups()
        if not isinstance(group, Purged)
    ),
}


@pytest.mark.parametrize("how", [*READS, "get"])
def test_a_read_goes_on_where_it_is_when_earlier_segments_are_packed_meanwhile(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The live segment, by which a reader notices most changes, stays as it is."""
    monkeypatch.setattr(columns, "SLAB_EVENTS", 2)
    writer = SegmentsStore(tmp_path / "log", segment_bytes_max=2_000)
    for number in range(30):
        add(writer, f"note/{number % 2}", size=200)
    with closing(SegmentsStore(tmp_path / "log")) as reader:
        records = list(reader.read())
        if how != "get":
            reading = READS[how](reader)
            found = next(reading)
        assert writer.archive(days=0)
        if how == "get":
            found = [one.position for record in records if (one := reader.get(record.event.id)) is not None]
        else:
            found += [position for some in reading for position in some]
        assert sorted(found) == list(range(1, 31))
        assert len(set(found)) == len(found)
    writer.close()
