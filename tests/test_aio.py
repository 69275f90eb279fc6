"""The log for asyncio: the same rules, without a thread for every task."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import everlog
from everlog import aio
from everlog.core.event import Recorded
from everlog.core.query import Query, Reset
from everlog.errors import InvalidPayload, KeyReuse, LogClosed, StorageFull, UnknownType, WrongSequence
from everlog.log.log import Log
from everlog.log.write.draft import Draft

PATIENCE_S = 20


def run(coroutine: Any) -> Any:
    """Run to the end, but never for ever; a task that suppresses the end of our patience is found by the clock."""
    begun = time.monotonic()
    result = asyncio.run(asyncio.wait_for(coroutine, PATIENCE_S))
    assert time.monotonic() - begun < PATIENCE_S
    return result


async def say(log: Log, value: Any = None, stream: str = "thing/1", **fields: Any) -> Recorded:
    return await aio.append(log, "thing.said", stream=stream, payload={"value": value}, **fields)


def test_sixty_four_tasks_append_and_all_is_recorded(log: Log) -> None:
    async def main() -> list[Recorded]:
        return await asyncio.gather(*[say(log, number, f"thing/{number % 5}") for number in range(64)])

    records = run(main())
    assert sorted(recorded.position for recorded in records) == list(range(1, 65))
    assert {recorded.event.id: recorded for recorded in records} == {found.event.id: found for found in log.read()}
    assert log.verify().ok


def test_tasks_share_flushes(make_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch) -> None:
    log = make_log("memory")
    writes: list[int] = []
    persist = log._store._persist  # type: ignore[attr-defined]

    def counted(staged: Any) -> None:
        writes.append(len(staged.records))
        persist(staged)

    monkeypatch.setattr(log._store, "_persist", counted)

    async def main() -> None:
        await asyncio.gather(*[say(log) for _ in range(200)])

    run(main())
    assert sum(writes) == 200
    assert len(writes) <= 20


def test_tasks_and_threads_append_side_by_side(kind: str, make_log: Callable[..., Log]) -> None:
    with make_log(kind) as log:
        threads = [
            threading.Thread(target=lambda: [log.append("thing.said", stream="thing/t") for _ in range(50)])
            for _ in range(4)
        ]

        async def main() -> None:
            for thread in threads:
                thread.start()
            for _ in range(5):
                await asyncio.gather(*[say(log, stream="thing/a") for _ in range(20)])

        run(main())
        for thread in threads:
            thread.join()
        assert log.head() == 300
        for stream, count in (("thing/t", 200), ("thing/a", 100)):
            assert [found.sequence for found in log.read(stream=stream)] == list(range(1, count + 1))
        assert log.verify().ok


def test_two_loops_in_two_threads_use_one_log(log: Log) -> None:
    def loop_of_its_own() -> None:
        async def main() -> None:
            await asyncio.gather(*[say(log) for _ in range(30)])

        run(main())

    threads = [threading.Thread(target=loop_of_its_own) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert log.head() == 90


def test_one_tasks_mistake_is_its_own_and_is_remembered(log: Log) -> None:
    async def main() -> tuple[Any, ...]:
        return await asyncio.gather(
            say(log, 1),
            aio.append(log, "no.such", stream="thing/1"),
            say(log, 2, expect=99),
            aio.append(log, "note.added", stream="note/1", payload={}),
            say(log, 3),
            return_exceptions=True,
        )

    first, unknown, wrong, invalid, last = run(main())
    assert isinstance(first, Recorded)
    assert isinstance(last, Recorded)
    assert isinstance(unknown, UnknownType)
    assert isinstance(wrong, WrongSequence)
    assert isinstance(invalid, InvalidPayload)
    assert log.head() == 2
    assert {(refusal.code, refusal.operation) for refusal in log.refusals()} == {
        ("unknown_type", "no.such"),
        ("wrong_sequence", "thing.said"),
        ("invalid_payload", "note.added"),
    }


def test_a_batch_is_all_or_nothing_and_a_key_makes_it_repeatable(log: Log) -> None:
    """G2, F82."""
    drafts = [Draft(type="thing.said", stream=f"thing/{number}") for number in range(3)]

    async def main() -> None:
        first = await aio.append_batch(log, drafts, key="k")
        assert await aio.append_batch(log, drafts, key="k") == first
        with pytest.raises(KeyReuse):
            await aio.append_batch(log, drafts[:2], key="k")
        with pytest.raises(WrongSequence):
            await aio.append_batch(log, [*drafts, Draft(type="thing.said", stream="thing/0", expect=9)])
        receipts = await asyncio.gather(*[aio.commit(log, drafts[:1], key="same", response=7) for _ in range(20)])
        assert len({receipt.records[0].event.id for receipt in receipts}) == 1
        assert sum(not receipt.replayed for receipt in receipts) == 1
        assert {receipt.response for receipt in receipts} == {7}

    run(main())
    assert log.head() == 4


def test_changing_the_tags_after_asking_changes_nothing(log: Log) -> None:
    """Between the request and its commit the caller's own code runs."""

    async def main() -> Recorded:
        tags = {"team": "a"}
        asked = asyncio.create_task(say(log, tags=tags))
        await asyncio.sleep(0)
        tags["Not A Tag"] = "\x00"
        return await asked

    assert dict(run(main()).event.tags) == {"team": "a"}
    assert dict(next(log.read()).event.tags) == {"team": "a"}


