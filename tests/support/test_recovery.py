"""The judge of recoveries: two right programs have no violation, and every planted bug is caught.

The subjects are tiny on purpose: a file of records (`length | body | SHA-256`) and a file that is replaced whole.
"""

from __future__ import annotations

import errno
import hashlib
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.crash_states import Effort, kills, power_cuts
from tests.support.faults import RecordingFiles
from tests.support.recovery import Report, check, check_bit_flips

from everlog.errors import Damaged, StorageFull, WriterStopped
from everlog.files import Files, leftover_temps, replace_file

HOME = Path("/log")
PATH = HOME / "records"
HEADER = struct.Struct(">I")
NUMBER = struct.Struct(">Q")


# --- the subjects -----------------------------------------------------------------------------------------


class Records:
    """Numbers in an append-only file, each flushed before `add` returns. The planted bugs override its steps."""

    digest_bytes = 32
    padding_bytes = 40

    def __init__(self, files: Files) -> None:
        self.files = files
        self.stopped = False
        files.make_dir(HOME)
        existed = files.exists(PATH)
        self.handle = files.open(PATH, create=True)
        self.flush_name(existed)
        self.numbers, self.end = self.recover()

    def add(self, number: int) -> None:
        if self.stopped:
            raise WriterStopped("stopped")
        record = self.encode(number)
        try:
            self.write(record)
        except StorageFull:
            self.files.truncate(self.handle, self.end)  # or the next record would be glued to half of this one
            raise
        try:
            self.flush()
        except WriterStopped:
            self.stopped = True
            raise
        self.end += len(record)
        self.numbers.append(number)

    def write(self, record: bytes) -> None:
        self.files.write_all(self.handle, record, at=self.end)

    def flush(self) -> None:
        self.files.flush(self.handle)

    def flush_name(self, existed: bool) -> None:
        # Always, not only after creating it: the creator may have been killed before it got here.
        self.files.fsync_dir(HOME)

    def recover(self) -> tuple[list[int], int]:
        data = self.files.read(self.handle, self.files.size(self.handle), at=0)
        numbers, start, end = [], 0, 0
        for where, stop, number in self.scan(data):
            if where != end:
                raise Damaged("a record is damaged", why=f"bytes {end} to {where} of {PATH}")
            numbers.append(number)
            start, end = where, stop
        if end < len(data):
            self.cut(end)
        self.settle(data, start, end)
        return numbers, end

    def cut(self, end: int) -> None:
        self.files.truncate(self.handle, end)

    def settle(self, data: bytes, start: int, end: int) -> None:
        # What is read may be only in memory, left there by a killed writer. After a *failed* flush it even counts
        # as clean, and flushing it again does nothing: so the last record is written once more.
        if start < end:
            self.files.write_all(self.handle, data[start:end], at=start)
        self.files.flush(self.handle)

    def scan(self, data: bytes) -> Iterator[tuple[int, int, int]]:
        """(start, end, number) of each whole record; behind a bad one it looks for the next good one."""
        at = 0
        while at + HEADER.size <= len(data):
            found = self.decode(data, at)
            if found is None:
                at += 1
            else:
                yield at, *found
                at = found[0]

    def encode(self, number: int) -> bytes:
        body = NUMBER.pack(number) + bytes([number % 251 + 1]) * self.padding_bytes
        return HEADER.pack(len(body)) + body + hashlib.sha256(body).digest()[: self.digest_bytes]

    def decode(self, data: bytes, at: int) -> tuple[int, int] | None:
        (length,) = HEADER.unpack_from(data, at)
        start, stop = at + HEADER.size, at + HEADER.size + length
        end = stop + self.digest_bytes
        if length < NUMBER.size or end > len(data):
            return None
        body = data[start:stop]
        if hashlib.sha256(body).digest()[: self.digest_bytes] != data[stop:end]:
            return None
        return end, NUMBER.unpack_from(body)[0]


class WideRecords(Records):
    padding_bytes = 1300  # several sectors


class Register:
    """A list that is replaced whole."""

    def __init__(self, files: Files) -> None:
        self.files = files
        files.make_dir(HOME)
        for path in leftover_temps(files, HOME):
            files.unlink(path)
        self.settle()
        self.numbers = list(files.read_all(PATH)) if files.exists(PATH) else []

    def add(self, number: int) -> None:
        self.replace(bytes([*self.numbers, number]))
        self.numbers.append(number)

    def replace(self, data: bytes) -> None:
        replace_file(self.files, PATH, data)

    def settle(self) -> None:
        self.files.fsync_dir(HOME)  # the last writer may have been killed between rename and flush


Subject = type[Records] | type[Register]


def run(subject: Subject, files: RecordingFiles, count: int) -> RecordingFiles:
    """Add numbers; a stopped writer is opened again, a full disk is tried once more."""
    store = subject(files)
    for number in range(1, count + 1):
        files.tried(number)
        try:
            store.add(number)
        except WriterStopped:
            store = subject(files)
            continue
        except StorageFull:
            continue
        files.acked(number)
    return files


