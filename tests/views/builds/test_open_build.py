"""An open build during a write: what a reader sees meanwhile, what is published, and how the build goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import CATALOG
from tests.views.builds.test_in_memory import full_disk, lost_one, note
from tests.views.conftest import Picky, Total
from tests.views.said import say
from tests.views.test_versions import Publishing

import everlog
from everlog.errors import StorageFull
from everlog.log.log import Log
from everlog.stores.open_write import OpenWrite
from everlog.stores.small_state import StateChanges
from everlog.stores.sqlite.store import SqliteStore
from everlog.testing.builders import put_note
from everlog.views.advance import Advance
from everlog.views.builds import in_memory
from everlog.views.builds.build import Build
from everlog.views.builds.content import mark_applied
from everlog.views.builds.open_build import OpenBuild
from everlog.views.live import LiveView
from everlog.views.registry import live_view, views_of
from everlog.views.view import Change


class PublishingAll(Publishing):
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

    def commit(store: SqliteStore, staged: OpenWrite) -> None:
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
def not_publishing(builder: OpenBuild) -> Iterator[None]:
    """A write in this block does not publish its changes."""
    with pytest.MonkeyPatch.context() as later:
        later.setattr(builder, "publish_changes", lambda: None)
        yield


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with everlog.open(f"sqlite:{tmp_path / 'log.db'}", catalog=CATALOG) as opened:
        yield opened


def look(handle: LiveView, how: str) -> Callable[[], object]:
    ways: dict[str, Callable[[], object]] = {
        "audit": handle.audit,
        "save": handle.current().save,
        "get": lambda: handle.get("thing/1"),
    }
    return ways[how]


@pytest.mark.parametrize("how", ["audit", "save", "get"])
@pytest.mark.parametrize("its_type", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_a_reader_during_a_write_stores_no_position_that_is_not_committed(
    log: Log, how: str, its_type: bool, fails: bool
) -> None:
    """The next event would be given that place, and never be seen."""
    handle = views_of(log).register(Publishing(), mode="inline")
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
    handle = views_of(log).register(Publishing(), mode="inline")
    say(log, 0)
    builder = handle.current()
    stepping, met = builder.advance, ExitStack()

    def step(limit: int) -> Advance:
        done = stepping(limit)
        if builder.advance is step:
            monkeypatch.undo()
            end = met.enter_context(in_the_midst_of(lambda: note(log), fails=True))
            threading.Timer(0.3, end).start()
        return done

    monkeypatch.setattr(builder, "advance", step)
    with met:
        handle.get("thing/1")
    say(log, 1)
    assert handle.get("thing/1").state["values"] == [0, 1]


def test_an_event_of_another_handle_just_before_a_write_is_not_missed(tmp_path: Path) -> None:
    """The write begins above what the view has seen: the view must not take it and skip the event between."""
    url = f"sqlite:{tmp_path / 'log.db'}"
    with everlog.open(url, catalog=CATALOG) as log, everlog.open(url, catalog=CATALOG) as other:
        handle = views_of(log).register(Publishing(), mode="inline")
        say(log, 0)
        say(other, 1)
        say(log, 2)
        assert handle.get("thing/1").state["values"] == [0, 1, 2]
        assert other.view(Publishing).get("thing/1").state["values"] == [0, 1, 2]
        assert handle.audit().ok


def test_a_view_that_fails_in_a_write_leaves_nothing_in_it_and_the_one_before_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows without their cursor would be stored, and the event would be applied to them again after the commit."""
    url = f"sqlite:{tmp_path / 'log.db'}"
    with everlog.open(url, catalog=CATALOG) as log, everlog.open(url, catalog=CATALOG) as other:
        first = views_of(log).register(Publishing(), mode="inline")
        second = views_of(log).register(Total(), mode="inline")
        say(log, 0)
        marking = mark_applied
        kept: list[int] = []

        def mark(change: StateChanges, build: Build, positions: Any) -> int:
            if build.name == Total.name and not kept:
                kept.append(first.current().cursor.position)
                raise OSError("the disk cannot be read")
            return marking(change, build, positions)

        monkeypatch.setattr(in_memory, "mark_applied", mark)
        say(log, 1)
        assert kept == [2]  # the first view took the event in the same write
        for handle, key in ((first, "thing/1"), (second, "all")):
            for asked in (handle, other.view(type(handle.view))):
                assert asked.get(key).state["values"] == [0, 1]
            assert handle.audit().ok


