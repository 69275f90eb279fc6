"""The log behind a server, for asyncio: `await everlog.aio.connect("https://…")` has what `everlog.connect` has."""

from __future__ import annotations

import builtins
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Self, TypeVar, Unpack

from everlog.catalog.catalog import Catalog
from everlog.catalog.models import Payload
from everlog.core.event import START, Position, Purge, Recorded, TypedRecord
from everlog.core.query import EVERYTHING, Cursor, Page, Query, Reset, require_query
from everlog.errors import Damaged, EverlogError, NotFound
from everlog.log.derived import ViewName
from everlog.log.read.follow import closed_early
from everlog.log.read.pages import PAGE_LIMIT
from everlog.log.read.upcast import upcast, upcast_all, with_typed_payloads
from everlog.log.verify.verify import Report
from everlog.log.write.draft import Draft, Receipt
from everlog.log.write.refusal_rows import Refusal
from everlog.programs.command import NOBODY, By, Command, Outcome, Question
from everlog.programs.registry import Own
from everlog.remote import calls, log_calls
from everlog.remote.address import Address, address_of, find_token
from everlog.remote.calls import Call
from everlog.remote.following import POLL_WAIT_S, Following
from everlog.remote.log import (
    TIMEOUT_S,
    DraftFields,
    ReadRange,
    asked_query,
    draft_of,
    needs_httpx,
    own_catalog,
    reading_of,
    upcast_page,
)
from everlog.remote.view import AsyncRemoteView
from everlog.stores.contract import Identity

T = TypeVar("T")
R = TypeVar("R")


def connect(
    url: str,
    *,
    token: str = "",
    catalog: Catalog | None = None,
    programs: Own = (),
    timeout_s: float = TIMEOUT_S,
    allow_http: bool = False,
    tls: ssl.SSLContext | None = None,
) -> AsyncRemoteLog:
    """Return the log that a server offers at a URL, for the tasks of one event loop; see `everlog.connect`."""
    address = address_of(url, allow_http=allow_http)
    types = own_catalog(catalog, programs)
    return AsyncRemoteLog(address, find_token(address, token), types, timeout_s=timeout_s, tls=tls)


