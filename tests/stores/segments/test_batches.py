"""A write of several frames: all of it is there or nothing, and damage to one frame leaves the others."""

from __future__ import annotations

import threading
from contextlib import closing
from itertools import product
from pathlib import Path

import pytest

from everlog.core.event import Position, Purged, Recorded
from everlog.core.group import GROUP_MAX, Group
from everlog.core.query import Query
from everlog.errors import AlreadyPurged, Damaged
from everlog.stores.segments.format.frame import mark_of
from everlog.stores.segments.format.frames import Found, Walk
from everlog.stores.segments.store import SegmentsStore
from everlog.testing.builders import Chain, stamped
from everlog.testing.filling import positions
from everlog.testing.group_contract import purge, record_signed

HOUR_US = 3_600_000_000
GROUP = 3
SIZES = (1, 8)  # the second write is three frames


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everlog.stores.staged_group.GROUP_MAX", GROUP)
    monkeypatch.setattr("everlog.stores.open_write.GROUP_MAX", GROUP)


def add(store: SegmentsStore, count: int, *, streams: int = 1) -> list[Recorded]:
    with store.open_write() as writer:
        made = []
        for number in range(count):
            event = stamped(writer, store.identity.origin, stream=f"note/{number % streams}", payload={"n": number})
            made += writer.append([event], fresh=True)
    return made


