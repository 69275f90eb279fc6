"""What a route is. The app, the OpenAPI document, docs/http.md and the tests all read the same list of routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

import msgspec

from everlog.core.text import did_you_mean
from everlog.errors import BadRequest, InvalidField
from everlog.programs.policy import ROLES as ROLES
from everlog.programs.policy import Policy as Policy
from everlog.programs.policy import Role as Role

if TYPE_CHECKING:
    from everlog.server.sending import Sending
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
    operation: str = ""  # the operation that it runs, if it is a spelling of one
    from_path: Mapping[str, str] = {}  # fields of the query or the body that the path has, with its {names}
    headers: tuple[str, ...] = ()  # request headers that it reads, beside those that every route does
    problem_type: str = "application/problem+json"
    keyed: bool = False  # it takes an Idempotency-Key
    bytes_max: int = 1024 * 1024 + 64 * 1024  # of the body


def read_query(request: Request, kind: type[Any], given: Mapping[str, Any] | None = None) -> Any:
    """Return the query string as a struct; refuse what it does not have. `given` are fields from the path."""
    found: dict[str, Any] = query_fields(request, kind, left_out=given or ())
    try:
        return msgspec.convert({**found, **(given or {})}, kind, strict=False)
    except msgspec.ValidationError as error:
        field = str(error).partition("$.")[2].rstrip("`").partition("[")[0]
        raise InvalidField(
            f"the parameter {field or '?'} is not usable",
            why=str(error),
            hint=f"see {request.route.name} in /openapi.json",
            field=field,
        ) from error


def query_fields(request: Request, kind: type[Any], *, left_out: Collection[str] = ()) -> dict[str, Any]:
    """Return the texts of a query string, by the names of a struct's fields."""
    from urllib.parse import parse_qsl

    fields = {field.encode_name: field for field in msgspec.structs.fields(kind) if field.encode_name not in left_out}
    found: dict[str, Any] = {}
    try:
        pairs = (
            parse_qsl(
                request.query_text, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=100
            )
            if request.query_text
            else []
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
        if is_repeatable(fields[name].type):
            found.setdefault(name, []).append(value)
        elif name in found:
            raise InvalidField(f"the query parameter {name} is given twice", hint="leave one of them out", field=name)
        else:
            found[name] = value
    return found


def is_repeatable(kind: Any) -> bool:
    """Return whether a field of this type is a list: its parameter may be repeated."""
    origin = get_origin(kind)
    if origin is Annotated:
        return is_repeatable(get_args(kind)[0])
    if origin in (Union, UnionType):
        return any(map(is_repeatable, get_args(kind)))
    return origin in (tuple, list) or kind in (tuple, list)
