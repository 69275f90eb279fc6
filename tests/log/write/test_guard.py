"""Guards: the rules of a program hold for every local writer of its types, and for nobody else."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.stores.jsonl.test_checkouts import git

from everlog import aio
from everlog.core.query import Query
from everlog.errors import InvalidField, RejectedEvent
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.log.write.guard import DecisionHistory, Guard
from everlog.testing.builders import Chain

LIMIT = 3


class TooMany(RejectedEvent):
    code = "too_many"


class Counting:
    """A made-up program: at most three `thing.said` per stream, and never by `user:eve`."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.actors: list[str] = []
        self.judged = 0
        self.while_judging: Callable[[], object] = lambda: None

    def __call__(self, event_type: str) -> Guard | None:
        self.asked.append(event_type)
        return Guard(self.looks_at, self.judge) if event_type == "thing.said" else None

    def looks_at(self, draft: Draft) -> Query:
        return Query(stream=draft.stream, types=frozenset(["thing.said"]))

    def judge(self, history: DecisionHistory, earlier: Sequence[Draft], draft: Draft) -> None:
        self.judged += 1
        self.actors.append(draft.actor)
        count = len(history) + sum(one.type == draft.type and one.stream == draft.stream for one in earlier)
        after, self.while_judging = self.while_judging, lambda: None
        after()
        if draft.actor == "user:eve" or count >= LIMIT:
            raise TooMany(f"{draft.stream} has {count} of {LIMIT}", why="the rule of the test", hint="none")


@pytest.fixture
def guards() -> Counting:
    return Counting()


@pytest.fixture
def guarded(kind: str, make_log: Callable[..., Log], guards: Counting) -> Log:
    return make_log(kind, guards=guards)


def say(log: Log, stream: str = "thing/1", **more: object) -> None:
    log.append("thing.said", stream=stream, payload={"value": "a"}, **more)  # type: ignore[arg-type]


async def say_in_a_task(log: Log) -> None:
    await aio.append(log, "thing.said", stream="thing/1", payload={"value": "a"})


