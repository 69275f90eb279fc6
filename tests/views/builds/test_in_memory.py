"""Writes that an inline view had applied, and that failed: nothing of them stays in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.conftest import CATALOG
from tests.views.conftest import Said
from tests.views.said import say
from tests.views.test_versions import Publishing

import everlog
from everlog.errors import StorageFull
from everlog.log.log import Log
from everlog.stores.open_write import OpenWrite
from everlog.stores.sqlite.store import SqliteStore
from everlog.views.builds.content import dead_letters_of
from everlog.views.live import LiveView
from everlog.views.registry import views_of


@contextmanager
def full_disk() -> Iterator[None]:
    """A write within finds the disk full at its commit, after inline views have taken part in it."""

    def full(store: SqliteStore, staged: OpenWrite) -> None:
        raise StorageFull("the disk is full")

    with pytest.MonkeyPatch.context() as changed, pytest.raises(StorageFull):
        changed.setattr(SqliteStore, "_commit", full)
        yield


@contextmanager
def lost_one(url: str) -> Iterator[tuple[Log, Publishing, LiveView]]:
    """A log with an inline view that has seen one event, and a write that failed behind it."""
    with everlog.open(url, catalog=CATALOG) as log:
        view = Publishing()
        handle = views_of(log).register(view, mode="inline")
        say(log, 0)
        with full_disk():
            say(log, "lost")
        yield log, view, handle


def note(log: Log) -> None:
    log.append("note.added", stream="note/1", payload={"text": "none of its types"})


@pytest.mark.parametrize("how", ["close", "audit", "snapshot"])
@pytest.mark.parametrize("written", ["before", "after"])
def test_the_place_of_a_write_that_failed_is_never_kept(tmp_path: Path, how: str, written: str) -> None:
    """Another event is given that place, by another process; it must be seen."""
    url = f"sqlite:{tmp_path / 'log.db'}"
    with everlog.open(url, catalog=CATALOG) as other:
        with everlog.open(url, catalog=CATALOG) as log:
            handle = views_of(log).register(Publishing(), mode="inline")
            say(log, 0)
            with full_disk():
                note(log)
            if written == "before":
                say(other, 1)
            if how == "audit":
                handle.audit()
            if how == "snapshot":
                handle.snapshot()
        if written == "after":
            say(other, 1)
        assert other.view(Publishing).get("thing/1").state["values"] == [0, 1]


def test_a_stale_answer_has_nothing_of_a_write_that_failed(tmp_path: Path) -> None:
    with lost_one(f"sqlite:{tmp_path / 'log.db'}") as (_, _, handle):
        found = handle.get("thing/1", fresh=False)
        assert (found.state["values"], found.position) == ([0], 1)
        audit = handle.audit()
        assert (audit.ok, audit.lag) == (True, 0)


def test_changes_of_a_failed_write_are_not_published_when_another_process_gets_as_far(
    tmp_path: Path,
) -> None:
    url = f"sqlite:{tmp_path / 'log.db'}"
    with lost_one(url) as (log, view, handle), everlog.open(url, catalog=CATALOG) as other:
        say(other, 1, stream="thing/2")
        other.view(Publishing).catch_up()
        handle.current().publish_changes()  # as a thread that learns of a commit, before the next write
        note(log)
        assert view.published.count(("thing/1", 1)) == 1
        assert ("thing/1", 2) not in view.published


def test_changes_of_two_writes_are_both_published_if_the_first_are_published_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else may write before who has written gets to tell of it."""
    with everlog.open(f"sqlite:{tmp_path / 'log.db'}", catalog=CATALOG) as log:
        view = Publishing()
        handle = views_of(log).register(view, mode="inline")
        say(log, 0)
        builder = handle.current()
        publish = builder.publish_changes
        with monkeypatch.context() as later:
            later.setattr(builder, "publish_changes", lambda: None)
            say(log, 1)
        say(log, 0, stream="thing/2")
        assert builder.publish_changes == publish
        assert view.published == [("thing/1", 1), ("thing/1", 2), ("thing/2", 1)]


@pytest.mark.parametrize("refused", [1, 2])
@pytest.mark.parametrize("its_type", [True, False])
def test_a_write_that_failed_is_forgotten_by_an_inline_view_that_had_taken_it_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: int, its_type: bool
) -> None:
    """What comes next gets the place in the log that it was to have, and is kept in its own write again."""
    with everlog.open(f"sqlite:{tmp_path / 'log.db'}", catalog=CATALOG) as log:
        view = Publishing()
        handle = views_of(log).register(view, mode="inline")
        say(log, 0)
        for _ in range(refused):
            with full_disk():
                say(log, "lost")
        kept_within: list[bool] = []
        committing = SqliteStore._commit

        def noted(store: SqliteStore, staged: OpenWrite) -> None:
            kept_within.append(staged.state_changes is not None)
            committing(store, staged)

        monkeypatch.setattr(SqliteStore, "_commit", noted)
        if its_type:
            say(log, 1)
        else:
            note(log)
        values = [0, 1] if its_type else [0]
        assert kept_within == [its_type]
        assert handle.get("thing/1", fresh=False).state["values"] == values
        assert handle.get("thing/1").state["values"] == values
        say(log, 2)
        assert handle.get("thing/1").state["values"] == [*values, 2]
        assert [count for _, count in view.published] == list(range(1, len(values) + 2))
        assert handle.audit().ok


def test_a_place_of_a_write_that_failed_may_be_another_processs_by_now(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'log.db'}"
    with lost_one(url) as (log, view, handle), everlog.open(url, catalog=CATALOG) as other:
        say(other, 1)
        assert handle.get("thing/1").state["values"] == [0, 1]
        note(log)
        assert [count for _, count in view.published] == [1, 2]


def test_what_was_not_taken_in_after_a_write_that_failed_is_taken_in_right_after_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when somebody else is moving the view at that moment."""
    with lost_one(f"sqlite:{tmp_path / 'log.db'}") as (log, view, handle):
        monkeypatch.setattr(handle.current(), "take_write", lambda staged, before: None)
        say(log, 1)
        assert [count for _, count in view.published] == [1, 2]


def test_what_comes_after_an_event_that_failed_waits_behind_it_in_the_next_turn(tmp_path: Path) -> None:
    with everlog.open(f"sqlite:{tmp_path / 'log.db'}", catalog=CATALOG) as log:
        handle = views_of(log).register(Said(), mode="inline")
        for value in (1, "poison", 2, 3):
            say(log, value)
            handle.catch_up()
        assert handle.get("thing/1").state == {"values": [1], "count": 1}
        build = handle.build()
        assert build is not None
        assert [letter.position for letter in dead_letters_of(views_of(log).small_state, build)] == [2, 3, 4]