def test_cancelling_leaves_the_log_consistent(kind: str, make_log: Callable[..., Log]) -> None:
    """What was submitted may or may not be there, as after any lost answer; nothing is half there."""
    with make_log(kind) as log:

        async def main() -> int:
            answered = 0
            for turn in range(20):
                tasks = [asyncio.create_task(say(log, turn)) for _ in range(8)]
                for _ in range(turn % 4):
                    await asyncio.sleep(0)
                for task in tasks[::2]:
                    task.cancel()
                for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                    if isinstance(outcome, Recorded):
                        answered += 1
                    else:
                        assert isinstance(outcome, asyncio.CancelledError)
            await say(log, "after")
            return answered

        answered = run(main())
        assert answered >= 80
        assert answered + 1 <= log.head() <= 161
        assert log.verify().ok


def test_trouble_of_the_store_reaches_every_task(
    make_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make_log("memory")

    def fail(staged: object) -> None:
        raise StorageFull("the disk is full")

    async def main() -> list[Any]:
        return await asyncio.gather(*[say(log) for _ in range(10)], return_exceptions=True)

    with monkeypatch.context() as broken:
        broken.setattr(log._store, "_persist", fail)
        outcomes = run(main())
    assert [type(outcome) for outcome in outcomes] == [StorageFull] * 10
    assert log.head() == 0
    run(say(log))


def test_a_closed_log_says_so(log: Log) -> None:
    log.close()

    async def main() -> None:
        with pytest.raises(LogClosed):
            await say(log)
        with pytest.raises(LogClosed):
            await aio.page_after(log)
        with pytest.raises(LogClosed):
            await anext(aiter(aio.subscribe(log)))

    run(main())


def test_a_loop_that_ended_is_not_kept(make_log: Callable[..., Log]) -> None:
    log = make_log("memory")
    loops: list[weakref.ref[Any]] = []

    async def main() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await say(log)

    for _ in range(3):
        run(main())
    gc.collect()
    assert [loop() for loop in loops] == [None] * 3


def test_a_loop_that_closed_before_its_answer_holds_nobody_up(make_log: Callable[..., Log]) -> None:
    log = make_log("memory")
    held, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        with log._store.open_write():
            held.set()
            go_on.wait(PATIENCE_S)

    holder = threading.Thread(target=slow)
    holder.start()
    assert held.wait(PATIENCE_S)

    async def main() -> None:
        task = asyncio.create_task(say(log))
        await asyncio.sleep(0.05)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    run(main())  # its loop is closed now, its work is still waiting
    go_on.set()
    holder.join()
    assert log.append("thing.said", stream="thing/1").position == 2


# ---- following


def test_history_and_news_are_one_stream_without_a_seam(kind: str, make_log: Callable[..., Log]) -> None:
    """G7, F26: four threads append while readers catch up and go live."""
    with make_log(kind) as log:
        for _ in range(50):
            log.append("thing.said", stream="thing/1")
        writers = [
            threading.Thread(target=lambda: [log.append("thing.said", stream="thing/1") for _ in range(50)])
            for _ in range(4)
        ]

        async def reader(after: int) -> list[int]:
            heard: list[int] = []
            async for item in aio.subscribe(log, after):
                assert isinstance(item, Recorded)
                heard.append(item.position)
                if item.position == 250:
                    break
            return heard

        async def main() -> list[list[int]]:
            readers = [asyncio.create_task(reader(after)) for after in (0, 25, 50)]
            await asyncio.sleep(0.01)
            for writer in writers:
                writer.start()
            return await asyncio.gather(*readers)

        heard = run(main())
        for writer in writers:
            writer.join()
        for positions, after in zip(heard, (0, 25, 50), strict=True):
            assert positions == list(range(after + 1, 251))


def test_cancelled_readers_lose_nothing_when_they_come_back(log: Log) -> None:
    """They keep a cursor; what they had not taken is still there."""

    async def main() -> list[int]:
        heard: list[int] = []

        async def reader() -> None:
            async for item in aio.subscribe(log, heard[-1] if heard else 0):
                assert isinstance(item, Recorded)
                heard.append(item.position)
                await asyncio.sleep(0)

        for turn in range(10):
            task = asyncio.create_task(reader())
            await asyncio.gather(*[say(log) for _ in range(10)])
            if turn < 9:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        while len(heard) < 100:
            await asyncio.sleep(0.01)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return heard

    assert run(main()) == list(range(1, 101))


@pytest.mark.parametrize("turns", range(8))
def test_a_reader_can_be_cancelled_at_the_very_moment_of_a_commit(make_log: Callable[..., Log], turns: int) -> None:
    """asyncio.wait_for of Python 3.11 swallows a cancellation that meets the end of what it waits for."""
    log = make_log("memory")

    async def main() -> None:
        async def reader() -> None:
            async for _ in aio.subscribe(log):
                pass

        task = asyncio.create_task(reader())
        await asyncio.sleep(0.02)
        log.writer.waiters.wake()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=1)
        assert done == {task}
        assert task.cancelled()

    run(main())


