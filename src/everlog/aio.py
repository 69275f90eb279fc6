"""The log for asyncio: the same log and the same rules, without a thread for every waiting task.

    record = await everlog.aio.append(log, "note.added", stream="note/1", payload={"text": "hello"})
    async for item in everlog.aio.subscribe(log, after=cursor): ...      # records and resets
    async for delivery in everlog.aio.consume(member): ...               # then await everlog.aio.ack(delivery)

`everlog.aio.connect(URL)` returns a log behind a server, whose methods are coroutines.
`everlog.aio.EventStore` (in event_store.py) has the same under the names of seed 001, with snapshots.

Appends of many tasks share flushes with each other and with threads. Reads run in a thread, page by page.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

import msgspec

from everlog.catalog.models import Payload
from everlog.consumers.delivery import Delivery
from everlog.consumers.member import Member
from everlog.core.event import START, Recorded
from everlog.core.query import EVERYTHING, Cursor, Page, Query, Reset, require_query
from everlog.errors import EverlogError, LogClosed
from everlog.log.log import Log
from everlog.log.read.follow import POLL_S, closed_early, items_of
from everlog.log.write.draft import Draft, Receipt, typed_payload
from everlog.log.write.expect import Expect, Expectation
from everlog.log.write.group import Item
from everlog.log.write.guard import ATTEMPTS, Overtaken, pause_s
from everlog.log.write.requests import Request

if TYPE_CHECKING:
    from everlog.event_store import EventStore as EventStore
    from everlog.remote.log_async import AsyncRemoteLog as AsyncRemoteLog
    from everlog.remote.log_async import connect as connect


PREPARED_IN_LOOP_MAX = 64
"""A batch with more drafts is checked and encoded in another thread: a thousand would block the loop for
milliseconds."""


_HOMES = {
    "AsyncRemoteLog": "everlog.remote.log_async",
    "EventStore": "everlog.event_store",
    "connect": "everlog.remote.log_async",
}


def __getattr__(name: str) -> Any:
    # event_store imports this module. Each is loaded only when it is used.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


async def append(
    log: Log,
    type: str | Payload,
    *,
    stream: str,
    payload: Any = None,
    actor: str = "",
    scope: str = "",
    expect: Expectation = Expect.ANY,
    key: str = "",
    operation: str = "",
    id: str = "",
    occurred_at: datetime | None = None,
    request_id: str = "",
    causation_id: str = "",
    correlation_id: str = "",
    tags: Mapping[str, str] | None = None,
) -> Recorded:
    """Do what `Log.append` does, for a task. When it returns, the event is on the disk."""
    if not isinstance(type, str):
        type, payload = typed_payload(log.catalog, type, payload)
    draft = Draft(  # positional arguments save a microsecond
        type,
        stream,
        {} if payload is None else _own(payload),
        actor,
        scope,
        expect,
        id,
        occurred_at,
        request_id,
        causation_id,
        correlation_id,
        dict(tags) if tags else {},
    )
    return (await _commit(log, (draft,), key, operation or type)).records[0]


async def append_batch(
    log: Log, drafts: Sequence[Draft], *, key: str = "", operation: str = "batch"
) -> Sequence[Recorded]:
    return (await commit(log, drafts, key=key, operation=operation)).records


async def commit(
    log: Log,
    drafts: Sequence[Draft],
    *,
    key: str = "",
    operation: str = "batch",
    request: Any = None,
    response: Any = None,
    key_scope: str | None = None,
    owned: bool = False,
    large: bool = False,
) -> Receipt:
    """Record drafts, as `log.writer.commit` does.

    `owned`: nobody changes the drafts any more, so they need not be copied. `large`: their payloads are, so that few
    of them would block the loop, too.
    """
    own = list(drafts)
    if not owned and all(isinstance(draft, Draft) for draft in drafts):  # else the log refuses it, with its message
        own = [msgspec.structs.replace(draft, payload=_own(draft.payload)) for draft in drafts]
    return await _commit(log, own, key, operation, request, response, key_scope, large=large)


def _own(payload: Any) -> Any:
    """Return a copy of the payload: before it is recorded, the caller's code may run and change it."""
    if type(payload) is dict:
        for item in payload.values():
            if type(item) not in _UNCHANGING:
                break
        else:
            return dict(payload)
    return deepcopy(payload)


_UNCHANGING = frozenset((str, int, float, bool, type(None)))


async def _commit(
    log: Log,
    drafts: Sequence[Draft],
    key: str,
    operation: str,
    asked: Any = None,
    response: Any = None,
    key_scope: str | None = None,
    *,
    large: bool = False,
) -> Receipt:
    loop = asyncio.get_running_loop()
    for attempt in range(1, ATTEMPTS + 1):
        request = log.writer.request(drafts, key, operation, asked, response, key_scope=key_scope)
        try:
            # A guard reads the log, and many drafts take long to check: neither may block the loop.
            if large or len(drafts) > PREPARED_IN_LOOP_MAX or request.guarded:
                await asyncio.to_thread(log.writer.prepare, [request])
                if request.error is not None:
                    raise request.error
            request.ticket = answer = loop.create_future()
            _waker_of(loop).hand_over(log, request)
            receipt: Receipt = await answer
            return receipt
        except EverlogError as error:
            if isinstance(error, Overtaken) and attempt < ATTEMPTS:
                await asyncio.sleep(pause_s(attempt))
                continue
            await asyncio.to_thread(log.writer.record_refusal, error, request.drafts, request.operation)
            raise
    raise AssertionError("the last attempt returns or raises")


