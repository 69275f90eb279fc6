from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.at_once import at_once

import everlog
from everlog.core.query import Query
from everlog.errors import (
    EverlogError,
    InvalidPayload,
    KeyReuse,
    NoSuchSubject,
    RuleRefused,
    TransitionRefused,
    ViewStopped,
)
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.programs.command import By, Outcome
from everlog.programs.perform import ask, perform
from everlog.programs.workpackages.commands import Create, Depend, Gate, GateResult, Move, Package, Spec, Subtask
from everlog.programs.workpackages.events import Created
from everlog.programs.workpackages.questions import Board, PackageHistory, Specs, Status
from everlog.programs.workpackages.views import Board as BoardView
from everlog.testing import builders

BOB = By(actor="user:bob")


@pytest.fixture(params=["sqlite", "jsonl", "segments", "postgres"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    postgres = request.param == "postgres"
    url = str(request.getfixturevalue("postgres_url")) if postgres else f"{request.param}:{tmp_path / 'log'}"
    with everlog.open(url, actor="user:ada") as opened:
        yield opened


def create(
    log: Log, package: str = "WP03", *needs: str, gates: tuple[str, ...] = (), **fields: Any
) -> Outcome[Package]:
    made = Create(id=package, title="Index", feature="025-log", depends_on=list(needs), gates=list(gates), **fields)
    return perform(log, made)


def go(log: Log, package: str, *lanes: str, reason: str = "") -> None:
    for lane in lanes:
        perform(log, Move(id=package, to=lane, reason=reason))


def test_a_package_goes_all_the_way_past_its_dependency_and_its_gate(log: Log) -> None:
    create(log, "WP01")
    create(log, "WP03", "WP01", gates=("ci",))
    with pytest.raises(RuleRefused, match="WP01 is planned"):
        go(log, "WP03", "doing")
    go(log, "WP01", "doing", "for_review", "done")
    go(log, "WP03", "doing", "for_review")
    with pytest.raises(RuleRefused, match="the gate ci is pending"):
        go(log, "WP03", "done")
    perform(log, GateResult(id="WP03", gate="ci", verdict="passed", data={"run": 17}))
    step = perform(log, Move(id="WP03", to="done"), BOB)
    assert (step.result.id, step.result.lane) == ("WP03", "done")
    shown = ask(log, Status(id="WP03"))
    assert (shown["lane"], shown["moved_by"], shown["waits_for"], shown["closed_gates"]) == (
        "done",
        "user:bob",
        [],
        {},
    )
    assert shown["depends_on"] == [{"id": "WP01", "lane": "done"}]


def test_the_status_is_the_same_before_the_board_was_ever_kept_and_after(log: Log) -> None:
    create(log, "WP01")
    create(log, "WP03", "WP01", gates=("ci",), subtasks=["write it"])
    go(log, "WP01", "doing")
    alone = ask(log, Status(id="WP03"))
    assert log.view(BoardView).build() is None, "a question about one package keeps nothing"
    (first, second) = ask(log, Board())
    assert (first["id"], first["lane"], second["waits_for"]) == ("WP01", "doing", ["WP01"])
    assert ask(log, Status(id="WP03")) == alone
    perform(log, Subtask(id="WP03", index=1))
    assert ask(log, Status(id="WP03"))["subtasks"][0]["done_by"] == "user:ada"
    assert log.view(BoardView).position() < log.head(), "nor does it bring anything up to date"


def test_the_board_is_by_feature_and_can_be_of_one(log: Log) -> None:
    perform(log, Spec(slug="025-log", title="Event log"))
    create(log, "WP03")
    perform(log, Create(id="A", title="Alone"))
    perform(log, Create(id="WP01", title="Other", feature="024-old"))
    assert [one["id"] for one in ask(log, Board())] == ["WP01", "WP03", "A"]
    assert [one["id"] for one in ask(log, Board(feature="025-log"))] == ["WP03"]
    assert ask(log, Specs())["025-log"]["title"] == "Event log"


def test_a_refused_move_is_in_the_error_log_with_what_would_be_allowed_and_nothing_is_written(log: Log) -> None:
    create(log)
    head = log.head()
    with pytest.raises(TransitionRefused):
        perform(log, Move(id="WP03", to="done"), By(actor="agent:builder"))
    assert log.head() == head
    (refusal,) = log.refusals(stream="workpackage/WP03")
    assert (refusal.code, refusal.operation, refusal.actor) == ("transition_refused", "wp move", "agent:builder")
    assert refusal.context["current_status"] == "planned"
    assert refusal.context["requested_status"] == "done"
    assert refusal.context["valid_transitions"] == ["doing"]
    assert refusal.hint == "everlog wp move WP03 doing"


def test_who_repeats_a_mistake_is_told_so_also_with_another_package(log: Log) -> None:
    create(log, "WP03")
    create(log, "WP04")

    def refused(package: str, to: str, actor: str = "agent:builder") -> int:
        with pytest.raises(EverlogError) as error:
            perform(log, Move(id=package, to=to), By(actor=actor))
        return int(error.value.details.get("refused_before", 0))

    assert [refused("WP03", "done"), refused("WP03", "done"), refused("WP04", "done")] == [0, 1, 2]
    assert refused("WP03", "for_review") == 0
    assert refused("WP03", "done", actor="user:bob") == 0
    (_, _, mistake) = ask(log, Status(id="WP03"))["refused"]
    assert (mistake["actor"], mistake["times"], mistake["hint"]) == (
        "agent:builder",
        2,
        "everlog wp move WP03 doing",
    )


def test_cycles_are_refused_across_packages_that_were_planned_in_any_order(log: Log) -> None:
    assert create(log, "WP01", "WP02").next == ("WP02 is not there yet: everlog wp create WP02 …",)
    assert create(log, "WP02", "WP03").next == ("WP03 is not there yet: everlog wp create WP03 …",)
    with pytest.raises(RuleRefused, match="WP03 needs WP01 needs WP02 needs WP03"):
        create(log, "WP03", "WP01")
    assert create(log, "WP03").next == ()
    with pytest.raises(RuleRefused, match="WP03 would wait for itself"):
        perform(log, Depend(id="WP03", on=["WP02"]))
    perform(log, Depend(id="WP02", on=[]))
    perform(log, Depend(id="WP03", on=["WP02"]))
    assert ask(log, Status(id="WP03"))["waits_for"] == ["WP02"]


def test_a_package_that_is_not_there_is_told_with_what_to_type(log: Log) -> None:
    for attempt in (
        lambda: ask(log, Status(id="WP77")),
        lambda: ask(log, PackageHistory(id="WP77")),
        lambda: perform(log, Move(id="WP77", to="doing")),
    ):
        with pytest.raises(NoSuchSubject) as error:
            attempt()
        assert "everlog wp create WP77" in error.value.hint


def test_the_same_request_under_a_key_is_done_once(log: Log) -> None:
    create(log)
    by = By(actor="agent:builder", key="take-it")
    first = perform(log, Move(id="WP03", to="doing"), by)
    go(log, "WP03", "for_review")
    again = perform(log, Move(id="WP03", to="doing"), by)
    assert (again.replayed, again.result.lane, again.records) == (True, "doing", first.records)
    with pytest.raises(KeyReuse):
        perform(log, Move(id="WP03", to="done"), by)


def test_what_was_so_already_records_nothing(log: Log) -> None:
    create(log, gates=("ci",), subtasks=["write it"])
    perform(log, Subtask(id="WP03", index=1))
    head = log.head()
    assert perform(log, Subtask(id="WP03", index=1)).records == ()
    assert perform(log, Gate(id="WP03", gate="ci")).records == ()
    assert perform(log, GateResult(id="WP03", gate="ci", verdict="pending")).result.lane == "planned"
    assert perform(log, Depend(id="WP03", on=[])).records == ()
    assert log.head() == head


def test_of_many_who_take_a_package_at_once_one_gets_it(log: Log) -> None:
    create(log)
    outcomes: list[str] = []

    def take(actor: str) -> None:
        try:
            perform(log, Move(id="WP03", to="doing"), By(actor=actor))
            outcomes.append(actor)
        except TransitionRefused:
            outcomes.append("refused")

    at_once(*(partial(take, f"agent:a{number}") for number in range(6)))
    assert sorted(outcomes)[1:] == ["refused"] * 5
    assert ask(log, Status(id="WP03"))["moved_by"] == sorted(outcomes)[0]


def test_a_dependency_that_is_taken_back_meanwhile_keeps_work_from_beginning(log: Log) -> None:
    """The decision looks at the other package too: what was true when it was read must be true when it is written."""
    create(log, "WP01")
    create(log, "WP03", "WP01")
    go(log, "WP01", "doing", "for_review", "done")
    real = log.writer.commit
    taken_back: list[bool] = []

    def slow(*arguments: Any, **named: Any) -> Any:
        if not taken_back:
            taken_back.append(True)
            perform(log, Move(id="WP01", to="doing", reason="it was not done after all"))
        return real(*arguments, **named)

    log.writer.commit = slow  # type: ignore[method-assign]
    with pytest.raises(RuleRefused, match="WP01 is doing"):
        perform(log, Move(id="WP03", to="doing"))
    assert ask(log, Status(id="WP03"))["lane"] == "planned"


# ---- past the commands


def test_moves_that_are_appended_by_hand_are_held_to_the_allowed_ones_too(log: Log) -> None:
    create(log)
    with pytest.raises(TransitionRefused) as error:
        log.append("WPStatusChanged", stream="workpackage/WP03", payload={"new_status": "done"})
    assert error.value.details["valid_transitions"] == ["doing"]
    log.append("WPStatusChanged", stream="workpackage/WP03", payload={"new_status": "doing"})
    assert ask(log, Status(id="WP03"))["lane"] == "doing"
    with pytest.raises(InvalidPayload):
        log.append("WPStatusChanged", stream="workpackage/WP03", payload={"new_status": "blocked"})


def test_by_hand_and_by_command_the_lane_is_the_one_of_causal_order(log: Log) -> None:
    """A merge may bring an old move last; by arrival it would be the lane, and the commands' move be refused."""
    create(log)
    go(log, "WP03", "doing", "for_review")
    first = next(log.read(Query(stream="workpackage/WP03"))).event
    old = builders.event(
        "WPStatusChanged",
        stream="workpackage/WP03",
        payload={"old_status": "planned", "new_status": "doing", "after": [first.id]},
        lamport=first.lamport,
        origin="01TESTCLNE0000000000000000",
    )
    log.admit([old])
    shown = ask(log, Status(id="WP03"))
    assert (shown["lane"], len(shown["conflict"])) == ("for_review", 2)
    go(log, "WP03", "done")
    assert ask(log, Status(id="WP03"))["conflict"] is None, "who moved it on had both sides before him"


def test_the_first_versions_of_the_seed_are_read_as_todays(log: Log) -> None:
    def today(type: str, **payload: Any) -> dict[str, Any]:
        return log.catalog.upcast(builders.event(type, payload=payload)).payload

    assert today("WPStatusChanged", old_status="In Progress", new_status="review", reason=None) == {
        "feature_slug": "",
        "old_status": "doing",
        "new_status": "for_review",
        "reason": "",
        "after": [],
    }
    assert today("WPStatusChanged", new_status="blocked")["new_status"] == "blocked"
    assert today("WPCreated", work_package_id="WP01", dependencies="WP02, WP03") == {
        "work_package_id": "WP01",
        "title": "",
        "feature_slug": "",
        "dependencies": ["WP02", "WP03"],
        "subtasks": [],
    }
    assert today("WPCreated", dependencies=None)["dependencies"] == []
    assert today("GateResultChanged", gate_id="ci", new_status="SUCCESS", result_data="ok") == {
        "gate_id": "ci",
        "old_status": "pending",
        "new_status": "passed",
        "result_data": {"data": "ok"},
    }
    assert today("GateResultChanged", new_status="failure")["new_status"] == "failed"


def test_a_log_of_the_seeds_own_program_is_on_the_board(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    common = {"event_version": 1, "timestamp": "2026-01-27T10:30:00Z", "actor": "builder"}
    package = {"entity_id": "WP03", "entity_type": "WorkPackage"}
    feature = {"entity_id": "025-cli-event-log", "entity_type": "FeatureSpec"}
    said: list[tuple[str, dict[str, str], dict[str, Any]]] = [
        ("SpecCreated", feature, {"feature_slug": "025-cli-event-log", "title": "Event log"}),
        ("WPCreated", package, {"work_package_id": "WP03", "title": "Index"}),
        ("WPStatusChanged", package, {"feature_slug": "025-cli-event-log", "new_status": "doing"}),
        ("GateCreated", package, {"work_package_id": "WP03", "gate_type": "ci", "gate_id": "ci"}),
        ("GateResultChanged", package, {"gate_id": "ci", "new_status": "passed"}),
        ("WPStatusChanged", package, {"old_status": "doing", "new_status": "for_review"}),
    ]
    lines = [
        {
            **common,
            **entity,
            "event_id": f"01HN3R5K8D1234567890ABCDE{number}",
            "event_type": type_,
            "lamport_clock": number,
            "payload": payload,
        }
        for number, (type_, entity, payload) in enumerate(said, start=1)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "events" / "2026-01-27.jsonl").write_text(text)
    with everlog.open(f"jsonl:{tmp_path}", actor="user:ada") as log:
        (one,) = ask(log, Board(feature="025-cli-event-log"))
        assert (one["id"], one["title"], one["lane"], one["closed_gates"]) == ("WP03", "Index", "for_review", {})
        assert one["conflict"] is None
        assert ask(log, Specs())["025-cli-event-log"]["title"] == "Event log"
        perform(log, Move(id="WP03", to="done"))
        assert ask(log, Status(id="WP03"))["lane"] == "done"


def test_a_purged_package_is_gone_and_its_id_can_be_planned_anew(log: Log) -> None:
    create(log)
    ask(log, Board())
    log.purge("workpackage/WP03", reason="it was a test")
    with pytest.raises(NoSuchSubject):
        ask(log, Status(id="WP03"))
    assert ask(log, Board()) == []
    create(log)
    assert ask(log, Status(id="WP03"))["lane"] == "planned"


def test_a_row_that_was_kept_before_the_index_was_made_anew_is_not_believed(tmp_path: Path) -> None:
    """Positions are given anew then, and what the row has not seen may stand below the one that it was kept at."""
    url = f"jsonl:{tmp_path}"
    with everlog.open(url, actor="user:ada") as log:
        create(log, "WP03")
        for number in range(4, 9):
            create(log, f"WP0{number}")
        ask(log, Board())
        first = next(log.read(Query(stream="workpackage/WP03"))).event
        payload = {"old_status": "planned", "new_status": "doing", "after": [first.id]}
        other = builders.event("WPStatusChanged", stream=first.stream, payload=payload, lamport=2)
        log.admit([msgspec.structs.replace(other, origin=other.id)])
    (tmp_path / "local" / "index.db").unlink()
    (day,) = (tmp_path / "events").iterdir()
    *lines, last = day.read_bytes().splitlines(keepends=True)
    day.write_bytes(last + b"".join(lines))
    with everlog.open(url, actor="user:ada") as log:
        assert ask(log, Status(id="WP03"))["lane"] == "doing"


def test_a_package_behind_an_event_that_cannot_be_applied_is_not_told_as_if_it_were_whole(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(log)

    def broken(self: BoardView, state: Any, event: Any) -> Any:
        raise ValueError("not this one")

    monkeypatch.setattr(BoardView, "apply", broken)
    with pytest.raises(ViewStopped):
        ask(log, Status(id="WP03"))


# ---- how long it takes


@pytest.mark.parametrize("kept", [False, True], ids=["board never kept", "board kept"])
def test_the_status_of_one_package_is_quick_in_a_long_log(tmp_path: Path, kept: bool) -> None:
    """Under 5 ms with 100,000 events is promised, and measured in benchmarks; here a tenth of them and a wide bound,
    which reading the whole log would break."""
    with everlog.open(f"sqlite:{tmp_path / 'log.db'}", actor="user:ada") as log:
        for part in range(10):
            log.append_batch([draft for number in range(50) for draft in _a_life(part * 50 + number)])
        assert log.head() == 10_000
        if kept:
            ask(log, Board())
        took = []
        for number in range(20):
            begun = time.process_time()
            assert ask(log, Status(id=f"WP{number:03}"))["lane"] == "doing"
            took.append(time.process_time() - begun)
        assert sorted(took)[10] < 0.020


def _a_life(number: int) -> list[Draft]:
    package, stream = f"WP{number:03}", f"workpackage/WP{number:03}"
    born = msgspec.to_builtins(Created(work_package_id=package, title="Index"))
    lanes = ["planned", *(["doing", "for_review"] * 10)]
    moves = [{"old_status": before, "new_status": lane, "reason": "again"} for before, lane in pairwise(lanes)]
    return [
        Draft("WPCreated", stream, born),
        *(Draft("WPStatusChanged", stream, move) for move in moves[:19]),
    ]


def test_a_retry_tells_the_lane_in_which_the_package_is(log: Log) -> None:
    perform(log, Create(id="WP01", title="Day files", subtasks=["write"]))
    perform(log, Move(id="WP01", to="doing"))
    again = By(key="k1")
    seen = [perform(log, Subtask(id="WP01", index=1), again) for _ in range(2)]
    assert [(step.result.lane, step.replayed) for step in seen] == [("doing", False), ("doing", True)]


def test_no_title_is_in_what_is_remembered_of_a_refusal(log: Log) -> None:
    perform(log, Create(id="WP01", title="Xylophone"))
    with pytest.raises(RuleRefused, match="is there already: it is in planned"):
        perform(log, Create(id="WP01", title="Another xylophone"))
    assert log.refusals()
    assert "xylophone" not in str(log.refusals()).lower()
