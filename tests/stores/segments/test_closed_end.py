"""What is kept of the end of a closed log: how long it may be taken for the last one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec
import pytest
from tests.support.crash_states import Effort, kills, power_cuts
from tests.support.faults import RecordingFiles
from tests.support.steps import Write

from everlog.errors import Damaged, WriterStopped
from everlog.os_errors import failed_flush
from everlog.stores.segments.closed_end import SavedEnd, read_end, take_back_closed
from everlog.stores.segments.format.frame import enclose
from everlog.stores.segments.format.layout import Layout
from everlog.stores.segments.store import SegmentsStore
from everlog.testing.builders import stamped

ROOT = Path("/logs/log")
LIVE = Layout(ROOT).segment(1)


def add(store: SegmentsStore) -> int:
    """Where the frame ends."""
    with store.open_write() as writer:
        writer.append([stamped(writer, store.identity.origin)])
    return store.state.live.end


def known_in(store: SegmentsStore) -> SavedEnd:
    found = read_end(store.files, store.layout, log_id=store.identity.log_id)
    assert found is not None
    return found


@pytest.mark.parametrize("zeroed", [False, True])
def test_events_that_a_killed_writer_put_behind_the_mark_are_missed_wherever_the_mark_is_cut(
    tmp_path: Path, zeroed: bool
) -> None:
    """G10: they were acknowledged, and their positions would be given out again."""
    path = tmp_path / "log"
    store = SegmentsStore(path)
    end = add(store)
    store.close()
    file = path / "segments" / "00000001.seg"
    closed_at = file.stat().st_size
    child = os.fork()
    if child == 0:  # killed: it never closes the log
        late = SegmentsStore(path)
        add(late)
        os._exit(0)
    os.waitpid(child, 0)
    written = file.read_bytes()
    for cut in range(end, closed_at):
        file.write_bytes(written[:cut] + bytes(len(written) - cut if zeroed else 0))
        again = SegmentsStore(path)
        codes = [problem.code for problem in again.check()]
        assert codes in (["segment_cut"], ["damaged_bytes"]), (cut, codes)
        with pytest.raises(Damaged):
            add(again)
        again.close()


@pytest.mark.parametrize("closed", [True, False])
def test_only_a_log_that_was_not_closed_gets_its_last_write_written_again(closed: bool) -> None:
    files = RecordingFiles({}, dirs=[Path("/logs")])
    store = SegmentsStore(ROOT, files=files, now_us=lambda: 1)
    add(store)
    if closed:
        store.close()
    left = files.after_kill()
    late = SegmentsStore(ROOT, files=left, now_us=lambda: 1)
    live, end = left.by_name[LIVE], late.state.live.end
    add(late)
    steps = left.trace[len(files.trace) :]
    again = [step for step in steps if isinstance(step, Write) and step.file == live and step.at < end]
    assert len(again) == (0 if closed else 1)


def test_no_crash_leaves_the_word_closed_beside_anything_that_was_written_behind_that_end() -> None:
    files = RecordingFiles({}, dirs=[Path("/logs")])
    store = SegmentsStore(ROOT, files=files, now_us=lambda: 1)
    add(store)
    store.close()
    first = known_in(store).end
    late = SegmentsStore(ROOT, files=files, now_us=lambda: 1)
    add(late)
    second = late.state.live.end
    late.close()
    assert known_in(late).end > second > first
    effort = Effort(exhaustive_max=256, samples=64, tears_max=16)
    vouched = behind = 0
    for state in [*power_cuts(files, effort=effort), *kills(files)]:
        left = RecordingFiles(state.contents, dirs=state.dirs)
        known = read_end(left, store.layout, log_id=store.identity.log_id)
        written = state.contents.get(LIVE, b"")
        if known is not None and known.closed:
            vouched += 1
            assert not written[known.end :].rstrip(b"\0"), state.label
        behind += bool(written[first:].rstrip(b"\0"))
    assert vouched > 0  # else nothing was compared
    assert behind > 0


def test_no_crash_leaves_the_word_closed_beside_a_segment_that_follows() -> None:
    files = RecordingFiles({}, dirs=[Path("/logs")])
    store = SegmentsStore(ROOT, files=files, now_us=lambda: 1)
    add(store)
    store.close()
    late = SegmentsStore(ROOT, files=files, now_us=lambda: 1, segment_bytes_max=1)  # its first write begins one
    add(late)
    followed = 0
    for state in [*power_cuts(files, effort=Effort(exhaustive_max=256, samples=64, tears_max=16)), *kills(files)]:
        if late.layout.segment(2) in state.contents:
            followed += 1
            left = RecordingFiles(state.contents, dirs=state.dirs)
            known = read_end(left, store.layout, log_id=store.identity.log_id)
            assert known is None or not known.closed, state.label
    assert followed > 0
    late.close()


def test_the_word_is_flushed_again_by_who_finds_it_taken_back() -> None:
    """Whoever add_purges it back may have been killed before the flush; then the disk still says `closed`."""
    files = RecordingFiles({}, dirs=[Path("/logs")])
    store = SegmentsStore(ROOT, files=files, now_us=lambda: 1)
    add(store)
    store.close()
    log_id = store.identity.log_id
    take_back_closed(files, store.layout, log_id=log_id)
    assert not known_in(store).closed
    before = files.calls("fsync")
    take_back_closed(files, store.layout, log_id=log_id)
    assert files.calls("fsync") == before + 1


@pytest.mark.parametrize("gone", ["end", "index"])
def test_a_known_end_that_was_removed_stays_so(gone: str) -> None:
    files = RecordingFiles({}, dirs=[Path("/logs")])
    store = SegmentsStore(ROOT, files=files, now_us=lambda: 1)
    add(store)
    store.close()
    layout = store.layout
    files.unlink(layout.end)
    if gone == "index":
        files.dirs.discard(layout.index)
    before = files.calls("fsync_dir")
    take_back_closed(files, layout, log_id=store.identity.log_id)
    assert files.calls("fsync_dir") == before + 1


def test_a_word_that_cannot_be_taken_back_stops_the_writer_and_the_next_handle_tries_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = SegmentsStore(tmp_path / "log")
    add(store)
    store.close()
    file = tmp_path / "log" / "segments" / "00000001.seg"
    whole = file.read_bytes()
    again = SegmentsStore(tmp_path / "log")
    really = again.files.fsync
    failing = iter([failed_flush(OSError(5, "Input/output error"), again.layout.end)])

    def fsync(handle: object) -> None:
        if getattr(handle, "path", None) == again.layout.end:
            for error in failing:
                raise error
        really(handle)  # type: ignore[arg-type]

    monkeypatch.setattr(again.files, "fsync", fsync)
    for _ in range(2):
        with pytest.raises(WriterStopped, match="Input/output"):
            add(again)
    assert file.read_bytes() == whole
    again.close()
    last = SegmentsStore(tmp_path / "log")
    add(last)
    assert last.head() == 2
    last.close()
    assert known_in(last).closed


def test_to_read_leaves_the_word_alone_and_so_does_a_writer_that_writes_nothing(tmp_path: Path) -> None:
    store = SegmentsStore(tmp_path / "log")
    add(store)
    store.close()
    kept = store.layout.end.read_bytes()
    again = SegmentsStore(tmp_path / "log")
    assert len(list(again.read())) == 1
    with again.open_write():
        pass
    assert store.layout.end.read_bytes() == kept
    again.close()
    assert store.layout.end.read_bytes() == kept


def test_a_file_of_an_earlier_version_says_how_far_the_log_went_and_not_that_it_was_the_last(tmp_path: Path) -> None:
    store = SegmentsStore(tmp_path / "log")
    end = add(store)
    store.close()
    known = known_in(store)
    old = msgspec.msgpack.encode([known.log_id, known.number, known.end, known.head])
    store.layout.end.write_bytes(enclose(old))
    assert known_in(store) == SavedEnd(known.log_id, known.number, known.end, known.head, closed=False)
    file = tmp_path / "log" / "segments" / "00000001.seg"
    file.write_bytes(file.read_bytes()[: end + 3])
    again = SegmentsStore(tmp_path / "log")
    assert [problem.code for problem in again.check()] == ["segment_cut"]
    with pytest.raises(Damaged):
        add(again)
    again.close()


def test_an_end_that_cannot_be_kept_costs_a_warning_and_no_event(caplog: pytest.LogCaptureFixture) -> None:
    files = RecordingFiles({}, dirs=[Path("/logs")])
    store = SegmentsStore(ROOT, files=files, now_us=lambda: 1)
    first = add(store)
    files.fail("write", nth=2, error=errno.ENOSPC)  # the frame, and then the file of its end
    add(store)
    add(store)
    assert [record.getMessage().split(" in ")[0] for record in caplog.records] == [
        "the end of the log could not be saved"
    ]
    store.close()
    known = known_in(store)
    assert (known.end, known.closed) == (first, False)  # an earlier end, which does no harm
    again = SegmentsStore(ROOT, files=files, now_us=lambda: 1)
    assert [recorded.position for recorded in again.read()] == [1, 2, 3]
    assert list(again.check()) == []
    add(again)
    again.close()
    assert (known_in(again).head, known_in(again).closed) == (4, True)
