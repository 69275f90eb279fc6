"""A state that could not be read anew, or not to its end: nothing is written from half of one."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from everlog.errors import Unavailable, WriterStopped
from everlog.stores.segments.index.live_part import LivePart
from everlog.stores.segments.loading import SegmentLoader
from everlog.stores.segments.state import LogState
from everlog.stores.segments.store import SegmentsStore
from everlog.stores.small_state import read_note
from everlog.testing.builders import put_note, stamped

EVENTS = 14
STEPS = ["open_segment", "set_limit", "fill", "walk_on", "_add_state"]
FAULTS = [OSError(errno.EMFILE, "Too many open files"), KeyboardInterrupt()]


def add(store: SegmentsStore) -> None:
    with store.open_write() as writer:
        writer.append([stamped(writer, store.identity.origin)])


def written(path: Path) -> SegmentsStore:
    """A writer with several segments, and some frames in the last."""
    store = SegmentsStore(path, segment_bytes_max=1200)
    for _ in range(EVENTS):
        add(store)
    assert len(store.state.segments) > 2
    assert len(store.state.live.parts[-1].offsets) >= 1
    return store


class Failing:
    """A method that fails at one of its calls."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: type, name: str, error: BaseException, at: int) -> None:
        self._really = getattr(owner, name)
        self._error, self._left = error, at
        this = self

        def call(self: Any, *given: Any, **named: Any) -> Any:
            this._left -= 1
            if this._left == 0:
                raise this._error
            return this._really(self, *given, **named)

        patch.setattr(owner, name, call)

    @property
    def failed(self) -> bool:
        return self._left <= 0


def failing_step(patch: pytest.MonkeyPatch, store: SegmentsStore, step: str, error: BaseException) -> Failing:
    once = step in ("walk_on", "_add_state")  # index files cover all but the live segment
    owner = LogState if step == "_add_state" else SegmentLoader
    return Failing(patch, owner, step, error, 1 if once else len(store.state.segments))


def assert_whole(path: Path, count: int) -> None:
    store = SegmentsStore(path)
    assert list(store.check()) == []
    assert [recorded.position for recorded in store.read()] == list(range(1, count + 1))
    store.close()


@pytest.mark.parametrize("error", FAULTS, ids=["EMFILE", "Ctrl-C"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("appends", [0, 1])
def test_a_reader_that_fails_to_reload_in_the_process_that_writes_costs_no_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, step: str, appends: int
) -> None:
    store = written(tmp_path / "log")
    reader = store.read()
    next(reader)
    store.archive(days=0)  # what it reads is packed under it
    with monkeypatch.context() as patch:
        failing = failing_step(patch, store, step, error)
        with pytest.raises(type(error)):
            list(reader)
        assert failing.failed
    assert store.head() == EVENTS
    for _ in range(appends):
        add(store)
    store.close()
    assert_whole(tmp_path / "log", EVENTS + appends)


@pytest.mark.parametrize("error", FAULTS, ids=["EMFILE", "Ctrl-C"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("appends", [0, 1])
def test_a_packing_that_fails_when_the_log_is_looked_at_again_costs_no_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, step: str, appends: int
) -> None:
    store = written(tmp_path / "log")
    with monkeypatch.context() as patch:
        failing = failing_step(patch, store, step, error)
        with pytest.raises(type(error)):
            store.archive(days=0)
        assert failing.failed
    assert store._writer is not None
    assert store._writer.outdated  # it opens its files again before it writes
    for _ in range(appends):
        add(store)
    store.close()
    assert_whole(tmp_path / "log", EVENTS + appends)


def test_an_interrupt_in_the_midst_of_a_frame_leaves_the_book_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = written(tmp_path / "log")
    before = {name: value for name, value in vars(store.state).items() if name != "_frozen"}
    with monkeypatch.context() as patch:
        Failing(patch, LivePart, "add", KeyboardInterrupt(), 1)
        with pytest.raises(KeyboardInterrupt):
            store.state.load()
    after = {name: value for name, value in vars(store.state).items() if name != "_frozen"}
    assert all(after[name] is before[name] for name in before)
    assert after.keys() == before.keys()
    store.close()
    assert_whole(tmp_path / "log", EVENTS)


def test_a_writer_whose_reload_failed_opens_its_files_again_before_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = written(tmp_path / "log")
    writer = store._writer
    with monkeypatch.context() as patch:
        Failing(patch, LogState, "_add_state", OSError(errno.EIO, "Input/output error"), 1)
        with pytest.raises(OSError, match="Input/output"):
            store._reload()
    assert writer is not None
    assert writer.outdated
    add(store)
    assert store._writer is not None
    assert store._writer is not writer
    store.close()
    assert_whole(tmp_path / "log", EVENTS + 1)


def test_a_reload_that_succeeds_does_not_clear_what_an_earlier_failure_said_of_the_writer(tmp_path: Path) -> None:
    store = written(tmp_path / "log")
    assert store._writer is not None
    store._reload()
    assert not store._writer.outdated
    store._writer.outdated = True
    store._reload()
    assert store._writer.outdated
    store.close()


def test_a_write_during_which_the_log_could_not_be_read_anew_records_nothing_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = written(tmp_path / "log")

    def write() -> None:
        with store.open_write() as writer:
            with monkeypatch.context() as patch:
                Failing(patch, LogState, "_add_state", OSError(errno.EIO, "Input/output error"), 1)
                with pytest.raises(OSError, match="Input/output"):
                    store._reload()
            writer.append([stamped(writer, store.identity.origin)])

    with pytest.raises(Unavailable, match="could not be read again"):
        write()
    assert store.head() == EVENTS
    add(store)
    store.close()
    assert_whole(tmp_path / "log", EVENTS + 1)


def test_a_write_that_was_interrupted_after_it_was_recorded_gives_no_sequence_number_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = written(tmp_path / "log")
    with monkeypatch.context() as patch:
        Failing(patch, SegmentsStore, "_require_the_lock", KeyboardInterrupt(), 2)  # the first is before the write
        with pytest.raises(KeyboardInterrupt):
            add(store)
    assert store.head() == EVENTS + 1
    add(store)
    places = [(recorded.event.stream, recorded.sequence) for recorded in store.read()]
    assert len(places) == len(set(places)) == EVENTS + 2
    store.close()


def test_a_writer_that_is_unsure_of_its_last_frame_neither_writes_nor_marks_the_end(tmp_path: Path) -> None:
    """Interrupted, and interrupted again before that was put down."""
    store = written(tmp_path / "log")
    assert store._writer is not None
    store._writer.unsure = True
    live = store.layout.segment(store.state.live.number)
    before = live.read_bytes()
    store.close()
    assert live.read_bytes() == before

    again = SegmentsStore(tmp_path / "log")
    add(again)
    assert again._writer is not None
    again._writer.unsure = True
    with pytest.raises(WriterStopped):
        add(again)
    again.close()
    assert_whole(tmp_path / "log", EVENTS + 1)


def test_a_reader_whose_refresh_was_cut_short_reads_everything_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it add_purges in may be half of a frame, and its notes those of before."""
    store = SegmentsStore(tmp_path / "log")
    add(store)
    reader = SegmentsStore(tmp_path / "log")
    with store.open_write() as writer:
        put_note(writer, "name", "value")
    with monkeypatch.context() as patch:
        Failing(patch, LogState, "_add_state", KeyboardInterrupt(), 1)
        with pytest.raises(KeyboardInterrupt):
            reader.head()
    assert read_note(reader.small_state, "name") == "value"
    add(store)
    assert [recorded.position for recorded in reader.read()] == [1, 2]
    reader.close()
    store.close()
