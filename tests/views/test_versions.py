"""Code that changed under one version, and what is published of changes, on every store."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import CATALOG
from tests.views.conftest import Said
from tests.views.said import say

import everlog
from everlog.core.event import Event
from everlog.errors import OtherCode
from everlog.log.log import Log
from everlog.stores.open_write import OpenWrite
from everlog.stores.sqlite.store import SqliteStore
from everlog.views.builds.build import builds_of
from everlog.views.registry import views_of
from everlog.views.snapshots.policy import Due
from everlog.views.view import Change

# ---- versions


# ---- code that changed under one version


class Changed(Said):
    """The same name and version, and it says something else."""

    def initial(self) -> dict[str, Any]:
        return {"values": ["changed"], "count": 0}


def state_of(log: Log) -> str:
    return next(one.state for one in views_of(log).overviews() if one.view == "said")


def test_states_of_other_code_are_reported_until_they_are_rebuilt(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    say(log, 1)
    log.view(Said).catch_up()
    assert state_of(log) == "ok"
    log.views.close()

    handle = log.view(Changed)
    assert state_of(log) == "other code"
    assert handle.get("thing/1").state["values"] == [1]
    assert "the code of the view said changed" in caplog.text
    assert "everlog views rebuild said" in caplog.text

    rebuilt = handle.rebuild()
    assert (rebuilt.same, rebuilt.differing) == (False, ("thing/1",))
    assert state_of(log) == "ok"
    caplog.clear()
    log.views.close()
    assert log.view(Changed).get("thing/1").state["values"] == ["changed", 1]
    assert caplog.text == ""


def stop_after(pages: int) -> Any:
    """Says when to stop: after so many looks."""
    looks = iter(range(pages))
    return lambda: next(looks, None) is None


class Marking(Said):
    """The same name and version again, and other states."""

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        found = super().apply(state, event)
        return {**found, "values": [*found["values"], "marked"]}


def test_a_snapshot_of_states_of_other_code_is_refused_until_they_are_rebuilt(tmp_path: Path) -> None:
    with everlog.open(f"sqlite:{tmp_path / 'log.db'}", catalog=CATALOG) as log:
        say(log, 1)
        before = log.view(Said).snapshot()
        log.views.close()
        say(log, 2)
        with pytest.raises(OtherCode) as caught:
            log.view(Changed).snapshot()
        assert caught.value.hint == "everlog views rebuild said, then everlog snapshot create said"
        assert [entry.id for entry in log.views.snapshots.folder.entries()] == [before.id]
        overview = log.views.overviews()[[one.view for one in log.views.overviews()].index("said")]
        assert overview.position == 1  # the new code did not go on from the old states for it
        assert before.header is not None
        assert log.views.snapshots.stale(before.header, Changed()) == "the code of the view has changed"
        assert log.views.snapshots.stale(before.header, Said()) == ""
        log.view(Changed).rebuild()
        after = log.view(Changed).snapshot()
        assert after.header is not None
        assert log.views.snapshots.stale(after.header, Changed()) == ""


def test_states_of_other_code_get_no_snapshot_by_themselves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with everlog.open(f"sqlite:{tmp_path / 'log.db'}", catalog=CATALOG) as log:
        log.views.snapshots.due = Due(events=1)
        say(log, 1)
        log.view(Said).catch_up()
        log.views.close()
        say(log, 2)
        runner = log.view(Changed)
        for _ in range(3):
            assert log.views.snapshots.create_if_due(runner, log.head()) is None
        assert "no snapshot of" not in caplog.text
        log.view(Changed).rebuild()
        assert log.views.snapshots.create_if_due(runner, log.head()) is not None


# ---- effects


def test_code_that_only_looked_has_made_no_state(tmp_path: Path) -> None:
    """Who goes back to the code that made them all must not be warned of a mixture."""
    url = f"sqlite:{tmp_path / 'log.db'}"
    with everlog.open(url, catalog=CATALOG) as log:
        say(log, 0)
        log.view(Said).get("thing/1")
        log.append("note.added", stream="note/1", payload={"text": "none of its types"})
    with everlog.open(url, catalog=CATALOG) as log:
        handle = log.view(Changed)
        handle.get("thing/1")
        assert handle.position() == 2
    with everlog.open(url, catalog=CATALOG) as log:
        build = log.view(Said).build()
        assert build is not None
        assert build.is_of(Said())
        assert not build.is_of(Changed())


class Publishing(Said):
    name = "publishing"

    def __init__(self) -> None:
        self.published: list[tuple[str, int]] = []

    def on_change(self, changes: Sequence[Change]) -> None:
        self.published += [(change.key, change.state["count"]) for change in changes]


@pytest.mark.parametrize("mode", ["on-demand", "inline"])
def test_changes_are_published_once_and_never_by_a_rebuild(log: Log, mode: str) -> None:
    view = Publishing()
    handle = log.views.register(view, mode=mode)
    handle.catch_up()
    say(log, 1)
    handle.catch_up()
    say(log, 2)
    handle.catch_up()
    handle.rebuild()
    handle.catch_up()
    log.purge("thing/1", reason="a request")
    handle.catch_up()
    assert view.published == [("thing/1", 1), ("thing/1", 2)]


def test_the_first_build_of_a_view_publishes_nothing(log: Log) -> None:
    say(log, 1)
    view = Publishing()
    log.views.register(view).catch_up()
    assert view.published == []


@pytest.mark.parametrize("look", ["asks", "hears of another commit"])
@pytest.mark.parametrize("said", [1, None])
def test_a_reader_during_a_write_does_not_mistake_it_for_a_restored_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: int | None, look: str
) -> None:
    """An inline view has taken in what is not committed yet, and another thread comes to it."""
    with everlog.open(f"sqlite:{tmp_path / 'log.db'}", catalog=CATALOG) as log:
        view = Publishing()
        handle = views_of(log).register(view, mode="inline")
        say(log, 0)
        committing = SqliteStore._commit

        def looked_at_meanwhile(store: SqliteStore, staged: OpenWrite) -> None:
            monkeypatch.setattr(SqliteStore, "_commit", committing)
            other = threading.Thread(target=handle.catch_up if look == "asks" else handle._after_commit)
            other.start()
            other.join(20)
            assert not other.is_alive()
            assert view.published == [("thing/1", 1)]
            committing(store, staged)

        monkeypatch.setattr(SqliteStore, "_commit", looked_at_meanwhile)
        if said is None:
            log.append("note.added", stream="note/1", payload={"text": "none of its types"})
        else:
            say(log, said)
        say(log, 2)
        assert [build.number for build in builds_of(log.views.small_state, "publishing")] == [1]
        assert handle.get("thing/1").state["values"] == [value for value in (0, said, 2) if value is not None]
        assert [count for _, count in view.published] == list(range(1, 3 if said is None else 4))