def examine(subject: Subject, files: RecordingFiles, count: int = 4, *, effort: Effort = Effort()) -> Report:  # noqa: B008
    run(subject, files, count)
    states = [*power_cuts(files, effort=effort), *kills(files)]

    def recover(disk: RecordingFiles) -> list[int]:
        return list(subject(disk).numbers)

    def append(disk: RecordingFiles, number: int) -> None:
        subject(disk).add(number)

    return check(recover, states, append=append, nested_max=60)


# --- the right programs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subject", "count", "states_min"), [(Records, 25, 3000), (WideRecords, 6, 1500), (Register, 32, 3000)]
)
def test_a_right_program_has_no_violation(
    subject: Subject, count: int, states_min: int, record_property: Callable[[str, object], None]
) -> None:
    started = time.perf_counter()
    report = examine(subject, RecordingFiles(), count)
    print(f"{subject.__name__}: {report} in {time.perf_counter() - started:.1f} s")
    record_property("states", report.states + report.nested)
    assert report.violations == [], str(report)
    assert report.states + report.nested >= states_min


# --- the planted bugs: each breaks one promise, and a run that does not notice it is worth nothing ---------


class AckBeforeFlush(Records):  # G1, F01
    def flush(self) -> None:
        pass


class AckBeforeWrite(Records):  # G1: the record is kept in memory until the next one comes
    waiting = b""

    def write(self, record: bytes) -> None:
        super().write(self.waiting)
        self.end += len(self.waiting) - len(record)
        self.waiting = record


class NoDirectoryFlush(Records):  # F06
    def flush_name(self, existed: bool) -> None:
        pass


class DirectoryFlushOnlyByTheCreator(Records):  # F06, after a kill between create and flush
    def flush_name(self, existed: bool) -> None:
        if not existed:
            super().flush_name(existed)


class NoChecksum(Records):  # F02: a sector of zeros is taken for a record
    digest_bytes = 0


class ShortWriteNotLooped(Records):  # F07
    def write(self, record: bytes) -> None:
        self.files.write(self.handle, record, at=self.end)


class HalfRecordLeftWhenFull(Records):  # F07
    def write(self, record: bytes) -> None:
        try:
            super().write(record)
        except StorageFull:
            self.end = self.files.size(self.handle)
            raise


class FailedFlushTriedAgain(Records):  # G12, F05
    def flush(self) -> None:
        try:
            super().flush()
        except WriterStopped:
            super().flush()


class FailedFlushWrittenAgain(Records):  # G12, G5: the first copy is there, too
    def flush(self) -> None:
        try:
            super().flush()
        except WriterStopped:
            copy = self.files.read(self.handle, self.files.size(self.handle) - self.end, at=self.end)
            self.end += len(copy)
            self.write(copy)
            super().flush()


class CleanPagesTrusted(Records):  # F05: flushed in recovery, but to the kernel those pages are clean
    def settle(self, data: bytes, start: int, end: int) -> None:
        self.files.flush(self.handle)


class RecoveryNotFlushed(Records):  # G1: served from memory, gone after the power cut
    def settle(self, data: bytes, start: int, end: int) -> None:
        pass


class TornTailNotCut(Records):  # F02: the next record is glued to it
    def cut(self, end: int) -> None:
        pass

    def recover(self) -> tuple[list[int], int]:
        numbers, _ = super().recover()
        return numbers, self.files.size(self.handle)


class CutAtTheFirstBadRecord(Records):  # F03, G10: one flipped bit takes all that follows
    def scan(self, data: bytes) -> Iterator[tuple[int, int, int]]:
        at = 0
        while at + HEADER.size <= len(data) and (found := self.decode(data, at)):
            yield at, *found
            at = found[0]


class BadRecordsSkipped(Records):  # F03, G10
    def recover(self) -> tuple[list[int], int]:
        data = self.files.read(self.handle, self.files.size(self.handle), at=0)
        found = list(self.scan(data))
        end = found[-1][1] if found else 0
        if end < len(data):
            self.cut(end)
        self.settle(data, found[-1][0] if found else 0, end)
        return [number for _, _, number in found], end


class CountInASideFile(Records):  # F09: the count is behind the log, or ahead of it
    side = HOME / "count"

    def recover(self) -> tuple[list[int], int]:
        numbers, _ = super().recover()
        count = int(self.files.read_all(self.side) or b"0") if self.files.exists(self.side) else 0
        numbers = numbers[:count]
        end = sum(len(self.encode(number)) for number in numbers)
        return numbers, end

    def add(self, number: int) -> None:
        super().add(number)
        handle = self.files.open(self.side, create=True)
        self.files.write_all(handle, b"%d" % len(self.numbers), at=0)
        self.files.close(handle)