class Killed:
    """A log whose writer was killed after its last write, without the file that remembers the end."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log"
        store = SegmentsStore(self.path)
        for size in SIZES:
            add(store, size)
        live = store.state.live
        mark = mark_of(store.identity.log_id, live.number)
        with store.state.source(live) as source:
            walked = list(Walk(source, mark=mark, start=live.start, head=Position(0)))
        self.frames = [found for found in walked if isinstance(found, Found)][-3:]
        assert store._writer is not None
        store._writer.abandon()
        store._lock.close()
        self.layout = store.layout
        self.content = store.layout.segment(1).read_bytes()

    def opened(self, content: bytes) -> SegmentsStore:
        self.layout.end.unlink(missing_ok=True)
        self.layout.segment(1).write_bytes(content)
        return SegmentsStore(self.path)


@pytest.fixture
def killed(tmp_path: Path, small_groups: None) -> Killed:
    return Killed(tmp_path)


def test_each_frame_says_where_it_is_in_its_write(killed: Killed) -> None:
    first, second, third = killed.frames
    assert [found.frame.batch for found in killed.frames] == [
        (0, 2),
        (second.start - first.start, 1),
        (third.start - first.start, 0),
    ]
    assert [len(found.frame.records) for found in killed.frames] == [3, 3, 2]


@pytest.mark.parametrize("space", [0, 700])
def test_a_write_that_was_cut_anywhere_is_not_there_at_all(killed: Killed, space: int) -> None:
    start, end = killed.frames[0].start, killed.frames[-1].end
    for cut in range(start, end, 7):
        with closing(killed.opened(killed.content[:cut] + bytes(space))) as store:
            assert positions(store.read()) == [1], cut
            assert list(store.check()) == [], cut
    with closing(killed.opened(killed.content[: end - 40] + bytes(space))) as store:
        add(store, 5)
        assert positions(store.read()) == [1, 2, 3, 4, 5, 6]


def test_whichever_frames_are_missing_the_write_is_not_there(killed: Killed) -> None:
    """A disk may write the last sector first."""
    for landed in product((True, False), repeat=len(killed.frames)):
        if all(landed):
            continue
        content = bytearray(killed.content)
        for found, there in zip(killed.frames, landed, strict=True):
            if not there:
                content[found.start : found.end] = bytes(found.end - found.start)
        with closing(killed.opened(bytes(content))) as store:
            assert positions(store.read()) == [1], landed
            add(store, 1)
            assert positions(store.read()) == [1, 2], landed
            assert list(store.check()) == [], landed


def test_a_flipped_bit_loses_the_frame_that_it_hit_and_no_other(killed: Killed) -> None:
    for hit in killed.frames:
        for place in range(hit.start, hit.end, 11):
            content = bytearray(killed.content)
            content[place] ^= 1 << place % 8
            with closing(killed.opened(bytes(content))) as store:
                with pytest.raises(Damaged) as error:
                    list(store.read())
                lost = range(error.value.details["position"], error.value.details["after"] + 1)
                assert lost[0] == hit.frame.before + 1, place
                found = positions(store.read(upto=Position(lost[0] - 1)))
                found += positions(store.read(after=Position(lost[-1])))
                # How many were in the last frame of all, nobody knows any more.
                assert sorted({*found, *lost}) == list(range(1, 9 if hit is killed.frames[-1] else 10)), place
                assert len(lost) <= GROUP, place
                with pytest.raises(Damaged, match="takes no writes"):
                    add(store, 1)


def test_a_reader_never_sees_half_of_a_large_batch(tmp_path: Path) -> None:
    """G2, G7: in this process, and with another handle that reads the file."""
    size = 2 * GROUP_MAX + 50
    halves: list[int] = []
    done = threading.Event()
    with closing(SegmentsStore(tmp_path / "log")) as store, closing(SegmentsStore(tmp_path / "log")) as beside:

        def look() -> None:
            while not done.is_set():
                for reader in (store, beside):
                    head = reader.head()
                    count = len(list(reader.read(upto=head)))
                    if head % size or count != head:
                        halves.append(head)

        looking = threading.Thread(target=look)
        looking.start()
        for _ in range(15):
            add(store, size, streams=3)
        done.set()
        looking.join()
        assert halves == []
        assert beside.head() == 15 * size


# ---- groups as they are stored


def test_groups_have_what_slots_have(tmp_path: Path) -> None:
    with closing(SegmentsStore(tmp_path / "log")) as store:
        add(store, 300, streams=3)
        record_signed(store, ["note/7", "note/8", "note/7"])
        peer = Chain("01TESTORGN0000000000000001")
        with store.open_write() as writer:
            writer.append([peer.next(stream="note/9"), peer.next(stream="note/9")])
        purge(store, "note/1")
        purge(store, "note/7")
        purge(store, "note/9")
        found = list(store.groups())
        groups = [one for one in found if isinstance(one, Group)]
        assert [(one.facts.first_seq, one.facts.count) for one in groups] == [
            (1, 128),
            (129, 128),
            (257, 44),
            (301, 3),
            (1, 2),
        ]
        assert [bool(one.signature) for one in groups] == [False, False, False, True, False]
        slots = [slot for one in found for slot in (one.packed() if isinstance(one, Group) else [one])]
        assert sorted(slots, key=lambda slot: slot.position) == list(store.slots())
        assert [type(one) for one in found[-3:]] == [Purged, Purged, Group]
        assert next(one for one in store.groups(after=Position(303)) if isinstance(one, Group)).facts.count == 2


# ---- one event of a large frame


def test_an_event_of_a_large_frame_computes_its_hashes_when_it_is_asked(tmp_path: Path) -> None:
    """Its group reads the frame again, also if that was packed or rewritten since."""
    now = [17 * 10**14]
    with closing(SegmentsStore(tmp_path / "log", now_us=lambda: now[0], segment_hours_max=1)) as store:
        made = add(store, 200, streams=50)
        now[0] += 2 * HOUR_US
        add(store, 1)
        chosen = made[77]
        found = [store.get(chosen.event.id) for _ in range(3)]
        (in_stream, *_) = store.read(Query(stream=chosen.event.stream))
        assert found[0] == chosen
        store.archive(days=0)
        assert found[1] == chosen
        purge(store, "note/3")
        assert found[2] == chosen
        assert in_stream == made[27]
        again = store.get(chosen.event.id)
        assert again == chosen
        held = store.get(chosen.event.id)
        assert held is not None
        purge(store, chosen.event.stream)
        assert (held.event.payload, held.event.origin) == (chosen.event.payload, chosen.event.origin)
        with pytest.raises(AlreadyPurged, match="after it was read"):
            _ = held.event.commitment


def test_damage_elsewhere_is_told_by_who_reads_a_stream_of_the_same_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an index file: it is known which frames held the stream."""
    monkeypatch.setattr("everlog.stores.segments.writer.PART_EVENTS_MIN", 1)
    with closing(SegmentsStore(tmp_path / "log")) as store:
        add(store, 200, streams=150)
    path = tmp_path / "log/segments/00000001.seg"
    content = bytearray(path.read_bytes())
    content[content.index(b"note/20")] ^= 1
    path.write_bytes(content)
    with closing(SegmentsStore(tmp_path / "log")) as store:
        with pytest.raises(Damaged, match="positions 1 to 128 "):
            list(store.read(Query(stream="note/30")))
        assert positions(store.read(Query(stream="note/140"))) == [141]
