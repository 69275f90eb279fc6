"""A new version beside the old one, the way back, and who is told of changes, on every store."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import CATALOG
from tests.views.conftest import Said
from tests.views.said import from_nothing, say

import everlog
from everlog.core.event import Event
from everlog.errors import Busy, NotFound, OtherCode
from everlog.log.log import Log
from everlog.stores.sqlite.store import SqliteStore
from everlog.stores.staging import Staged
from everlog.views.builder import Builder
from everlog.views.fingerprint import code_fingerprint
from everlog.views.rebuild import rebuild
from everlog.views.rows import kept_state
from everlog.views.states import Build, active_build, begin_build, builds_of, drop_build
from everlog.views.thinning import Due
from everlog.views.view import Change, digest_of_bytes

# ---- versions


def test_a_new_version_is_built_beside_and_the_old_one_is_kept(log: Log) -> None:
    class Newer(Said):
        version = 2

        def initial(self) -> dict[str, Any]:
            return {"values": ["new"], "count": 0}

    say(log, 1)
    log.view(Said).catch_up()
    log.views.close()
    handle = log.view(Newer)
    assert handle.get("thing/1").state["values"] == ["new", 1]
    names = [(build.number, build.version) for build in builds_of(log.views.shelf, "said")]
    assert names == [(1, 1), (2, 2)]

    assert handle.rollback().version == 1
    active = active_build(log.views.shelf, "said")
    assert active is not None
    assert active.version == 1


def test_old_code_does_not_take_the_place_of_new_code(log: Log) -> None:
    class Newer(Said):
        version = 2

    say(log, 1)
    log.view(Newer).catch_up()
    log.views.close()
    say(log, 2)
    assert log.view(Said).get("thing/1").state["values"] == [1, 2]
    active = active_build(log.views.shelf, "said")
    assert active is not None
    assert active.version == 2


def test_a_rollback_needs_something_to_go_back_to(log: Log) -> None:
    say(log, 1)
    log.view(Said).catch_up()
    with pytest.raises(NotFound):
        log.view(Said).rollback()


# ---- code that changed under one version


class Changed(Said):
    """The same name and version, and it says something else."""

    def initial(self) -> dict[str, Any]:
        return {"values": ["changed"], "count": 0}


def state_of(log: Log) -> str:
    return next(one.state for one in log.views.overviews() if one.view == "said")


def test_states_of_other_code_are_told_of_until_they_are_rebuilt(log: Log, caplog: pytest.LogCaptureFixture) -> None:
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


@pytest.mark.parametrize("view", [Said, Changed])
def test_a_rebuild_that_was_begun_goes_on_only_by_the_same_code(log: Log, view: type[Said]) -> None:
    for value in range(6):
        say(log, value)
    log.view(Said).catch_up()
    begun = rebuild(log, log.views.shelf, Said(), limit=2, stop=stop_after(2))
    assert (begun.switched, begun.position) == (False, 4)

    rebuilt = rebuild(log, log.views.shelf, view())
    assert rebuilt.resumed_at == (4 if view is Said else 0)
    states = {key: kept_state(data) for key, data in log.views.shelf.scan(f"said#{rebuilt.build}")}
    assert digest_of_bytes(states.items()) == from_nothing(log, view)


def test_a_first_build_that_other_code_has_begun_is_not_gone_on_with(log: Log) -> None:
    for value in range(4):
        say(log, value)
    with log.views.shelf.change() as change:
        build = begin_build(change, Said())
    Builder(log, log.views.shelf, Said(), build, live=False).catch_up(limit=2, upto=2)
    assert log.view(Changed).digest() == from_nothing(log, Changed)


class Marking(Said):
    """The same name and version again, and other states."""

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        found = super().apply(state, event)
        return {**found, "values": [*found["values"], "marked"]}


def test_states_that_two_codes_have_made_are_of_neither(tmp_path: Path) -> None:
    with everlog.open(f"sqlite:{tmp_path / 'log.db'}", catalog=CATALOG) as log:
        say(log, 1)
        log.view(Said).catch_up()
        log.views.close()
        say(log, 2)
        log.view(Marking).catch_up()
        log.views.close()
        assert log.view(Said).get("thing/1").state["values"] == [1, 2, "marked"]
        assert state_of(log) == "other code"
        for view in (Said, Marking):
            log.views.close()
            with pytest.raises(OtherCode):
                log.view(view).snapshot()
        log.views.close()
        log.view(Said).rebuild()
        assert state_of(log) == "ok"


def test_a_build_of_which_nothing_is_left_is_of_who_fills_it(log: Log) -> None:
    say(log, 1)
    with log.views.shelf.change() as change:
        build = begin_build(change, Said())
    Builder(log, log.views.shelf, Changed(), build, live=False).catch_up()
    (filled,) = builds_of(log.views.shelf, "said")
    assert (filled.is_of(Changed()), filled.is_of(Said())) == (True, False)


def test_a_build_of_another_version_is_of_other_code() -> None:
    class Newer(Said):
        version = 2

    unknown = Build(name="said", number=1, version=1)
    assert unknown.is_of(Said())
    assert not unknown.is_of(Newer())


def test_rebuilds_by_two_codes_at_once_leave_each_other_in_peace(log: Log) -> None:
    for value in range(12):
        say(log, value)
    log.view(Said).catch_up()
    looks: list[int] = []

    def meanwhile(position: int) -> None:
        looks.append(position)
        if len(looks) == 2:
            rebuild(log, log.views.shelf, Changed(), switch=False)

    done = rebuild(log, log.views.shelf, Said(), limit=3, progress=meanwhile)
    assert (done.switched, done.digest) == (True, from_nothing(log, Said))
    assert looks == sorted(looks)  # it was not begun again


@pytest.mark.parametrize("times", [1, 99])
def test_a_rebuild_whose_build_is_taken_away_begins_again_and_not_for_ever(log: Log, times: int) -> None:
    for value in range(6):
        say(log, value)
    log.view(Said).catch_up()
    taken: list[int] = []

    def take_away(position: int) -> None:
        if len(taken) < times and (begun := [one for one in builds_of(log.views.shelf, "said") if not one.complete]):
            taken.append(position)
            with log.views.shelf.change() as change:
                drop_build(change, begun[-1])

    if times > 1:
        with pytest.raises(Busy, match="in peace"):
            rebuild(log, log.views.shelf, Said(), limit=2, progress=take_away)
    else:
        done = rebuild(log, log.views.shelf, Said(), limit=2, progress=take_away)
        assert (done.switched, done.digest) == (True, from_nothing(log, Said))


def test_a_file_that_is_edited_is_not_the_code_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "from tests.views.conftest import Said\n\n\nclass Edited(Said):\n    name = 'edited'\n    more = {}\n"
    module = tmp_path / "edited_view.py"
    module.write_text(source.format(1))
    monkeypatch.syspath_prepend(str(tmp_path))
    view = importlib.import_module("edited_view").Edited()
    before = code_fingerprint(view)
    module.write_text(source.format(100))
    assert code_fingerprint(view) == before


def test_a_snapshot_of_states_of_other_code_is_refused_until_they_are_derived_anew(tmp_path: Path) -> None:
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
        assert log.views.snapshots.stale(before.header, Changed()) == "the code of the view is another one"
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
        runner = log.view(Changed).runner
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


class Telling(Said):
    name = "telling"

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    def on_change(self, changes: Sequence[Change]) -> None:
        self.told += [(change.key, change.state["count"]) for change in changes]


@pytest.mark.parametrize("mode", ["on-demand", "inline"])
def test_effects_are_told_once_and_never_by_a_rebuild(log: Log, mode: str) -> None:
    view = Telling()
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
    assert view.told == [("thing/1", 1), ("thing/1", 2)]


def test_the_first_build_of_a_view_tells_nobody(log: Log) -> None:
    say(log, 1)
    view = Telling()
    log.views.register(view).catch_up()
    assert view.told == []


@pytest.mark.parametrize("look", ["asks", "hears of another commit"])
@pytest.mark.parametrize("said", [1, None])
def test_who_looks_in_the_midst_of_a_write_takes_nothing_for_a_restored_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: int | None, look: str
) -> None:
    """An inline view has taken in what is not committed yet, and another thread comes to it."""
    with everlog.open(f"sqlite:{tmp_path / 'log.db'}", catalog=CATALOG) as log:
        view = Telling()
        handle = log.views.register(view, mode="inline")
        say(log, 0)
        committing = SqliteStore._commit

        def looked_at_meanwhile(store: SqliteStore, staged: Staged) -> None:
            monkeypatch.setattr(SqliteStore, "_commit", committing)
            other = threading.Thread(target=handle.catch_up if look == "asks" else handle.runner._after_commit)
            other.start()
            other.join(20)
            assert not other.is_alive()
            assert view.told == [("thing/1", 1)]
            committing(store, staged)

        monkeypatch.setattr(SqliteStore, "_commit", looked_at_meanwhile)
        if said is None:
            log.append("note.added", stream="note/1", payload={"text": "none of its types"})
        else:
            say(log, said)
        say(log, 2)
        assert [build.number for build in builds_of(log.views.shelf, "telling")] == [1]
        assert handle.get("thing/1").state["values"] == [value for value in (0, said, 2) if value is not None]
        assert [count for _, count in view.told] == list(range(1, 3 if said is None else 4))
