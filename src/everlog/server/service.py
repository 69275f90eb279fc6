"""One log behind a server: its tokens, its readers, and what all requests about it share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from everlog.log.log import Log
from everlog.programs.operations import Operation
from everlog.server.hub import Hub
from everlog.server.texts import Texts
from everlog.server.tokens import Tokens

P = ParamSpec("P")
T = TypeVar("T")

READERS = 8
"""Threads that read: reads of the log never run in the event loop."""


class Service:
    def __init__(self, log: Log, operations: Sequence[Operation], *, name: str = "log") -> None:
        self.name = name
        self.log = log
        self.operations = {operation.name: operation for operation in operations}
        self.tokens = Tokens(log)
        self.hub = Hub(log)
        self.texts = Texts(log.catalog)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix=f"everlog-{name}")

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that reads or writes the log in a thread, and return what it returns."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, partial(work, *args, **kwargs))

    def close(self) -> None:
        """End what is open with a bye, as far as its event loop still runs, and give the threads back."""
        self.hub.close()
        self.hub.release()
        self._readers.shutdown(wait=True, cancel_futures=True)