WRITERS: dict[str, Callable[[Log], object]] = {
    "append": say,
    "append_batch": lambda log: log.append_batch([Draft("thing.said", "thing/1", {"value": "a"})]),
    "commit": lambda log: log.writer.commit([Draft("thing.said", "thing/1", {"value": "a"})]),
    "aio": lambda log: asyncio.run(say_in_a_task(log)),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_rule_holds_for_every_local_writer(guarded: Log, writer: str) -> None:
    write = WRITERS[writer]
    for _ in range(LIMIT):
        write(guarded)
    with pytest.raises(TooMany):
        write(guarded)
    assert guarded.head() == LIMIT
    (refused,) = guarded.refusals()
    assert (refused.code, refused.stream) == ("too_many", "thing/1")


def test_earlier_drafts_of_a_batch_count_and_the_first_refusal_ends_it(guarded: Log, guards: Counting) -> None:
    drafts = [Draft("thing.said", "thing/1", {"value": number}) for number in range(LIMIT + 3)]
    with pytest.raises(TooMany):
        guarded.append_batch(drafts)
    assert (guarded.head(), guards.judged) == (0, LIMIT + 1)
    assert len(guarded.append_batch(drafts[:LIMIT])) == LIMIT


def test_a_type_that_no_program_owns_is_not_judged(guarded: Log, guards: Counting) -> None:
    for _ in range(LIMIT + 1):
        guarded.append("note.added", stream="note/1", payload={"text": "a"})
    assert guards.judged == 0


def test_a_guard_sees_the_actor_that_is_recorded(make_log: Callable[..., Log], guards: Counting) -> None:
    log = make_log(guards=guards, actor="user:eve")
    with pytest.raises(TooMany):
        say(log)
    say(log, actor="user:ada")
    assert guards.actors == ["user:eve", "user:ada"]


def test_validation_comes_before_the_guard(guarded: Log, guards: Counting) -> None:
    with pytest.raises(InvalidField):
        guarded.append(["thing.said"], stream="thing/1")  # type: ignore[arg-type]
    with pytest.raises(InvalidField):
        guarded.append("thing.said", stream="no stream", payload={"value": "a"})
    with pytest.raises(InvalidField):
        asyncio.run(aio.append(guarded, ["thing.said"], stream="thing/1"))  # type: ignore[arg-type]
    assert guards.judged == 0


def test_what_was_decided_by_the_rule_is_not_judged_again(guarded: Log, guards: Counting) -> None:
    guarded.writer.commit([Draft("thing.said", "thing/1", {"value": "a"}, actor="user:eve")], decided=True)
    assert (guarded.head(), guards.judged) == (1, 0)


def test_events_from_elsewhere_are_not_judged(guarded: Log, guards: Counting) -> None:
    chain = Chain()
    guarded.admit([chain.next(type="thing.said", stream="thing/1", actor="user:eve").event for _ in range(LIMIT + 1)])
    assert (guarded.head(), guards.judged) == (LIMIT + 1, 0)


def test_a_replay_is_answered_although_the_rule_would_refuse_it_now(guarded: Log) -> None:
    first = guarded.append("thing.said", stream="thing/1", payload={"value": "a"}, key="k")
    for _ in range(LIMIT - 1):
        say(guarded)
    assert guarded.append("thing.said", stream="thing/1", payload={"value": "a"}, key="k") == first
    again = guarded.append("thing.said", stream="thing/1", payload={"value": "a"}, id=first.event.id)
    assert again == first
    with pytest.raises(TooMany):
        say(guarded, key="another")
    assert guarded.head() == LIMIT


def test_what_was_recorded_after_the_guard_has_read_is_judged_again(guarded: Log, guards: Counting) -> None:
    say(guarded)
    say(guarded)
    guards.while_judging = lambda: say(guarded)  # somebody else takes the last place
    with pytest.raises(TooMany):
        say(guarded)
    assert guarded.head() == LIMIT
    (refused,) = guarded.refusals()
    assert refused.code == "too_many"


def test_a_dry_run_is_judged_and_leaves_nothing(guarded: Log) -> None:
    say(guarded, dry_run=True)
    with pytest.raises(TooMany):
        say(guarded, dry_run=True, actor="user:eve")
    assert (guarded.head(), guarded.refusals()) == (0, [])


def test_exactly_the_allowed_events_are_recorded_when_writers_race(guarded: Log) -> None:
    refused: list[str] = []

    def race(number: int) -> None:
        for stream in range(20):
            try:
                say(guarded, f"thing/{stream}")
            except TooMany as error:
                refused.append(error.code)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (guarded.head(), len(refused)) == (20 * LIMIT, 20 * (6 - LIMIT))
    assert guarded.verify().ok


def test_tasks_that_race_record_exactly_the_allowed_events(guarded: Log) -> None:
    async def race() -> list[object]:
        return await asyncio.gather(*(say_in_a_task(guarded) for _ in range(12)), return_exceptions=True)

    outcomes = asyncio.run(race())
    assert sum(isinstance(outcome, TooMany) for outcome in outcomes) == 12 - LIMIT
    assert guarded.head() == LIMIT


# ---- a history that is gone


class Allowing(Counting):
    """Another made-up program: `thing.said` needs a `note.added` in its stream."""

    def looks_at(self, draft: Draft) -> Query:
        return Query(stream=draft.stream, types=frozenset(["note.added"]))

    def judge(self, history: DecisionHistory, earlier: Sequence[Draft], draft: Draft) -> None:
        self.judged += 1
        after, self.while_judging = self.while_judging, lambda: None
        after()
        if not history:
            raise TooMany(f"{draft.stream} is not allowed", why="the rule of the test", hint="none")


def allow(log: Log, stream: str = "thing/1") -> None:
    log.append("note.added", stream=stream, payload={"text": "allowed"})


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_what_was_purged_after_the_guard_has_read_is_judged_again(
    kind: str, make_log: Callable[..., Log], tmp_path: Path, writer: str
) -> None:
    guards = Allowing()
    log, other = make_log(kind, tmp_path / "log", guards=guards), make_log(kind, tmp_path / "log")
    allow(log)
    guards.while_judging = lambda: other.purge("thing/1", reason="test")
    with pytest.raises(TooMany):
        WRITERS[writer](log)
    assert (list(log.read()), guards.judged) == ([], 2)


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_a_purge_of_another_stream_does_not_disturb(kind: str, make_log: Callable[..., Log], tmp_path: Path) -> None:
    guards = Allowing()
    log, other = make_log(kind, tmp_path / "log", guards=guards), make_log(kind, tmp_path / "log")
    allow(log)
    allow(log, "thing/2")
    guards.while_judging = lambda: other.purge("thing/2", reason="test")
    say(log)
    assert guards.judged == 1


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("more", [0, 2], ids=["shorter", "longer"])
def test_what_was_judged_on_another_branch_is_judged_again(
    make_log: Callable[..., Log], tmp_path: Path, more: int
) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    guards = Allowing()
    log = make_log("jsonl", tmp_path / "log", guards=guards)

    def allow_and_commit(*streams: str) -> None:
        for stream in streams:
            allow(log, stream)
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", "events")

    allow_and_commit("thing/9")
    git(tmp_path, "checkout", "-q", "-b", "side")
    allow_and_commit(*[f"thing/{5 + number}" for number in range(more)])
    git(tmp_path, "checkout", "-q", "main")
    allow_and_commit("thing/1")
    guards.while_judging = lambda: git(tmp_path, "checkout", "-q", "side")
    with pytest.raises(TooMany):
        say(log)
    assert (log.head(), guards.judged) == (1 + more, 2)