def test_an_answer_during_a_write_has_no_position_above_the_head(log: Log) -> None:
    handle = views_of(log).register(Publishing(), mode="inline")
    say(log, 0)
    with in_the_midst_of(lambda: say(log, "lost"), fails=True):
        found = handle.get("thing/1", fresh=False)
        assert (found.state["values"], found.position, found.lag) == ([0], 1, 0)


def test_the_published_state_is_that_of_its_write_though_the_next_write_is_open(log: Log) -> None:
    view = PublishingAll()
    handle = views_of(log).register(view, mode="inline")
    say(log, 0)
    builder = handle.current()
    with not_publishing(builder):
        say(log, 1)
    with in_the_midst_of(lambda: say(log, "lost"), fails=True):
        builder.publish_changes()
        assert view.values == [[0], [0, 1]]
    say(log, 2)
    assert view.values == [[0], [0, 1], [0, 1, 2]]


@pytest.mark.parametrize("what", ["note", "purge", "event"])
def test_a_committed_change_is_published_though_a_later_write_failed_before(log: Log, what: str) -> None:
    view = Publishing()
    handle = views_of(log).register(view, mode="inline")
    say(log, 0)
    say(log, 9, stream="thing/2")
    builder = handle.current()
    with not_publishing(builder):
        say(log, 1)
    with full_disk():
        if what == "note":
            log.writer.write(lambda writer: put_note(writer, "x", "y"))
        elif what == "purge":
            log.purge("thing/2", reason="asked to")
        else:
            say(log, "lost")
    builder.publish_changes()
    say(log, 5, stream="thing/3")
    assert view.published == [("thing/1", 1), ("thing/2", 1), ("thing/1", 2), ("thing/3", 1)]


@pytest.mark.parametrize("lost", [True, False])
def test_a_write_without_events_publishes_nothing_of_the_one_before(log: Log, lost: bool) -> None:
    view = Publishing()
    views_of(log).register(view, mode="inline")
    say(log, 0)
    if lost:
        with full_disk():
            say(log, "lost")
    log.writer.write(lambda writer: put_note(writer, "x", "y"))
    note(log)
    assert view.published == [("thing/1", 1)]


def test_a_view_whose_build_was_removed_after_a_failed_write_continues_and_publishes(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'log.db'}"
    with lost_one(url) as (log, view, _):
        with everlog.open(url, catalog=CATALOG) as other:
            for _ in range(2):
                other.view(Publishing).rebuild()
        for number in range(3):
            say(log, number + 1)
        assert ("thing/1", 4) in view.published


@pytest.mark.parametrize("mode", ["inline", "on-demand"])
def test_a_stale_answer_has_the_position_of_its_state(tmp_path: Path, mode: str) -> None:
    """Another process may have moved the view on, or emptied it: the states are read from what is kept."""
    url = f"sqlite:{tmp_path / 'log.db'}"
    with everlog.open(url, catalog=CATALOG) as log, everlog.open(url, catalog=CATALOG) as other:
        handle = views_of(log).register(Publishing(), mode=mode)
        say(log, 0)
        handle.get("thing/1")
        say(other, 1)
        other.view(Publishing).get("thing/1")
        found = handle.get("thing/1", fresh=False)
        assert (found.state["values"], found.position) == ([0, 1], 2)
        say(other, 9, stream="thing/2")
        other.view(Publishing).get("thing/2")
        with everlog.open(url, catalog=CATALOG) as without_its_code:
            without_its_code.purge("thing/2", reason="asked to")
        found = handle.get("thing/1", fresh=False)
        assert (found.state, found.position) == (None, 0)
        assert handle.get("thing/1").state["values"] == [0, 1]


