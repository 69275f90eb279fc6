"""Every disk that a crash can leave of a JSONL log, and the bugs that these states must show.

The index is kept out of it (in memory): it is derived, and what becomes of it is tested apart.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.support.crash_states import CrashState, Effort, kills, power_cuts
from tests.support.faults import RecordingFiles
from tests.support.recovery import Report, check, check_bit_flips
from tests.support.steps import Acked

from everlog.core.event import Position, Purge
from everlog.errors import Damaged, EverlogError, StorageFull, WriterStopped
from everlog.log.verify.verify import verify
from everlog.stores.jsonl import day_files, notes, purge
from everlog.stores.jsonl.day_files import OpenDayFile
from everlog.stores.jsonl.store import JsonlStore
from everlog.stores.past_damage import PastDamage
from everlog.stores.small_state import read_notes
from everlog.testing.builders import put_note, stamped

HOME = Path("/log")
DAY_US = 86_400_000_000
FIRST_DAY_US = 1_800_000_000_000_000
EFFORT = Effort(exhaustive_max=16, samples=6, tears_max=4, one_of=2)
EFFORT_FULL = Effort(exhaustive_max=64, samples=16, tears_max=10)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Torn tails are told by a warning; here there are thousands."""
    logging.getLogger("everlog").setLevel(logging.ERROR)
    yield
    logging.getLogger("everlog").setLevel(logging.NOTSET)


class Day:
    """A clock that goes on by half a day with every write, so that files rotate."""

    def __init__(self, us: int = FIRST_DAY_US) -> None:
        self.us = us

    def __call__(self) -> int:
        return self.us


def opened(files: RecordingFiles, now_us: Callable[[], int] = Day()) -> JsonlStore:  # noqa: B008 - it stands still
    return JsonlStore(HOME, files=files, index_in_memory=True, now_us=now_us)


def put(log: JsonlStore, number: int, lines: int = 1, *, width: int = 1, note: bool = False) -> None:
    with log.open_write() as writer:
        for part in range(lines):
            payload = {"n": number, "of": lines, "part": part, "text": "x" * width}
            made = stamped(writer, log.identity.origin, stream=f"note/{number}", payload=payload)
            writer.append([made], fresh=True)
        if note:
            put_note(writer, f"note/{number}", str(number))


def numbers(files: RecordingFiles) -> list[int]:
    """What is found: the number of each write that is there whole; half of one is an error."""
    log = opened(files)
    found: list[int] = []
    records = [recorded.event.payload for recorded in log.read()]
    at = 0
    while at < len(records):
        count = records[at]["of"]
        group = records[at : at + count]
        if [(each["n"], each["part"]) for each in group] != [(records[at]["n"], part) for part in range(count)]:
            raise AssertionError(f"half a batch: {group}")
        found.append(records[at]["n"])
        at += count
    with_note = {int(key.partition("/")[2]) for key in read_notes(log.small_state, "note/")}
    alone = with_note - set(found)
    problems = list(log.check())
    log.close()
    if alone:
        raise AssertionError(f"notes without their events: {alone}")
    if problems:
        raise Damaged("damage", why=str(problems[0]))
    return found


def append(files: RecordingFiles, number: int) -> None:
    log = opened(files, Day(FIRST_DAY_US + 9 * DAY_US))
    put(log, number)
    log.close()


def made() -> RecordingFiles:
    """An empty log, safe on its disk: crashes while it is made are a test of their own."""
    files = RecordingFiles()
    opened(files).close()
    return RecordingFiles(files.visible(), dirs=files.dirs)


def appends(
    writes: int = 4, *, lines: int = 1, width: int = 1, note: bool = False, files: RecordingFiles | None = None
) -> RecordingFiles:
    """Some writes, on two days, each marked as tried and acknowledged."""
    files = files or made()
    clock = Day()
    log = opened(files, clock)
    for number in range(1, writes + 1):
        files.tried(number)
        put(log, number, lines, width=width, note=note)
        files.acked(number)
        clock.us += DAY_US // 2
    log.close()
    return files


