from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.at_once import at_once
from tests.stores.jsonl.test_checkouts import git

import everlog
from everlog.core.event import Recorded
from everlog.core.query import Newest, Query
from everlog.errors import InvalidField, KeyReuse, QueryMatched, RuleRefused
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.log.write.guard import ATTEMPTS
from everlog.programs.agents import PROGRAM
from everlog.programs.agents.commands import Approve, Execute, Propose
from everlog.programs.agents.events import Approved, Proposed
from everlog.programs.agents.questions import List
from everlog.programs.command import By, Decision, On
from everlog.programs.perform import History, ask, decide, perform

PROPOSAL = Proposed(agent_id="builder", tool_name="pytest")
ASKED = Propose(agent_id="builder", tool_name="pytest")


def decided(log: Log, rule: Any, by: By = By()) -> Decision:  # noqa: B008 - By is frozen
    looks_at = Query(stream="command/c1")
    return decide(
        log, PROGRAM, looks_at=looks_at, stream="command/c1", by=by, operation="test", request={}, rule=rule
    )


def test_a_decision_is_made_anew_when_somebody_was_faster(log: Log) -> None:
    seen: list[int] = []

    def rule(history: Sequence[Recorded]) -> list[Any]:
        seen.append(len(history))
        if len(seen) == 1:
            perform(log, replace(ASKED, id="c1"))
        return [Approved(note="")]

    done = decided(log, rule)
    assert seen == [0, 1]
    assert done.records[0].position == 2
    assert log.refusals() == [], "an attempt that was repeated and succeeded is no refusal"


def test_what_happens_elsewhere_does_not_disturb_a_decision(log: Log) -> None:
    seen: list[int] = []

    def rule(history: Sequence[Recorded]) -> list[Any]:
        seen.append(len(history))
        perform(log, replace(ASKED, id=f"other{len(seen)}"))
        return [PROPOSAL]

    decided(log, rule)
    assert seen == [0]


def test_what_a_rule_relies_on_without_reading_it_is_watched_too(log: Log) -> None:
    """A rule may ask a kept view; the events behind its answer must still be all there are."""
    seen: list[tuple[int, int]] = []

    def rule(history: History) -> list[Any]:
        history.relies_on(Query(stream="command/c2"))
        seen.append((len(history), len(ask(log, List()))))
        if len(seen) == 1:
            perform(log, replace(ASKED, id="c2"))
        return [PROPOSAL]

    decided(log, rule)
    assert seen == [(0, 0), (0, 1)]


def test_a_rule_may_look_at_nothing(log: Log) -> None:
    decided(log, lambda history: [PROPOSAL])
    done = decide(
        log,
        PROGRAM,
        looks_at=(),
        stream="command/c1",
        by=By(),
        operation="test",
        request={},
        rule=lambda history: [] if history else [PROPOSAL],
    )
    assert done.records[0].sequence == 2


def test_it_gives_up_when_others_never_stop(log: Log) -> None:
    seen: list[int] = []

    def rule(history: Sequence[Recorded]) -> list[Any]:
        seen.append(len(history))
        log.append("note.added", stream="command/c1", payload={"text": "again"})
        return [PROPOSAL]

    with pytest.raises(QueryMatched):
        decided(log, rule)
    assert len(seen) == ATTEMPTS
    assert [refusal.code for refusal in log.refusals()] == ["query_matched"], "recorded once, when it gave up"


def test_a_rule_may_speak_of_other_streams_and_all_of_it_is_recorded_or_none(log: Log) -> None:
    done = decided(log, lambda history: [PROPOSAL, On("command/c2", PROPOSAL)])
    assert [recorded.event.stream for recorded in done.records] == ["command/c1", "command/c2"]


def test_a_decision_that_looks_at_several_streams_sees_them_in_order_and_is_made_anew_when_one_changes(
    log: Log,
) -> None:
    looks_at = [Query(stream="command/c2"), Query(stream="command/c1"), Query(stream="command/c2")]
    seen: list[list[int]] = []
    for name in ("c1", "c2", "c3"):
        perform(log, replace(ASKED, id=name))

    def rule(history: Sequence[Recorded]) -> list[Any]:
        seen.append([recorded.position for recorded in history])
        if len(seen) < 3:
            perform(log, Approve(id=f"c{len(seen)}"), By(actor="user:bob"))
        return [PROPOSAL]

    stream = "command/c9"
    decide(log, PROGRAM, looks_at=looks_at, stream=stream, by=By(), operation="test", request={}, rule=rule)
    assert seen == [[1, 2], [1, 2, 4], [1, 2, 4, 5]]


