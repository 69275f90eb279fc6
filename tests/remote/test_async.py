"""The client for asyncio: the same requests and answers, moved by tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest
from tests.remote.serving import Filed, Served, catalog

import everlog
from everlog import By, Draft, Expect, Query, Recorded, Reset
from everlog.aio import AsyncRemoteLog
from everlog.programs.agents import commands, questions

Use = Callable[[AsyncRemoteLog], Awaitable[Any]]


@pytest.fixture
def run(behind: Served) -> Callable[[Use], Any]:
    """Run a coroutine with a client."""
    token = behind.token()

    def run_with(use: Use) -> Any:
        async def main() -> Any:
            async with everlog.aio.connect(behind.url, token=token, catalog=catalog) as log, asyncio.timeout(60):
                return await use(log)

        return asyncio.run(main())

    return run_with


async def note(log: AsyncRemoteLog, number: int = 1, **given: Any) -> Recorded:
    return await log.append("note.added", stream=f"note/{number}", payload={"text": "hello"}, **given)


def test_what_is_appended_is_read(behind: Served, run: Callable[[Use], Any]) -> None:
    async def use(log: AsyncRemoteLog) -> None:
        made = await note(log, expect=Expect.NONE, key="k")
        assert await note(log, expect=Expect.NONE, key="k") == made
        assert await log.get(made.event.id) == await log.get(1) == made
        assert await log.get(9) is None
        await log.append_batch([Draft("note.added", "note/2", {"text": "a"})] * 2)
        assert [one.position async for one in log.read()] == [1, 2, 3]
        assert [one.position async for one in log.read(stream="note/2", newest_first=True)] == [3, 2]
        assert await log.head() == 3
        page = await log.page_after(1, Query(stream="note/2"), limit=1)
        assert [one.position for one in page.events] == [2]
        with pytest.raises(everlog.errors.WrongSequence) as caught:
            await note(log, expect=7)
        assert caught.value.details == {"stream": "note/1", "expected": "7", "actual": 1}

    run(use)
    assert behind.log.head() == 3


def test_many_tasks_share_a_client(behind: Served, run: Callable[[Use], Any]) -> None:
    async def use(log: AsyncRemoteLog) -> None:
        made = await asyncio.gather(*(note(log, number) for number in range(40)))
        assert sorted(one.position for one in made) == list(range(1, 41))

    run(use)


def test_typed_payloads(run: Callable[[Use], Any]) -> None:
    async def use(log: AsyncRemoteLog) -> None:
        await log.append(Filed(amount=2.5), stream="expense/1")
        await note(log)
        assert [one.payload async for one in log.read_typed(Filed)] == [Filed(amount=2.5)]

    run(use)


def test_a_subscription_goes_on_until_its_task_is_done_with_it(run: Callable[[Use], Any]) -> None:
    async def use(log: AsyncRemoteLog) -> None:
        await note(log, 1)
        await note(log, 2)
        assert [one.position async for one in log.subscribe(to_end=True) if isinstance(one, Recorded)] == [1, 2]
        seen: list[Recorded | Reset] = []

        async def write() -> None:
            await asyncio.sleep(0.2)
            await note(log, 3)

        writing = asyncio.create_task(write())
        async with aclosing(log.subscribe()) as following:  # type: ignore[type-var]
            async for item in following:
                seen.append(item)
                if len(seen) == 3:
                    break
        await writing
        assert [one.position for one in seen if isinstance(one, Recorded)] == [1, 2, 3]

    run(use)


def test_a_purge_resets_a_subscription(behind: Served, run: Callable[[Use], Any]) -> None:
    async def use(log: AsyncRemoteLog) -> None:
        await note(log, 1)
        cursor = (await log.page_after(0)).next_cursor
        async with aclosing(log.subscribe(cursor)) as following:  # type: ignore[type-var]
            waiting: asyncio.Task[Any] = asyncio.create_task(anext(following))  # type: ignore[arg-type]
            await asyncio.sleep(0.2)
            await asyncio.to_thread(behind.log.purge, "note/1", reason="test")
            assert (await waiting).reason == "purged"

    run(use)


def test_commands_and_questions(run: Callable[[Use], Any]) -> None:
    async def use(log: AsyncRemoteLog) -> None:
        propose = commands.Propose(id="c1", agent_id="builder", tool_name="pytest")
        outcome = await log.perform(propose, By(key="k"))
        again = await log.perform(propose, By(key="k"))
        assert (outcome.result, again.result) == (commands.CommandResult(id="c1", status="pending"),) * 2
        assert again.replayed
        assert [one["id"] for one in await log.ask(questions.List(pending=True))] == ["c1"]

    run(use)


def test_a_closed_client_says_so(run: Callable[[Use], Any]) -> None:
    async def use(log: AsyncRemoteLog) -> None:
        await log.close()
        with pytest.raises(everlog.errors.LogClosed):
            await log.head()
        with pytest.raises(everlog.errors.LogClosed):
            await anext(log.subscribe())

    run(use)