def judged(files: RecordingFiles, *, full: bool = False, first_only: bool = False) -> Report:
    """A kill is followed by a power cut at every step of the recovery, which takes most of the time."""
    effort, one_kill_of = (EFFORT_FULL, 1) if full else (EFFORT, 18)
    states = [*power_cuts(files, effort=effort), *kills(files)[::one_kill_of]]
    return check(
        numbers,
        states,
        append=append,
        nested_max=4 if full else 2,
        effort=Effort(exhaustive_max=8, samples=3, tears_max=2),
        first_only=first_only,
    )


WORKLOADS: dict[str, Callable[[], RecordingFiles]] = {
    "making the log, and a first line": lambda: appends(1, files=RecordingFiles()),
    "one line at a time, over two days": lambda: appends(3),
    "batches of three lines of several sectors": lambda: appends(2, lines=3, width=600),
    "batches of small lines": lambda: appends(2, lines=3),
    "events with a note each": lambda: appends(2, note=True),
}


@pytest.mark.parametrize("workload", WORKLOADS)
def test_no_crash_loses_invents_or_halves_anything(workload: str, pytestconfig: pytest.Config) -> None:
    """G1, G2, F02, F06, F09."""
    report = judged(WORKLOADS[workload](), full=pytestconfig.getoption("--full"))
    assert report.states > 30
    assert report.violations == [], str(report)


@pytest.mark.parametrize("lines", [1, 3])
def test_a_write_that_is_cut_at_any_byte_goes_as_a_whole(lines: int) -> None:
    """F02, G2: but for its last byte, which ends a line that lacks nothing else. A batch is cut at every third."""
    files = appends(2, lines=lines)
    (path,) = [path for path in files.by_name if path.parent.name == "events"]
    data = files.visible()[path]
    start = len(b"".join(data.splitlines(keepends=True)[:lines]))
    for end in [*range(start, len(data) - 40, 3 if lines > 1 else 1), *range(len(data) - 40, len(data))]:
        torn = RecordingFiles({**files.visible(), path: data[:end]}, dirs=files.dirs)
        expected = [1, 2] if end == len(data) - 1 else [1]
        assert numbers(torn) == expected, end
        if end % 97 == 0:
            append(torn, 3)
            assert numbers(torn) == [*expected, 3]


# ---- purge


def purged() -> tuple[RecordingFiles, str]:
    """A log of two days in which a stream with events in both is purged; the purge is write 5."""
    files = made()
    clock = Day()
    log = opened(files, clock)
    for number in range(1, 5):
        files.tried(number)
        with log.open_write() as writer:
            payload = {"n": number, "of": 1, "part": 0, "text": "sentinel" if number % 2 else "kept"}
            stream = "note/gone" if number % 2 else "note/kept"
            writer.append([stamped(writer, log.identity.origin, stream=stream, payload=payload)], fresh=True)
            if number == 1:
                put_note(writer, "replaced", "sentinel")
                put_note(writer, "kept", "as it is")
        files.acked(number)
        clock.us += DAY_US // 2
    files.tried(5)
    with log.open_write() as writer:
        writer.purge("note/gone", actor="user:ada", reason="asked to")
        put_note(writer, "replaced", "emptied")
    files.acked(5)
    log.close()
    return files, "sentinel"


def of_the_last_write(files: RecordingFiles, *, acked: int, full: bool) -> list[CrashState]:
    """What a crash can leave after the first writes are acknowledged; the short form tries every fourth kill."""
    since = files.trace.index(Acked(acked))
    cuts = power_cuts(files, effort=EFFORT_FULL if full else EFFORT, since=since)
    killed = kills(files)[since :: 1 if full else 4]
    return [state for state in (*cuts, *killed) if acked in state.acked]


