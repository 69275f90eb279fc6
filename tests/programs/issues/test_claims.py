"""Claims: one actor at a time works on an issue, until a moment."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from everlog import By, ask, perform
from everlog.errors import RuleRefused
from everlog.log.log import Log
from everlog.programs.issues.claiming import Claim, Ready, Release, Renew
from everlog.programs.issues.commands import Close, Create, Delete, Link
from everlog.programs.issues.questions import List

ANN, BEN = By(actor="agent:ann"), By(actor="agent:ben")


def opened(log: Log, title: str, **more: Any) -> str:
    return perform(log, Create(title=title, force_new=True, **more)).result.short_id


def later(monkeypatch: pytest.MonkeyPatch, minutes: int) -> None:
    moment = time.time_ns() + minutes * 60_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: moment)


def types(log: Log) -> list[str]:
    return [one.event.type for one in log.read() if one.event.type in ("issue.claimed", "issue.released")]


def test_an_expired_claim_frees_the_work_and_both_are_on_record(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    issue = opened(log, "the door squeaks")
    perform(log, Claim(issue=issue, minutes=30), ANN)
    for at in (None, datetime.now(UTC) + timedelta(days=2)):  # a time that the caller states changes nothing
        with pytest.raises(RuleRefused, match="agent:ann has claimed"):
            perform(log, Claim(issue=issue), By(actor="agent:ben", at=at))
    assert ask(log, Ready()) == []
    later(monkeypatch, 31)
    assert [one["id"] for one in ask(log, Ready())] == [issue]
    with pytest.raises(RuleRefused, match=r"no claim of .* to renew"):
        perform(log, Renew(issue=issue), ANN)
    perform(log, Claim(issue=issue), BEN)
    assert types(log) == ["issue.claimed", "issue.released", "issue.claimed"]
    ended = [one.event for one in log.read() if one.event.type == "issue.released"]
    assert [(one.payload["holder"], one.payload["reason"]) for one in ended] == [("agent:ann", "expired")]


def test_a_claim_is_renewed_and_given_up_by_its_holder(log: Log) -> None:
    issue = opened(log, "the door squeaks")
    with pytest.raises(RuleRefused, match="no claim of"):
        perform(log, Renew(issue=issue), ANN)
    assert perform(log, Release(issue=issue), ANN).status == "unchanged"
    first = perform(log, Claim(issue=issue, minutes=5), ANN).result
    again = perform(log, Renew(issue=issue, minutes=50), ANN).result
    assert first.facts()["until"] < again.facts()["until"]
    for command in (Renew(issue=issue), Release(issue=issue)):
        with pytest.raises(RuleRefused):
            perform(log, command, BEN)
    perform(log, Release(issue=issue), ANN)
    assert perform(log, Claim(issue=issue), BEN).result.facts()["claimed_by"] == "agent:ben"
    assert [one["status"] for one in ask(log, List())] == ["open"]


def test_a_retry_under_one_key_is_answered_as_before(log: Log) -> None:
    issue = opened(log, "the door squeaks")
    by = By(actor="agent:ann", key="k1")
    first = perform(log, Claim(issue=issue), by)
    again = perform(log, Claim(issue=issue), by)
    assert (again.replayed, again.result.facts()) == (True, first.result.facts())
    assert types(log) == ["issue.claimed"]


def test_what_is_ready_is_open_unblocked_unclaimed_and_in_order(log: Log) -> None:
    oil = opened(log, "buy oil")
    door = opened(log, "oil the door", labels=["p1"])
    lamp = opened(log, "the lamp is dark", labels=["p0", "p7"])
    shut, gone, held = opened(log, "shut"), opened(log, "gone"), opened(log, "held")
    perform(log, Link(issue=oil, kind="blocks", other=door))
    perform(log, Close(issue=shut))
    perform(log, Delete(issue=gone, force=True, confirm=f"delete {gone}"))
    perform(log, Claim(issue=held), ANN)
    assert [one["id"] for one in ask(log, Ready())] == [lamp, oil]
    perform(log, Close(issue=oil))
    assert [one["id"] for one in ask(log, Ready())] == [lamp, door]
    assert [one["id"] for one in ask(log, Ready(limit=1))] == [lamp]
    assert ask(log, Ready(), within="elsewhere") == []
    with pytest.raises(RuleRefused, match="is closed"):
        perform(log, Claim(issue=oil), ANN)


def test_a_direct_append_meets_the_same_rules(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = f"issue/{perform(log, Create(title='the door squeaks')).result.uid}"

    def until(minutes: int) -> dict[str, str]:
        moment = datetime.fromtimestamp(time.time_ns() // 10**9, UTC) + timedelta(minutes=minutes)
        return {"until": moment.isoformat().replace("+00:00", "Z")}

    def write(event_type: str, payload: dict[str, str], actor: str) -> None:
        log.append(event_type, stream=stream, payload=payload, actor=actor)

    def refused(event_type: str, payload: dict[str, str], actor: str) -> None:
        with pytest.raises(RuleRefused):
            write(event_type, payload, actor)

    refused("issue.claimed", until(-5), "agent:ann")
    refused("issue.claimed", until(60 * 24 * 8), "agent:ann")
    write("issue.claimed", until(5), "agent:ann")
    refused("issue.claimed", until(5), "agent:ben")
    refused("issue.released", {"holder": "agent:ann", "reason": "given up"}, "agent:ben")
    refused("issue.released", {"holder": "agent:ann", "reason": "expired"}, "agent:ben")
    refused("issue.released", {"holder": "agent:ben"}, "agent:ann")
    later(monkeypatch, 6)
    refused("issue.claimed", until(5), "agent:ben")  # the end of the other claim is not on record
    write("issue.released", {"holder": "agent:ann", "reason": "expired"}, "agent:ben")
    write("issue.claimed", until(5), "agent:ben")
