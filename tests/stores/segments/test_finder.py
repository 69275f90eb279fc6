"""What is looked up by name in an index file: only when somebody asks, and whatever became of the file since."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from everlog.core.event import Position
from everlog.core.query import Query
from everlog.stores.contract import CLAIM_BYTES, Claim
from everlog.stores.segments.packed_index import PackedPart
from everlog.stores.segments.store import SegmentsStore
from everlog.testing.builders import Chain
from everlog.testing.store_contract import positions

STREAMS = 5
EVENTS = 60


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log whose index has several files."""
    monkeypatch.setattr("everlog.stores.segments.index.BLOCK_POSITIONS", 4)
    monkeypatch.setattr("everlog.stores.segments.index.PART_EVENTS_MAX", 16)
    monkeypatch.setattr("everlog.stores.segments.writing.PART_EVENTS_MIN", 1)
    store = SegmentsStore(tmp_path / "log", segment_bytes_max=8192, space_bytes=512)
    chain = Chain()
    for number in range(EVENTS):
        with store.write() as writer:
            recorded = writer.append([chain.next(type="note.added", stream=f"note/{number % STREAMS}")])
            writer.claim(NAMES[number], recorded[0].position, 1)
    store.close()
    return tmp_path / "log"


NAMES = [hashlib.sha256(b"%d" % number).digest()[:CLAIM_BYTES] for number in range(EVENTS)]


@pytest.fixture
def store(folder: Path) -> Iterator[SegmentsStore]:
    store = SegmentsStore(folder)
    assert len(packed(store)) > 3
    yield store
    store.close()


def packed(store: SegmentsStore) -> list[PackedPart]:
    return [part for part in store.book.parts if isinstance(part, PackedPart)]


def test_who_reads_through_a_log_loads_no_names(store: SegmentsStore) -> None:
    assert positions(store.read()) == list(range(1, EVENTS + 1))
    assert positions(store.read(Query(types=frozenset(["note.added"])))) == list(range(1, EVENTS + 1))
    assert all(part._found is None for part in packed(store))
    assert positions(store.read(Query(stream="note/3"))) == list(range(4, EVENTS + 1, STREAMS))
    assert all(part._found is not None for part in packed(store))


def remove(path: Path) -> None:
    path.unlink()


def spoil(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + b"?" + data[len(data) // 2 + 1 :])


@pytest.mark.parametrize("what", [remove, spoil])
def test_an_index_file_that_goes_while_the_log_is_open_is_not_missed(
    store: SegmentsStore, folder: Path, what: Callable[[Path], None]
) -> None:
    for path in (folder / "index").iterdir():
        what(path)
    for number in range(STREAMS):
        wanted = list(range(number + 1, EVENTS + 1, STREAMS))
        assert positions(store.read(Query(stream=f"note/{number}"))) == wanted
        assert store.sequence(f"note/{number}") == len(wanted)
    assert [store.claimed(name) for name in NAMES] == [Claim(Position(place), 1) for place in range(1, EVENTS + 1)]
    assert store.claimed(bytes(CLAIM_BYTES)) is None
