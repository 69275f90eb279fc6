"""What is looked up by name in an index file: only when somebody asks, and whatever became of the file since."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from everlog.core.event import START, Position
from everlog.core.query import Query
from everlog.errors import Damaged
from everlog.files import DiskFiles
from everlog.stores.contract import CLAIM_BYTES, CLAIMS_KEPT_US_MIN, Claim, Problem
from everlog.stores.segments import reader
from everlog.stores.segments.format.frames import Found
from everlog.stores.segments.format.source import Source
from everlog.stores.segments.index import live_part
from everlog.stores.segments.index.packed_part import PackedPart, any_columns, file_of
from everlog.stores.segments.state import LogState
from everlog.stores.segments.store import SegmentsStore
from everlog.stores.segments.stretches import Stretch, frames
from everlog.stores.small_state import CLAIMS, read_claim
from everlog.testing.builders import Chain, claimed_among, put_claim, put_note
from everlog.testing.filling import positions
from everlog.wiring import open_store

STREAMS = 5
EVENTS = 60


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log whose index has several files."""
    monkeypatch.setattr("everlog.stores.segments.index.live_part.BLOCK_POSITIONS", 4)
    monkeypatch.setattr("everlog.stores.segments.index.live_part.PART_EVENTS_MAX", 16)
    monkeypatch.setattr("everlog.stores.segments.writer.PART_EVENTS_MIN", 1)
    store = SegmentsStore(tmp_path / "log", segment_bytes_max=8192, space_bytes=512)
    chain = Chain()
    for number in range(EVENTS):
        with store.open_write() as writer:
            recorded = writer.append([chain.next(type="note.added", stream=f"note/{number % STREAMS}")])
            put_claim(writer, NAMES[number], recorded[0].position, 1)
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
    return [part for part in store.state.parts if isinstance(part, PackedPart)]


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
        assert store._sequence(f"note/{number}") == len(wanted)
    assert [read_claim(store.small_state, name) for name in NAMES] == [
        Claim(Position(place), 1) for place in range(1, EVENTS + 1)
    ]
    assert read_claim(store.small_state, bytes(CLAIM_BYTES)) is None


def test_an_index_file_may_go_at_the_moment_when_it_is_read(
    store: SegmentsStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_all, gone = DiskFiles.read_all, list[Path]()

    def just_removed(files: DiskFiles, path: Path) -> bytes:
        if path.parent == folder / "index":
            gone.append(path)
            path.unlink()
        return read_all(files, path)

    monkeypatch.setattr(DiskFiles, "read_all", just_removed)
    assert positions(store.read(Query(stream="note/3"))) == list(range(4, EVENTS + 1, STREAMS))
    assert len(gone) > 3


def test_an_index_file_that_is_whole_and_differs_from_the_log_is_reported_with_its_name(
    store: SegmentsStore, folder: Path
) -> None:
    """Its checksum is right, so it would be used: only `verify` compares it with the log."""
    path = min((folder / "index").iterdir())
    columns = any_columns(path.read_bytes(), log_id=store.identity.log_id, number=1)
    assert columns is not None
    path.write_bytes(file_of(msgspec.structs.replace(columns, stream_lasts=bytes(len(columns.stream_lasts)))))

    reported = [Problem(START, "index_disagrees", f"{path.name} does not match the log")]
    assert list(store.check()) == reported
    with closing(SegmentsStore(folder, create=False)) as other:
        assert list(other.check()) == reported


@pytest.fixture
def damaged(store: SegmentsStore, folder: Path) -> Iterator[SegmentsStore]:
    """Open for writing when its index files went and its first segment broke. Nothing is written to it any more."""
    with store.open_write() as writer:
        put_note(writer, "a", "note")  # so that closing it would write something, too
    for path in (folder / "index").iterdir():
        path.unlink()
    path = folder / "segments" / "00000001.seg"
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"?" * 8)
    before = {path.name: path.read_bytes() for path in (folder / "segments").iterdir()}
    yield store
    store.close()
    assert {path.name: path.read_bytes() for path in (folder / "segments").iterdir()} == before


def test_a_writer_who_looks_for_a_stream_in_damage_is_refused(damaged: SegmentsStore) -> None:
    """The last number of the stream may be lost in it, and is not given out again (G10)."""
    with pytest.raises(Damaged, match="takes no writes"), damaged.open_write() as writer:
        writer.append([Chain().next(type="note.added", stream="note/99")])


def test_a_claim_that_is_lost_in_damage_is_not_made_again(damaged: SegmentsStore) -> None:
    with pytest.raises(Damaged, match="takes no writes"), damaged.open_write() as writer:
        for name in NAMES:
            assert read_claim(writer, name) is not None


def test_a_write_that_goes_on_after_it_met_damage_is_refused(damaged: SegmentsStore) -> None:
    with pytest.raises(Damaged, match="takes no writes"), damaged.open_write() as writer:
        with suppress(Damaged):
            read_claim(writer, NAMES[0])
        put_note(writer, "another", "note")


def test_a_writer_who_read_of_damage_is_refused(damaged: SegmentsStore) -> None:
    assert None in [read_claim(damaged.small_state, name) for name in NAMES]  # whoever reads sees what is left
    for _ in range(2):
        with pytest.raises(Damaged, match="takes no writes"), damaged.open_write() as writer:
            put_note(writer, "another", "note")


