"""Consumers that are tasks."""

from __future__ import annotations

import asyncio

import pytest

import everlog
from everlog import aio
from everlog.consumers import Delivery, Group
from everlog.errors import LeaseLost, LogClosed
from everlog.log.log import Log


def test_tasks_share_a_member_and_keep_each_key_in_order(any_log: Log) -> None:
    async def main() -> list[tuple[str, int]]:
        for number in range(40):
            await aio.append(any_log, "note.added", stream=f"note/{number % 8}", payload={"text": "x"})
        seen: list[tuple[str, int]] = []
        busy: set[str] = set()
        member = Group(any_log, "mailer", partitions=4).member("a", in_flight=6)

        async def handle(delivery: Delivery) -> None:
            assert delivery.key not in busy
            busy.add(delivery.key)
            await asyncio.sleep(0.001)
            busy.discard(delivery.key)
            seen.append((delivery.key, delivery.position))
            await aio.ack(delivery)

        async with asyncio.TaskGroup() as tasks:
            async for delivery in aio.consume(member, to_end=True):
                tasks.create_task(handle(delivery))
        await aio.leave(member)
        return seen

    seen = asyncio.run(main())
    assert sorted(position for _, position in seen) == list(range(1, 41))
    for key in {key for key, _ in seen}:
        own = [position for other, position in seen if other == key]
        assert own == sorted(own)


def test_a_task_that_fails_an_event_gets_it_again(memory_log: Log) -> None:
    async def main() -> list[int]:
        await aio.append(memory_log, "note.added", stream="note/1", payload={"text": "x"})
        member = Group(memory_log, "mailer", partitions=1).member("a")
        attempts = []
        async for delivery in aio.consume(member, to_end=True):
            attempts.append(delivery.attempt)
            if delivery.attempt < 3:
                await aio.nack(delivery, "not yet", retry_in_s=0.01)
            else:
                await aio.ack(delivery)
        await aio.leave(member)
        with pytest.raises(LeaseLost):
            await aio.nack(delivery, "after the end")
        return attempts

    assert asyncio.run(main()) == [1, 2, 3]


def test_a_task_that_waits_is_woken_by_an_append_and_let_go_by_leaving(memory_log: Log) -> None:
    async def main() -> int:
        member = Group(memory_log, "mailer", partitions=2).member("a")

        async def follow() -> int:
            count = 0
            async for delivery in aio.consume(member):
                await aio.ack(delivery)
                count += 1
                if count == 2:
                    await aio.leave(member)
            return count

        task = asyncio.create_task(follow())
        await asyncio.sleep(0.05)
        for _ in range(2):
            await aio.append(memory_log, "note.added", stream="note/1", payload={"text": "x"})
        async with asyncio.timeout(5):
            return await task

    assert asyncio.run(main()) == 2


def test_closing_the_log_does_not_pass_for_its_end() -> None:
    async def main() -> None:
        log = everlog.open("memory:")
        for number in range(3):
            await aio.append(log, "note.added", stream=f"note/{number}", payload={"text": "x"})
        deliveries = aio.consume(Group(log, "mailer").member("a"), to_end=True)
        await aio.ack(await anext(deliveries))
        log.close()
        with pytest.raises(LogClosed):
            assert [delivery async for delivery in deliveries] == []

    asyncio.run(main())
