"""Every disk that a crash can leave behind while a segments log is written, rotated, purged, indexed or closed.

A kill is followed by a power cut at every step of the recovery, which takes most of the time. The short form does
that for some of the kills, the long form (--full) for more of them, and after more of the power cuts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.support.crash_states import CrashState, Effort, Model, kills, power_cuts
from tests.support.faults import RecordingFiles
from tests.support.recovery import Report, check, check_bit_flips

from everlog.errors import Damaged, EverlogError, WriterStopped
from everlog.stores import staged_group
from everlog.stores.segments import writer
from everlog.stores.segments.index import live_part
from everlog.stores.segments.store import SegmentsStore
from everlog.testing.builders import Chain

ROOT = Path("/logs/log")
BOTH = (Model.STRICT, Model.EXT4)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_group, "GROUP_MAX", 2)  # so that a write of three events is two frames
    monkeypatch.setattr(live_part, "BLOCK_POSITIONS", 2)
    monkeypatch.setattr(live_part, "PART_EVENTS_MAX", 8)
    monkeypatch.setattr(writer, "PART_EVENTS_MIN", 1)
    monkeypatch.setattr(writer, "SPACE_AFTER_FRAMES", 2)


def open_on(files: RecordingFiles, *, segment_bytes_max: int = 3000, create: bool = True) -> SegmentsStore:
    return SegmentsStore(
        ROOT,
        files=files,
        create=create,
        now_us=lambda: 1,
        segment_bytes_max=segment_bytes_max,
        space_bytes=600,
    )


def new_disk() -> RecordingFiles:
    """A disk with an empty log on it, everything safe."""
    files = RecordingFiles({}, dirs=[Path("/logs")])
    open_on(files).close()
    return RecordingFiles(files.visible(), dirs=files.dirs)


class Numbers:
    """Events that are told apart by a number in their payload."""

    def __init__(self) -> None:
        self.chain = Chain()

    def append(self, files: RecordingFiles, store: SegmentsStore, *numbers: int, size: int = 0) -> None:
        made = [self.chain.next(stream=f"note/{n % 2}", payload={"n": n, "pad": "x" * size}) for n in numbers]
        for number in numbers:
            files.tried(number)
        with store.open_write() as writer:
            writer.append(made)
        for number in numbers:
            files.acked(number)


def recover(files: RecordingFiles) -> Sequence[int]:
    """What a reader is served, and a writer after it; both the same."""
    reader = open_on(files, create=False)
    records = list(reader.read())
    found = [recorded.event.payload["n"] for recorded in records]
    assert {letter for recorded in records for letter in recorded.event.payload["pad"]} <= {"x"}
    assert [recorded.position for recorded in records] == [1 + place for place in range(len(found))]
    reader.close()
    writer = open_on(files, create=False)
    with writer.open_write():
        pass
    assert [recorded.event.payload["n"] for recorded in writer.read()] == found
    assert list(writer.check()) == []
    writer.close()
    return found


def append_one(files: RecordingFiles, number: int) -> None:
    store = open_on(files, create=False)
    Numbers().append(files, store, number)
    store.close()


WALK = Effort(exhaustive_max=64, samples=16, tears_max=8)
SHORT_WALK = Effort(exhaustive_max=24, samples=8, tears_max=4, one_of=2)
DEEPER = Effort(exhaustive_max=4, samples=2, tears_max=1)


@pytest.fixture
def one_kill_of(pytestconfig: pytest.Config) -> int:
    return 1 if pytestconfig.getoption("--full") else 12


def cuts(files: RecordingFiles, one_kill_of: int, *, since: int = 0) -> list[CrashState]:
    return power_cuts(files, models=BOTH, effort=WALK if one_kill_of == 1 else SHORT_WALK, since=since)


def judged(files: RecordingFiles, one_kill_of: int) -> Report:
    states = [*cuts(files, one_kill_of), *kills(files)[::one_kill_of]]
    return check(recover, states, append=append_one, nested_max=15 if one_kill_of == 1 else 4, effort=DEEPER)


def test_appending_survives_every_crash(one_kill_of: int) -> None:
    """F01, F02: one event a write, with space made ahead, and the close at the end."""
    files = new_disk()
    store, numbers = open_on(files), Numbers()
    for number in range(1, 7):
        numbers.append(files, store, number)
    store.close()
    report = judged(files, one_kill_of)
    assert report.violations == [], report
    assert report.states > 100


def test_groups_of_several_sectors_survive_every_crash(one_kill_of: int) -> None:
    """G2: a torn group is gone as a whole."""
    files = new_disk()
    store, numbers = open_on(files), Numbers()
    numbers.append(files, store, 1, 2, 3)
    numbers.append(files, store, 4, 5, size=700)
    numbers.append(files, store, 6)
    store.close()
    report = judged(files, one_kill_of)
    assert report.violations == [], report
    assert report.states > 100


def test_writes_of_several_frames_survive_every_crash(one_kill_of: int) -> None:
    """G2: whichever of its frames reached the disk, a write is there as a whole or not at all."""
    files = new_disk()
    store, numbers = open_on(files, segment_bytes_max=10_000), Numbers()
    numbers.append(files, store, 1, 2, 3, 4, 5)
    numbers.append(files, store, 6, 7, 8, size=400)
    numbers.append(files, store, 9)
    store.close()
    report = judged(files, one_kill_of)
    assert report.violations == [], report
    assert report.states > 100


def test_rotation_survives_every_crash(one_kill_of: int) -> None:
    """F06: no event is acknowledged in a file whose name or head could still be lost."""
    files = new_disk()
    store, numbers = open_on(files, segment_bytes_max=300), Numbers()
    for number in range(1, 5):
        numbers.append(files, store, number)
    store.close()
    assert len(store.layout.numbers(files)) == 4
    states = [*cuts(files, one_kill_of), *kills(files)[:: 3 if one_kill_of == 1 else 20]]
    report = check(recover, states, append=append_one, nested_max=10 if one_kill_of == 1 else 4, effort=DEEPER)
    assert report.violations == [], report
    assert report.states > 100


def test_making_a_log_survives_every_crash(one_kill_of: int) -> None:
    files = RecordingFiles({}, dirs=[Path("/logs")])
    store, numbers = open_on(files), Numbers()
    numbers.append(files, store, 1)
    store.close()

    def recover_or_make(disk: RecordingFiles) -> Sequence[int]:
        open_on(disk).close()
        return recover(disk)

    states = [*cuts(files, one_kill_of), *kills(files)[::one_kill_of]]
    report = check(
        recover_or_make, states, append=append_one, nested_max=15 if one_kill_of == 1 else 5, effort=DEEPER
    )
    assert report.violations == [], report


def test_recovering_a_torn_tail_survives_every_crash(one_kill_of: int) -> None:
    """The cut itself may be cut short."""
    files = new_disk()
    store, numbers = open_on(files), Numbers()
    numbers.append(files, store, 1)
    path, end = store.layout.segment(1), store.layout.end
    before = files.visible()
    numbers.append(files, store, 2, size=600)
    whole = files.visible()
    # The second write was never acknowledged, so `index/end` knows nothing of it.
    torn = {**whole, path: whole[path][:-700] + bytes(900), end: before[end]}
    disk = RecordingFiles(torn, dirs=files.dirs)
    disk.tried(1)
    disk.tried(2)
    disk.acked(1)
    store = open_on(disk, create=False)
    numbers = Numbers()
    numbers.append(disk, store, 3)
    store.close()
    states = [*cuts(disk, one_kill_of), *kills(disk)[::one_kill_of]]
    report = check(recover, states, nested_max=15, effort=DEEPER)
    assert report.violations == [], report


def _purged_recover(files: RecordingFiles) -> Sequence[int]:
    store = open_on(files, create=False)
    with store.open_write():
        pass
    found = [recorded.event.payload["n"] for recorded in store.read()]
    assert list(store.check()) == []
    if not any(number % 2 for number in found) and store.purges():
        left = [path for path, content in files.visible().items() if b"odd-sentinel" in content]
        assert left == [], left
    store.close()
    return found


def test_a_purge_survives_every_crash_and_is_finished(one_kill_of: int) -> None:
    """F63: after any crash either nothing was purged, or all of it is gone, from every byte of every file."""
    files = new_disk()
    store, chain = open_on(files, segment_bytes_max=1500), Chain()
    for number in range(1, 7):
        pad = "odd-sentinel" if number % 2 else "even"
        files.tried(number)
        with store.open_write() as writer:
            writer.append([chain.next(stream=f"note/{number % 2}", payload={"n": number, "pad": pad})])
    since = len(files.trace)
    for number in (2, 4, 6):
        files.acked(number)
    with store.open_write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")
    assert not [path for path, content in files.visible().items() if b"odd-sentinel" in content]
    store.close()
    killed = kills(files)[since :: 3 if one_kill_of == 1 else 9]
    states = [*cuts(files, one_kill_of, since=since), *killed]
    report = check(_purged_recover, states, nested_max=5, effort=DEEPER)
    assert report.violations == [], report
    assert report.states > 100


def flipped(
    files: RecordingFiles, acked: Sequence[int], *, flips: int, damaged_max: int = 3, first_only: bool = False
) -> Report:
    def loud(disk: RecordingFiles) -> Sequence[int]:
        store = open_on(disk, create=False)
        try:
            for problem in store.check():
                raise Damaged(problem.reason)
            return [recorded.event.payload["n"] for recorded in store.read()]
        finally:
            store.close()

    def readable(disk: RecordingFiles) -> Sequence[int]:
        store = open_on(disk, create=False)
        found = [number_of(place) for place in store.slots()]
        store.close()
        return found

    spans = [(path, range(len(content))) for path, content in files.visible().items() if path.suffix != ".queue"]
    return check_bit_flips(
        loud,
        files,
        acked,
        spans,
        loud=EverlogError,
        readable=readable,
        damaged_max=damaged_max,
        flips=flips,
        first_only=first_only,
    )


def number_of(place: object) -> int:
    import json

    payload: dict[str, int] = json.loads(place.payload)  # type: ignore[attr-defined]
    return payload["n"]


def filled(*, close: bool, end_known: bool = True) -> tuple[RecordingFiles, list[int]]:
    files = new_disk()
    store, numbers = open_on(files, segment_bytes_max=1500), Numbers()
    for first in range(1, 13, 3):
        numbers.append(files, store, first, first + 1)
        numbers.append(files, store, first + 2)
    if close:
        store.close()
    if not end_known:  # it is not flushed with each write: a power cut may take it
        left = {path: content for path, content in files.visible().items() if path != store.layout.end}
        files = RecordingFiles(left, dirs=files.dirs)
    return files, list(range(1, 13))


def test_no_flipped_bit_is_silent_after_a_clean_close(one_kill_of: int) -> None:
    """F03, F12, R7: in any byte of any file; what was not hit is still readable."""
    files, acked = filled(close=True)
    report = flipped(files, acked, flips=2500 if one_kill_of == 1 else 600)
    assert report.violations == [], report


@pytest.mark.parametrize("end_known", [True, False])
def test_no_flipped_bit_is_silent_after_a_kill(end_known: bool, one_kill_of: int) -> None:
    """Also in the very last frame: its bytes are all there, so that it cannot be a torn one."""
    files, acked = filled(close=False, end_known=end_known)
    flips = 2500 if end_known else 1000
    report = flipped(files, acked, flips=flips if one_kill_of == 1 else 500)
    assert report.violations == [], report


def test_a_failed_flush_stops_the_writer_and_the_next_one_trusts_nothing(one_kill_of: int) -> None:
    """F05, G12: the kernel may hold what never reached the disk for clean."""
    for nth in range(1, 8):
        files = new_disk()
        files.fail("flush", nth=nth, drop=True)
        store, numbers = open_on(files), Numbers()
        with pytest.raises(WriterStopped):
            for number in range(1, 9):
                numbers.append(files, store, number)
        with pytest.raises(WriterStopped), store.open_write():
            pass
        store.close()
        found = recover(files)
        assert found == list(range(1, nth))
        if one_kill_of > 1 and nth not in (1, 5):
            continue
        states = power_cuts(files, models=BOTH, effort=Effort(exhaustive_max=32, samples=8, tears_max=4))
        deeper = Effort(exhaustive_max=64, samples=16, tears_max=6) if one_kill_of == 1 else DEEPER
        report = check(recover, states, append=append_one, nested_max=5, effort=deeper)
        assert report.violations == [], report


def failing() -> Iterator[tuple[str, int]]:
    for operation in ("write", "truncate", "fsync", "fsync_dir", "rename", "open", "mkdir", "unlink"):
        for nth in range(1, 7):
            yield operation, nth


@pytest.mark.parametrize(("operation", "nth"), list(failing()))
def test_any_call_that_fails_loses_nothing(operation: str, nth: int) -> None:
    """F07, R5: a full disk at every call: no false acknowledgement, nothing lost, and the log opens again."""
    import errno

    files = new_disk()
    files.fail(operation, nth=nth, error=errno.ENOSPC)  # type: ignore[arg-type]
    acked = []
    numbers = Numbers()
    store: SegmentsStore | None = None
    for number in range(1, 9):
        try:
            store = store or open_on(files, segment_bytes_max=1200)
            numbers.append(files, store, number)
            acked.append(number)
        except (EverlogError, OSError):
            numbers = Numbers() if number == 1 else numbers
            if store is not None:
                store.files = files
    if store is not None:
        try:
            store.close()
        except (EverlogError, OSError):
            store.layout  # noqa: B018 - the close failed; what it promised is looked at below
    found = recover(files)
    assert [number for number in acked if number not in found] == []
    assert found == sorted(set(found))
