"""A log behind a server: `everlog.connect("https://…")` returns an object with the interface of a log."""

from __future__ import annotations

import builtins
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Self, TypedDict, TypeVar, Unpack, overload

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.catalog.models import Payload
from everlog.core.event import START, Position, Purge, Recorded, TypedRecord
from everlog.core.query import EVERYTHING, Cursor, Page, Query, Reset, require_limit, require_position, require_query
from everlog.errors import Damaged, EverlogError, NotFound, Unavailable
from everlog.log.derived import ViewName
from everlog.log.read.follow import POLL_S, closed_early
from everlog.log.read.pages import PAGE_LIMIT
from everlog.log.read.upcast import upcast, upcast_all, with_typed_payloads
from everlog.log.verify.verify import Report
from everlog.log.write.draft import Draft, Receipt, typed_payload
from everlog.log.write.expect import Expectation
from everlog.log.write.refusal_rows import Refusal
from everlog.programs.command import NOBODY, By, Command, Outcome, PerformsElsewhere, Question
from everlog.programs.registry import Own
from everlog.remote import calls, log_calls
from everlog.remote.address import Address, address_of, find_token
from everlog.remote.calls import Call
from everlog.remote.following import POLL_WAIT_S, Following
from everlog.remote.reading import Reading, ReadingBack
from everlog.remote.view import RemoteView
from everlog.settings import load
from everlog.stores.contract import Identity
from everlog.user_code import catalog_of

T = TypeVar("T")
R = TypeVar("R")

TIMEOUT_S = 30.0


def connect(
    url: str,
    *,
    token: str = "",
    catalog: Catalog | None = None,
    programs: Own = (),
    timeout_s: float = TIMEOUT_S,
    allow_http: bool = False,
    tls: ssl.SSLContext | None = None,
) -> RemoteLog:
    """Return the log that a server offers at a URL. Nothing is sent before it is used.

    The token is the given one, that of the variable EVERLOG_TOKEN, or that of the line of this server in the user's
    file of tokens. `catalog` and `programs` have the event types for typed payloads, beside the built-in ones.
    Certificates are verified, with those of the system or as `tls` says. Without TLS, only a server on this machine
    is used, unless `allow_http`.
    """
    address = address_of(url, allow_http=allow_http)
    return RemoteLog(
        address, find_token(address, token), own_catalog(catalog, programs), timeout_s=timeout_s, tls=tls
    )


def own_catalog(catalog: Catalog | None, programs: Own) -> Catalog:
    """Return the event types that a client knows: those that `everlog.open` would know without a folder."""
    return catalog_of(load(None).settings, None, catalog, programs)


def needs_httpx(error: ImportError) -> Unavailable:
    return Unavailable(
        "a client of a server needs the library httpx2",
        why=str(error),
        hint="pip install 'everlog[client]', or EVERLOG_EXTRAS=client ./everlog …",
    )


class DraftFields(TypedDict, total=False):
    """The arguments of `append` that go into its draft as they are."""

    actor: str
    scope: str
    expect: Expectation
    id: str
    occurred_at: datetime | None
    request_id: str
    causation_id: str
    correlation_id: str
    tags: Mapping[str, str]


class ReadRange(TypedDict, total=False):
    """The arguments of `read` beside the query: which part of the log, and in which order."""

    after: int
    upto: int | None
    limit: int | None
    newest_first: bool
    past_damage: Callable[[Damaged], None] | None


def draft_of(catalog: Catalog, type: str | Payload, stream: str, payload: Any, fields: Mapping[str, Any]) -> Draft:
    """Return the draft that the arguments of `append` describe."""
    if not isinstance(type, str):
        type, payload = typed_payload(catalog, type, payload)
    given = {name: value for name, value in fields.items() if value is not None}
    return Draft(type=type, stream=stream, payload={} if payload is None else payload, **given)