def purge_state(files: RecordingFiles) -> tuple[list[int], list[Purge], list[int]]:
    log = opened(files)
    try:
        report = verify(log)
        if report.problems:
            raise Damaged("damage", why=str(report.problems[0]))
        assert read_notes(log.small_state, "") == {
            "kept": "as it is",
            "replaced": "emptied" if log.purges() else "sentinel",
        }
        return (
            [recorded.position for recorded in log.read()],
            log.purges(),
            [recorded.event.payload["n"] for recorded in log.read()],
        )
    finally:
        log.close()


def test_a_purge_happens_or_not_and_its_bytes_are_gone_once_it_has(pytestconfig: pytest.Config) -> None:
    """G9, F63: after any crash the log verifies, positions stay, and an acknowledged purge left no byte."""
    a_purge_happens_or_not(full=pytestconfig.getoption("--full"))


def a_purge_happens_or_not(*, full: bool = False) -> None:
    files, sentinel = purged()
    seen = set()
    for state in of_the_last_write(files, acked=4, full=full):
        disk = state.files()
        places, purges, found = purge_state(disk)
        happened = bool(purges)
        seen.add(happened)
        assert happened or 5 not in state.acked, state.label
        if happened:
            assert (places, found, purges[0].reserved, purges[0].count) == ([2, 4], [2, 4], Position(5), 2)
            left = [path for path, data in disk.visible().items() if sentinel.encode() in data]
            assert left == [], state.label
        else:
            assert (places, found) == ([1, 2, 3, 4], [1, 2, 3, 4])
        if disk.visible() != state.contents:  # or it is the same disk, and the same is found
            assert purge_state(disk) == (places, purges, found)
    assert seen == {True, False}


# ---- erasure


def erased_with(allowed: bool) -> RecordingFiles:
    """A log of two days in which payloads of both are erased, in a write with the event that allows it or by itself;
    the erasure is write 5."""
    files, clock = made(), Day()
    log = opened(files, clock)
    for number in range(1, 5):
        files.tried(number)
        with log.open_write() as writer:
            text = "sentinel" if number % 2 else "kept"
            payload = {"n": number, "of": 1, "part": 0, "text": text}
            writer.append([stamped(writer, log.identity.origin, payload=payload)], fresh=True)
            put_note(writer, "text", text)
        files.acked(number)
        clock.us += DAY_US // 2
    going = [recorded.event.id for recorded in log.read() if recorded.event.payload["text"] == "sentinel"]
    files.tried(5)
    with log.open_write() as writer:
        if allowed:
            payload = {"n": 5, "of": 1, "part": 0, "text": "allowed"}
            writer.append([stamped(writer, log.identity.origin, stream="note/9", payload=payload)], fresh=True)
        writer.erase(going, by=going[0])
    files.acked(5)
    log.close()
    return files


@pytest.mark.parametrize("allowed", [True, False])
def test_an_erasure_happens_or_not_and_its_bytes_are_gone_once_it_has(
    allowed: bool, pytestconfig: pytest.Config
) -> None:
    """After any crash the log verifies, and the erasure is there with the event that allows it, or neither is."""
    an_erasure_happens_or_not(allowed, full=pytestconfig.getoption("--full"))


def an_erasure_happens_or_not(allowed: bool, *, full: bool = False) -> None:
    seen = set()
    for state in of_the_last_write(erased_with(allowed), acked=4, full=full):
        disk = state.files()
        log = opened(disk)
        assert verify(log).problems == (), state.label
        found = [(recorded.event.erased_by != "", recorded.event.payload.get("text")) for recorded in log.read()]
        log.close()
        happened = found[0][0]
        seen.add(happened)
        assert happened or 5 not in state.acked, state.label
        left = [(happened, None if happened else "sentinel"), (False, "kept")] * 2
        assert found == left + [(False, "allowed")] * (allowed and happened), state.label
        if happened:
            assert not any(b"sentinel" in data for data in disk.visible().values()), state.label
    assert seen == {True, False}


def _erasure_with_its_event() -> None:
    an_erasure_happens_or_not(allowed=True)


