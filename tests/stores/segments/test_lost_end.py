"""Whole frames that are gone from the end of the live segment: noticed where anything remembers them."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlog.errors import Damaged
from everlog.stores.segments.known_end import read_end
from everlog.stores.segments.store import SegmentsStore
from everlog.testing.builders import stamped


def add(store: SegmentsStore) -> int:
    """Where the frame ends."""
    with store.write() as writer:
        writer.append([stamped(writer, store.identity.origin)])
    return store.book.live.end


@pytest.fixture
def closed(tmp_path: Path) -> tuple[Path, list[int]]:
    store = SegmentsStore(tmp_path / "log")
    ends = [add(store) for _ in range(4)]
    store.close()
    return tmp_path / "log", ends


@pytest.mark.parametrize("zeroed", [False, True])
@pytest.mark.parametrize("kept", [1, 2, 4])
def test_a_closed_log_that_lost_whole_frames_takes_no_writes(
    closed: tuple[Path, list[int]], kept: int, zeroed: bool
) -> None:
    """G10: their positions would be given out again. The last frame only says that the log was closed."""
    path, ends = closed
    file = path / "segments" / "00000001.seg"
    content = file.read_bytes()
    file.write_bytes(content[: ends[kept - 1]] + bytes(len(content) - ends[kept - 1] if zeroed else 0))
    store = SegmentsStore(path)
    assert [(problem.position, problem.code) for problem in store.check()] == [(kept + 1, "segment_cut")]
    assert [recorded.position for recorded in store.read()] == list(range(1, kept + 1))
    with pytest.raises(Damaged) as told:
        add(store)
    assert "lost its end" in str(told.value.why)
    store.close()


def test_what_is_remembered_of_the_end_does_not_stand_in_the_way_of_a_longer_log(
    closed: tuple[Path, list[int]],
) -> None:
    path, _ = closed
    for _ in range(2):  # closed, killed, closed
        store = SegmentsStore(path)
        add(store)
        assert list(SegmentsStore(path).check()) == []
        store.close()
        assert list(SegmentsStore(path).check()) == []


@pytest.mark.parametrize("content", [b"", b"\0\0\0\x05hello", b"\xff\xff\xff\xff"])
def test_a_remembered_end_that_is_damaged_or_gone_says_nothing(
    closed: tuple[Path, list[int]], content: bytes
) -> None:
    path, _ = closed
    known = path / "index" / "end"
    known.unlink()
    if content:
        known.write_bytes(content)
    store = SegmentsStore(path)
    assert list(store.check()) == []
    add(store)
    store.close()
    found = read_end(store.files, store.layout, log_id=store.identity.log_id)
    assert found is not None
    assert found.head == 5


def test_an_end_of_another_log_says_nothing(closed: tuple[Path, list[int]], tmp_path: Path) -> None:
    path, _ = closed
    other = SegmentsStore(tmp_path / "other")
    add(other)
    (tmp_path / "other" / "index" / "end").write_bytes((path / "index" / "end").read_bytes())
    assert list(other.check()) == []
    other.close()
