"""The clients of a hub: streams and waiting polls.

A client that has taken everything is sent a chunk by the hub itself: its task is not woken, and no bytes are copied.
Only for a client that is behind, chunks wait in a queue, at most 1 MB, and its task sends them.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from everlog.application.events.reading import Read, Reading
from everlog.core.event import START, Position
from everlog.core.query import EVERYTHING, Cursor
from everlog.server.events.frames import Frame
from everlog.server.events.sending import Chunk

TAKEN_BYTES = 64 * 1024

Allowed = Callable[[], Awaitable[bool]]
SendAtOnce = Callable[[Chunk], bool]


class Live(NamedTuple):
    """What a waiting poll gets: events that are rendered already, and where the log ends."""

    frames: Sequence[Frame]
    next: Cursor
    head: Position


class Client:
    """One stream, or one waiting poll."""

    def __init__(self, reading: Reading, allowed: Allowed, *, heartbeats: bool = True) -> None:
        self.reading = reading
        self.allowed = allowed
        self.heartbeats = heartbeats
        self.cursor = Cursor()  # of what was taken from the queue
        self.searched = START
        self.live = False
        self.ending = ""  # the reason of its bye
        self.queued_bytes = 0
        self.send_at_once: SendAtOnce = lambda chunk: False
        self._queue: deque[tuple[Chunk, Cursor | None]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._awake = False
        self.active_at = time.monotonic()

    def advance(self, read: Read) -> None:
        """The client has read a page."""
        self.cursor, self.searched = read.page.next_cursor, read.searched
        self.active_at = time.monotonic()

    def give(self, chunk: Chunk, cursor: Cursor | None) -> None:
        """Send a chunk at once if the task of this client waits for one, else put it in the queue."""
        waiter = self._waiter
        if waiter is not None and not waiter.done() and not self._queue and self.send_at_once(chunk):
            self._taken(cursor)
            return
        self._queue.append((chunk, cursor))
        self.queued_bytes += len(chunk)
        self.wake()

    def take(self) -> list[Chunk]:
        """Return what waits in the queue, or its first part, and move the cursor after it."""
        found: list[Chunk] = []
        size = 0
        while self._queue and (not found or size + len(self._queue[0][0]) <= TAKEN_BYTES):
            chunk, cursor = self._queue.popleft()
            found.append(chunk)
            size += len(chunk)
            self._taken(cursor)
        self.queued_bytes -= size
        return found

    def _taken(self, cursor: Cursor | None) -> None:
        self.active_at = time.monotonic()
        if cursor is not None:
            self.cursor = cursor

    def drop_queue(self) -> None:
        self._queue.clear()
        self.queued_bytes = 0

    def wake(self) -> None:
        self._awake = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Wait until something is in the queue, or something else has changed for this client."""
        if not self._awake:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._awake = False


class ClientsOfFilter:
    """The clients with the same query and scope."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.streams: set[Client] = set()
        self.polls: dict[Client, asyncio.Future[Live | None]] = {}

    def matching(self, frames: Iterable[Frame]) -> Sequence[Frame]:
        if self.reading.query == EVERYTHING:
            return list(frames)
        return [frame for frame in frames if self.reading.matches(frame.recorded)]