def test_a_reader_that_left_is_called_no_more(log: Log) -> None:
    async def main() -> None:
        async def reader() -> None:
            async for _ in aio.subscribe(log):
                pass

        task = asyncio.create_task(reader())
        await say(log)
        await asyncio.sleep(0.05)
        assert len(log.writer.waiters._callbacks) == 1
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert log.writer.waiters._callbacks == set()

    run(main())


def test_a_purge_is_heard_as_one_reset(log: Log) -> None:
    """G8."""

    async def main() -> None:
        await say(log)
        items = aio.subscribe(log)
        assert isinstance(await anext(items), Recorded)
        reserved = (await asyncio.to_thread(log.purge, "thing/1", reason="test")).reserved
        reset = await anext(items)
        assert isinstance(reset, Reset)
        assert reset.cursor.position == reserved
        after = await say(log, stream="thing/2")
        assert await anext(items) == after
        await items.aclose()  # type: ignore[attr-defined]

    run(main())


def test_to_end_stops_at_the_head_and_a_query_filters(log: Log) -> None:
    async def main() -> None:
        records = [await say(log, number, f"thing/{number % 2}") for number in range(6)]
        assert [item async for item in aio.subscribe(log, to_end=True)] == records
        found = [item async for item in aio.subscribe(log, 2, Query(stream="thing/0"), to_end=True)]
        assert found == [records[2], records[4]]
        page = await aio.page_after(log, 0, limit=4)
        assert list(page.events) == records[:4]

    run(main())


