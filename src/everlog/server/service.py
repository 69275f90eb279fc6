"""One log behind a server: its tokens, its readers, and what all requests about it share."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from everlog.application.events.texts import Texts
from everlog.application.sync.listen import Door
from everlog.log.log import Log
from everlog.programs.operations import Operation
from everlog.server.callers.auth import Callers
from everlog.server.callers.tokens import Tokens
from everlog.server.events.hub import Hub
from everlog.server.jobs import Jobs
from everlog.server.listen.front import Front
from everlog.server.observe.log_facts import LogFacts
from everlog.server.observe.writes import WriteMeter
from everlog.sync.exchange import Node

if TYPE_CHECKING:
    from everlog.server.callers.oidc import Oidc

P = ParamSpec("P")
T = TypeVar("T")

READERS = 8
"""Threads that read: reads of the log never run in the event loop."""

CATCHING_UP = 2
"""Threads that read for streams which catch up: many of these at once must not keep requests from their readers."""

WAITING = 32
"""Threads of requests that wait, such as for an event or for a view."""


class Service:
    def __init__(
        self,
        log: Log,
        operations: Sequence[Operation],
        *,
        name: str = "log",
        oidc: Oidc | None = None,
        node: Node | None = None,
        front: Front | None = None,
        facts: LogFacts | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self.front = front or Front()
        self.facts = facts or LogFacts({name: log})
        log.writer.add_stage(WriteMeter(self.front.metrics, name))
        log.writer.refusals.admits = self.front.records_refusal
        self.operations = {operation.name: operation for operation in operations}
        self.tokens = Tokens(log)
        self.callers = Callers(self.tokens, oidc)
        self.door = Door(node or Node(log))  # for nodes that sync
        self.hub = self.front.metrics.hubs[name] = Hub(log)
        self.jobs = Jobs(name)
        self.documents: dict[str, bytes] = {}
        self.neighbours: Mapping[str, Service] = {name: self}  # every log of this server, by its name
        self.texts = Texts(log.catalog)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix=f"everlog-{name}")
        self._catching_up = ThreadPoolExecutor(CATCHING_UP, thread_name_prefix=f"everlog-{name}-streams")
        self._waiting = ThreadPoolExecutor(WAITING, thread_name_prefix=f"everlog-{name}-waits")

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that reads or writes the log in a thread, and return what it returns."""
        return await self._run_in(self._readers, partial(work, *args, **kwargs))

    async def run_catching_up(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that reads for a stream."""
        return await self._run_in(self._catching_up, partial(work, *args, **kwargs))

    async def run_waiting(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that may wait for something: it does not keep a reader from reading."""
        return await self._run_in(self._waiting, partial(work, *args, **kwargs))

    async def _run_in(self, threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        run = contextvars.copy_context().run  # the thread knows the request that it works for
        return await asyncio.get_running_loop().run_in_executor(threads, partial(run, work))

    def end_streams(self) -> None:
        """End the streams and long polls: each gets the cursor to continue from."""
        self.hub.close()

    def close(self) -> None:
        """End what is open with a bye, as far as its event loop still runs, and give the threads back."""
        self.hub.close()
        self.hub.release()
        self.jobs.close()
        for threads in (self._waiting, self._catching_up, self._readers):
            threads.shutdown(wait=True, cancel_futures=True)
