"""What a route is. The app, the OpenAPI document, docs/reference/http.md and the tests read the same list."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec

from everlog.core.text import did_you_mean
from everlog.errors import BadRequest, InvalidField
from everlog.programs.policy import ROLES as ROLES
from everlog.programs.policy import Policy as Policy
from everlog.programs.policy import Role as Role

if TYPE_CHECKING:
    from everlog.server.events.sending import Sending
    from everlog.server.service import Service

JSON = "application/json"
NDJSON = "application/x-ndjson"
SSE = "text/event-stream"


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who sent a request: what its token says. Actor and scope never come from the request itself."""

    name: str  # of the token, or the subject of a JWT
    actor: str
    within: str = ""
    role: Role = "read"

    def may(self, role: Role) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)


NOBODY = Caller(name="", actor="", role="none")


class Request:
    """One request, after its limits were checked."""

    __slots__ = ("body", "caller", "headers", "id", "method", "params", "path", "query_text", "route", "service")

    def __init__(
        self,
        *,
        method: str,
        path: str,
        params: Mapping[str, str],
        query_text: str,
        headers: Mapping[str, str],
        body: bytes,
        id: str,
        caller: Caller,
        service: Service,
        route: Route,
    ) -> None:
        self.method = method
        self.path = path
        self.params = params
        self.query_text = query_text
        self.headers = headers
        self.body = body
        self.id = id
        self.caller = caller
        self.service = service
        self.route = route

    def header(self, name: str) -> str:
        return self.headers.get(name, "")


class Response:
    """An answer that is complete before it is sent."""

    __slots__ = ("body", "headers", "status")

    def __init__(
        self,
        body: bytes = b"",
        *,
        status: int = 200,
        content_type: str = JSON,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.body = body
        self.status = status
        self.headers = [("content-type", content_type), *headers]


class Streamed:
    """An answer whose body is made while it is sent."""

    def __init__(
        self,
        send_body: Callable[[Sending], Awaitable[None]],
        *,
        content_type: str,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.send_body = send_body
        self.status = 200
        self.headers = [("content-type", content_type), *headers]


Handler = Callable[[Request], Awaitable[Response | Streamed]]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which a route answers."""

    status: int
    about: str
    type: Any = None  # a struct, or None for any JSON
    content_type: str = JSON


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """What a route accepts as its body."""

    type: Any
    content_types: tuple[str, ...] = (JSON,)


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the route table."""

    method: str
    path: str  # with {names} of parameters
    name: str  # unique: the operationId
    about: str  # one sentence, then more if needed
    policy: Policy
    call: Handler
    query: type[msgspec.Struct] | None = None
    body: Body | None = None
    answers: tuple[Answer, ...]
    problems: tuple[str, ...] = ()  # codes, beside those that every route may report
    example: str  # the body, or the path and the query
    example_path: str = ""  # the path of the example, if the path has parameters and the example is a body
    operation: str = ""  # the operation that it runs, if it is a spelling of one
    from_path: Mapping[str, str] = {}  # fields of the query or the body that the path has, with its {names}
    headers: tuple[str, ...] = ()  # request headers that it reads, beside those that every route does
    problem_type: str = "application/problem+json"
    keyed: bool = False  # it takes an Idempotency-Key
    bytes_max: int = 1024 * 1024 + 64 * 1024  # of the body


def read_query(request: Request, kind: type[Any], given: Mapping[str, Any] | None = None) -> Any:
    """Return the query string as a struct; refuse what it does not have. `given` are fields that the path has."""
    if not request.query_text and not given and _needs_nothing(kind):  # type: ignore[arg-type]
        return kind()
    fields = _fields(kind)  # type: ignore[arg-type]
    if given:
        fields = {name: many for name, many in fields.items() if name not in given}
    found: dict[str, Any] = {}
    pairs: list[tuple[str, str]] = []
    try:
        if request.query_text:
            pairs = parse_qsl(
                request.query_text, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=100
            )
    except (ValueError, UnicodeDecodeError) as error:
        raise BadRequest("the query string cannot be read", why=str(error), hint="name=value&name=value") from error
    for name, value in pairs:
        if name not in fields:
            raise InvalidField(
                f"there is no query parameter {name[:60]!r} here",
                why=f"the parameters are {', '.join(fields)}" if fields else "this route has none",
                hint=did_you_mean(name, fields) or f"see {request.route.name} in /openapi.json",
                field=name[:60],
            )
        if fields[name]:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise InvalidField(f"the query parameter {name} is given twice", hint="leave one of them out", field=name)
        else:
            found[name] = value
    try:
        return msgspec.convert(found | dict(given or {}), kind, strict=False)
    except msgspec.ValidationError as error:
        field = str(error).partition("$.")[2].rstrip("`").partition("[")[0]
        raise InvalidField(
            f"the query parameter {field or '?'} is not usable",
            why=str(error),
            hint=f"see {request.route.name} in /openapi.json",
            field=field,
        ) from error


@cache
def _needs_nothing(kind: type[Any]) -> bool:
    return not any(field.required for field in msgspec.structs.fields(kind))


@cache
def _fields(kind: type[Any]) -> dict[str, bool]:
    """Return the parameters of a query string, and whether each may be repeated."""
    return {field.encode_name: is_repeatable(field.type) for field in msgspec.structs.fields(kind)}


def is_repeatable(kind: Any) -> bool:
    """Return whether a field of this type is a list: its parameter may be repeated."""
    if get_origin(kind) is Annotated:
        return is_repeatable(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return any(map(is_repeatable, get_args(kind)))
    return get_origin(kind) in (tuple, list)