def test_a_stale_answer_is_given_though_the_build_was_removed_meanwhile(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = views_of(log).register(Publishing(), mode="inline")
    say(log, 0)
    refreshing = OpenBuild.refresh

    def refresh(builder: OpenBuild) -> Advance:
        monkeypatch.undo()
        for _ in range(2):
            handle.rebuild()
        return refreshing(builder)

    monkeypatch.setattr(OpenBuild, "refresh", refresh)
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
        handle = views_of(log).register(Publishing(), mode="inline")
        say(log, 0)
        with full_disk():
            note(log)
        monkeypatch.setattr(OpenBuild, "reload", fails)
        with pytest.raises(type(error)):
            handle.current().refresh()
        for number in (1, 2, 3):
            say(log, number)
        assert handle.get("thing/1").state["values"] == [0, 1, 2, 3]
        assert handle.audit().ok


def test_changes_are_published_in_the_order_of_the_writes_though_the_view_caught_up_before(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'log.db'}"
    with everlog.open(url, catalog=CATALOG) as log, everlog.open(url, catalog=CATALOG) as other:
        view = PublishingAll()
        handle = views_of(log).register(view, mode="inline")
        say(log, 0)
        builder = handle.current()
        with pytest.MonkeyPatch.context() as later:
            later.setattr(handle, "_after_commit", lambda: None)
            later.setattr(builder, "publish_changes", lambda: None)
            say(log, 1)
        say(other, 2)
        handle.get("thing/1")
        assert view.values == [[0], [0, 1], [0, 1, 2]]


def test_changes_that_follow_from_on_change_are_published_last(log: Log) -> None:
    class Answering(PublishingAll):
        def on_change(self, changes: Sequence[Change]) -> None:
            super().on_change(changes)
            if self.values[-1][-1] == 1:
                say(log, "answer")

    view = Answering()
    handle = views_of(log).register(view, mode="inline")
    say(log, 0)
    builder = handle.current()
    with not_publishing(builder):
        say(log, 1)
        say(log, 2)
    builder.publish_changes()
    assert view.values == [[0], [0, 1], [0, 1, 2], [0, 1, 2, "answer"]]


# ---- values in place of exceptions


@pytest.mark.parametrize("how", ["overtaken", "gone"])
def test_a_retry_that_another_process_overtakes_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    url = f"sqlite:{tmp_path / 'log.db'}"
    with everlog.open(url, catalog=CATALOG) as log, everlog.open(url, catalog=CATALOG) as other:
        for value in (0, "poison", 1):
            say(log, value)
        handle = live_view(log, Publishing)
        assert handle.get("thing/1").parked
        keeping = OpenBuild._keep

        def keep(opened: OpenBuild, *given: Any, **options: Any) -> Advance:
            monkeypatch.undo()
            if how == "overtaken":
                other.view(Publishing).retry()
            else:
                for _ in range(2):
                    other.view(Publishing).rebuild()
            return keeping(opened, *given, **options)

        monkeypatch.setattr(OpenBuild, "_keep", keep)
        assert [letter.what for letter in handle.retry()] == ["failed"]
        assert handle.skip(2, reason="a test") == []
        assert handle.get("thing/1").state["values"] == [0, 1]


def test_a_build_that_was_removed_says_so_and_keeps_nothing(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'log.db'}"
    with everlog.open(url, catalog=CATALOG) as log, everlog.open(url, catalog=CATALOG) as other:
        say(log, 0)
        opened = live_view(log, Publishing).caught_up()
        for _ in range(2):
            other.view(Publishing).rebuild()
        say(log, 1)
        assert opened.advance() is Advance.GONE
        assert opened.reload() is Advance.GONE
        assert opened.refresh() is Advance.GONE
        assert opened.catch_up() is Advance.GONE
        assert live_view(log, Publishing).get("thing/1").state["values"] == [0, 1]


def test_a_build_says_how_it_goes_on(log: Log) -> None:
    handle = live_view(log, Picky)
    say(log, {"key": "a"})
    opened = handle.caught_up()
    assert opened.advance() is Advance.AT_HEAD
    for value in ({"key": "b"}, {"key": "c"}):
        say(log, value)
    assert opened.advance(limit=1) is Advance.MORE
    say(log, "without a key")
    assert opened.advance() is Advance.STOPPED
    assert opened.advance() is Advance.STOPPED
