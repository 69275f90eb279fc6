"""Writes that an inline view had taken in, and that failed: nothing of them stays, whoever looks next."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import CATALOG
from tests.views.said import say
from tests.views.test_versions import Telling, full_disk

import everlog
from everlog.log.log import Log


def note(log: Log) -> None:
    log.append("note.added", stream="note/1", payload={"text": "none of its types"})


@pytest.mark.parametrize("how", ["close", "audit", "snapshot"])
@pytest.mark.parametrize("written", ["before", "after"])
def test_the_place_of_a_write_that_failed_is_never_kept(tmp_path: Path, how: str, written: str) -> None:
    """Another event is given that place, by another process; it must be seen."""
    url = f"sqlite:{tmp_path / 'log.db'}"
    with everlog.open(url, catalog=CATALOG) as other:
        with everlog.open(url, catalog=CATALOG) as log:
            handle = log.views.register(Telling(), mode="inline")
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
        assert other.view(Telling).get("thing/1").state["values"] == [0, 1]


def test_who_asks_without_reading_on_is_told_nothing_of_a_write_that_failed(tmp_path: Path) -> None:
    with everlog.open(f"sqlite:{tmp_path / 'log.db'}", catalog=CATALOG) as log:
        handle = log.views.register(Telling(), mode="inline")
        say(log, 0)
        with full_disk():
            say(log, "lost")
        found = handle.get("thing/1", fresh=False)
        assert (found.state["values"], found.position) == ([0], 1)
        audit = handle.audit()
        assert (audit.ok, audit.lag) == (True, 0)


def test_news_of_a_write_that_failed_are_not_told_because_another_process_got_as_far(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'log.db'}"
    with everlog.open(url, catalog=CATALOG) as log, everlog.open(url, catalog=CATALOG) as other:
        view = Telling()
        handle = log.views.register(view, mode="inline")
        say(log, 0)
        with full_disk():
            say(log, "lost")
        say(other, 1, stream="thing/2")
        other.view(Telling).catch_up()
        handle.runner.builder().tell()  # as who was told of a commit, before anybody writes again
        note(log)
        assert view.told.count(("thing/1", 1)) == 1
        assert ("thing/1", 2) not in view.told


def test_news_of_two_writes_are_both_told_if_the_first_is_told_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else may write before who has written gets to tell of it."""
    with everlog.open(f"sqlite:{tmp_path / 'log.db'}", catalog=CATALOG) as log:
        view = Telling()
        handle = log.views.register(view, mode="inline")
        say(log, 0)
        builder = handle.runner.builder()
        telling = builder.tell
        with monkeypatch.context() as later:
            later.setattr(builder, "tell", lambda: None)
            say(log, 1)
        say(log, 0, stream="thing/2")
        assert builder.tell == telling
        assert view.told == [("thing/1", 1), ("thing/1", 2), ("thing/2", 1)]
