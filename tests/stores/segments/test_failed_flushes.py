"""G12: a flush that fails, wherever it is made, stops the writer of that handle for good."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.faults import Operation, RecordingFiles

from everlog.errors import EverlogError, WriterStopped
from everlog.stores.segments import writer
from everlog.stores.segments.index import live_part
from everlog.stores.segments.store import SegmentsStore
from everlog.testing.builders import stamped

ROOT = Path("/logs/log")
DAY_US = 24 * 3_600_000_000

FEW = (1, 2, 3, 5, 8, 13, 21, 34)
"""Which flush fails, in the short form."""

Use = Callable[[SegmentsStore], None]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_part, "PART_EVENTS_MAX", 4)
    monkeypatch.setattr(writer, "PART_EVENTS_MIN", 1)
    monkeypatch.setattr(writer, "SPACE_AFTER_FRAMES", 2)


def opened(files: RecordingFiles, *, segment_bytes_max: int = 10**8) -> SegmentsStore:
    times = iter(range(1, 10**6))
    return SegmentsStore(
        ROOT,
        files=files,
        now_us=lambda: next(times) * DAY_US,
        segment_bytes_max=segment_bytes_max,
        segment_hours_max=10**9,
        space_bytes=600,
    )


def add(store: SegmentsStore) -> int:
    with store.open_write() as writer:
        (made,) = writer.append([stamped(writer, store.identity.origin, stream=f"note/{store.head() % 2}")])
    return made.position


def append_some(store: SegmentsStore) -> None:
    for _ in range(6):
        add(store)


def purge(store: SegmentsStore) -> None:
    add(store)
    add(store)
    with store.open_write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")


def archive(store: SegmentsStore) -> None:
    add(store)
    store.archive(days=1)


def read(store: SegmentsStore) -> None:
    list(store.read())


def closed_log(*, segment_bytes_max: int = 10**8) -> RecordingFiles:
    files = RecordingFiles({}, dirs=[Path("/logs")])
    store = opened(files, segment_bytes_max=segment_bytes_max)
    append_some(store)
    store.close()
    return RecordingFiles(files.visible(), dirs=files.dirs)


def killed_log() -> RecordingFiles:
    files = closed_log()
    append_some(opened(files))
    return files.after_kill()


def torn_log() -> RecordingFiles:
    files = killed_log()
    path = opened(files).layout.segment(1)
    content = files.visible()
    content[path] = content[path].rstrip(b"\0") + b"\0\0\1\0 half a write"
    return RecordingFiles(content, dirs=files.dirs)


def owing_a_sweep() -> RecordingFiles:
    """A purge was committed, and its writer was killed before the purged bytes were gone."""
    files = closed_log()
    store = opened(files)
    before = len(files.trace)
    purge(store)
    for steps in range(before, len(files.trace)):
        left = files.after_kill(steps)
        if SegmentsStore(ROOT, files=left, now_us=lambda: 1).state.sweep_owed:
            return RecordingFiles(left.visible(), dirs=left.dirs)
    raise AssertionError("no kill leaves a sweep to be done")


LOGS: dict[str, Callable[[], RecordingFiles]] = {
    "closed": closed_log,
    "killed": killed_log,
    "torn": torn_log,
    "several segments": lambda: closed_log(segment_bytes_max=700),
    "owing a sweep": owing_a_sweep,
}
USES: dict[str, tuple[Use, int]] = {
    "append": (append_some, 10**8),
    "rotate": (append_some, 700),
    "purge": (purge, 700),
    "archive": (archive, 700),
    "read": (read, 10**8),
}


@pytest.mark.parametrize("operation", ["flush", "fsync", "fsync_dir"])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("log", LOGS)
def test_any_flush_that_fails_stops_the_writer_of_its_handle(
    log: str, use: str, operation: Operation, pytestconfig: pytest.Config
) -> None:
    act, segment_bytes_max = USES[use]
    made = LOGS[log]()
    met = 0
    for nth in range(1, 60) if pytestconfig.getoption("--full") else FEW:
        files = RecordingFiles(made.visible(), dirs=made.dirs)
        store = opened(files, segment_bytes_max=segment_bytes_max)
        calls = files.calls(operation)
        files.fail(operation, nth=nth, drop=operation != "fsync_dir")
        try:
            act(store)
        except WriterStopped:
            assert files.calls(operation) >= calls + nth
        if files.calls(operation) < calls + nth:
            break  # there are no more flushes
        met += 1
        before = {path: data for path, data in files.visible().items() if path.suffix == ".seg"}
        for _ in range(2):
            with pytest.raises(WriterStopped):
                add(store)
        assert {path: data for path, data in files.visible().items() if path.suffix == ".seg"} == before
        with pytest.raises(WriterStopped):
            store.archive(days=1)
        store.close()
        again = opened(files)  # what is there is found by the next handle, which flushes it honestly
        add(again)
        assert list(again.check()) == []
        again.close()
    assert met or use == "read" or operation == "flush"  # else nothing was tried


def test_a_flush_that_fails_while_the_writer_opens_stops_it() -> None:
    """The defect as it was found: the next append on the same handle was accepted."""
    files = torn_log()
    store = opened(files)
    files.fail("fsync")
    with pytest.raises(WriterStopped):
        add(store)
    with pytest.raises(WriterStopped, match="takes no more writes"):
        add(store)
    store.close()


def test_a_reader_whose_flush_fails_is_refused_as_a_writer_too() -> None:
    """What it could not flush may be gone after a power cut: it must not write behind that as if it were there."""
    files = closed_log()
    writer, reader = opened(files), opened(files)
    add(writer)
    files.fail("flush", drop=True)
    with pytest.raises(WriterStopped):
        reader.head()
    writer.close()
    with pytest.raises(WriterStopped):
        add(reader)
    reader.close()


def test_a_failed_flush_inside_a_write_stops_it_though_the_caller_goes_on() -> None:
    files = closed_log(segment_bytes_max=700)
    store = opened(files)
    add(store)  # a log that was closed cleanly is read without a flush
    with pytest.raises(EverlogError), store.open_write() as writer:
        files.fail("fsync_dir")
        with pytest.raises(WriterStopped):
            store._reload()
        writer.append([stamped(writer, store.identity.origin)])
    with pytest.raises(WriterStopped):
        add(store)
    store.close()
