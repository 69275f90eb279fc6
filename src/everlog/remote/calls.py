"""Every request to a server and its answer, as values. The two clients only move their bytes.

call = append(draft, key="…")        what is sent
call.read(reply)                     what it answers: the value, or the error that the same log would raise here
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.catalog.models import is_payload
from everlog.core.canonical import canonical
from everlog.core.event import Recorded
from everlog.core.ids import new_id, parse_id
from everlog.core.query import Cursor, Page, Query, require_limit, require_position
from everlog.errors import (
    EverlogError,
    InvalidField,
    LogClosed,
    NotCanonical,
    NotFound,
    PeerUnavailable,
    RejectedMessage,
)
from everlog.log.write.draft import Draft, Receipt
from everlog.programs.command import By, Command, Outcome, Question
from everlog.programs.operations import Operation
from everlog.programs.program import program_of
from everlog.wire import messages, problems

T = TypeVar("T")
R = TypeVar("R")

JSON, SSE = "application/json", "text/event-stream"
POSITION_MAX = 2**53
PAGE_MAX = 10_000
"""The most events that a server returns at once."""


class Reply(msgspec.Struct, frozen=True):
    """What a server answered. The names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class Call(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One request, and how its answer is read."""

    method: str
    path: str  # from /v1 on
    parse: Callable[[Reply], T]
    query: Sequence[tuple[str, str]] = ()
    body: bytes = b""
    key: str = ""
    request_id: str = ""
    accept: str = JSON
    repeatable: bool = True  # sending it twice is the same as sending it once
    wait_s: float = 0.0  # the server may take this long before it answers

    @property
    def target(self) -> str:
        """The path with the query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    @property
    def headers(self) -> dict[str, str]:
        found = {"accept": self.accept, problems.HINTS: "commands"}
        if self.body:
            found["content-type"] = JSON
        if self.key:
            found["idempotency-key"] = self.key
        if self.request_id:
            found["x-request-id"] = self.request_id
        return found

    def read(self, reply: Reply, server: str) -> T:
        """Return what the server answered, or raise the error that it reports."""
        if reply.status >= 400:
            raise error_of(reply, server)
        try:
            return self.parse(reply)
        except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError) as error:
            raise not_everlog(server, f"its answer to {self.path} cannot be read") from error


def error_of(reply: Reply, server: str) -> EverlogError:
    """Return the error that a server reports: the class that the same log would raise in this process."""
    if reply.content_type == problems.CONTENT_TYPE:
        try:
            return problems.error_of(msgspec.json.decode(reply.body, type=problems.Problem))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            pass  # something between here and the server made it: below, as any other such answer
    if reply.status in (429, 502, 503, 504):
        return PeerUnavailable(
            f"{server} cannot answer now",
            why=f"status {reply.status}, from a proxy in front of it",
            hint="try again later",
        )
    return not_everlog(server, f"it answered with status {reply.status}")


def not_everlog(server: str, why: str) -> RejectedMessage:
    return RejectedMessage(
        f"{server} does not answer as a server of everlog does",
        why=why,
        hint="check the URL: it is what everlog serve printed",
    )


def closed() -> LogClosed:
    return LogClosed("this connection was closed", hint="connect again: everlog.connect(URL)")


# ---- appending


def payload_of(catalog: Catalog, event_type: str, payload: Any) -> msgspec.Raw:
    """Return the JSON of a payload; refuse a value that has no single JSON form, as the log itself does."""
    if is_payload(payload):
        _, payload = catalog.validate(event_type, payload)
    try:
        return msgspec.Raw(canonical({} if payload is None else payload))
    except NotCanonical:
        if catalog.knows(event_type):  # then its model has the first word, as in the log itself
            catalog.validate(event_type, payload)
        raise


def _draft_object(catalog: Catalog, draft: Draft) -> messages.DraftObject:
    if not isinstance(draft, Draft):
        raise InvalidField(f"a {type(draft).__name__} is not a draft", hint="everlog.Draft(type, stream, payload)")
    own = msgspec.structs.replace(draft, payload=payload_of(catalog, draft.type, draft.payload))
    return messages.DraftObject.of(own)


def _encoded(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, UnicodeEncodeError, OverflowError) as error:
        raise InvalidField("the request has no JSON form", why=str(error), hint="check its fields") from error