def test_of_a_long_history_a_rule_may_look_at_the_newest_event_only(log: Log) -> None:
    for name in ("c1", "c2"):
        perform(log, replace(ASKED, id=name))
        perform(log, Approve(id=name), By(actor="user:bob"))
    seen: list[list[int]] = []

    def rule(history: Sequence[Recorded]) -> list[Any]:
        seen.append([recorded.position for recorded in history])
        if len(seen) == 1:
            perform(log, Execute(id="c2"))
        return [PROPOSAL]

    looks_at = [Newest(Query(kind="command")), Newest(Query(stream="command/c1")), Newest(Query(stream="command/c7"))]
    decide(log, PROGRAM, looks_at=looks_at, stream="command/c9", by=By(), operation="test", request={}, rule=rule)
    assert seen == [[2, 4], [2, 5]], "and what is added to the whole of it leads to a new decision"


def test_a_key_names_one_request_in_its_own_scope(log: Log) -> None:
    def approve(scope: str, key_scope: str | None, note: str = "") -> Decision:
        stream, request = "command/c1", {"note": note}
        return decide(
            log,
            PROGRAM,
            looks_at=Query(stream=stream),
            stream=stream,
            by=By(key="k"),
            operation="test",
            request=request,
            rule=lambda history: [Approved(note=note)],
            scope=scope,
            key_scope=key_scope,
        )

    first = approve("acme/shop", "acme")
    assert approve("acme/cart", "acme").records == first.records
    with pytest.raises(KeyReuse):
        approve("acme/cart", "acme", note="another")
    assert not approve("acme/cart", None).replayed
    assert [(one.code, one.operation) for one in log.refusals()] == [("idempotency_key_reuse", "test")]


def test_a_rule_that_has_nothing_to_say_records_nothing(log: Log) -> None:
    assert decided(log, lambda history: []).records == ()
    assert log.head() == 0


def test_that_a_rule_had_nothing_to_say_is_remembered_as_long_as_a_key_is(log: Log) -> None:
    asked: Any = {"looks_at": [], "stream": "command/c9", "operation": "test", "request": {"n": 1}}

    def by_key(said: list[Any], **other: Any) -> Any:
        return decide(log, PROGRAM, **{**asked, **other}, by=By(key="k"), rule=lambda history: said)

    assert (by_key([]).records, by_key([PROPOSAL]).replayed) == ((), True)
    assert log.head() == 0
    with pytest.raises(KeyReuse):
        by_key([PROPOSAL], request={"n": 2})
    # Also who decided before that was remembered, and records after it.
    log.writer.record_unchanged("test", "late", {"n": 1})
    draft = Draft("agent.command.proposed", "command/c9", msgspec.to_builtins(PROPOSAL))
    receipt = log.writer.commit([draft], key="late", operation="test", request={"n": 1})
    assert (receipt.records, receipt.replayed, log.head()) == ((), True, 0)


@pytest.mark.parametrize("outcome", ["refused", "nothing"])
def test_a_request_that_an_equal_one_overtook_gets_its_answer(log: Log, outcome: str) -> None:
    """The key was free when it was looked up; then an equal request recorded what this one is refused for."""
    faster: list[Decision] = []

    def rule(history: Sequence[Recorded]) -> list[Any]:
        faster.append(decided(log, lambda history: [PROPOSAL], By(key="k")))
        if outcome == "refused":
            raise RuleRefused("taken", rule="once", tried="take it", hint="leave it")
        return []

    done = decided(log, rule, By(key="k"))
    assert (done.records, done.replayed, len(faster)) == (faster[0].records, True, 1)
    assert (log.head(), log.refusals()) == (1, [])


def test_a_refusal_under_a_free_key_stays_one_and_a_key_that_another_request_took_meanwhile_is_reused(
    log: Log,
) -> None:
    def refuse(history: Sequence[Recorded]) -> list[Any]:
        raise RuleRefused("taken", rule="once", tried="take it", hint="leave it")

    def overtaken(history: Sequence[Recorded]) -> list[Any]:
        draft = Draft("agent.command.proposed", "command/c1", msgspec.to_builtins(PROPOSAL))
        log.writer.commit([draft], key="k", operation="test", request={"another": 1})
        return refuse(history)

    with pytest.raises(RuleRefused):
        decided(log, refuse, By(key="k"))
    with pytest.raises(KeyReuse):
        decided(log, overtaken, By(key="k"))
    assert [one.code for one in log.refusals()] == ["idempotency_key_reuse", "rule_refused"]


