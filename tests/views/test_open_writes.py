"""Writes that an inline view has taken in and that have not ended yet: who looks meanwhile, and what is told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from tests.conftest import CATALOG
from tests.views.said import say
from tests.views.test_failed_writes import full_disk, lost_one, note
from tests.views.test_versions import Telling

import everlog
from everlog.errors import StorageFull
from everlog.log.log import Log
from everlog.stores.sqlite.store import SqliteStore
from everlog.stores.staging import Staged
from everlog.views.builder import Builder
from everlog.views.view import Change
from everlog.views.views import Handle


class TellingAll(Telling):
    def __init__(self) -> None:
        super().__init__()
        self.values: list[list[object]] = []

    def on_change(self, changes: Sequence[Change]) -> None:
        super().on_change(changes)
        self.values += [list(change.state["values"]) for change in changes]


@contextmanager
def in_the_midst_of(write: Callable[[], object], *, fails: bool) -> Iterator[Callable[[], None]]:
    """Run a write in another thread up to its commit, after inline views have taken part in it; then it waits for the
    call that is given, or for the end of the context."""
    committing, inside, go_on = SqliteStore._commit, threading.Event(), threading.Event()

    def commit(store: SqliteStore, staged: Staged) -> None:
        if threading.current_thread() is not thread:
            committing(store, staged)
            return
        inside.set()
        assert go_on.wait(10)
        if fails:
            raise StorageFull("the disk is full")
        committing(store, staged)

    def run() -> None:
        with suppress(StorageFull):
            write()

    def end() -> None:
        go_on.set()
        thread.join()

    thread = threading.Thread(target=run)
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(SqliteStore, "_commit", commit)
        thread.start()
        assert inside.wait(10)
        try:
            yield end
        finally:
            end()


@contextmanager
def not_telling(builder: Builder) -> Iterator[None]:
    """Who writes within does not get to tell of it."""
    with pytest.MonkeyPatch.context() as later:
        later.setattr(builder, "tell", lambda: None)
        yield


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with everlog.open(f"sqlite:{tmp_path / 'log.db'}", catalog=CATALOG) as opened:
        yield opened


def look(handle: Handle, how: str) -> Callable[[], object]:
    ways: dict[str, Callable[[], object]] = {
        "audit": handle.audit,
        "save": handle.runner.builder().save,
        "get": lambda: handle.get("thing/1"),
    }
    return ways[how]


@pytest.mark.parametrize("how", ["audit", "save", "get"])
@pytest.mark.parametrize("its_type", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_who_looks_in_the_midst_of_a_write_keeps_no_place_that_is_not_on_record(
    log: Log, how: str, its_type: bool, fails: bool
) -> None:
    """The next event would be given that place, and never be seen."""
    handle = log.views.register(Telling(), mode="inline")
    say(log, 0)
    looking = threading.Thread(target=look(handle, how))
    with in_the_midst_of(lambda: say(log, "in doubt") if its_type else note(log), fails=fails):
        looking.start()
        looking.join(0.3)  # it waits for the write, or has looked
    looking.join()
    say(log, 1)
    expected = [0, "in doubt", 1] if its_type and not fails else [0, 1]
    assert handle.get("thing/1").state["values"] == expected
    assert handle.audit().ok


def test_a_write_that_begins_between_two_steps_of_a_reader_is_not_kept_by_it(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = log.views.register(Telling(), mode="inline")
    say(log, 0)
    builder = handle.runner.builder()
    stepping, met = builder.step, ExitStack()

    def step(limit: int) -> bool:
        done = stepping(limit)
        if builder.step is step:
            monkeypatch.undo()
            end = met.enter_context(in_the_midst_of(lambda: note(log), fails=True))
            threading.Timer(0.3, end).start()
        return done

    monkeypatch.setattr(builder, "step", step)
    with met:
        handle.get("thing/1")
    say(log, 1)
    assert handle.get("thing/1").state["values"] == [0, 1]


def test_who_asks_in_the_midst_of_a_write_is_told_of_no_place_above_the_head(log: Log) -> None:
    handle = log.views.register(Telling(), mode="inline")
    say(log, 0)
    with in_the_midst_of(lambda: say(log, "lost"), fails=True):
        found = handle.get("thing/1", fresh=False)
        assert (found.state["values"], found.position, found.lag) == ([0], 1, 0)


def test_what_is_told_is_what_the_write_left_though_the_next_one_is_under_way(log: Log) -> None:
    view = TellingAll()
    handle = log.views.register(view, mode="inline")
    say(log, 0)
    builder = handle.runner.builder()
    with not_telling(builder):
        say(log, 1)
    with in_the_midst_of(lambda: say(log, "lost"), fails=True):
        builder.tell()
        assert view.values == [[0], [0, 1]]
    say(log, 2)
    assert view.values == [[0], [0, 1], [0, 1, 2]]


@pytest.mark.parametrize("what", ["note", "purge", "event"])
def test_what_is_on_record_is_told_though_a_later_write_failed_before(log: Log, what: str) -> None:
    view = Telling()
    handle = log.views.register(view, mode="inline")
    say(log, 0)
    say(log, 9, stream="thing/2")
    builder = handle.runner.builder()
    with not_telling(builder):
        say(log, 1)
    with full_disk():
        if what == "note":
            log.in_one_write(lambda writer: writer.note("x", "y"))
        elif what == "purge":
            log.purge("thing/2", reason="asked to")
        else:
            say(log, "lost")
    builder.tell()
    say(log, 5, stream="thing/3")
    assert view.told == [("thing/1", 1), ("thing/2", 1), ("thing/1", 2), ("thing/3", 1)]


@pytest.mark.parametrize("lost", [True, False])
def test_a_write_without_events_tells_nothing_of_the_one_before(log: Log, lost: bool) -> None:
    view = Telling()
    log.views.register(view, mode="inline")
    say(log, 0)
    if lost:
        with full_disk():
            say(log, "lost")
    log.in_one_write(lambda writer: writer.note("x", "y"))
    note(log)
    assert view.told == [("thing/1", 1)]


def test_a_view_whose_build_was_dropped_after_a_failed_write_goes_on_and_tells(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'log.db'}"
    with lost_one(url) as (log, view, _):
        with everlog.open(url, catalog=CATALOG) as other:
            for _ in range(2):
                other.view(Telling).rebuild()
        for number in range(3):
            say(log, number + 1)
        assert ("thing/1", 4) in view.told


@pytest.mark.parametrize("mode", ["inline", "on-demand"])
def test_who_asks_without_reading_on_gets_the_place_that_belongs_to_the_state(tmp_path: Path, mode: str) -> None:
    """Another process may have moved the view on, or emptied it: the states are read from what is kept."""
    url = f"sqlite:{tmp_path / 'log.db'}"
    with everlog.open(url, catalog=CATALOG) as log, everlog.open(url, catalog=CATALOG) as other:
        handle = log.views.register(Telling(), mode=mode)
        say(log, 0)
        handle.get("thing/1")
        say(other, 1)
        other.view(Telling).get("thing/1")
        found = handle.get("thing/1", fresh=False)
        assert (found.state["values"], found.position) == ([0, 1], 2)
        say(other, 9, stream="thing/2")
        other.view(Telling).get("thing/2")
        with everlog.open(url, catalog=CATALOG) as without_its_code:
            without_its_code.purge("thing/2", reason="asked to")
        found = handle.get("thing/1", fresh=False)
        assert (found.state, found.position) == (None, 0)
        assert handle.get("thing/1").state["values"] == [0, 1]


def test_who_asks_without_reading_on_is_answered_though_the_build_was_dropped_meanwhile(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = log.views.register(Telling(), mode="inline")
    say(log, 0)
    settling = Builder.settle

    def settle(builder: Builder) -> None:
        monkeypatch.undo()
        for _ in range(2):
            handle.rebuild()
        settling(builder)

    monkeypatch.setattr(Builder, "settle", settle)
    assert handle.get("thing/1", fresh=False).state["values"] == [0]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), StorageFull("full")])
def test_a_look_that_fails_leaves_what_a_failed_write_left_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Its place would be taken for seen, and the event that is given it later would be passed over."""

    def fails(*_: object) -> None:
        monkeypatch.undo()
        raise error

    with everlog.open(f"sqlite:{tmp_path / 'log.db'}", catalog=CATALOG) as log:
        handle = log.views.register(Telling(), mode="inline")
        say(log, 0)
        with full_disk():
            note(log)
        monkeypatch.setattr(Builder, "_look_again", fails)
        with pytest.raises(type(error)):
            handle.runner.builder().settle()
        for number in (1, 2, 3):
            say(log, number)
        assert handle.get("thing/1").state["values"] == [0, 1, 2, 3]
        assert handle.audit().ok


def test_what_was_written_first_is_told_first_though_somebody_reads_on_before(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'log.db'}"
    with everlog.open(url, catalog=CATALOG) as log, everlog.open(url, catalog=CATALOG) as other:
        view = TellingAll()
        handle = log.views.register(view, mode="inline")
        say(log, 0)
        builder = handle.runner.builder()
        with pytest.MonkeyPatch.context() as later:
            later.setattr(handle.runner, "_after_commit", lambda: None)
            later.setattr(builder, "tell", lambda: None)
            say(log, 1)
        say(other, 2)
        handle.get("thing/1")
        assert view.values == [[0], [0, 1], [0, 1, 2]]


def test_what_comes_of_being_told_is_told_last(log: Log) -> None:
    class Answering(TellingAll):
        def on_change(self, changes: Sequence[Change]) -> None:
            super().on_change(changes)
            if self.values[-1][-1] == 1:
                say(log, "answer")

    view = Answering()
    handle = log.views.register(view, mode="inline")
    say(log, 0)
    builder = handle.runner.builder()
    with not_telling(builder):
        say(log, 1)
        say(log, 2)
    builder.tell()
    assert view.values == [[0], [0, 1], [0, 1, 2], [0, 1, 2, "answer"]]