class RenameBeforeFlush(Register):  # F06: the name is there, the bytes are not
    def replace(self, data: bytes) -> None:
        temp = PATH.with_suffix(".new")
        handle = self.files.open(temp, create=True)
        self.files.truncate(handle, 0)
        self.files.write_all(handle, data, at=0)
        self.files.rename(temp, PATH)
        self.files.fsync(handle)
        self.files.close(handle)
        self.files.fsync_dir(HOME)


class NoDirectoryFlushAfterRename(Register):  # F06
    def replace(self, data: bytes) -> None:
        temp = PATH.with_suffix(".new")
        handle = self.files.open(temp, create=True)
        self.files.truncate(handle, 0)
        self.files.write_all(handle, data, at=0)
        self.files.fsync(handle)
        self.files.close(handle)
        self.files.rename(temp, PATH)


class WrittenInPlace(Register):  # G2: half of the old, half of the new
    def replace(self, data: bytes) -> None:
        handle = self.files.open(PATH, create=True)
        self.files.truncate(handle, 0)
        self.files.write_all(handle, data, at=0)
        self.files.fsync(handle)
        self.files.close(handle)
        self.files.fsync_dir(HOME)


class ReplacedNameNotFlushedInRecovery(Register):  # G1, after a kill between rename and flush
    def settle(self) -> None:
        pass


def quietly(subject: Subject) -> Report:
    return examine(subject, RecordingFiles())


def with_a_dropped_flush(subject: Subject) -> Report:
    files = RecordingFiles()
    files.fail("flush", nth=4, drop=True)
    return examine(subject, files)


def with_a_failed_flush(subject: Subject) -> Report:
    files = RecordingFiles()
    files.fail("flush", nth=4)
    return examine(subject, files)


def with_a_short_write(subject: Subject) -> Report:
    files = RecordingFiles()
    files.shorten_write(nth=3, to_bytes=7)
    return examine(subject, files)


def with_a_full_disk(subject: Subject) -> Report:
    files = RecordingFiles()
    files.shorten_write(nth=3, to_bytes=7)
    files.fail("write", nth=4, error=errno.ENOSPC)
    return examine(subject, files)


def with_flipped_bits(subject: Subject) -> Report:
    assert issubclass(subject, Records)
    files = run(subject, RecordingFiles(), 8)
    # The last record is left out: this format cannot tell a flip there from a tear.
    size = len(files.visible()[PATH])
    span = range(size - size // 8)
    return check_bit_flips(
        lambda disk: subject(disk).numbers,
        files,
        range(1, 9),
        [(PATH, span)],
        loud=Damaged,
        readable=lambda disk: [number for _, _, number in Records.scan(_closed(subject), disk.read_all(PATH))],
    )


def _closed(subject: type[Records]) -> Records:
    return subject.__new__(subject)


PLANTED: list[tuple[Subject, Callable[[Subject], Report], str]] = [
    (AckBeforeFlush, quietly, "lost"),
    (AckBeforeWrite, quietly, "lost"),
    (NoDirectoryFlush, quietly, "lost"),
    (DirectoryFlushOnlyByTheCreator, quietly, "lost"),
    (NoChecksum, quietly, "invented"),
    (ShortWriteNotLooped, with_a_short_write, "lost"),
    (HalfRecordLeftWhenFull, with_a_full_disk, "recovery failed"),
    (FailedFlushTriedAgain, with_a_dropped_flush, "lost"),
    (FailedFlushWrittenAgain, with_a_failed_flush, "duplicated"),
    (CleanPagesTrusted, with_a_dropped_flush, "lost"),
    (RecoveryNotFlushed, quietly, "lost"),
    (TornTailNotCut, quietly, "append failed"),
    (CutAtTheFirstBadRecord, with_flipped_bits, "silent loss"),
    (BadRecordsSkipped, with_flipped_bits, "silent loss"),
    (CountInASideFile, quietly, "lost"),
    (RenameBeforeFlush, quietly, "lost"),
    (NoDirectoryFlushAfterRename, quietly, "lost"),
    (WrittenInPlace, quietly, "lost"),
    (ReplacedNameNotFlushedInRecovery, quietly, "lost"),
]


@pytest.mark.parametrize(("bug", "way", "kind"), PLANTED, ids=[bug.__name__ for bug, _, _ in PLANTED])
def test_planted_bug_is_caught(bug: Subject, way: Callable[[Subject], Report], kind: str) -> None:
    report = way(bug)

    assert kind in report.kinds, f"wanted {kind}: {report}"


@pytest.mark.parametrize(
    "way", [with_a_dropped_flush, with_a_failed_flush, with_a_short_write, with_a_full_disk, with_flipped_bits]
)
def test_the_right_program_survives_what_the_bugs_did_not(way: Callable[[Subject], Report]) -> None:
    report = way(Records)

    assert report.violations == [], str(report)
    assert report.states > 100