# ---- damage


def test_a_flipped_bit_is_named_and_everything_else_stays_readable() -> None:
    """F03, R7: anywhere in the day files; nothing is written over it."""
    files = appends(3, lines=2)
    events = {path: range(len(data)) for path, data in files.visible().items() if path.parent.name == "events"}

    def recover(damaged: RecordingFiles) -> list[int]:
        log = opened(damaged)
        try:
            report = verify(log)
            if report.problems:
                raise Damaged("found", why=report.problems[0].reason)
            return numbers(damaged)
        finally:
            log.close()

    def readable(damaged: RecordingFiles) -> Sequence[int]:
        log = opened(damaged)
        found = [recorded.event.payload.get("n") for recorded in PastDamage(log, lambda error: None).read()]
        log.close()
        return [number for number in dict.fromkeys(found) if number and found.count(number) == 2]

    settled = RecordingFiles(files.visible(), dirs=files.dirs)
    report = check_bit_flips(
        recover,
        settled,
        [1, 2, 3],
        events.items(),
        loud=Damaged,
        readable=readable,
        damaged_max=2,  # a flipped newline joins the lines of two writes
        flips=100,
    )
    assert report.states == 100
    assert report.violations == [], str(report)


def test_a_change_of_what_no_hash_covers_is_found_too() -> None:
    """The time of arrival is in the line and neither in the header nor in the payload."""
    files = appends(2)
    for path, data in files.visible().items():
        if path.parent.name == "events":
            changed = data.replace(b'"received_at":"20', b'"received_at":"19', 1)
            assert changed != data
            log = opened(RecordingFiles({**files.visible(), path: changed}, dirs=files.dirs))
            assert "line_unreadable" in {problem.code for problem in log.check()}
            log.close()


@pytest.mark.parametrize("nth", range(1, 7))
def test_a_full_disk_refuses_the_write_and_takes_the_next_one(nth: int) -> None:
    """F07: at every write; what is there stays, nothing is half there, nothing is deleted."""
    files = RecordingFiles()
    log = opened(files)
    put(log, 1)
    files.shorten_write(nth=nth, to_bytes=5)
    files.fail("write", nth=nth + 1, error=28)
    stored = [1]
    for number in (2, 3, 4):
        try:
            put(log, number, 2, note=True)
            stored.append(number)
        except StorageFull:
            assert [recorded.event.payload["n"] for recorded in log.read()] == [
                1,
                *[n for n in stored[1:] for _ in "ab"],
            ]
    put(log, 5)
    log.close()
    assert numbers(files) == [*stored, 5]


def test_a_short_write_is_completed() -> None:
    files = RecordingFiles()
    log = opened(files)
    for nth in range(1, 4):
        files.shorten_write(nth=nth, to_bytes=7)
    put(log, 1, 2)
    put(log, 2)
    log.close()
    assert numbers(files) == [1, 2]


@pytest.mark.parametrize("drop", [False, True])
def test_a_failed_flush_stops_the_writer_for_good(drop: bool) -> None:
    """G12, F05."""
    files = RecordingFiles()
    log = opened(files)
    put(log, 1)
    files.fail("flush", drop=drop)
    with pytest.raises(WriterStopped):
        put(log, 2)
    with pytest.raises(WriterStopped, match="no more writes"):
        put(log, 3)
    assert [recorded.event.payload["n"] for recorded in log.read()] == [1]
    log.close()

    again = opened(files)  # recovery decides what is really there, and puts it on the disk
    put(again, 4)
    again.close()
    assert numbers(files) in ([1, 4], [1, 2, 4])


# ---- planted bugs: each must be seen by the tests above


def _no_flush(patch: pytest.MonkeyPatch) -> None:
    def append(self: OpenDayFile, data: bytes, *, at: int) -> None:
        assert self._handle is not None
        self._files.write_all(self._handle, data, at=at)

    patch.setattr(OpenDayFile, "append", append)


