"""Views on every store: asking, resets, dead letters, versions, waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.views.conftest import ALL, ByActor, Causal, Everything, Picky, Said, Total

from everlog.core.query import EVERYTHING
from everlog.errors import Conflict, InvalidField, NotFound, ReadOnly, ViewBehind, ViewStopped
from everlog.log import pages
from everlog.log.log import Log
from everlog.views import views
from everlog.views.fold import fold_all
from everlog.views.letters import FAILED, SKIPPED, STOPPED, WAITING
from everlog.views.states import active_build, builds_of, mark_places, places_of
from everlog.views.view import Change, View, digest


def say(log: Log, value: Any, *, stream: str = "thing/1", actor: str = "user:ada", scope: str = "") -> int:
    recorded = log.append("thing.said", stream=stream, payload={"value": value}, actor=actor, scope=scope)
    return recorded.position


def from_nothing(log: Log, view: type[View]) -> str:
    return digest(fold_all(view(), log.store.read(EVERYTHING), upcast=log.catalog.upcast).items())


# ---- asking


def test_a_view_answers_with_the_state_of_a_key(log: Log) -> None:
    say(log, 1)
    say(log, 2, stream="thing/2")
    position = say(log, 3)

    answer = log.view(Said).get("thing/1")

    assert answer.state == {"values": [1, 3], "count": 2}
    assert (answer.position, answer.lag, answer.parked) == (position, 0, False)
    assert dict(log.view(Said).items())["thing/2"] == {"values": [2], "count": 1}
    assert log.view(Said).count() == 2


def test_a_key_that_is_not_there_has_no_state(log: Log) -> None:
    say(log, 1)
    answer = log.view(Said).get("thing/none")
    assert (answer.found, answer.state) == (False, None)


def test_no_row_is_listed_while_somebody_moves_the_view(log: Log) -> None:
    say(log, "a")
    view = log.view(Said)
    view.catch_up()
    listed: list[str] = []
    lister = threading.Thread(target=lambda: listed.extend(key for key, _ in view.items(fresh=False)))
    with view.runner.builder().lock:
        lister.start()
        lister.join(0.2)
        assert (lister.is_alive(), listed) == (True, [])
    lister.join()
    assert listed == ["thing/1"]


@pytest.mark.parametrize("limit", [None, 0, 1, 3, 4, 7, 50])
def test_a_list_of_any_length_has_every_row_once_in_order(
    log: Log, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "_PAGE_ROWS", 1)
    monkeypatch.setattr(views, "_PAGE_ROWS_MAX", 3)
    for number in range(10):
        say(log, "a", stream=f"thing/{number}")
    keys = [f"thing/{number}" for number in range(10)]
    assert [key for key, _ in log.view(Said).items(limit=limit)] == keys[:limit]
    assert [key for key, _ in log.view(Said).items(after="thing/4", limit=limit)] == keys[5:][:limit]


def test_an_old_answer_says_how_old_it_is(log: Log) -> None:
    say(log, 1)
    log.view(Said).get("thing/1")
    say(log, 2)
    say(log, 3)
    answer = log.view(Said).get("thing/1", fresh=False)
    assert (answer.state["values"], answer.position, answer.lag) == ([1], 1, 2)
    assert log.view(Said).lag() == 2


def test_a_view_without_a_match_still_moves_on(log: Log) -> None:
    for number in range(5):
        log.append("note.added", stream="note/1", payload={"text": str(number)})
    assert log.view(Said).catch_up() == 5
    assert log.view(Said).lag() == 0


def test_an_event_that_the_view_leaves_out_is_not_missing(log: Log) -> None:
    say(log, 1)
    say(log, 2, actor="user:nobody")
    handle = log.view(ByActor)
    assert [key for key, _ in handle.items()] == ["user:ada"]
    assert handle.audit().ok


@pytest.mark.parametrize("view", ALL)
def test_a_view_kept_live_a_rebuilt_one_and_one_from_nothing_are_the_same(log: Log, view: type[View]) -> None:
    handle = log.view(view)
    for number in range(30):
        say(log, number, stream=f"thing/{number % 4}", actor=f"user:u{number % 3}")
        if number % 7 == 0:
            handle.catch_up()
    live = handle.digest()
    assert live == from_nothing(log, view)
    assert handle.rebuild().same
    assert handle.digest() == live
    assert handle.audit().ok


def test_a_view_goes_on_where_it_was_when_the_log_is_opened_again(
    make_log: Callable[..., Log], tmp_path: Path, kind: str
) -> None:
    if kind == "memory":
        pytest.skip("nothing survives in memory")
    with make_log(kind, tmp_path / "log") as log:
        say(log, 1)
        log.view(Total).catch_up()
        say(log, 2)
    with make_log(kind, tmp_path / "log") as log:
        assert log.view(Total).get("all", fresh=False).position == 1
        assert log.view(Total).get("all").state["values"] == [1, 2]
        assert log.verify().ok


# ---- names and shapes


def test_two_views_of_one_name_are_refused(log: Log) -> None:
    class Other(Said):
        pass

    log.view(Said)
    with pytest.raises(Conflict):
        log.view(Other)
    with pytest.raises(Conflict):
        log.views.register(Said)


@pytest.mark.parametrize(
    "fields", [{"name": ""}, {"name": "With Spaces"}, {"version": 0}, {"types": "thing.said"}, {"types": (1,)}]
)
def test_a_view_that_cannot_be_run_is_refused(log: Log, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidField):
        log.view(type("Broken", (Said,), fields))


def test_a_name_that_nobody_registered_is_not_found(log: Log) -> None:
    with pytest.raises(NotFound):
        log.view("nothing")


# ---- history that changes


@pytest.mark.parametrize("view", ALL)
def test_a_purge_takes_its_events_out_of_every_view(log: Log, view: type[View]) -> None:
    handle = log.view(view)
    for number in range(12):
        say(log, number, stream=f"thing/{number % 3}", actor=f"user:u{number % 2}")
    handle.catch_up()
    log.purge("thing/1", reason="a request")
    say(log, 99, stream="thing/1")

    assert handle.digest() == from_nothing(log, view)
    audit = handle.audit()
    assert audit.ok, audit


def test_a_purge_makes_only_the_keys_again_that_it_concerns(log: Log) -> None:
    applied: list[str] = []

    class Watched(ByActor):
        name = "watched"

        def apply(self, state: dict[str, Any], event: Any) -> dict[str, Any]:
            applied.append(event.actor)
            return super().apply(state, event)

    for number in range(6):
        say(log, number, stream=f"thing/{number}", actor=f"user:u{number}")
    handle = log.view(Watched)
    handle.catch_up()
    applied.clear()
    log.purge("thing/3", reason="a request")
    handle.catch_up()
    assert applied == []
    assert not handle.get("user:u3").found


def test_a_key_fed_by_very_many_streams_is_made_again_after_a_purge(log: Log) -> None:
    handle = log.view(Total)
    for number in range(40):
        say(log, number, stream=f"thing/{number}")
    handle.catch_up()
    log.purge("thing/7", reason="a request")
    assert handle.get("all").state["count"] == 39
    assert handle.digest() == from_nothing(log, Total)


# ---- dead letters


def test_a_poison_event_stops_only_its_key(log: Log) -> None:
    say(log, 1)
    poison = say(log, "poison")
    later = say(log, 2)
    say(log, 3, stream="thing/2")
    handle = log.view(Said)

    answer = handle.get("thing/1")
    assert (answer.state["values"], answer.parked) == ([1], True)
    assert handle.get("thing/2").state["values"] == [3]
    letters = handle.dead_letters()
    assert [(letter.position, letter.what) for letter in letters] == [(poison, FAILED), (later, WAITING)]
    assert "this cannot be applied" in letters[0].reason
    assert "conftest.py" in letters[0].trace
    assert handle.audit().ok


@pytest.mark.parametrize("view", [Said, ByActor, Causal])
def test_half_a_change_of_a_poison_event_is_not_kept(log: Log, view: type[View]) -> None:
    say(log, 1)
    say(log, "poison")
    key = "thing/1" if view is Said else "user:ada"
    assert log.view(view).get(key).state["values"] == [1]
    log.view(view).rebuild()
    assert log.view(view).get(key).state["values"] == [1]


@pytest.mark.parametrize("view", [Said, ByActor, Total, Causal])
def test_a_skipped_letter_frees_those_behind_it_in_order(log: Log, view: type[View]) -> None:
    say(log, 1)
    poison = say(log, "poison")
    say(log, 2)
    handle = log.view(view)
    handle.catch_up()
    assert handle.skip(poison, reason="it was a test", actor="user:eve") == []
    say(log, 3)

    ((_, state),) = handle.items()
    assert state["values"] == [1, 2, 3]
    (letter,) = handle.dead_letters()
    assert (letter.what, letter.skipped_by, letter.skipped_because) == (SKIPPED, "user:eve", "it was a test")
    assert handle.audit().ok
    assert handle.audit().skipped == 1


def test_only_a_dead_letter_can_be_skipped(log: Log) -> None:
    position = say(log, 1)
    log.view(Said).catch_up()
    with pytest.raises(NotFound):
        log.view(Said).skip(position, reason="no")


def test_a_repaired_view_takes_what_waited(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    say(log, 1)
    say(log, "poison")
    say(log, 2)
    handle = log.view(Said)
    handle.catch_up()
    assert len(handle.retry()) == 1

    def mended(self: Said, state: dict[str, Any], event: Any) -> dict[str, Any]:
        return {"values": [*state["values"], event.payload["value"]], "count": state["count"] + 1}

    monkeypatch.setattr(Said, "apply", mended)
    assert handle.retry() == []
    assert handle.get("thing/1").state["values"] == [1, "poison", 2]
    assert handle.dead_letters() == []
    assert handle.audit().ok


def test_an_event_without_a_key_stops_the_view_and_no_other(log: Log) -> None:
    say(log, {"key": "a"})
    bad = say(log, "no key in here")
    say(log, {"key": "a"})
    picky, said = log.view(Picky), log.view(Said)

    answer = picky.get("a")
    assert (answer.state, answer.position, answer.stopped_at) == ({"count": 1}, bad - 1, bad)
    assert said.get("thing/1").state["count"] == 3
    assert [letter.what for letter in picky.dead_letters()] == [STOPPED]
    with pytest.raises(ViewStopped):
        log.wait_for(Picky, bad + 1, 0.1)

    assert picky.skip(bad, reason="never mind") == []
    assert picky.get("a").state == {"count": 2}
    assert picky.audit().ok


def test_a_state_that_json_cannot_say_is_a_dead_letter(log: Log) -> None:
    class Odd(View):
        name = "odd"
        types = ("thing.said",)

        def apply(self, state: dict[str, Any], event: Any) -> dict[str, Any]:
            value = event.payload["value"]
            return {"values": [*state.get("values", []), float("nan") if value == 2 else value]}

    say(log, 1)
    bad = say(log, 2)
    say(log, 3)
    handle = log.view(Odd)
    assert handle.get("thing/1").state == {"values": [1]}
    letters = [(bad, FAILED), (bad + 1, WAITING)]
    assert [(letter.position, letter.what) for letter in handle.dead_letters()] == letters
    assert handle.audit().ok
    for limit in (1, 2, 10):
        assert handle.rebuild(limit=limit).same
        assert [(letter.position, letter.what) for letter in handle.dead_letters()] == letters
        assert handle.audit().ok


def test_what_fails_on_top_of_such_a_state_waits_however_large_a_page_is(log: Log) -> None:
    class Set(Said):
        name = "set"

        def apply(self, state: dict[str, Any], event: Any) -> dict[str, Any]:
            return {"a": {"set"}} if event.payload["value"] == "set" else super().apply(state, event)

    say(log, 1)
    bad = say(log, "set")
    say(log, 3)
    handle = log.view(Set)
    for limit in (1, 2, 10):
        handle.rebuild(limit=limit)
        letters = [(letter.position, letter.what) for letter in handle.dead_letters()]
        assert letters == [(bad, FAILED), (bad + 1, WAITING)]


def test_what_was_gathered_is_taken_again_when_a_rebuild_is_stopped_behind_it(log: Log) -> None:
    from everlog.views.rebuild import rebuild

    class Odd(Total):
        name = "odd-total"

        def apply(self, state: dict[str, Any], event: Any) -> dict[str, Any]:
            return {"values": [*state["values"], float("nan") if event.payload["value"] == 3 else 0]}

    for number in range(6):
        say(log, number)
    for stopped_after in range(1, 6):
        steps = iter([False] * stopped_after)
        rebuild(log, log.views.shelf, Odd(), stop=lambda steps=steps: next(steps, True), limit=1)  # type: ignore[misc]
    handle = log.view(Odd)
    assert handle.get("all").state == {"values": [0, 0, 0]}
    assert [letter.position for letter in handle.dead_letters()] == [4, 5, 6]
    assert handle.audit().ok


def test_an_upcaster_that_fails_stops_the_views_of_that_type_only(
    make_log: Callable[..., Log], kind: str, clock: Any
) -> None:
    from everlog.testing.builders import event

    class Moves(View):
        name = "moves"
        types = ("workpackage.moved",)

        def apply(self, state: dict[str, Any], event: Any) -> dict[str, Any]:
            return {"lane": event.payload["went_to"]}

    with make_log(kind) as log:
        foreign = event("workpackage.moved", stream="workpackage/9", payload={"unheard": "of"})
        log.admit([foreign])
        say(log, 1)
        log.append("workpackage.moved", stream="workpackage/1", payload={"went_to": "doing"})

        assert log.view(Said).get("thing/1").state["count"] == 1
        assert log.view(Everything).get("thing/1").state == {"thing.said": 1}
        moves = log.view(Moves)
        assert moves.get("workpackage/1").state == {"lane": "doing"}
        assert [(letter.stream, letter.what) for letter in moves.dead_letters()] == [("workpackage/9", FAILED)]


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


# ---- effects


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


# ---- inline and async


def test_an_inline_view_has_seen_what_the_append_returned(log: Log) -> None:
    handle = log.views.register(Said, mode="inline")
    for number in range(5):
        position = say(log, number)
        answer = handle.get("thing/1", fresh=False)
        assert (answer.state["count"], answer.position) == (number + 1, position)
    say(log, "poison")
    say(log, 6)
    assert handle.get("thing/1", fresh=False).parked
    assert handle.rebuild().same
    assert handle.audit().ok


def test_an_inline_view_follows_a_purge(log: Log) -> None:
    handle = log.views.register(Total, mode="inline")
    for number in range(4):
        say(log, number, stream=f"thing/{number}")
    log.purge("thing/2", reason="a request")
    assert handle.get("all", fresh=False).state["values"] == [0, 1, 3]


def test_an_append_that_fails_leaves_no_trace_in_an_inline_view(log: Log) -> None:
    handle = log.views.register(Said, mode="inline")
    say(log, 1)
    with pytest.raises(Conflict):
        log.append("thing.said", stream="thing/1", payload={"value": 2}, expect=0)
    say(log, 3)
    assert handle.get("thing/1", fresh=False).state["values"] == [1, 3]


def test_inline_views_survive_many_threads(log: Log) -> None:
    handle = log.views.register(Said, mode="inline")
    other = log.views.register(Causal, mode="inline")

    def run(number: int) -> None:
        for value in range(10):
            say(log, value, stream=f"thing/{number}", actor=f"user:u{number % 2}")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert handle.digest() == from_nothing(log, Said)
    assert other.digest() == from_nothing(log, Causal)


def test_who_wrote_can_wait_until_the_view_has_it(log: Log) -> None:
    log.views.register(Said, mode="async")
    recorded = log.append("thing.said", stream="thing/1", payload={"value": 1})
    assert log.wait_for(Said, recorded, 10) >= recorded.position
    assert log.view(Said).get("thing/1", fresh=False).state["values"] == [1]


def test_waiting_for_what_never_comes_ends(log: Log) -> None:
    say(log, 1)
    with pytest.raises(ViewBehind) as caught:
        log.wait_for(Said, 100, 0.1)
    assert caught.value.details["position"] == 1


# ---- the audit


def test_the_audit_finds_an_injected_hole(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = log.view(ByActor)
    say(log, 1, scope="acme/shop")
    hole = say(log, 2, stream="thing/hole", scope="acme/shop")
    say(log, 3)
    real = pages.OpenPage

    def leaky(*args: Any, **options: Any) -> Any:
        page = real(*args, **options)
        page.found = iter([[recorded for recorded in piece if recorded.position != hole] for piece in page.found])
        return page

    monkeypatch.setattr("everlog.views.builder.OpenPage", leaky)
    handle.catch_up()
    monkeypatch.undo()

    audit = handle.audit()
    assert (audit.ok, audit.gap, audit.lag) == (False, 1, 0)
    assert [missing.position for missing in audit.missing] == [hole]
    assert (audit.by_stream, audit.by_type) == ({"thing/hole": 1}, {"thing.said": 1})
    assert audit.by_scope == {"acme/shop": 1}
    assert [(wrong.key, wrong.kept, wrong.recounted) for wrong in audit.wrong_counts] == [("user:ada", 2, 3)]

    rebuilt = handle.rebuild()
    assert (rebuilt.same, rebuilt.differing) == (False, ("user:ada",))
    assert handle.audit().ok


def test_a_position_that_was_applied_again_says_nothing_of_the_one_after_it(log: Log) -> None:
    say(log, 1)
    handle = log.view(Said)
    handle.catch_up()
    build = handle.build()
    assert build is not None
    with log.views.shelf.change() as change:
        assert mark_places(change, build, [2, 2, 4]) == 2
    assert places_of(log.views.shelf, build) == {0: 0b10110}


def test_the_audit_finds_a_state_that_was_lost(log: Log) -> None:
    say(log, 1)
    say(log, 2, stream="thing/2")
    handle = log.view(Said)
    handle.catch_up()
    build = handle.build()
    assert build is not None
    with log.views.shelf.change() as change:
        change.put(build.rows, {"thing/2": None})
    audit = handle.audit()
    assert [(wrong.key, wrong.kept, wrong.recounted) for wrong in audit.wrong_counts] == [("thing/2", 0, 1)]


# ---- another copy, other processes, a damaged shelf


def test_a_restored_older_copy_brings_its_own_views(make_log: Callable[..., Log], tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with make_log("sqlite", path) as log:
        say(log, 1)
        log.view(Total).catch_up()
    older = path.read_bytes()
    with make_log("sqlite", path) as log:
        say(log, 2)
        assert log.view(Total).get("all").state["values"] == [1, 2]
    path.write_bytes(older)
    with make_log("sqlite", path) as log:
        say(log, 3)
        assert log.view(Total).get("all").state["values"] == [1, 3]
        assert log.view(Total).audit().ok


def test_a_cursor_ahead_of_the_log_builds_anew(log: Log) -> None:
    import msgspec

    from everlog.views.states import put_build, require_active

    say(log, 1)
    handle = log.view(Total)
    handle.catch_up()
    log.views.close()
    build = require_active(log.views.shelf, "total")
    with log.views.shelf.change() as change:
        put_build(change, msgspec.structs.replace(build, cursor="900"))
    handle = log.view(Total)
    assert handle.get("all").state["values"] == [1]
    assert handle.position() == 1
    assert handle.audit().ok


def test_two_handles_on_one_log_never_apply_twice(make_log: Callable[..., Log], tmp_path: Path, kind: str) -> None:
    if kind in ("memory", "segments"):
        pytest.skip("such a log has one writer")
    with make_log(kind, tmp_path / "log") as one, make_log(kind, tmp_path / "log") as other:
        handles = [one.view(Total), other.view(Total)]
        for number in range(12):
            say((one, other)[number % 2], number)
            if number % 3:
                handles[number % 2].catch_up(limit=2)
        threads = [threading.Thread(target=handle.catch_up) for handle in handles]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [handle.get("all").state["count"] for handle in handles] == [12, 12]
        assert handles[0].digest() == handles[1].digest() == from_nothing(one, Total)


def test_two_workers_on_one_view_agree(make_log: Callable[..., Log], tmp_path: Path) -> None:
    with make_log("sqlite", tmp_path / "log.db") as one, make_log("sqlite", tmp_path / "log.db") as other:
        for log in (one, other):
            log.views.register(Total, mode="async")
        for number in range(30):
            position = say((one, other)[number % 2], number)
        for log in (one, other):
            log.wait_for(Total, position, 20)
            assert log.view(Total).get("all").state["count"] == 30
            assert log.view(Total).audit().ok


def test_a_damaged_file_of_views_is_made_again(
    make_log: Callable[..., Log], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with make_log("jsonl", tmp_path / "log") as log:
        say(log, 1)
        log.view(Total).catch_up()
    (tmp_path / "log" / "local" / "views.db").write_bytes(b"this is no database" * 1000)
    with make_log("jsonl", tmp_path / "log") as log:
        assert log.view(Total).get("all").state["values"] == [1]
        assert "made again" in caplog.text


def test_a_rebuild_that_was_stopped_goes_on(log: Log) -> None:
    from everlog.views.rebuild import rebuild

    for number in range(20):
        say(log, number)
    handle = log.view(Total)
    handle.catch_up()
    steps = iter([False, False, False])
    rebuild(log, log.views.shelf, Total(), stop=lambda: next(steps, True), limit=3)
    done = handle.rebuild(limit=3)
    assert (done.resumed_at, done.same, done.build) == (9, True, 2)
    assert handle.rebuild(fresh=True).resumed_at == 0


def test_who_may_not_write_gets_an_old_answer_that_says_so(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    say(log, 1)
    handle = log.view(Total)
    handle.catch_up()
    say(log, 2)

    def refuse() -> Any:
        raise ReadOnly("this disk cannot be written")

    monkeypatch.setattr(log.views.shelf, "change", refuse)
    answer = handle.get("all")
    assert (answer.state["values"], answer.lag) == ([1], 1)
    with pytest.raises(ReadOnly):
        log.view(Said).get("thing/1")
    monkeypatch.undo()
    assert handle.get("all").state["values"] == [1, 2]
