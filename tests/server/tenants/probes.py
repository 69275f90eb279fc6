"""Requests that ask about a subject, made from the route table: one for every field of a route that can name it.

A route is covered as soon as it is in the table. A field that is new needs a line in `about` or in `PLAIN`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

import msgspec
from tests.server.calling import Calls

from everlog.application.operations.registry import operations
from everlog.core.ids import new_id
from everlog.core.query import Cursor
from everlog.log.log import Log
from everlog.programs import TYPES
from everlog.server.app import App
from everlog.server.events.cloudevents import BATCH, ONE
from everlog.server.routes.route import NDJSON, Route
from everlog.server.routes.table import routes

ROUTES = [one for one in routes(operations()) if one.operation.partition(".")[0] not in TYPES]
"""All but those of the programs, which test_operations_of_programs probes with commands of each."""

PLAIN = frozenset(
    # What a request carries that names nothing of the log.
    (
        *("type", "payload", "tags", "occurred_at", "request_id", "dry_run", "limit", "order", "wait", "timeout"),
        *("path", "code", "operation", "all", "view", "views", "sample", "switch", "full", "reason", "confirm", "to"),
        *("forget", "decided", "partitions", "start", "lease_s", "in_flight", "max", "again", "token", "retry_in_s"),
        *("group", "member", "events"),
    )
)
DIGITS = "987654321"
"""A position that no log of these tests has."""


class Subject(NamedTuple):
    """What a request can name of one stream. All names have the same length, so that one can replace another."""

    stream: str
    scope: str
    actor: str
    correlation: str
    id: str
    position: str
    cursor: str

    @classmethod
    def named(cls, label: str, scope: str, epoch: str) -> Subject:
        """A subject that is not recorded."""
        cursor = f"{DIGITS}@{epoch}.{'0' * 12}"
        return cls(f"note/{label}", scope, f"user:{label}", f"session-{label}", str(new_id()), DIGITS, cursor)

    def about(self) -> dict[str, list[Any]]:
        """What to put into a field of this name."""
        query = {"no_match": {"stream": self.stream}}
        return {
            "stream": [self.stream],
            "kind": [self.stream.partition("/")[0]],
            "scope": [self.scope],
            "actor": [self.actor],
            "correlation": [self.correlation],
            "correlation_id": [self.correlation],
            "causation_id": [self.id],
            "event": [self.id, self.stream, f"#{self.position}", self.position],
            "id": [self.id],
            "position": [self.position],
            "key": [self.stream],
            "after": [self.cursor, self.position],
            "from": [self.position],
            "as_of": [f"position:{self.position}", "v1", "v2", "lamport:3", "2020-01-01T00:00Z"],
            "at": ["2020-01-01T00:00:00Z"],
            "since": ["v1", "2020-01-01T00:00:00Z"],
            "until": ["2020-01-01T00:00:00Z"],
            "at_least": [self.position],
            "expect": [query, {**query, "after": int(self.position)}, "exists", 2],
        }

    def replaced(self, answer: bytes, missing: Subject) -> bytes:
        """Return an answer about a missing subject as if it had been about this one."""
        pairs = [(getattr(missing, name), getattr(self, name)) for name in ("cursor", "id", "position")]
        pairs.append((missing.stream.partition("/")[2], self.stream.partition("/")[2]))
        pairs.append((str(int(missing.position) - 1), str(int(self.position) - 1)))
        for old, new in pairs:
            answer = answer.replace(quote(old).encode(), quote(new).encode()).replace(old.encode(), new.encode())
        return answer


def recorded(log: Log, label: str, scope: str, *, cause: str = "", count: int = 1) -> Subject:
    """Record events of a subject, and return what names it."""
    made = Subject.named(label, scope, log.identity.epoch)
    for _ in range(count):
        found = log.append(
            "note.added",
            stream=made.stream,
            payload={"text": f"text of {label}"},
            scope=scope,
            actor=made.actor,
            correlation_id=made.correlation,
            causation_id=cause,
        )
    cursor = str(Cursor.of(log.page_after(Cursor.of(found.position - 1), limit=1).next_cursor))
    return made._replace(id=str(found.event.id), position=str(found.position), cursor=cursor)


class Probe(NamedTuple):
    """A request."""

    route: Route
    field: str
    path: str
    body: Any = None
    accept: str = ""

    @property
    def name(self) -> str:
        return f"{self.route.name} by {self.field or 'nothing'} {self.accept}: {self.path}"


def probes(about: Subject, *, dry_run: bool) -> Iterator[Probe]:
    """Yield requests about a subject. With `dry_run`, none of them changes the log."""
    for route in ROUTES:
        yield from _of_route(route, about, dry_run=dry_run)


def _of_route(route: Route, about: Subject, *, dry_run: bool) -> Iterator[Probe]:
    named = about.about()
    in_path = re.findall(r"\{(\w+)\+?\}", route.path)
    fields = _fields(route.query) - set(route.from_path)
    given = json.loads(route.example) if route.body and route.example.startswith(("{", "[")) else {}
    of_body = _fields(_item(route.body.type)) - set(route.from_path) if route.body is not None and given else set()
    unknown = (fields | of_body | set(in_path)) - PLAIN - set(named)
    assert not unknown, f"{route.name}: what does {', '.join(sorted(unknown))} name? See PLAIN and Subject.about"
    path = _path(route, about)
    pairs = _example_pairs(route)
    if dry_run and "dry_run" in fields:
        pairs["dry_run"] = "true"
    if dry_run and "dry_run" in of_body:
        given = {**given, "dry_run": True}
    for field in ("", *sorted(fields & set(named))):
        for value in named[field] if field else [""]:
            query = {**pairs, **({field: value} if field else {})}
            for accept in _accepts(route):
                yield Probe(route, field, f"{path}?{urlencode(query)}" if query else path, given or None, accept)
    for field in sorted(of_body & set(named)):
        for value in named[field]:
            yield Probe(route, field, f"{path}?{urlencode(pairs)}" if pairs else path, _with(given, field, value))


@cache
def _fields(kind: Any) -> set[str]:
    return set() if kind is None else {one.encode_name for one in msgspec.structs.fields(kind)}


@cache
def _item(kind: Any) -> Any:
    """Return the struct of a body: a batch is a list of them."""
    found = msgspec.inspect.type_info(kind)
    if isinstance(found, msgspec.inspect.ListType):
        found = found.item_type
    return found.cls if isinstance(found, msgspec.inspect.StructType) else None


def _with(given: Any, field: str, value: Any) -> Any:
    if isinstance(given, list):
        return [{**given[0], field: value}]
    return {**given, field: value}


def _path(route: Route, about: Subject) -> str:
    if "{" not in route.path:
        return route.path
    kind, _, name = about.stream.partition("/")
    event = about.id if route.name.startswith("events.") else name
    known = {"kind": kind, "id": event, "event": about.id, "position": about.position}
    known |= {"view": "streams", "key": about.stream, "group": "mailer", "member": "mailer-1"}
    return re.sub(r"\{(\w+)\+?\}", lambda found: known[found[1]], route.path)


def _example_pairs(route: Route) -> dict[str, str]:
    """Return what the example of a route has beside names: a field that is required."""
    query = route.example.partition("?")[2] if route.method == "GET" else ""
    return {name: value for name, value in parse_qsl(query) if name in _REQUIRED and name not in route.from_path}


_REQUIRED = ("path", "since", "view", "stream", "key", "event")


def _accepts(route: Route) -> tuple[str, ...]:
    known = {one.content_type.partition(";")[0] for one in route.answers}
    return ("", *(one for one in (NDJSON, ONE, BATCH) if one in known and route.method == "GET"))


class Answered(NamedTuple):
    """An answer, without what differs between any two requests."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