def _no_directory_flush(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RecordingFiles, "fsync_dir", lambda self, path: None)


def _no_settling(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OpenDayFile, "settle", lambda self, data, at: None)


def _torn_tail_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("everlog.stores.jsonl.index.changes.torn_at", lambda *given, **named: None)


def _half_a_batch_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(day_files, "_is_prefix_of_batch", lambda rest: False)


def _bad_end_is_always_torn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(day_files, "looks_torn", lambda tail, begin, last_at: True)


def _no_checksum(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("everlog.stores.jsonl.lines.refuse_changed", lambda data: None)


def _notes_after_the_events(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(notes.NotesFile, "_take", _take_at_once(notes.NotesFile._take))


def _take_at_once(real: Callable[..., None]) -> Callable[..., None]:
    def take(self: notes.NotesFile, line: notes._Line) -> None:
        line.of = ""
        real(self, line)

    return take


def _no_plan(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(purge, "write_plan", lambda files, path, plan: None)
    patch.setattr(RecordingFiles, "unlink", _unlink_if_there(RecordingFiles.unlink))


def _unlink_if_there(real: Callable[..., None]) -> Callable[..., None]:
    def unlink(self: RecordingFiles, path: Path) -> None:
        if path in self.by_name:
            real(self, path)

    return unlink


def _purge_forgets_to_rewrite(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(purge, "carry_out", lambda files, events, plan: None)


def _purge_leaves_old_notes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(notes.NotesFile, "clean", lambda self, now_us: None)


def _purge_drops_the_lines(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(purge, "purged_line", lambda line, batch=None: b"")


def _erased_too_early(patch: pytest.MonkeyPatch) -> None:
    """A plan counts as committed before the lines of its write are there."""
    patch.setattr(purge.Plan, "is_committed", lambda plan, knows: True)


def _full_disk_leaves_half_a_line(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RecordingFiles, "truncate", lambda self, handle, size: None)


def _flush_is_tried_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JsonlStore, "_require_writable", lambda self: None)


def _crashes() -> None:
    workload = WORKLOADS["one line at a time, over two days"]
    assert judged(workload(), first_only=True).violations == []


def _crashes_with_notes() -> None:
    assert judged(appends(2, note=True), first_only=True).violations == []


def _tears() -> None:
    test_a_write_that_is_cut_at_any_byte_goes_as_a_whole(3)


def _flush_failures() -> None:
    test_a_failed_flush_stops_the_writer_for_good(drop=True)


def _full_disks() -> None:
    for nth in range(1, 8):
        test_a_full_disk_refuses_the_write_and_takes_the_next_one(nth)


PLANTED = [
    (_no_flush, _crashes),
    (_no_directory_flush, _crashes),
    (_no_settling, _crashes),
    (_torn_tail_stays, _tears),
    (_half_a_batch_stays, _tears),
    (_notes_after_the_events, _crashes_with_notes),
    (_bad_end_is_always_torn, test_a_flipped_bit_is_named_and_everything_else_stays_readable),
    (_no_checksum, test_a_change_of_what_no_hash_covers_is_found_too),
    (_no_plan, a_purge_happens_or_not),
    (_purge_forgets_to_rewrite, a_purge_happens_or_not),
    (_purge_leaves_old_notes, a_purge_happens_or_not),
    (_purge_drops_the_lines, a_purge_happens_or_not),
    (_no_plan, _erasure_with_its_event),
    (_purge_forgets_to_rewrite, _erasure_with_its_event),
    (_erased_too_early, _erasure_with_its_event),
    (_full_disk_leaves_half_a_line, _full_disks),
    (_flush_is_tried_again, _flush_failures),
]


@pytest.mark.parametrize(
    ("plant", "found_by"), PLANTED, ids=[f"{plant.__name__}-{found.__name__}".strip("_") for plant, found in PLANTED]
)
def test_a_planted_bug_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], found_by: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, EverlogError, pytest.fail.Exception)):
        found_by()