def test_damage_that_was_read_of_is_not_packed(damaged: SegmentsStore) -> None:
    assert None in [read_claim(damaged.small_state, name) for name in NAMES]
    with pytest.raises(Damaged, match="takes no writes"):
        damaged.archive(days=0)


def test_a_stream_that_is_purged_is_found_without_its_index_files(store: SegmentsStore, folder: Path) -> None:
    with store.open_write():
        pass
    for path in (folder / "index").iterdir():
        path.unlink()
    with store.open_write() as writer:
        writer.purge("note/3", actor="user:ada", reason="a test")
    assert positions(store.read(Query(stream="note/3"))) == []
    assert len(positions(store.read())) == EVENTS - EVENTS // STREAMS


def test_claims_that_are_too_old_to_count_are_neither_asked_for_nor_loaded(folder: Path) -> None:
    """A log of years answers whether a key is new by the parts of its last day."""
    now = [time.time_ns() // 1000]
    store = SegmentsStore(folder, now_us=lambda: now[0])
    now[0] += CLAIMS_KEPT_US_MIN - 60_000_000
    assert [read_claim(store.small_state, name) is not None for name in NAMES] == [True] * EVENTS
    store.close()
    store = SegmentsStore(folder, now_us=lambda: now[0])
    now[0] += 120_000_000
    assert not any(read_claim(store.small_state, name) for name in NAMES[: EVENTS // 2])
    assert not claimed_among(store.small_state, NAMES[: EVENTS // 2])
    assert all(part._found is None for part in packed(store))
    kept = {bytes.fromhex(row.key) for row in store.small_state.every_row() if row.space == CLAIMS}
    assert kept == set(NAMES)  # a copy takes them all
    store.close()


def test_a_claim_on_an_event_of_another_part_counts_as_long_as_that_may(folder: Path) -> None:
    """A copy brings its claims apart from their events: they may be younger than what stands around them."""
    now = [time.time_ns() // 1000]
    long_ago = now[0] - 3 * CLAIMS_KEPT_US_MIN
    store = SegmentsStore(folder, now_us=lambda: long_ago)
    name, chain = b"brought by copy ", Chain()
    for number in range(20):
        with store.open_write() as writer:
            writer.append([chain.next(stream=f"late/{number}")])
            if number == 0:
                put_claim(writer, name, Position(EVENTS), 1)
    store.close()
    store = SegmentsStore(folder, now_us=lambda: now[0])
    (holding,) = [part for part in packed(store) if name in dict(part.claims())]
    assert max(holding.latest_us) == long_ago
    assert read_claim(store.small_state, name) == Claim(Position(EVENTS), 1)
    assert claimed_among(store.small_state, [name]) == {name}
    store.close()


@pytest.mark.parametrize(("given_days", "kept_days"), [(0, 1), (3, 3)])
def test_claims_count_for_as_long_as_is_set_and_never_less_than_a_day(
    folder: Path, given_days: int, kept_days: int
) -> None:
    now = [time.time_ns() // 1000]
    day_us, minute_us = CLAIMS_KEPT_US_MIN, 60_000_000
    kept_us = given_days * day_us
    now[0] += kept_days * day_us - minute_us
    with closing(SegmentsStore(folder, now_us=lambda: now[0], claims_kept_us=kept_us)) as store:
        assert read_claim(store.small_state, NAMES[0]) is not None
        assert claimed_among(store.small_state, NAMES[:1]) == set(NAMES[:1])
    now[0] += 2 * minute_us
    with closing(SegmentsStore(folder, now_us=lambda: now[0], claims_kept_us=kept_us)) as store:
        assert read_claim(store.small_state, NAMES[0]) is None


def test_how_long_keys_are_kept_reaches_the_store(folder: Path) -> None:
    with closing(open_store(f"segments:{folder}", base=Path(), claims_kept_us=5 * CLAIMS_KEPT_US_MIN)) as store:
        assert isinstance(store, SegmentsStore)
        store._now_us = lambda: time.time_ns() // 1000 + 4 * CLAIMS_KEPT_US_MIN
        assert read_claim(store.small_state, NAMES[0]) is not None


def test_ids_that_are_not_there_are_looked_for_without_decoding_a_block_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import looks for every id that it brings: a block is decoded once, not once for each of them."""
    chain = Chain()
    made = [chain.next() for _ in range(400)]
    store = SegmentsStore(tmp_path / "log")
    with store.open_write() as writer:
        writer.append(made[::2])
    decoded: list[object] = []
    really = frames

    def counted(state: LogState, source: Source, stretch: Stretch, *more: Any) -> Iterator[Found]:
        decoded.append(stretch)
        return really(state, source, stretch, *more)

    monkeypatch.setattr(reader, "frames", counted)
    assert [store._find_known(one.event.id) for one in made[1::2]] == [None] * 200
    assert len(decoded) <= 200 // live_part.BLOCK_POSITIONS + 1
    assert all(store._find_known(one.event.id) == (one.hash, False) for one in made[:20:2])
    store.close()
