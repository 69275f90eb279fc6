"""A caller that is limited to a scope is judged by the same rules as everyone, also beside other tenants."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import everlog
from everlog import By, perform
from everlog.errors import NoSuchSubject, RuleRefused
from everlog.programs.agents.commands import Approve, Execute, Propose, Reject
from everlog.programs.issues.commands import Create as NewIssue
from everlog.programs.workpackages.commands import Create, GateResult

WRITERS = 40


@pytest.fixture
def log(tmp_path: Path) -> Any:
    with everlog.open(f"sqlite:{tmp_path}/log.db") as opened:
        yield opened


@pytest.fixture
def other(log: everlog.Log, tmp_path: Path) -> Any:
    with everlog.open(f"sqlite:{tmp_path}/log.db") as opened:
        yield opened


def propose(log: everlog.Log, tenant: str) -> None:
    perform(log, Propose(id="c1", agent_id="b", tool_name="t"), By(actor=f"agent:{tenant}", within=tenant))


@pytest.mark.parametrize("scope", ["", "other"])
def test_what_others_recorded_on_the_callers_own_subject_counts(log: everlog.Log, scope: str) -> None:
    propose(log, "acme")
    perform(log, Approve(id="c1", scope=scope), By(actor="user:operator"))
    perform(log, Execute(id="c1", scope=scope), By(actor="agent:acme"))

    with pytest.raises(RuleRefused):
        perform(log, Reject(id="c1", reason="late"), By(actor="user:eve", within="acme"))
    with pytest.raises(RuleRefused):
        perform(log, Approve(id="c1"), By(actor="user:eve", within="acme"))


def test_two_tenants_that_take_one_name_at_once_do_not_both_get_it(
    log: everlog.Log, other: everlog.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = log.writer.commit
    raced: list[bool] = []

    def slow(*arguments: Any, **options: Any) -> Any:
        if not raced:
            raced.append(True)
            propose(other, "other")  # after this one has decided, before it is recorded
        return commit(*arguments, **options)

    monkeypatch.setattr(log.writer, "commit", slow)
    with pytest.raises(NoSuchSubject):
        propose(log, "acme")
    assert [recorded.event.scope for recorded in log.read(stream="command/c1")] == ["other"]


def test_writers_that_overtake_each_other_all_get_through(log: everlog.Log) -> None:
    """Every new issue of a project changes what the decisions about all the others have read."""
    begin = threading.Barrier(WRITERS)

    def create(number: int) -> str:
        begin.wait()
        return perform(log, NewIssue(title=f"{uuid4()}", project="acme"), By(actor=f"user:u{number}")).status

    with ThreadPoolExecutor(WRITERS) as pool:
        assert list(pool.map(create, range(WRITERS))) == ["recorded"] * WRITERS


def test_a_retry_of_a_limited_caller_is_a_replay_whatever_came_between(log: everlog.Log) -> None:
    ada = By(actor="user:ada", within="acme", key="k1")
    failed = GateResult(id="WP1", gate="ci", verdict="failed")
    perform(log, Create(id="WP1", title="t", gates=["ci"]), By(actor="user:ada", within="acme"))
    first = perform(log, failed, ada)
    perform(
        log, GateResult(id="WP1", gate="ci", verdict="passed", scope="acme/shop"), By(actor="user:bo", within="acme")
    )
    head = log.head()

    again = perform(log, failed, ada)

    assert (again.replayed, log.head()) == (True, head)
    assert again.records == first.records