def append(catalog: Catalog, draft: Draft, *, key: str = "", dry_run: bool = False) -> Call[Receipt]:
    """Record one event. Without a key it gets one, so that it can be sent again when no answer arrives."""

    def read(reply: Reply) -> Receipt:
        return _receipt([messages.read_record(reply.body)], reply, dry_run)

    return Call(
        method="POST",
        path="/v1/events",
        parse=read,
        query=_dry(dry_run),
        body=_encoded(_draft_object(catalog, draft)),
        key=own_key(key, dry_run),
    )


def append_batch(catalog: Catalog, drafts: Sequence[Draft], *, key: str = "", dry_run: bool = False) -> Call[Receipt]:
    """Record all events, or none."""

    def read(reply: Reply) -> Receipt:
        return _receipt(messages.read_records(reply.body), reply, dry_run)

    return Call(
        method="POST",
        path="/v1/events:batch",
        parse=read,
        query=_dry(dry_run),
        body=_encoded([_draft_object(catalog, draft) for draft in drafts]),
        key=own_key(key, dry_run),
    )


def commit(catalog: Catalog, drafts: Sequence[Draft], *, key: str = "", dry_run: bool = False) -> Call[Receipt]:
    """Record one event or several."""
    if len(drafts) == 1:
        return append(catalog, drafts[0], key=key, dry_run=dry_run)
    return append_batch(catalog, drafts, key=key, dry_run=dry_run)


def own_key(given: str, dry_run: bool = False) -> str:
    """Return the key of a request that must be recorded once, however often it is sent."""
    if given and not (given.isascii() and given.isprintable() and given == given.strip()):
        raise InvalidField(
            f"the key {given!r:.60} cannot be sent",
            why="it is a header of HTTP, which has printable ASCII only, and no space at its ends",
            hint="choose another key",
            field="key",
        )
    return given or ("" if dry_run else f"client-{new_id().lower()}")


def _dry(dry_run: bool) -> list[tuple[str, str]]:
    return [("dry_run", "true")] if dry_run else []


def _receipt(records: Sequence[Recorded], reply: Reply, dry_run: bool) -> Receipt:
    return Receipt(records, replayed=reply.headers.get("idempotent-replay") == "true", dry_run=dry_run)


# ---- reading


def page_after(cursor: Cursor, query: Query, *, limit: int, wait_s: float = 0.0) -> Call[Page]:
    """Return the events after a cursor, or a reset if history has changed."""
    require_limit(limit)
    more = [("wait", f"{wait_s:g}")] if wait_s else []
    asked = [("after", str(cursor)), ("limit", str(min(limit, PAGE_MAX))), *more, *_filters(query)]
    return Call(method="GET", path="/v1/events", parse=_read_page, query=asked, wait_s=wait_s)


def page_from(after: int, query: Query, *, limit: int) -> Call[Page]:
    """Return the events after a position, for a reader that only looks: purged positions are holes."""
    asked = [("from", str(min(after + 1, POSITION_MAX))), ("limit", str(min(limit, PAGE_MAX))), *_filters(query)]
    return Call(method="GET", path="/v1/events", parse=_read_page, query=asked)


def newest(query: Query, *, limit: int, upto: int | None = None) -> Call[Page]:
    """Return the newest events, or the newest up to a position, the newest first.

    The next cursor of this page is the position to continue with, towards the start; 0 at the start.
    """
    asked = [("order", "newest"), ("limit", str(min(limit, PAGE_MAX))), *_filters(query)]
    if upto is not None:
        asked.append(("from", str(min(upto, POSITION_MAX))))
    return Call(method="GET", path="/v1/events", parse=_read_page, query=asked)


def stream_after(cursor: Cursor, query: Query) -> Call[None]:
    """Follow the log after a cursor, as server-sent events."""
    asked = [("after", str(cursor)), *_filters(query)]
    return Call(method="GET", path="/v1/events/stream", parse=lambda reply: None, query=asked, accept=SSE)


def get(event: str | int) -> Call[Recorded | None]:
    """Return the event with this id, in either spelling, or at this position; None if there is none."""
    if isinstance(event, str):
        path = f"/v1/events/{parse_id(event)}"
    else:
        require_position("the position", event)
        path = f"/v1/at/{int(event)}"
    return Call(method="GET", path=path, parse=lambda reply: messages.read_record(reply.body))