async def page_after(
    log: Log, cursor: Cursor | int | str = START, query: Query = EVERYTHING, *, limit: int = 500
) -> Page:
    return await asyncio.to_thread(log.page_after, cursor, query, limit=limit)


async def subscribe(
    log: Log, after: Cursor | int | str = START, query: Query = EVERYTHING, *, to_end: bool = False
) -> AsyncIterator[Recorded | Reset]:
    """Yield everything after the cursor and then everything new, without a gap: both are pages of the log."""
    require_query(query)
    cursor = Cursor.of(after)
    grown = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_commit() -> None:
        with suppress(RuntimeError):  # the loop was closed: it has no subscriber any more
            loop.call_soon_threadsafe(grown.set)

    closed_before = log.writer.waiters.closed
    log.writer.waiters.watch(on_commit)
    try:
        while True:
            grown.clear()  # before the read, so that a commit during it is not missed
            page = await asyncio.to_thread(log.page_after, cursor, query)
            for item in items_of(page):
                yield item
            cursor = page.next_cursor
            if not page.at_head:
                continue
            if to_end:
                return
            await _grown_or_poll(log, grown, cursor)
            if log.writer.waiters.closed:
                return
    except LogClosed as error:
        # As in `follow`: closing the log ends a subscription, but not one that wants to reach the end.
        if closed_before or not log.writer.waiters.closed:
            raise
        if to_end:
            raise closed_early(cursor.position) from error
    finally:
        log.writer.waiters.unwatch(on_commit)


async def consume(member: Member, *, to_end: bool = False) -> AsyncIterator[Delivery]:
    """Yield the deliveries of a member of a group, as `Member.deliveries` gives them to a thread.

    With `in_flight` above 1, tasks may handle several at once; never two of one key at the same time.
    """
    log = member.group.log
    grown = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_commit() -> None:
        with suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(grown.set)

    log.writer.waiters.watch(on_commit)
    try:
        while True:
            grown.clear()
            delivery = await asyncio.to_thread(member.take)
            if delivery is not None:
                yield delivery
            elif member.left or await asyncio.to_thread(
                lambda: member.at_end if to_end else log.writer.waiters.closed
            ):
                return
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_S):
                        await grown.wait()
    except LogClosed:
        if to_end or not log.writer.waiters.closed:
            raise
    finally:
        log.writer.waiters.unwatch(on_commit)


async def ack(delivery: Delivery) -> None:
    """Do what `Delivery.ack` does, for a task: when it returns, the cursor is on the disk."""
    await asyncio.to_thread(delivery.ack)


async def nack(delivery: Delivery, reason: str = "", *, retry_in_s: float | None = None) -> None:
    await asyncio.to_thread(delivery.nack, reason, retry_in_s=retry_in_s)


async def leave(member: Member) -> None:
    await asyncio.to_thread(member.leave)


async def _grown_or_poll(log: Log, grown: asyncio.Event, cursor: Cursor) -> None:
    """Wait until this process has committed something, or the head has moved."""
    while not log.writer.waiters.closed:
        try:
            # Not wait_for: in Python 3.11 it loses a cancellation that arrives when the awaited task ends.
            async with asyncio.timeout(POLL_S):
                await grown.wait()
            return
        except TimeoutError:
            if await asyncio.to_thread(log.head) != cursor.position:
                return


class _LoopWaker:
    """Resolves the futures of one event loop, a whole commit group with one wake-up."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._waiting: dict[Log, list[Request]] = {}
        self._loop = ref(loop)  # weak; otherwise the entry in `_wakers` would keep its own key alive

    def hand_over(self, log: Log, request: Request) -> None:
        """Give a request to the log, together with those of every task that is ready to run now.

        The first one is held until the loop has run what is ready: it costs microseconds and fills the group.
        """
        waiting = self._waiting.get(log)
        if waiting is None:
            waiting = self._waiting[log] = []
            loop = self._loop()
            if loop is not None:
                loop.call_soon(self._commit_gathered, log)
        waiting.append(request)

    def _commit_gathered(self, log: Log) -> None:
        gathered = self._waiting.pop(log)
        try:
            log.writer.prepare([request for request in gathered if not request.prepared_with])
            ready = []
            for request in gathered:
                if request.error is None:
                    ready.append(request)
                elif not request.ticket.done():
                    request.ticket.set_exception(request.error)
            log.writer.submit(ready, self)
        except Exception as error:  # the log was closed meanwhile, or no thread can be started
            for request in gathered:
                if not request.ticket.done():
                    request.ticket.set_exception(error)

    def wake(self, items: list[Item]) -> None:
        loop = self._loop()
        # No task waits in a closed loop. It may also be closed between the check and the call.
        with suppress(RuntimeError):
            if loop is not None:
                loop.call_soon_threadsafe(_resolve, items)


_wakers: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopWaker] = WeakKeyDictionary()


def _waker_of(loop: asyncio.AbstractEventLoop) -> _LoopWaker:
    found = _wakers.get(loop)
    if found is None:
        found = _wakers[loop] = _LoopWaker(loop)
    return found


def _resolve(items: list[Item]) -> None:
    for item in items:
        future: asyncio.Future[Any] = item.ticket
        if future.done():  # cancelled: what it wrote stays written
            continue
        if item.error is not None:
            future.set_exception(item.error)
        else:
            future.set_result(item.result)
