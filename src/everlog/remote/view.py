"""A view of a log behind a server: `log.view("board").get("workpackage/WP03").state`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from everlog.core.event import Position, Recorded
from everlog.errors import NotFound
from everlog.log.derived import Answer, view_behind
from everlog.remote import log_calls
from everlog.remote.calls import Call
from everlog.remote.log_calls import ROWS, WAIT_S_MAX

TIMEOUT_S = 5.0


class RemoteView:
    """One view, asked where the log is."""

    def __init__(self, name: str, send: Callable[[Call[Any]], Any]) -> None:
        self.name = name
        self._send = send

    def get(
        self,
        key: str,
        *,
        fresh: bool = True,
        as_of: Any = None,
        at_least: int | Recorded = 0,
        timeout_s: float = TIMEOUT_S,
    ) -> Answer:
        """Return the state of a key, now or as it was. A server brings a view up to date before it answers, also if
        the state need not be `fresh`.

        With `at_least` the server waits until the view has applied that position; an answer that is older after
        `timeout_s` says so with its position.
        """
        wanted = log_calls.wanted_position(at_least)
        try:
            call = log_calls.view_get(self.name, key, as_of=as_of, at_least=wanted, timeout_s=timeout_s)
            return log_calls.answer_of(self._send(call))
        except NotFound as error:
            if not log_calls.is_about_key(error, key):
                raise
        rows = self._send(log_calls.view_rows(self.name, after=key, limit=1, as_of=as_of))
        return log_calls.nothing_at(self.name, key, rows)

    def items(
        self,
        *,
        fresh: bool = True,
        after: str = "",
        limit: int | None = None,
        as_of: Any = None,
        at_least: int | Recorded = 0,
    ) -> Iterator[tuple[str, Any]]:
        """Yield keys and states, in order of the keys."""
        wanted = log_calls.wanted_position(at_least)
        while limit is None or limit > 0:
            size = ROWS if limit is None else min(limit, ROWS)
            found = self._send(log_calls.view_rows(self.name, after=after, limit=size, as_of=as_of, at_least=wanted))
            yield from found.items
            limit = None if limit is None else limit - len(found.rows)
            after = found.next
            if not after:
                return

    def position(self) -> Position:
        """Return how far the view is."""
        return Position(self._rows().position)

    def lag(self) -> int:
        """Return how many positions the log is ahead of the view."""
        return int(self._rows().lag)

    def _rows(self) -> log_calls.ViewRows:
        found: log_calls.ViewRows = self._send(log_calls.view_rows(self.name, limit=1))
        return found

    def wait_for(self, position: int | Recorded, timeout_s: float = TIMEOUT_S) -> Position:
        """Wait until the view has applied what was appended. Raise ViewBehind when the time is over."""
        wanted, until = log_calls.wanted_position(position), time.monotonic() + timeout_s
        while True:
            left = max(0.0, until - time.monotonic())
            call = log_calls.view_rows(self.name, limit=1, at_least=wanted, timeout_s=min(left, WAIT_S_MAX))
            reached = self._send(call).position
            if reached >= wanted:
                return Position(reached)
            if left <= WAIT_S_MAX:
                raise view_behind(self.name, reached=reached, wanted=wanted, timeout_s=timeout_s)


class AsyncRemoteView:
    """One view, asked where the log is, by a task."""

    def __init__(self, name: str, send: Callable[[Call[Any]], Awaitable[Any]]) -> None:
        self.name = name
        self._send = send

    async def get(
        self, key: str, *, as_of: Any = None, at_least: int | Recorded = 0, timeout_s: float = TIMEOUT_S
    ) -> Answer:
        """Return the state of a key, now or as it was; see `RemoteView.get`."""
        wanted = log_calls.wanted_position(at_least)
        try:
            call = log_calls.view_get(self.name, key, as_of=as_of, at_least=wanted, timeout_s=timeout_s)
            return log_calls.answer_of(await self._send(call))
        except NotFound as error:
            if not log_calls.is_about_key(error, key):
                raise
        rows = await self._send(log_calls.view_rows(self.name, after=key, limit=1, as_of=as_of))
        return log_calls.nothing_at(self.name, key, rows)

    async def items(
        self, *, after: str = "", limit: int | None = None, as_of: Any = None
    ) -> AsyncIterator[tuple[str, Any]]:
        """Yield keys and states, in order of the keys."""
        while limit is None or limit > 0:
            size = ROWS if limit is None else min(limit, ROWS)
            found = await self._send(log_calls.view_rows(self.name, after=after, limit=size, as_of=as_of))
            for item in found.items:
                yield item
            limit = None if limit is None else limit - len(found.rows)
            after = found.next
            if not after:
                return

    async def wait_for(self, position: int | Recorded, timeout_s: float = TIMEOUT_S) -> Position:
        """Wait until the view has applied what was appended, at most 30 s."""
        wanted = log_calls.wanted_position(position)
        call = log_calls.view_rows(self.name, limit=1, at_least=wanted, timeout_s=min(timeout_s, WAIT_S_MAX))
        reached = (await self._send(call)).position
        if reached < wanted:
            raise view_behind(self.name, reached=reached, wanted=wanted, timeout_s=timeout_s)
        return Position(reached)
