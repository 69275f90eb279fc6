"""The hub of a log: everybody who waits for it to grow, and the one reader that reads its end for all of them.

    waiters ──> tail reader ──> ring of recent events ──> a chunk per filter class, every 10 ms ──> the connection
                page_after      rendered once             made once, shared by its clients          or a queue

The tail reader is a reader like any other, with its own cursor: every page of it begins with the check whether
history has changed. If it has, every client leaves the live end, reads a page from its own cursor, and gets its own
reset there. A purge takes a position, so a client that was given the next chunk would have jumped over its reset.

All of this runs in one event loop, except the reads, which have their own thread. A client joins the live end at
the position up to which it has read, in one step of the loop: without a gap, and without an event twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from everlog.application.events.reading import Read, Reading
from everlog.core.event import START, Position
from everlog.core.query import EVERYTHING, Cursor, Query
from everlog.log.log import Log
from everlog.log.read.follow import POLL_S
from everlog.log.records import FORGOTTEN
from everlog.server.events.clients import Client, ClientsOfFilter, Live
from everlog.server.events.frames import HEARTBEAT, Frame, frames_of
from everlog.server.events.sending import Chunk

CHUNK_S = 0.010
"""How long events are gathered for the next chunk, at the least."""

CHUNK_S_MAX = 0.050
"""If it takes long to hand on a chunk, the next one is gathered for longer, up to this: larger chunks cost less."""

CHUNK_BYTES_MIN, CHUNK_BYTES = 64 * 1024, 256 * 1024
ROUND_BYTES = 8 * 1024 * 1024
"""What all clients together are handed in one go: more would hold the event loop for too long."""

BYTES_PER_S = 8 * 1024 * 1024
"""A long burst is handed on at this rate: a client that reads it as fast does not fall behind."""

PAGE = 500
RING_EVENTS, RING_BYTES = 2_000, 2 * 1024 * 1024
QUEUE_BYTES_MAX = 1024 * 1024
HEARTBEAT_S = 15.0
RIGHTS_S = 2.0
SWEEP_S = 1.0
LINGER_S = 10.0
"""The tail reader stays for this long after its last client has gone."""

_logger = logging.getLogger("everlog.server")

_HEARTBEAT = Chunk(HEARTBEAT)


class Hub:
    """Hands new events on to the clients of one log. Its numbers are for the metrics of the server."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="everlog-hub")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._grown = asyncio.Event()
        self._signalled = False
        self._clients: set[Client] = set()
        self._classes: dict[tuple[Query | None, str], ClientsOfFilter] = {}
        self._ring: deque[Frame] = deque()
        self._ring_bytes = 0
        self._ring_start = START  # the ring has every event above it, up to the tail
        self._tail = Cursor()
        self._head = START
        self._live = False
        self._empty_since = time.monotonic()
        self.closing = ""
        self.drops = 0
        self.resets_sent = 0
        self.published = 0

    @property
    def clients(self) -> int:
        return len(self._clients)

    @property
    def queued_bytes(self) -> int:
        return sum(client.queued_bytes for client in self._clients)

    # ---- clients

    def add(self, client: Client) -> None:
        """Know a client from now on, so that it gets heartbeats, and is ended when its rights or the server end."""
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done() or self._loop is not loop:
            self._begin(loop)
        self._clients.add(client)
        if self.closing:
            client.ending = self.closing

    def remove(self, client: Client) -> None:
        self._leave(client)
        self._clients.discard(client)
        self._empty_since = time.monotonic()

    def join(self, client: Client) -> bool:
        """Have a client get everything after what it has read from the live end, if the ring still has it."""
        if not self._can_join(client):
            return False
        of_class = self._class(client.reading)
        missed = of_class.matching(frame for frame in self._ring if frame.recorded.position > client.searched)
        client.live = True
        of_class.streams.add(client)
        if missed:
            client.give(_chunk_of(missed), missed[-1].cursor)
        return True

    def poll(self, client: Client) -> asyncio.Future[Live | None] | None:
        """Return what will be there after what a client has read: None if it must read a page first. The future has
        None when it must read one then."""
        if not self._can_join(client):
            return None
        of_class = self._class(client.reading)
        answer: asyncio.Future[Live | None] = asyncio.get_running_loop().create_future()
        missed = of_class.matching(frame for frame in self._ring if frame.recorded.position > client.searched)
        if missed:
            answer.set_result(self._answer(of_class, missed))
        else:
            client.live = True
            of_class.polls[client] = answer
        return answer

    def end(self, client: Client, reason: str) -> None:
        """End a client, with a bye."""
        if client.ending:
            return
        client.ending = reason
        if client.live and not client.queued_bytes and not client.reading.within:
            # It was given all that matches up to the tail. The cursor of a limited client stays at its own events.
            client.cursor = max(client.cursor, self._tail, key=lambda cursor: cursor.position)
        if reason != "shutdown":
            client.drop_queue()
        self._leave(client)
        client.wake()

    def close(self, reason: str = "shutdown") -> None:
        """End all streams with a bye, and let waiting polls answer. New ones end at once. From any thread."""
        self.closing = reason
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(self._end_all)

    async def drained(self) -> None:
        """Wait until no client is left."""
        while self._clients:
            await asyncio.sleep(0.01)

    def release(self) -> None:
        """Give the reader's thread back, after `close`."""
        self._reader.shutdown(wait=True, cancel_futures=True)

    # ---- the tail reader

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not loop:
            self._clients.clear()  # of a loop that has ended
        self._classes.clear()
        self._live = False
        self._loop = loop
        self._grown = asyncio.Event()
        self._signalled = False
        self._task = loop.create_task(self._run())

    async def _run(self) -> None:
        waiters = self._log.writer.waiters
        waiters.watch(self._signal)
        sweeping = asyncio.create_task(self._sweep())
        try:
            while self._clients or not (self.closing or time.monotonic() - self._empty_since > LINGER_S):
                self._grown.clear()  # before the look, so that a commit during it is not slept over
                self._signalled = False
                try:
                    if await self._step():
                        await self._until_grown()
                except Exception as error:
                    # Some clients may read on: each reads its own pages, and gets its own error there.
                    _logger.warning("the end of the log cannot be read", exc_info=error)
                    self._leave_live_end()
                    await asyncio.sleep(SWEEP_S)
        finally:
            self._live = False
            sweeping.cancel()
            waiters.unwatch(self._signal)

    async def _step(self) -> bool:
        """Read what is new, and hand it on. Return whether there is nothing more for now."""
        loop = asyncio.get_running_loop()
        if not self._live:
            self._start_at(await loop.run_in_executor(self._reader, self._read_end))
            return True
        read, frames = await loop.run_in_executor(self._reader, self._read_after, self._tail)
        if read.page.reset is not None:
            self._leave_live_end()
            return False
        streams = sum(len(of_class.streams) for of_class in self._classes.values())
        for part in _parts(frames, min(CHUNK_BYTES, max(CHUNK_BYTES_MIN, ROUND_BYTES // max(1, streams)))):
            began = time.thread_time()
            at_end = part[-1] is frames[-1]
            self._publish(part, read.page.next_cursor if at_end else part[-1].cursor, read.page.head)
            await self._pause(began, sum(len(frame.data) for frame in part))
        if not frames:
            self._tail, self._head = read.page.next_cursor, read.page.head
        return read.at_end and not frames

    def _read_end(self) -> Read:
        reading = Reading(self._log, EVERYTHING, "")
        return reading.after(Cursor(self._log.head()), limit=1, looking=True)

    def _read_after(self, cursor: Cursor) -> tuple[Read, list[Frame]]:
        read = Reading(self._log, EVERYTHING, "").after(cursor, limit=PAGE)
        return read, list(frames_of(read.page, read.knows, self._log.identity))

    def _start_at(self, read: Read) -> None:
        self._tail, self._head = read.page.next_cursor, read.page.head
        self._forget_ring()
        self._live = True
        self._wake_waiting()

    def _publish(self, frames: Sequence[Frame], tail: Cursor, head: Position) -> None:
        self._ring.extend(frames)
        self._ring_bytes += sum(len(frame.data) for frame in frames)
        self._tail, self._head = tail, head
        self.published += len(frames)
        for of_class in list(self._classes.values()):
            matching = of_class.matching(frames)
            if not matching:
                continue
            if of_class.streams:
                chunk, cursor = _chunk_of(matching), matching[-1].cursor
                for client in list(of_class.streams):
                    self._hand_over(client, chunk, cursor)
            if of_class.polls:
                answer = self._answer(of_class, matching)
                for client, waiting in of_class.polls.items():
                    client.live = False
                    if not waiting.done():
                        waiting.set_result(answer)
                of_class.polls.clear()
        self._shorten_ring()
        if any(frame.recorded.event.type == FORGOTTEN for frame in frames):
            self._forget_ring()  # what was erased must not be read from here any more
        self._wake_waiting()

    def _hand_over(self, client: Client, chunk: Chunk, cursor: Cursor) -> None:
        if client.queued_bytes and client.queued_bytes + len(chunk) > QUEUE_BYTES_MAX:
            self.drops += 1
            self.end(client, "too_slow")
        else:
            client.give(chunk, cursor)

    def _answer(self, of_class: ClientsOfFilter, matching: Sequence[Frame]) -> Live:
        if of_class.reading.within:
            return Live(matching, matching[-1].cursor, matching[-1].cursor.position)
        return Live(matching, self._tail, self._head)

    async def _pause(self, began: float, size: int) -> None:
        """Let the chunk be sent; then gather the next one. After a round that was much work, the pause is longer, so
        that other requests have most of the event loop."""
        for _ in range(3):
            await asyncio.sleep(0)
        took = time.thread_time() - began  # not by the clock: on a busy machine, longer pauses would not help
        await asyncio.sleep(max(CHUNK_S, min(3 * took, CHUNK_S_MAX), took, size / BYTES_PER_S))

    async def _until_grown(self) -> None:
        if not self._grown.is_set():
            with suppress(TimeoutError):
                # Not wait_for: in Python 3.11 it loses a cancellation that arrives when the awaited task ends.
                async with asyncio.timeout(POLL_S):
                    await self._grown.wait()

    def _signal(self) -> None:
        """Something was committed. Called by the thread that did."""
        if not self._signalled and self._loop is not None:
            self._signalled = True
            with suppress(RuntimeError):  # the loop was closed
                self._loop.call_soon_threadsafe(self._grown.set)

    # ---- the ring

    def _shorten_ring(self) -> None:
        while len(self._ring) > RING_EVENTS or self._ring_bytes > RING_BYTES:
            gone = self._ring.popleft()
            self._ring_bytes -= len(gone.data)
            self._ring_start = gone.recorded.position

    def _forget_ring(self) -> None:
        self._ring.clear()
        self._ring_bytes = 0
        self._ring_start = self._tail.position

    # ---- clients that come and go

    def _can_join(self, client: Client) -> bool:
        return (
            self._live
            and not client.ending
            and client.cursor.epoch in ("", self._tail.epoch)
            and self._ring_start <= client.searched <= self._tail.position
        )

    def _class(self, reading: Reading) -> ClientsOfFilter:
        key = (reading.query, reading.within)
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = ClientsOfFilter(reading)
        return found

    def _leave(self, client: Client) -> None:
        key = (client.reading.query, client.reading.within)
        of_class = self._classes.get(key)
        if of_class is None:
            return
        client.live = False
        of_class.streams.discard(client)
        waiting = of_class.polls.pop(client, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
        if not of_class.streams and not of_class.polls:
            del self._classes[key]

    def _leave_live_end(self) -> None:
        """Have every client read pages from its own cursor, and join again."""
        self._live = False
        for of_class in self._classes.values():
            for client in of_class.streams:
                client.live = False
                client.wake()
            for client, waiting in of_class.polls.items():
                client.live = False
                if not waiting.done():
                    waiting.set_result(None)
        self._classes.clear()

    def _wake_waiting(self) -> None:
        for client in self._clients:
            if not client.live:
                client.wake()

    def _end_all(self) -> None:
        for client in list(self._clients):
            self.end(client, self.closing)

    async def _sweep(self) -> None:
        """Send heartbeats, and look at the rights of every client again."""
        looked_at = time.monotonic()
        while True:
            await asyncio.sleep(SWEEP_S)
            now = time.monotonic()
            for client in list(self._clients):
                if client.heartbeats and now - client.active_at >= HEARTBEAT_S and not client.queued_bytes:
                    client.give(_HEARTBEAT, None)
                elif not client.live:
                    client.wake()
            if now - looked_at >= RIGHTS_S:
                looked_at = now
                for client in list(self._clients):
                    if not client.ending and not await client.allowed():
                        self.end(client, "revoked")


def _chunk_of(frames: Sequence[Frame]) -> Chunk:
    return Chunk(b"".join([frame.data for frame in frames]))


def _parts(frames: Sequence[Frame], bytes_max: int) -> list[Sequence[Frame]]:
    """Return the frames in parts of which each is a chunk that is not too long."""
    found: list[Sequence[Frame]] = []
    start = size = 0
    for place, frame in enumerate(frames):
        if size and size + len(frame.data) > bytes_max:
            found.append(frames[start:place])
            start, size = place, 0
        size += len(frame.data)
    return [*found, frames[start:]] if frames else []