def test_a_decision_after_a_purge_of_its_stream_is_possible(log: Log) -> None:
    decided(log, lambda history: [PROPOSAL])
    log.purge("command/c1", reason="a test")
    assert decided(log, lambda history: [PROPOSAL] if not history else []).records[0].sequence == 2


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_a_decision_is_made_again_when_what_it_read_was_purged(kind: str, tmp_path: Path) -> None:
    place = f"{kind}:{tmp_path / 'two'}"
    with everlog.open(place, actor="user:ada") as log, everlog.open(place, actor="user:root") as other:
        decided(log, lambda history: [PROPOSAL])
        seen: list[int] = []

        def rule(history: Sequence[Recorded]) -> list[Any]:
            seen.append(len(history))
            if len(seen) == 1:
                other.purge("command/c1", reason="a test")
            return [Approved(note="")] if history else []

        assert decided(log, rule).records == ()
        assert (seen, list(log.read())) == ([1, 0], [])


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("more", [0, 3], ids=["shorter", "longer"])
def test_a_decision_is_made_again_when_another_branch_is_checked_out(tmp_path: Path, more: int) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    with everlog.open(f"jsonl:{tmp_path / 'log'}", actor="user:ada") as log:

        def propose_and_commit(*names: str) -> None:
            for name in names:
                perform(log, replace(ASKED, id=name))
            git(tmp_path, "add", "-A")
            git(tmp_path, "commit", "-q", "--allow-empty", "-m", "events")

        propose_and_commit("c0")
        git(tmp_path, "checkout", "-q", "-b", "side")
        propose_and_commit(*[f"other{number}" for number in range(more)])
        git(tmp_path, "checkout", "-q", "main")
        propose_and_commit("c1")
        seen: list[int] = []

        def rule(history: Sequence[Recorded]) -> list[Any]:
            seen.append(len(history))
            git(tmp_path, "checkout", "-q", "side")
            return [Approved(note="")] if history else []

        assert decided(log, rule).records == ()
        assert (seen, log.head()) == ([1, 0], 1 + more)


def test_of_many_who_decide_at_once_only_one_gets_what_can_be_had_once(log: Log) -> None:
    outcomes: list[str] = []

    def rule(history: Sequence[Recorded]) -> list[Any]:
        if history:
            raise RuleRefused("taken", rule="once", tried="take it", hint="leave it")
        return [PROPOSAL]

    def take() -> None:
        try:
            decided(log, rule)
            outcomes.append("got it")
        except RuleRefused:
            outcomes.append("refused")

    at_once(*[take] * 8)
    assert sorted(outcomes) == ["got it"] + ["refused"] * 7
    assert log.head() == 1


def test_what_a_rule_looked_at_further_must_not_have_changed_either(log: Log) -> None:
    perform(log, replace(ASKED, id="c1"))
    seen: list[tuple[int, int]] = []

    def rule(history: History) -> list[Any]:
        others = history.also(Query(stream="command/c2"))
        seen.append((len(history), len(others)))
        if len(seen) == 1:
            perform(log, replace(ASKED, id="c2"))
            perform(log, replace(ASKED, id="c3"))
        return [Approved(note="")]

    decided(log, rule)
    assert seen == [(1, 0), (1, 1)]


def test_a_mistake_that_the_same_actor_repeats_is_told_as_one(log: Log) -> None:
    def refused(actor: str, rule: str = "once", requested: str = "done", dry_run: bool = False) -> dict[str, Any]:
        def say_no(history: History) -> list[Any]:
            raise RuleRefused("no", rule=rule, tried="it", hint="leave it", requested_status=requested)

        with pytest.raises(RuleRefused) as error:
            decided(log, say_no, By(actor=actor, dry_run=dry_run))
        return error.value.details

    assert "refused_before" not in refused("user:ada")
    assert refused("user:ada", dry_run=True)["refused_before"] == 1
    again = refused("user:ada")
    assert again["refused_before"] == 1
    assert again["refused_last"] == log.refusals()[1].refused_at.isoformat(timespec="seconds")
    assert refused("user:ada")["refused_before"] == 2
    assert "refused_before" not in refused("user:bob")
    assert "refused_before" not in refused("user:ada", rule="another")
    assert "refused_before" not in refused("user:ada", requested="planned")


@pytest.mark.parametrize("by", [By(key="k"), By()])
@pytest.mark.parametrize("scope", ["\ud800", "a\0b", "no scope!"])
def test_a_scope_that_no_event_can_have_is_refused_with_a_key_and_without(log: Log, by: By, scope: str) -> None:
    with pytest.raises(InvalidField):
        perform(log, replace(ASKED, scope=scope), by)
    assert log.head() == 0
