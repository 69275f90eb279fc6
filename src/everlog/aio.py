"""The log for asyncio: the same log and the same rules, without a thread for every waiting task.

    record = await everlog.aio.append(log, "note.added", stream="note/1", payload={"text": "hello"})
    async for item in everlog.aio.subscribe(log, after=cursor): ...      # records and resets

Appends of many tasks share flushes with each other and with threads. Reads go to a thread, page by page.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary, ref

from everlog.core.event import START, Recorded
from everlog.core.query import EVERYTHING, Cursor, Page, Query, Reset
from everlog.errors import EverlogError, LogClosed
from everlog.log.committer import Item
from everlog.log.drafts import Draft
from everlog.log.log import Log
from everlog.log.requests import Ask, Receipt
from everlog.log.subscribers import POLL_S, items_of


async def append(log: Log, type: str, *, stream: str, payload: Any = None, key: str = "", **fields: Any) -> Recorded:
    """`Log.append` for a task. When it returns, the event is on the disk."""
    # Copied, because between asking and recording the caller's own code may run.
    tags = dict(fields.pop("tags", None) or {})
    said = {} if payload is None else dict(payload) if isinstance(payload, dict) else payload
    draft = Draft(type=type, stream=stream, payload=said, tags=tags, **fields)
    return (await commit(log, [draft], key=key, operation=type)).records[0]


async def append_batch(
    log: Log, drafts: Sequence[Draft], *, key: str = "", operation: str = "batch"
) -> list[Recorded]:
    return list((await commit(log, drafts, key=key, operation=operation)).records)


async def commit(
    log: Log,
    drafts: Sequence[Draft],
    *,
    key: str = "",
    operation: str = "batch",
    request: Any = None,
    response: Any = None,
) -> Receipt:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Receipt] = loop.create_future()
    try:
        _waker_of(loop).hand_over(log, Ask(tuple(drafts), key or "", operation, request, response), answer)
        return await answer
    except EverlogError as error:
        await asyncio.to_thread(log.remember_refusal, error, drafts, operation)
        raise


async def page_after(
    log: Log, cursor: Cursor | int | str = START, query: Query = EVERYTHING, *, limit: int = 500
) -> Page:
    return await asyncio.to_thread(log.page_after, cursor, query, limit=limit)


async def subscribe(
    log: Log, after: Cursor | int | str = START, query: Query = EVERYTHING, *, to_end: bool = False
) -> AsyncIterator[Recorded | Reset]:
    """Everything after the cursor and then everything new. There is no seam: both are pages of the log."""
    cursor = Cursor.of(after)
    grown = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_commit() -> None:
        with suppress(RuntimeError):  # the loop was closed: nobody follows from it any more
            loop.call_soon_threadsafe(grown.set)

    closed_before = log.waiters.closed
    log.waiters.call_on_commit(on_commit)
    try:
        while True:
            grown.clear()  # before the look, so that a commit during it is not slept over
            page = await asyncio.to_thread(log.page_after, cursor, query)
            for item in items_of(page):
                yield item
            cursor = page.next_cursor
            if not page.at_head:
                continue
            if to_end:
                return
            await _grown_or_poll(log, grown, cursor)
            if log.waiters.closed:
                return
    except LogClosed:
        # As in `follow`: closing the log lets its followers go.
        if closed_before or not log.waiters.closed:
            raise
    finally:
        log.waiters.call_no_more(on_commit)


async def _grown_or_poll(log: Log, grown: asyncio.Event, cursor: Cursor) -> None:
    """Until this process committed something, or the head that others move is another one."""
    while not log.waiters.closed:
        try:
            # Not wait_for: in Python 3.11 it swallows a cancellation that meets the end of what it waits for.
            async with asyncio.timeout(POLL_S):
                await grown.wait()
            return
        except TimeoutError:
            if await asyncio.to_thread(log.head) != cursor.position:
                return


class _LoopWaker:
    """Resolves the futures of one event loop, a whole group with one wake-up."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._waiting: dict[Log, _Gathered] = {}
        self._loop = ref(loop)  # weak, or the entry in `_wakers` would keep its own key alive

    def hand_over(self, log: Log, ask: Ask, answer: asyncio.Future[Receipt]) -> None:
        """Give an ask to the log, together with those of every task that is ready to run now.

        The first one is held until the loop has run what is ready: it costs microseconds and fills the group.
        """
        loop = self._loop()
        waiting = self._waiting.setdefault(log, [])
        if not waiting and loop is not None:
            loop.call_soon(self._commit_gathered, log)
        waiting.append((ask, answer))

    def _commit_gathered(self, log: Log) -> None:
        gathered = self._waiting.pop(log)
        try:
            requests = [log.request(ask) for ask, _ in gathered]
            log.make_ready(requests)
            ready = []
            for request, (_, answer) in zip(requests, gathered, strict=True):
                if request.refusal is None:
                    ready.append((request, answer))
                elif not answer.done():
                    answer.set_exception(request.refusal)
            log.commit_later(ready, self)
        except Exception as error:  # the log was closed meanwhile, or no thread can be had
            for _, answer in gathered:
                if not answer.done():
                    answer.set_exception(error)

    def tell(self, items: list[Item]) -> None:
        loop = self._loop()
        # A loop that was closed has nobody left who waits; it may also close between a question and the call.
        with suppress(RuntimeError):
            if loop is not None:
                loop.call_soon_threadsafe(_resolve, items)


_Gathered = list[tuple[Ask, "asyncio.Future[Receipt]"]]
_wakers: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopWaker] = WeakKeyDictionary()


def _waker_of(loop: asyncio.AbstractEventLoop) -> _LoopWaker:
    found = _wakers.get(loop)
    if found is None:
        found = _wakers[loop] = _LoopWaker(loop)
    return found


def _resolve(items: list[Item]) -> None:
    for item in items:
        future: asyncio.Future[Any] = item.ticket
        if future.done():  # cancelled: what it wrote stays written, as after any lost answer
            continue
        if item.error is not None:
            future.set_exception(item.error)
        else:
            future.set_result(item.result)
