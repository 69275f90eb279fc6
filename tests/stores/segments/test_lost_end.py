"""Whole frames that are gone from the end of the live segment: noticed where anything remembers them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from everlog.core.event import START, Position
from everlog.errors import Damaged
from everlog.files import DiskFiles
from everlog.stores.contract import Problem
from everlog.stores.segments import writer
from everlog.stores.segments.closed_end import EndFile, SavedEnd, compare_ends, read_end
from everlog.stores.segments.dump import dump
from everlog.stores.segments.store import SegmentsStore
from everlog.testing.builders import put_note, stamped


def add(store: SegmentsStore) -> int:
    """Where the frame ends."""
    with store.open_write() as writer:
        writer.append([stamped(writer, store.identity.origin)])
    return store.state.live.end


@pytest.fixture
def closed(tmp_path: Path) -> tuple[Path, list[int]]:
    store = SegmentsStore(tmp_path / "log")
    ends = [add(store) for _ in range(4)]
    store.close()
    return tmp_path / "log", ends


@pytest.mark.parametrize("zeroed", [False, True])
@pytest.mark.parametrize("kept", [1, 2, 3])
def test_a_closed_log_that_lost_whole_frames_takes_no_writes(
    closed: tuple[Path, list[int]], kept: int, zeroed: bool
) -> None:
    """G10: their positions would be given out again."""
    path, ends = closed
    file = path / "segments" / "00000001.seg"
    content = file.read_bytes()
    file.write_bytes(content[: ends[kept - 1]] + bytes(len(content) - ends[kept - 1] if zeroed else 0))
    store = SegmentsStore(path)
    assert [(problem.position, problem.code) for problem in store.check()] == [(kept + 1, "segment_cut")]
    read: list[int] = []
    with pytest.raises(Damaged) as told:
        read.extend(recorded.position for recorded in store.read())
    assert read == list(range(1, kept + 1))
    assert (told.value.details["position"], told.value.details["after"]) == (kept + 1, 4)
    assert (store.head(), list(store.read(after=Position(4)))) == (4, [])
    with pytest.raises(Damaged) as told:
        add(store)
    assert "lost its end" in str(told.value.why)
    assert "everlog export left.jsonl --past-damage" in told.value.hint
    store.close()


def on_day(path: Path, day: int) -> SegmentsStore:
    """Every day has its own segment."""
    return SegmentsStore(path, now_us=lambda: day * 86_400_000_000, segment_hours_max=20)


@pytest.mark.parametrize("how", ["cut", "damaged", "in the middle", "deleted"])
def test_a_log_that_lost_its_end_does_not_say_where_its_chains_end(tmp_path: Path, how: str) -> None:
    """G10: heads that are short would be signed, and sent to others. The notes of the end are unknown, too."""
    path = tmp_path / "log"
    for day in (20_000, 20_001):
        store = on_day(path, day)
        ends = [add(store) for _ in range(3)]
        assert store.chains()[store.identity.origin].end.origin_seq == store.head()
        assert store.small_state.lost_notes() is None
        store.close()
    file = path / "segments" / "00000002.seg"
    content = file.read_bytes()
    if how == "deleted":
        file.unlink()
    elif how == "cut":
        file.write_bytes(content[: ends[1]])
    else:
        at = ends[0] + 20 if how == "in the middle" else ends[1] + 20
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    store = SegmentsStore(path)
    with pytest.raises(Damaged) as raised:
        store.chains()
    assert 0 < raised.value.details["position"] <= raised.value.details["after"]
    lost = store.small_state.lost_notes()
    assert lost is not None
    assert store.identity.origin in lost.origins
    store.close()


def test_damage_of_an_earlier_segment_leaves_the_end_known(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for day in (20_000, 20_001):
        store = on_day(path, day)
        add(store)
        whole = store.chains()
        store.close()
    (path / "segments" / "00000001.seg").unlink()
    store = SegmentsStore(path)
    assert store.chains() == whole
    assert store.small_state.lost_notes() is None
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


# ---- the mark of a clean end, which holds nothing


def cut_every_byte(mark: bytes) -> list[bytes]:
    return [mark[:size] for size in range(len(mark))]


def flip_every_byte(mark: bytes) -> list[bytes]:
    return [mark[:place] + bytes([mark[place] ^ 4]) + mark[place + 1 :] for place in range(len(mark))]


@pytest.mark.parametrize("spoil", [cut_every_byte, flip_every_byte, lambda mark: [bytes(len(mark))]])
def test_a_log_that_lost_only_the_mark_of_its_clean_end_is_told_of_and_goes_on_as_it_was(
    closed: tuple[Path, list[int]], spoil: Callable[[bytes], list[bytes]], caplog: pytest.LogCaptureFixture
) -> None:
    path, ends = closed
    file = path / "segments" / "00000001.seg"
    whole = file.read_bytes()
    for spoiled in spoil(whole[ends[-1] :]):
        file.write_bytes(whole[: ends[-1]] + spoiled)
        store = SegmentsStore(path)
        (problem,) = store.check()
        assert problem.code == "mark_lost"
        assert f"bytes {ends[-1]} to {len(whole) - 1}; no event was in it" in problem.reason
        assert file.read_bytes() == whole[: ends[-1]] + spoiled  # G11: to look is not to mend

        caplog.clear()
        with store.open_write() as writer:
            put_note(writer, "a", "note")
        assert "the mark of its clean end was lost and is restored" in caplog.text
        assert file.read_bytes()[: len(whole)] == whole
        assert [problem.code for problem in SegmentsStore(path).check()] == []
        assert [recorded.position for recorded in store.read()] == [1, 2, 3, 4]
        kept = path / "segments" / f"00000001-{ends[-1]}.torn"
        if whole[ends[-1] :].startswith(spoiled.rstrip(b"\0")):
            assert not kept.exists()
        else:
            assert kept.read_bytes() == spoiled.rstrip(b"\0")  # what stood there is not written over unseen
            kept.unlink()
        store.close()
        (path / "index" / "end").unlink()
        file.write_bytes(whole)
        store = SegmentsStore(path)  # as it was at first
        add_and_take_back(store, file, whole)


def add_and_take_back(store: SegmentsStore, file: Path, whole: bytes) -> None:
    """Have the log remember the end of `whole`, whatever was written since."""
    live = store.state.live
    end_file = EndFile(store.files, store.layout)
    end_file.save(SavedEnd(store.identity.log_id, live.number, len(whole), live.head, closed=True))
    end_file.close()
    store.close()
    assert file.read_bytes() == whole


def test_a_mark_that_was_lost_together_with_a_note_stops_the_writing(tmp_path: Path) -> None:
    """No position is missing, and yet something is."""
    store = SegmentsStore(tmp_path / "log")
    end = add(store)
    with store.open_write() as writer:
        put_note(writer, "a", "")
    store.close()
    file = tmp_path / "log" / "segments" / "00000001.seg"
    file.write_bytes(file.read_bytes()[:end])
    again = SegmentsStore(tmp_path / "log")
    assert [problem.code for problem in again.check()] == ["segment_cut"]
    with pytest.raises(Damaged):
        add(again)
    again.close()


def test_a_lost_mark_is_known_where_the_index_goes_as_far_as_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "PART_EVENTS_MIN", 1)
    store = SegmentsStore(tmp_path / "log")
    ends = [add(store) for _ in range(4)]
    store.close()
    assert list((tmp_path / "log" / "index").glob("*.idx"))
    file = tmp_path / "log" / "segments" / "00000001.seg"
    whole = file.read_bytes()
    file.write_bytes(whole[: ends[-1]])
    store = SegmentsStore(tmp_path / "log")
    add(store)
    assert file.read_bytes()[: len(whole)] == whole
    store.close()
    assert list(SegmentsStore(tmp_path / "log").check()) == []


def test_an_index_that_goes_further_than_the_mark_knows_of_more_that_is_lost(
    closed: tuple[Path, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "PART_EVENTS_MIN", 1)
    path, ends = closed
    known = (path / "index" / "end").read_bytes()
    store = SegmentsStore(path)
    add(store)
    store.close()
    (path / "index" / "end").write_bytes(known)  # as a crash would leave it
    file = path / "segments" / "00000001.seg"
    file.write_bytes(file.read_bytes()[: ends[-1]])
    again = SegmentsStore(path)
    with pytest.raises(Damaged, match="takes no writes"):
        add(again)
    again.close()


def test_dump_calls_a_part_of_the_mark_what_it_is(closed: tuple[Path, list[int]]) -> None:
    path, ends = closed
    file = path / "segments" / "00000001.seg"
    whole = file.read_bytes()
    for content, kind in (
        (whole[:-1], "cut"),
        (whole[: ends[-1] + 10], "cut"),
        (whole[:-5] + bytes([whole[-5] ^ 0x0F]) + whole[-4:], "damaged"),
    ):
        file.write_bytes(content)
        *_, last = dump(DiskFiles(), file)
        assert (last.kind, "it holds no event" in last.text) == (kind, True)
    file.write_bytes(whole[: ends[2] + 100])  # half an event
    *_, last = dump(DiskFiles(), file)
    assert (last.kind, last.text) == ("torn", "a write that was never acknowledged")


def test_dump_shows_the_frames_of_a_file_whose_head_is_damaged(closed: tuple[Path, list[int]]) -> None:
    path, _ = closed
    file = path / "segments" / "00000001.seg"
    whole = file.read_bytes()
    head, *frames = dump(DiskFiles(), file)
    assert (head.start, head.kind) == (0, "head")
    file.write_bytes(whole[:20] + bytes([whole[20] ^ 0x0F]) + whole[21:])
    damaged, *found = dump(DiskFiles(), file)
    assert (damaged.start, damaged.kind, damaged.text) == (0, "damaged", "the head is damaged")
    for frame in frames:
        assert (frame.start, frame.end, frame.kind) in [(each.start, each.end, each.kind) for each in found]


# ---- each thing that tells a lost mark from a lost end


def lost_its_mark(path: Path, end: int) -> tuple[SegmentsStore, SavedEnd]:
    """A log of which no more than the mark is gone."""
    file = path / "segments" / "00000001.seg"
    file.write_bytes(file.read_bytes()[:end])
    store = SegmentsStore(path)
    known = read_end(store.files, store.layout, log_id=store.identity.log_id)
    assert known is not None
    assert store.state.live.lost_mark
    return store, known


def test_bytes_behind_the_place_of_the_mark_are_no_lost_mark(closed: tuple[Path, list[int]]) -> None:
    path, _ = closed
    file = path / "segments" / "00000001.seg"
    whole = file.read_bytes()
    for more in (b"?", b"?" * 600):
        file.write_bytes(whole[:-5] + b"?" + whole[-4:] + more)
        store = SegmentsStore(path)
        assert "mark_lost" not in [problem.code for problem in store.check()]
        with pytest.raises(Damaged):
            add(store)
        store.close()
        assert file.read_bytes().endswith(more)


@pytest.mark.parametrize(
    "other",
    [
        {"head": Position(5)},
        {"number": 2},
        {"closed": False},
        {"end": 10**6},
    ],
)
def test_a_known_end_that_differs_in_anything_vouches_for_no_mark(
    closed: tuple[Path, list[int]], other: dict[str, int]
) -> None:
    path, ends = closed
    store, known = lost_its_mark(path, ends[-1])
    compare_ends(known, store.state.live, store.identity.log_id)
    assert store.state.live.lost_mark
    compare_ends(replace(known, **other), store.state.live, store.identity.log_id)
    assert not store.state.live.lost_mark
    store.close()


def test_a_log_that_lost_its_mark_and_is_damaged_before_it_is_told_of_as_damaged(
    closed: tuple[Path, list[int]],
) -> None:
    path, ends = closed
    file = path / "segments" / "00000001.seg"
    content = bytearray(file.read_bytes()[: ends[-1]])
    content[ends[1] + 60] ^= 4
    file.write_bytes(content)
    store = SegmentsStore(path)
    assert {problem.code for problem in store.check()} == {"segment_cut", "damaged_bytes"}
    with pytest.raises(Damaged):
        add(store)
    store.close()


def test_what_else_is_wrong_with_the_segment_is_not_forgotten_over_a_lost_mark(
    closed: tuple[Path, list[int]],
) -> None:
    path, ends = closed
    store, known = lost_its_mark(path, ends[-1])
    live = store.state.live
    live.problems.append(Problem(START, "segment_exchanged", "00000001.seg does not follow: it was exchanged"))
    compare_ends(known, live, store.identity.log_id)
    assert not live.lost_mark
    assert "segment_exchanged" in [problem.code for problem in live.problems]
    store.close()


# ---- verify and a writer come to the same verdict


@pytest.mark.parametrize("remembers", ["end and index", "index", "the last of two index files"])
@pytest.mark.parametrize("zeroed", [False, True])
def test_events_of_which_only_the_index_knows_are_missed_by_verify_as_by_a_writer(
    closed: tuple[Path, list[int]], monkeypatch: pytest.MonkeyPatch, remembers: str, zeroed: bool
) -> None:
    monkeypatch.setattr(writer, "PART_EVENTS_MIN", 1)
    path, ends = closed
    known = (path / "index" / "end").read_bytes()
    store = SegmentsStore(path)
    add(store)
    store.close()
    if remembers == "the last of two index files":
        store = SegmentsStore(path)
        add(store)
        store.close()
        first, last = sorted((path / "index").glob("*.idx"), key=lambda part: int(part.stem.split("-")[1]))
        first.unlink()
        assert last.exists()
    if remembers == "end and index":
        (path / "index" / "end").write_bytes(known)  # of an old copy
    else:
        (path / "index" / "end").unlink()
    file = path / "segments" / "00000001.seg"
    content = file.read_bytes()
    file.write_bytes(content[: ends[-1]] + bytes(len(content) - ends[-1] if zeroed else 0))
    again = SegmentsStore(path)
    assert [(problem.position, problem.code) for problem in again.check()] == [(5, "segment_cut")]
    with pytest.raises(Damaged, match="takes no writes"):
        add(again)
    again.close()