_VOLATILE = re.compile(
    rb'"request_id":"[^"]*"|,?"refused_before":[0-9]+|,?"refused_last":"[^"]*"|,?"details":[{][}]|"checks":[{][^}]*[}]'
)
_OF_RECORDS = re.compile(rb'"(?:id|received_at|occurred_at|salt|commitment|previous|lamport|origin_seq)":[^,}]*')
"""What a dry run makes anew each time; `lamport` and `origin_seq` follow the log's own clock."""
_HEADERS = ("x-request-id", "ratelimit", "ratelimit-policy", "set-cookie", "date", "content-length")


def answer_to(calls: Calls, probe: Probe) -> Answered:
    headers = {"accept": probe.accept} if probe.accept else {}
    if probe.route.name == "events.stream":
        return Answered(200, (), asyncio.run(beginning_of_stream(calls, probe.path)))
    given: dict[str, Any] = {} if probe.route.body is None else {"json": probe.body if probe.body is not None else {}}
    found = calls.send(probe.route.method, probe.path, headers=headers, **given)
    kept = tuple(sorted((name, value) for name, value in found.headers.items() if name not in _HEADERS))
    body = _VOLATILE.sub(b"", _VOLATILE.sub(b"", found.content))
    if probe.route.policy.role in ("append", "admin") and found.status_code < 300:
        body = _OF_RECORDS.sub(b"", body)
    return Answered(found.status_code, kept, body)


async def beginning_of_stream(calls: Calls, path: str) -> bytes:
    """Return the status of a stream, and what it sends until it waits for new events."""
    pieces: list[bytes] = []
    left = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        pieces.append(str(message.get("status", "")).encode() + message.get("body", b""))

    target, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": "GET",
        "path": target,
        "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {calls.secret}".encode())],
        "server": ("127.0.0.1", 80),
    }
    app: App = calls.app
    running = asyncio.create_task(app(scope, receive, send))
    hub = app.services["log"].hub
    async with asyncio.timeout(30):
        sent = -1
        while not running.done() and sent != len(pieces):
            await asyncio.sleep(0.01)
            if all(client.live and client._waiter is not None for client in hub._clients) and hub._clients:
                sent = len(pieces)
                await asyncio.sleep(0.02)  # the hub may be about to send what is newest
        left.set()
        await running
    return _VOLATILE.sub(b"", b"".join(pieces))
