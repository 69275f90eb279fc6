"""One request, one key, many who send it at the same moment: one of them records it, and all get the same answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
from tests.at_once import at_once
from tests.programs.story import lines, typed
from tests.racing import Answered, Racers

import everlog
from everlog import aio
from everlog.cli.main import cli
from everlog.core.codec import recorded_object
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.log.write.expect import Expect
from everlog.programs.command import By
from everlog.programs.issues.commands import Create as NewIssue
from everlog.programs.perform import perform
from everlog.programs.workpackages.commands import Create, Move

PROGRAMS = ("agent", "community", "control", "issue", "wp")


def test_every_command_that_takes_a_key_is_in_the_story() -> None:
    def paths(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if isinstance(command, click.Group):
            for name, below in command.commands.items():
                yield from paths(below, (*path, name))
        elif any(parameter.name == "key" for parameter in command.params):
            yield path

    context = click.Context(cli)
    groups = [(name, cli.get_command(context, name)) for name in PROGRAMS]
    known = {path for name, group in groups if group is not None for path in paths(group, (name,))}
    assert len(known) > 50
    told = [tuple(words) for _, words in lines()]
    needs_a_fork = {("community", "branch")}  # the log of a story has one key, which signs every number once
    assert {path for path in known if not any(words[: len(path)] == path for words in told)} == needs_a_fork


@pytest.mark.parametrize("store", ["sqlite", "jsonl"])
def test_every_command_gives_all_who_send_it_at_once_the_same_answer(
    store: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    if store != "sqlite" and not pytestconfig.getoption("--full"):
        pytest.skip("long form: ./everlog test --full; the short form tells the story to sqlite")
    with Racers(tmp_path, 4 if pytestconfig.getoption("--full") else 3) as racers:
        assert racers.alone("init", "--store", f"{store}:log").code == 0
        kept: dict[str, str] = {}
        head = 0
        for number, (name, words) in enumerate(lines()):
            said = typed(words, kept)
            answers = racers.race(*said, "--key", f"k{number}", "--json")
            if said[:2] == ["issue", "purge"]:
                answers = [without_warnings(answer) for answer in answers]
            data = same(answers, said)
            if isinstance(data, dict):
                assert data["status"] == "recorded", said
                head += len(data["events"])
                assert [event["position"] for event in data["events"]] == list(
                    range(head - len(data["events"]) + 1, head + 1)
                ), said
                if name:
                    kept[name] = str(next(iter(data.values())))
            else:  # what was due
                head += len(data)
            if said[:2] == ["issue", "purge"]:
                head += 1  # its own position
            again = racers.alone(*said, "--key", f"k{number}", "--json")
            assert without_warnings(again) == without_warnings(answers[0]), said
        last = racers.alone("log", "-n", "1", "--json")
        assert json.loads(last.out)["data"][0]["position"] == head
        found = racers.alone("errors", "--json")
        assert json.loads(found.out)["data"] == [] or {one["code"] for one in json.loads(found.out)["data"]} == {
            "query_matched"
        }


def without_warnings(answer: Answered) -> Answered:
    """The answer alone: who purges is warned of a program that still holds the old bytes open; the others are not."""
    found = json.loads(answer.out)
    return answer._replace(out=json.dumps({**found, "warnings": []}))


def same(answers: list[Answered], said: Any) -> Any:
    """The one answer that all got."""
    assert {answer.code for answer in answers} == {0}, (said, [answer.err for answer in answers if answer.code])
    assert len(set(answers)) == 1, said
    return json.loads(answers[0].out)["data"]


# ---- many rounds of few commands


@pytest.mark.parametrize("store", ["sqlite", "jsonl", "postgres"])
def test_eight_processes_with_one_key_get_one_answer_and_record_one_event(
    store: str, tmp_path: Path, pytestconfig: pytest.Config, request: pytest.FixtureRequest
) -> None:
    rounds = 20 if pytestconfig.getoption("--full") else 3
    url = request.getfixturevalue("postgres_url") if store == "postgres" else f"{store}:log"
    with Racers(tmp_path, 8) as racers:
        assert racers.alone("init", "--store", url).code == 0
        head = 0
        for number in range(rounds):
            wanted = (
                ("issue", "create", f"{chr(97 + number) * 9} {number * 7919}"),
                ("wp", "create", f"WP{number}", "A package"),
                ("wp", "move", f"WP{number}", "doing"),
                ("append", "note.added", "-s", f"note/{number}", "topic=b", "text=x", "--expect", "none"),
            )
            for command in wanted:
                answers = racers.race(*command, "--key", f"k{number}", "--json")
                same(answers, command)
                head += 1
        found = json.loads(racers.alone("log", "-n", "1000", "--json").out)["data"]
        assert len(found) == head
        # Other content under a key that is taken: nobody gets through, whoever is faster.
        titles = [f"quite another title {word}" for word in ("a", "b", "c", "d", "e", "f", "g", "h")]
        lost = racers.race_each([("issue", "create", title, "--key", "k0", "--json") for title in titles])
        assert {json.loads(answer.err)["error"]["code"] for answer in lost} == {"idempotency_key_reuse"}
        # And under a new one: one gets through, and all others are refused for the key, not for what they say.
        new = [("wp", "create", f"NEW{index}", "x", "--key", "new", "--json") for index in range(8)]
        codes = [answer.code for answer in racers.race_each(new)]
        assert sorted(codes) == [0, 5, 5, 5, 5, 5, 5, 5]


MANY = 8


def of_threads(work: Callable[[], Any]) -> list[Any]:
    found: list[Any] = []
    at_once(*[lambda: found.append(work())] * MANY)
    return found


def of_tasks(work: Callable[[], Any]) -> list[Any]:
    async def all_of_them() -> list[Any]:
        return list(await asyncio.gather(*(asyncio.to_thread(work) for _ in range(MANY))))

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("who", [of_threads, of_tasks], ids=["threads", "tasks"])
@pytest.mark.parametrize("store", ["segments", "sqlite", "memory"])
def test_threads_and_tasks_of_one_process_get_one_answer(
    store: str, who: Callable[[Callable[[], Any]], list[Any]], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    rounds = 20 if pytestconfig.getoption("--full") else 4
    url = "memory:" if store == "memory" else f"{store}:{tmp_path / 'log'}"
    with everlog.open(url, actor="user:ada") as log:
        for number in range(rounds):
            key = By(key=f"k{number}")
            package = Create(id=f"WP{number}", title="x")
            works: list[Callable[[], Any]] = [
                partial(perform, log, NewIssue(title=f"{chr(97 + number) * 9} {number * 7919}"), key),
                partial(perform, log, package, key),
                partial(perform, log, Move(id=f"WP{number}", to="doing"), key),
            ]
            for work in works:
                before = log.head()
                answers = who(work)
                assert len({_content(answer) for answer in answers}) == 1
                assert log.head() == before + 1
                assert sum(not answer.replayed for answer in answers) == 1


def _content(outcome: Any) -> str:
    """Everything in an outcome except which of them was the first."""
    facts = {
        name: getattr(outcome, name) for name in outcome.__struct_fields__ if name not in ("replayed", "records")
    }
    records = [recorded_object(one) for one in outcome.records]
    return json.dumps([facts, records], sort_keys=True, default=repr)


@pytest.mark.parametrize("store", ["segments", "sqlite"])
def test_tasks_that_append_with_one_key_get_one_record(store: str, tmp_path: Path) -> None:
    async def race(log: Log, number: int) -> list[Any]:
        drafts = [Draft("note.added", f"note/{number}", {"text": "x"}, expect=Expect.NONE)]
        return list(await asyncio.gather(*(aio.commit(log, drafts, key=f"k{number}") for _ in range(MANY))))

    with everlog.open(f"{store}:{tmp_path / 'log'}", actor="user:ada") as log:
        for number in range(20):
            receipts = asyncio.run(race(log, number))
            assert all(receipt.records == receipts[0].records for receipt in receipts)
            assert log.head() == number + 1