def test_closing_ends_the_readers(kind: str, make_log: Callable[..., Log]) -> None:
    async def main() -> None:
        for _ in range(5):
            log = make_log(kind)
            await say(log)

            async def reader(log: Log) -> int:
                return len([item async for item in aio.subscribe(log)])

            tasks = [asyncio.create_task(reader(log)) for _ in range(4)]
            await asyncio.sleep(0.01)
            await asyncio.to_thread(log.close)
            assert all(count <= 1 for count in await asyncio.gather(*tasks))

    run(main())


@pytest.mark.parametrize("kind", ["memory", "sqlite", "jsonl", "segments"])
def test_to_end_does_not_take_a_part_for_all_when_the_log_is_closed(kind: str, make_log: Callable[..., Log]) -> None:
    log = make_log(kind)
    log.append_batch([Draft(type="thing.said", stream="thing/1")] * 502)

    async def main() -> None:
        within, beyond = aio.subscribe(log, to_end=True), aio.subscribe(log, 500, to_end=True)
        await anext(within), await anext(beyond)
        await asyncio.to_thread(log.close)
        assert len([item async for item in beyond]) == 1  # its page reached the end
        with pytest.raises(LogClosed, match="read up to position 500"):
            assert [item async for item in within] == []

    run(main())


def test_appends_of_another_process_are_noticed(make_log: Callable[..., Log], tmp_path: Path) -> None:
    with make_log("sqlite", tmp_path / "log.db") as here, make_log("sqlite", tmp_path / "log.db") as there:

        async def main() -> None:
            items = aio.subscribe(here)
            for _ in range(3):
                sent = await asyncio.to_thread(there.append, "thing.said", stream="thing/1")
                assert await anext(items) == sent
            await items.aclose()  # type: ignore[attr-defined]

        run(main())


def test_the_front_door_leads_here() -> None:
    assert everlog.aio is aio


def test_what_is_recorded_is_the_payload_at_the_time_of_the_call(log: Log) -> None:
    """Between asking and recording the caller's own code runs: what it changes meanwhile is not in the event."""
    cart: list[str] = []

    async def put(thing: str) -> None:
        cart.append(thing)
        if thing == "b":
            await aio.append_batch(log, [Draft(type="thing.said", stream="thing/1", payload={"value": cart})])
        else:
            await say(log, cart)

    async def main() -> None:
        await asyncio.gather(put("a"), put("b"), put("c"))

    run(main())
    assert [recorded.event.payload["value"] for recorded in log.read()] == [["a"], ["a", "b"], ["a", "b", "c"]]


@pytest.mark.parametrize(
    ("drafts", "elsewhere"), [(aio.PREPARED_IN_LOOP_MAX, False), (aio.PREPARED_IN_LOOP_MAX + 1, True)]
)
def test_a_large_batch_is_prepared_outside_of_the_loop(
    log: Log, monkeypatch: pytest.MonkeyPatch, drafts: int, elsewhere: bool
) -> None:
    prepare = log.writer.prepare
    threads: list[int] = []

    def noted(requests: Any) -> None:
        threads.extend(threading.get_ident() for request in requests)
        prepare(requests)

    monkeypatch.setattr(log.writer, "prepare", noted)
    batch = [Draft("thing.said", f"thing/{number}", {"value": number}) for number in range(drafts)]
    records = run(aio.append_batch(log, batch, key="k"))
    assert [recorded.event.payload["value"] for recorded in records] == list(range(drafts))
    assert [thread != threading.get_ident() for thread in threads] == [elsewhere]
    with pytest.raises(InvalidPayload):
        run(aio.append_batch(log, [*batch, Draft("thing.said", "thing/1", {"value": 1, "other": 2})]))
    assert log.head() == drafts