def require_missing(error: NotFound) -> None:
    """Raise an error that is not about an event that is not there."""
    if type(error) is not NotFound:
        raise error


def _read_page(reply: Reply) -> Page:
    return messages.read_page(reply.body)


def _filters(query: Query) -> list[tuple[str, str]]:
    found = [("type", name) for name in sorted(query.types)]
    texts = {
        "stream": query.stream,
        "kind": query.kind,
        "scope": query.scope,
        "actor": query.actor,
        "correlation": query.correlation_id,
        "since": "" if query.since is None else query.since.isoformat(),
        "until": "" if query.until is None else query.until.isoformat(),
    }
    return found + [(name, text) for name, text in texts.items() if text]


# ---- commands and questions


def perform(command: Command[R], by: By) -> Call[Outcome[R]]:
    """Carry out a command. Who acts, and in which scope, is decided by the token."""
    if by.within:
        raise _decided_by_token("within", by.within)
    operation = _operation(command)
    asked = [("full", "true"), *_dry(by.dry_run)]
    given = {"at": by.at, "causation_id": by.causation_id, "correlation_id": by.correlation_id, "actor": by.actor}
    asked += [(field, _text(value)) for field, value in given.items() if value]

    def read(reply: Reply) -> Outcome[R]:
        found = msgspec.json.decode(reply.body, type=messages.OutcomeObject)
        return Outcome(
            result=msgspec.convert(found.result, operation.result_type),
            status=found.status,
            records=[messages.read_record(one) for one in found.records],
            next=found.next,
            replayed=reply.headers.get("idempotent-replay") == "true",
        )

    return Call(
        method="POST",
        path=f"/v1/do/{quote(operation.name, safe='.')}",
        parse=read,
        query=asked,
        body=canonical(msgspec.to_builtins(command)),
        key=own_key(by.key, by.dry_run),
        request_id=by.request_id,
    )


def ask(question: Question[R], *, within: str = "") -> Call[R]:
    """Answer a question. What the caller may see is decided by the token."""
    if within:
        raise _decided_by_token("within", within)
    operation = _operation(question)

    def read(reply: Reply) -> R:
        return msgspec.json.decode(reply.body, type=operation.result_type)  # type: ignore[no-any-return]

    return Call(method="GET", path=f"/v1/ask/{quote(operation.name, safe='.')}", parse=read, query=_fields(question))


def _operation(value: Command[Any] | Question[Any]) -> Operation:
    return Operation(program_of(type(value)).name, type(value))


def ask_named(name: str, fields: Mapping[str, Any], kind: Any, *, wait_s: float = 0.0) -> Call[Any]:
    """Ask an operation of the log itself. Fields that are empty are left out."""
    given = [(field, _text(value)) for field, value in fields.items() if value not in (None, "", 0)]

    def read(reply: Reply) -> Any:
        return msgspec.json.decode(reply.body, type=kind)

    return Call(method="GET", path=f"/v1/ask/{name}", parse=read, query=given, wait_s=wait_s)


def do_named(
    name: str, fields: Mapping[str, Any], kind: Any, *, repeatable: bool = False, key: str = ""
) -> Call[Any]:
    """Have an operation of the log itself done. With a key it can be sent again when no answer arrives."""

    def read(reply: Reply) -> Any:
        return msgspec.json.decode(reply.body, type=kind)

    body = canonical(dict(fields))
    return Call(method="POST", path=f"/v1/do/{name}", parse=read, body=body, repeatable=repeatable, key=key)


def _fields(question: Question[Any]) -> list[tuple[str, str]]:
    """Return the fields of a question that are not as they are by default, as a query string has them."""
    found: list[tuple[str, str]] = []
    for field in msgspec.structs.fields(question):
        value = getattr(question, field.name)
        if value == field.default or (field.default_factory is list and not value):
            continue
        several = value if isinstance(value, list | tuple | set | frozenset) else [value]
        found += [(field.encode_name, _text(one)) for one in several]
    return found


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, datetime) else str(msgspec.to_builtins(value))


def _decided_by_token(field: str, value: str) -> InvalidField:
    return InvalidField(
        f"a request to a server cannot choose its own {field}: {value[:80]}",
        why="the token decides who acts and what a caller sees",
        hint=f"leave {field} out, or use a token for that scope",
        field=field,
    )