class AsyncRemoteLog:
    """A log behind a server, for asyncio."""

    def __init__(
        self, address: Address, token: str, catalog: Catalog, *, timeout_s: float, tls: ssl.SSLContext | None
    ) -> None:
        try:
            from everlog.remote.http_async import AsyncHttp
        except ImportError as error:
            raise needs_httpx(error) from error
        self.url = address.url
        self.catalog = catalog
        self._http = AsyncHttp(address, token, timeout_s=timeout_s, tls=tls)

    async def _send(self, call: Call[T]) -> T:
        return await self._http.send(call)

    # ---- appending

    async def append(
        self,
        type: str | Payload,
        *,
        stream: str,
        payload: Any = None,
        key: str = "",
        dry_run: bool = False,
        **fields: Unpack[DraftFields],
    ) -> Recorded:
        """Record one event; see `RemoteLog.append`."""
        draft = draft_of(self.catalog, type, stream, payload, fields)
        return (await self.commit((draft,), key=key, dry_run=dry_run)).records[0]

    async def append_batch(
        self, drafts: Sequence[Draft], *, key: str = "", dry_run: bool = False
    ) -> Sequence[Recorded]:
        """Record all of them or none."""
        return (await self._send(calls.append_batch(self.catalog, drafts, key=key, dry_run=dry_run))).records

    async def commit(self, drafts: Sequence[Draft], *, key: str = "", dry_run: bool = False) -> Receipt:
        """Record drafts, and return the receipt."""
        return await self._send(calls.commit(self.catalog, drafts, key=key, dry_run=dry_run))

    # ---- reading

    async def page_after(
        self, cursor: Cursor | int | str = START, query: Query = EVERYTHING, *, limit: int = PAGE_LIMIT
    ) -> Page:
        """Return the events after a cursor, in order, or a reset if history has changed."""
        require_query(query)
        return upcast_page(self.catalog, await self._send(calls.page_after(Cursor.of(cursor), query, limit=limit)))

    async def read(
        self, query: Query = EVERYTHING, *, stream: str = "", **given: Unpack[ReadRange]
    ) -> AsyncIterator[Recorded]:
        """Yield events in order, fetched page by page; see `Log.read`, which has the same arguments."""
        reading, past_damage = reading_of(asked_query(self.catalog, query, stream), given), given.get("past_damage")
        while (call := reading.next_call()) is not None:
            try:
                found = reading.take(await self._send(call))
            except Damaged as error:
                if past_damage is None:
                    raise
                past_damage(error)
                reading.skip(error)
                continue
            for recorded in upcast_all(self.catalog, found):
                yield recorded

    async def read_typed(
        self, model: builtins.type[T], *, stream: str = "", after: int = START, limit: int | None = None
    ) -> AsyncIterator[TypedRecord[T]]:
        """Yield the events of the type of a model, with typed payloads."""
        asked = asked_query(self.catalog, model, stream)
        async for recorded in self.read(asked, after=after, limit=limit):
            for typed in with_typed_payloads(self.catalog, (recorded,)):
                yield typed

    async def get(self, event: str | int) -> Recorded | None:
        """Return the event with this id, in either spelling, or at this position."""
        try:
            found = await self._send(calls.get(event))
        except NotFound as error:
            calls.require_missing(error)
            return None
        return None if found is None else upcast(self.catalog, found)

    async def head(self) -> Position:
        return (await self._send(calls.newest(EVERYTHING, limit=1))).head

    async def subscribe(
        self, after: Cursor | int | str = START, query: Query = EVERYTHING, *, to_end: bool = False
    ) -> AsyncIterator[Recorded | Reset]:
        """Yield everything after the cursor and then everything new, until the log is closed; see `RemoteLog`."""
        require_query(query)
        following = Following(Cursor.of(after))
        if self._http.is_closed():
            raise calls.closed()
        async for item in self._to_end(following, query) if to_end else self._follow(following, query):
            yield upcast(self.catalog, item) if isinstance(item, Recorded) else item

    async def _to_end(self, following: Following, query: Query) -> AsyncIterator[Recorded | Reset]:
        while not following.at_end:
            if self._http.is_closed():
                raise closed_early(following.cursor.position)
            page = await self._send(calls.page_after(following.cursor, query, limit=PAGE_LIMIT))
            for item in following.take_page(page):
                yield item

    async def _follow(self, following: Following, query: Query) -> AsyncIterator[Recorded | Reset]:
        while not self._http.is_closed():
            try:
                async for item in self._stream(following, query):
                    yield item
                pause = following.pause_after(None)
            except EverlogError as error:
                if self._http.is_closed():
                    return
                pause = following.pause_after(error)
            await self._http.sleep(pause)

    async def _stream(self, following: Following, query: Query) -> AsyncIterator[Recorded | Reset]:
        """Yield what one connection brings: a stream, or a page that waits for events."""
        async with self._http.open_stream(calls.stream_after(following.cursor, query)) as pieces:
            if pieces is not None:
                following.begin_stream()
                async for piece in pieces:
                    for item in following.take_piece(piece):
                        yield item
                    if following.ended:
                        return
                return
        call = calls.page_after(following.cursor, query, limit=PAGE_LIMIT, wait_s=POLL_WAIT_S)
        for item in following.take_page(await self._send(call)):
            yield item

    # ---- commands and questions

    async def perform(self, command: Command[R], by: By = NOBODY) -> Outcome[R]:
        """Carry out a command of a program."""
        return await self._send(calls.perform(command, by))

    async def ask(self, question: Question[R], *, within: str = "") -> R:
        """Answer a question of a program."""
        return await self._send(calls.ask(question, within=within))

    # ---- views

    def view(self, view: ViewName) -> AsyncRemoteView:
        """A view of this log, to be asked: `log.view("streams").get("note/1").state`."""
        return AsyncRemoteView(log_calls.view_name(view), self._send)

    async def wait_for(self, view: ViewName, position: int | Recorded, timeout_s: float = 5.0) -> Position:
        """Wait until a view has applied what was appended. Raise ViewBehind when the time is over."""
        return await self.view(view).wait_for(position, timeout_s)

    async def ask_operation(self, name: str, fields: Mapping[str, Any], kind: Any = Any) -> Any:
        """Ask an operation of the server by its name, such as log.state; the answer is converted into `kind`."""
        return await self._send(calls.ask_named(name, fields, kind))

    # ---- the rest

    async def identity(self) -> Identity:
        """Return the log's id, origin and epoch."""
        return log_calls.identity_of(await self._send(log_calls.identity()))

    async def purge(self, stream: str, *, reason: str) -> Purge:
        """Remove a stream's events for good. Their positions, hashes and the record of the purge stay."""
        return log_calls.purge_of(await self._send(log_calls.purge(stream, reason=reason)))

    async def refusals(
        self, *, limit: int | None = 50, code: str = "", stream: str = "", actor: str = "", operation: str = ""
    ) -> list[Refusal]:
        """Return recorded refusals, the newest first."""
        call = log_calls.refusals(limit=limit, code=code, stream=stream, actor=actor, operation=operation)
        return await self._send(call)

    async def verify(self, *, progress: Callable[[int], None] = lambda position: None) -> Report:
        """Have the server check every event, the chains and the indexes, and return what it found."""
        job, asked = await self._send(log_calls.verify()), 0
        while not job.ended:
            progress(job.progress)
            await self._http.sleep(log_calls.pause_s(asked))
            job, asked = await self._send(log_calls.job(job.id)), asked + 1
        return log_calls.report_of(job)

    async def close(self) -> None:
        """End the connections, and subscriptions that wait for events."""
        await self._http.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
