"""Claims of work packages: one actor at a time works on one that is ready, until a moment."""

from __future__ import annotations

import time
from typing import Any

import pytest

from everlog import By, ask, perform
from everlog.errors import NoSuchSubject, RuleRefused
from everlog.log.log import Log
from everlog.programs.workpackages.claiming import Claim, Release, Renew
from everlog.programs.workpackages.commands import Create, Move
from everlog.programs.workpackages.questions import Board, Next, PackageHistory

ANN, BEN = By(actor="agent:ann"), By(actor="agent:ben")


def later(monkeypatch: pytest.MonkeyPatch, minutes: int) -> None:
    moment = time.time_ns() + minutes * 60_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: moment)


def planned(log: Log, name: str, **more: Any) -> None:
    perform(log, Create(id=name, title=f"The work {name}", **more))


def moved(log: Log, name: str, *lanes: str, by: By = ANN) -> None:
    for lane in lanes:
        perform(log, Move(id=name, to=lane), by)


def ready(log: Log, **more: Any) -> list[str]:
    return [one["id"] for one in ask(log, Next(**more))]


def test_what_is_next_is_planned_and_unclaimed_and_what_it_depends_on_is_done(log: Log) -> None:
    planned(log, "WP01", feature="b")
    planned(log, "WP02", depends_on=["WP01", "WP09"])
    planned(log, "WP03", feature="a")
    planned(log, "WP04", depends_on=["WP01"], feature="c")
    planned(log, "WP05")
    moved(log, "WP05", "doing")
    assert ready(log) == ["WP03", "WP01"]
    assert ready(log, feature="b") == ["WP01"]
    assert ready(log, limit=1) == ["WP03"]
    assert ask(log, Next(), within="elsewhere") == []
    perform(log, Claim(id="WP03"), ANN)
    assert ready(log) == ["WP01"]
    moved(log, "WP01", "doing", "for_review", "done")
    assert ready(log) == ["WP04"]


def test_a_package_that_is_not_ready_is_not_claimed(log: Log) -> None:
    planned(log, "WP01")
    planned(log, "WP02", depends_on=["WP01"])
    before = log.head()
    with pytest.raises(RuleRefused, match="WP02 is not ready: WP01 is planned"):
        perform(log, Claim(id="WP02"), ANN)
    with pytest.raises(NoSuchSubject):
        perform(log, Claim(id="WP09"), ANN)
    moved(log, "WP01", "doing", by=BEN)
    with pytest.raises(RuleRefused, match="WP01 is not ready: it is in doing"):
        perform(log, Claim(id="WP01"), ANN)
    assert log.head() == before + 1
    assert perform(log, Claim(id="WP01"), BEN).result.lane == "doing"  # who moved it to doing works on it
    moved(log, "WP01", "for_review", "done", by=BEN)
    for command in (Claim(id="WP01"), Renew(id="WP01")):
        with pytest.raises(RuleRefused, match="it is in done"):
            perform(log, command, BEN)


def test_an_expired_claim_frees_the_work_in_planned_and_in_doing(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WP01", "WP02"):
        planned(log, name)
        perform(log, Claim(id=name, minutes=30), ANN)
    moved(log, "WP02", "doing")
    with pytest.raises(RuleRefused, match="agent:ann has claimed WP02"):
        perform(log, Claim(id="WP02"), BEN)
    assert ready(log) == []
    later(monkeypatch, 31)
    assert ready(log) == ["WP01", "WP02"]
    with pytest.raises(RuleRefused, match="has no claim of WP01 to renew"):
        perform(log, Renew(id="WP01"), ANN)
    for name in ("WP01", "WP02"):
        made = perform(log, Claim(id=name), BEN)
        assert [one.type for one in made.events] == ["WPReleased", "WPClaimed"]
        assert made.events[0].payload == {"holder": "agent:ann", "reason": "expired"}
    assert ready(log) == []


def test_a_claim_is_renewed_and_given_up_by_its_holder_and_the_board_stays(log: Log) -> None:
    planned(log, "WP01")
    board = ask(log, Board())
    assert perform(log, Release(id="WP01"), ANN).status == "unchanged"
    first = perform(log, Claim(id="WP01", minutes=5), ANN).events[0].payload
    again = perform(log, Renew(id="WP01", minutes=50), ANN).events[0].payload
    assert first["until"] < again["until"]
    for command in (Renew(id="WP01"), Release(id="WP01")):
        with pytest.raises(RuleRefused):
            perform(log, command, BEN)
    perform(log, Release(id="WP01"), ANN)
    assert ready(log) == ["WP01"]
    assert ask(log, Board()) == board
    steps = [one["type"] for one in ask(log, PackageHistory(id="WP01"))]
    assert steps == ["WPCreated", "WPClaimed", "WPClaimed", "WPReleased"]


def test_a_retry_under_one_key_is_answered_as_before(log: Log) -> None:
    planned(log, "WP01")
    by = By(actor="agent:ann", key="k1")
    first = perform(log, Claim(id="WP01"), by)
    moved(log, "WP01", "doing")
    again = perform(log, Claim(id="WP01"), by)
    assert (again.replayed, again.result) == (True, first.result)


def test_a_direct_append_meets_the_same_rules(log: Log) -> None:
    planned(log, "WP01")
    planned(log, "WP02", depends_on=["WP01"])
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 300))

    def write(event_type: str, name: str, payload: dict[str, str], actor: str) -> None:
        log.append(event_type, stream=f"workpackage/{name}", payload=payload, actor=actor)

    with pytest.raises(RuleRefused, match="not ready"):
        write("WPClaimed", "WP02", {"until": soon}, "agent:ann")
    write("WPClaimed", "WP01", {"until": soon}, "agent:ann")
    with pytest.raises(RuleRefused, match="agent:ann has claimed"):
        write("WPClaimed", "WP01", {"until": soon}, "agent:ben")
    for reason in ("given up", "expired"):
        with pytest.raises(RuleRefused):
            write("WPReleased", "WP01", {"holder": "agent:ann", "reason": reason}, "agent:ben")
    write("WPReleased", "WP01", {"holder": "agent:ann"}, "agent:ann")
    write("WPClaimed", "WP01", {"until": soon}, "agent:ben")