class RemoteLog(PerformsElsewhere):
    """A log behind a server."""

    def __init__(
        self, address: Address, token: str, catalog: Catalog, *, timeout_s: float, tls: ssl.SSLContext | None
    ) -> None:
        try:
            from everlog.remote.http import Http
        except ImportError as error:
            raise needs_httpx(error) from error
        self.url = address.url
        self.catalog = catalog
        self._http = Http(address, token, timeout_s=timeout_s, tls=tls)

    def _send(self, call: Call[T]) -> T:
        return self._http.send(call)

    # ---- appending

    def append(
        self,
        type: str | Payload,
        *,
        stream: str,
        payload: Any = None,
        key: str = "",
        dry_run: bool = False,
        **fields: Unpack[DraftFields],
    ) -> Recorded:
        """Record one event. When this returns, it is on the disk of the server.

        It is what `Log.append` is, with the same arguments. Without a key the request gets one: if no answer arrives,
        it is sent again, and recorded once. The token decides who acts; another `actor` is refused.
        """
        draft = draft_of(self.catalog, type, stream, payload, fields)
        return self.commit((draft,), key=key, dry_run=dry_run).records[0]

    def append_batch(self, drafts: Sequence[Draft], *, key: str = "", dry_run: bool = False) -> Sequence[Recorded]:
        """Record all of them or none, on one stream or many."""
        return self._send(calls.append_batch(self.catalog, drafts, key=key, dry_run=dry_run)).records

    def commit(self, drafts: Sequence[Draft], *, key: str = "", dry_run: bool = False) -> Receipt:
        """Record drafts, and return the receipt: the records, and whether it is a replay."""
        return self._send(calls.commit(self.catalog, drafts, key=key, dry_run=dry_run))

    # ---- reading

    def page_after(
        self, cursor: Cursor | int | str = START, query: Query = EVERYTHING, *, limit: int = PAGE_LIMIT
    ) -> Page:
        """Return the events after a cursor, in order, or a reset if history has changed."""
        require_query(query)
        return upcast_page(self.catalog, self._send(calls.page_after(Cursor.of(cursor), query, limit=limit)))

    @overload
    def read(
        self, query: Query = EVERYTHING, *, stream: str = "", **given: Unpack[ReadRange]
    ) -> Iterator[Recorded]: ...

    @overload
    def read(
        self, query: builtins.type[T], *, stream: str = "", **given: Unpack[ReadRange]
    ) -> Iterator[TypedRecord[T]]: ...

    def read(
        self, query: Query | builtins.type[T] = EVERYTHING, *, stream: str = "", **given: Unpack[ReadRange]
    ) -> Iterator[Recorded] | Iterator[TypedRecord[T]]:
        """Return events in order, fetched page by page; see `Log.read`, which has the same arguments."""
        reading = reading_of(asked_query(self.catalog, query, stream), given)
        found = upcast_all(self.catalog, self._read(reading, given.get("past_damage")))
        return with_typed_payloads(self.catalog, found) if isinstance(query, builtins.type) else found

    def _read(
        self, reading: Reading | ReadingBack, past_damage: Callable[[Damaged], None] | None
    ) -> Iterator[Recorded]:
        while (call := reading.next_call()) is not None:
            try:
                found = reading.take(self._send(call))
            except Damaged as error:
                if past_damage is None:
                    raise
                past_damage(error)
                reading.skip(error)
                continue
            yield from found

    def get(self, event: str | int) -> Recorded | None:
        """Return the event with this id, in either spelling, or at this position."""
        try:
            found = self._send(calls.get(event))
        except NotFound as error:
            calls.require_missing(error)
            return None
        return None if found is None else upcast(self.catalog, found)

    def head(self) -> Position:
        return self._send(calls.newest(EVERYTHING, limit=1)).head

    def subscribe(
        self,
        after: Cursor | int | str = START,
        query: Query = EVERYTHING,
        *,
        to_end: bool = False,
        stop: Callable[[], bool] = lambda: False,
    ) -> Iterator[Recorded | Reset]:
        """Return everything after the cursor and then everything new, until `stop()` returns True.

        After a lost connection it continues where it was: every event is given out once, in order.
        """
        require_query(query)
        following = Following(Cursor.of(after))
        if self._http.is_closed():
            raise calls.closed()
        found = self._to_end(following, query, stop) if to_end else self._follow(following, query, stop)
        return self._upcast_items(found)

    def _upcast_items(self, found: Iterator[Recorded | Reset]) -> Iterator[Recorded | Reset]:
        for item in found:
            yield upcast(self.catalog, item) if isinstance(item, Recorded) else item

    def _to_end(self, following: Following, query: Query, stop: Callable[[], bool]) -> Iterator[Recorded | Reset]:
        while not stop() and not following.at_end:
            if self._http.is_closed():
                raise closed_early(following.cursor.position)
            yield from following.take_page(self._send(calls.page_after(following.cursor, query, limit=PAGE_LIMIT)))

    def _follow(self, following: Following, query: Query, stop: Callable[[], bool]) -> Iterator[Recorded | Reset]:
        while not stop() and not self._http.is_closed():
            try:
                yield from self._stream(following, query, stop)
                pause = following.pause_after(None)
            except EverlogError as error:
                if self._http.is_closed():
                    return
                pause = following.pause_after(error)
            while pause > 0 and not stop() and not self._http.is_closed():
                self._http.wait(min(pause, POLL_S))
                pause -= POLL_S

    def _stream(self, following: Following, query: Query, stop: Callable[[], bool]) -> Iterator[Recorded | Reset]:
        """Yield what one connection brings: a stream, or a page that waits for events."""
        pieces = self._http.open_stream(calls.stream_after(following.cursor, query))
        if pieces is None:
            call = calls.page_after(following.cursor, query, limit=PAGE_LIMIT, wait_s=POLL_WAIT_S)
            yield from following.take_page(self._send(call))
            return
        try:
            following.begin_stream()
            while not (stop() or self._http.is_closed() or following.ended):
                piece = pieces.take(POLL_S)
                if piece is None:
                    continue
                if not piece:
                    return
                yield from following.take_piece(piece)
        finally:
            pieces.close()

    # ---- commands and questions

    def perform(self, command: Command[R], by: By = NOBODY) -> Outcome[R]:
        """Carry out a command of a program; `everlog.perform(log, command, by)` does the same."""
        return self._send(calls.perform(command, by))

    def ask(self, question: Question[R], *, within: str = "") -> R:
        """Answer a question of a program; `everlog.ask(log, question)` does the same."""
        return self._send(calls.ask(question, within=within))

    # ---- views

    def view(self, view: ViewName) -> RemoteView:
        """A view of this log, to be asked: `log.view("streams").get("note/1").state`."""
        return RemoteView(log_calls.view_name(view), self._send)

    def wait_for(self, view: ViewName, position: int | Recorded, timeout_s: float = 5.0) -> Position:
        """Wait until a view has applied what was appended. Raise ViewBehind when the time is over."""
        return self.view(view).wait_for(position, timeout_s)

    def ask_operation(self, name: str, fields: Mapping[str, Any], kind: Any = Any) -> Any:
        """Ask an operation of the server by its name, such as log.state; the answer is converted into `kind`."""
        return self._send(calls.ask_named(name, fields, kind))

    # ---- the rest

    @property
    def identity(self) -> Identity:
        """The log's id, origin and epoch."""
        return log_calls.identity_of(self._send(log_calls.identity()))

    def purge(self, stream: str, *, reason: str) -> Purge:
        """Remove a stream's events for good. Their positions, hashes and the record of the purge stay."""
        return log_calls.purge_of(self._send(log_calls.purge(stream, reason=reason)))

    def refusals(
        self, *, limit: int | None = 50, code: str = "", stream: str = "", actor: str = "", operation: str = ""
    ) -> list[Refusal]:
        """Return recorded refusals, the newest first."""
        call = log_calls.refusals(limit=limit, code=code, stream=stream, actor=actor, operation=operation)
        return self._send(call)

    def verify(self, *, progress: Callable[[int], None] = lambda position: None) -> Report:
        """Have the server check every event, the chains and the indexes, and return what it found."""
        job, asked = self._send(log_calls.verify()), 0
        while not job.ended:
            progress(job.progress)
            self._http.wait(log_calls.pause_s(asked))
            job, asked = self._send(log_calls.job(job.id)), asked + 1
        return log_calls.report_of(job)

    def close(self) -> None:
        """End the connections, and subscriptions that wait for events."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def upcast_page(catalog: Catalog, page: Page) -> Page:
    """Return a page with its events in the form that this catalog has; a server may have older types."""
    return msgspec.structs.replace(page, events=tuple(upcast_all(catalog, page.events)))


def asked_query(catalog: Catalog, query: Query | builtins.type[Any], stream: str) -> Query:
    """Return the query that a reader means: a query, or the model of an event type, and perhaps a stream."""
    if isinstance(query, builtins.type):
        return Query(types=frozenset((catalog.type_of_model(query),)), stream=stream)
    require_query(query)
    return query if stream == "" else msgspec.structs.replace(query, stream=stream)


def reading_of(query: Query, given: ReadRange) -> Reading | ReadingBack:
    """Return the plan of a read."""
    after, upto, limit = given.get("after", START), given.get("upto"), given.get("limit")
    require_position("after", after)
    if upto is not None:
        require_position("upto", upto)
    if limit is not None:
        require_limit(limit)
    kind = ReadingBack if given.get("newest_first") else Reading
    return kind(query, after=after, upto=upto, limit=limit)
