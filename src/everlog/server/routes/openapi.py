"""The OpenAPI 3.1 document of a server: everything in it comes from the route table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from everlog._version import __version__
from everlog.server.routes.route import JSON, Answer, Route
from everlog.wire.messages import RecordObject
from everlog.wire.problems import CONTENT_TYPE, Problem, every_error, status_of

SCHEMAS = "#/components/schemas/{name}"
ALWAYS = (
    "bad_request",
    "invalid_field",
    "no_such_route",
    "wrong_method",
    "query_too_long",
    "unknown_host",
    "internal",
)
"""The codes that every route may report."""

WITH_TOKEN = ("not_signed_in", "forbidden", "too_many_requests")
ABOUT_LOG = ("busy", "unavailable", "not_ready", "log_closed", "damaged")
WITH_BODY = ("body_too_large", "wrong_content_type", "not_canonical", "request_timed_out")
KEY_CHARS_MAX = 200

_PARAMETER = re.compile(r"\{(\w+)(\+?)\}")
_STATUSES = {kind.code: status_of(kind) for kind in every_error()}


def codes_of(route: Route) -> list[str]:
    """Return every code that a route may report."""
    found = [*ALWAYS]
    if route.policy.role != "none":
        found += WITH_TOKEN
    if route.policy.scope != "none" or route.path.startswith("/v1/"):
        found += ABOUT_LOG
    if route.method == "POST":
        found += WITH_BODY
    return list(dict.fromkeys((*found, *route.problems)))


def statuses_of(route: Route) -> dict[int, list[str]]:
    """Return the statuses with which a route reports problems, and the codes of each."""
    found: dict[int, list[str]] = {}
    for code in codes_of(route):
        found.setdefault(_STATUSES[code], []).append(code)
    return dict(sorted(found.items()))


def document(routes: Sequence[Route], *, url: str = "/") -> dict[str, Any]:
    """Return the OpenAPI document of some routes."""
    schemas = _Schemas(routes)
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(_PARAMETER.sub(r"{\1}", route.path), {})[route.method.lower()] = _described(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "everlog",
            "version": __version__,
            "summary": "An append-only event log over HTTP.",
            "description": "docs/how-to/server/http.md explains it; /asyncapi.json describes the stream.",
        },
        "servers": [{"url": url}],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "responses": schemas.responses,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "A token, or a JWT of the provider."},
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "__Host-everlog",
                    "description": "See /v1/session.",
                },
            },
        },
    }


class _Schemas:
    """The schemas of all types in the table, each once."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._types: list[Any] = [Problem, RecordObject]
        for route in routes:
            self._types += [one.type for one in route.answers if one.type is not None]
            self._types += [route.body.type] if route.body is not None else []
            self._types += [route.query] if route.query is not None else []
        unique = list({repr(one): one for one in self._types}.values())
        found, self.components = msgspec.json.schema_components(unique, ref_template=SCHEMAS)
        self._of = {repr(one): schema for one, schema in zip(unique, found, strict=True)}
        self._problems: dict[tuple[int, str, tuple[str, ...]], str] = {}
        self.responses: dict[str, Any] = {}

    def problem(self, status: int, codes: Sequence[str], content_type: str) -> dict[str, Any]:
        """Return a reference to the answer that reports one of these problems."""
        key = (status, content_type, tuple(codes))
        if key not in self._problems:
            same = sum(1 for known, *_ in self._problems if known == status)
            name = self._problems[key] = f"{status}" if not same else f"{status}-{same + 1}"
            known = {"code": {"enum": list(codes)}, "status": {"const": status}}
            schema = {"allOf": [{"$ref": SCHEMAS.format(name="Problem")}, {"properties": known}]}
            other: dict[str, Any] = {content_type: {"schema": {}}}
            self.responses[name] = {
                "description": f"{HTTPStatus(status).phrase}: {', '.join(codes)}.",
                "content": {CONTENT_TYPE: {"schema": schema}, **({} if content_type == CONTENT_TYPE else other)},
            }
        return {"$ref": f"#/components/responses/{self._problems[key]}"}

    def of(self, kind: Any) -> dict[str, Any]:
        """Return the schema of a type, which may be a reference."""
        return dict(self._of[repr(kind)])

    def whole(self, kind: Any) -> dict[str, Any]:
        """Return the schema of a type itself."""
        found = self.of(kind)
        return deepcopy(self.components[found["$ref"].rpartition("/")[2]]) if "$ref" in found else found


def _described(route: Route, schemas: _Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": route.name,
        "tags": [route.name.partition(".")[0] if not route.operation else route.operation.partition(".")[0]],
        "summary": route.about.partition(". ")[0].rstrip("."),
        "description": route.about,
        "x-everlog-policy": msgspec.to_builtins(route.policy),
        "responses": _responses(route, schemas),
    }
    if route.policy.role != "none":
        found["security"] = [{"token": []}, {"session": []}]
    if parameters := [*_path_parameters(route, schemas), *_query_parameters(route, schemas), *_headers(route)]:
        found["parameters"] = parameters
    if route.body is not None:
        found["requestBody"] = _body(route, schemas)
    return found


# ---- what a request has


def _path_parameters(route: Route, schemas: _Schemas) -> Iterator[dict[str, Any]]:
    kind = route.query or (None if route.body is None else route.body.type)
    fields = schemas.whole(kind).get("properties", {}) if kind is not None and route.from_path else {}
    exact = {pattern: fields[name] for name, pattern in route.from_path.items() if name in fields}
    for name, rest in _PARAMETER.findall(route.path):
        schema = dict(exact.get(f"{{{name}}}", {"type": "string", "minLength": 1}))
        if schema.get("type") == "array":
            schema = dict(schema["items"])
        schema.pop("default", None)
        if schema.get("type") == "string" and not rest:
            schema["pattern"] = r"^[^/]+$"
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _query_parameters(route: Route, schemas: _Schemas) -> Iterator[dict[str, Any]]:
    if route.query is None:
        return
    given = dict(parse_qsl(urlsplit(route.example).query)) if route.method == "GET" else {}
    whole = schemas.whole(route.query)
    for name, schema in whole.get("properties", {}).items():
        if name in route.from_path:
            continue
        schema = _without_null(schema)
        found = {
            "name": name,
            "in": "query",
            "required": name in whole.get("required", ()),
            "schema": schema,
        }
        if about := schema.pop("description", ""):
            found["description"] = about
        if name in given:
            found["example"] = [given[name]] if schema.get("type") == "array" else _typed(given[name], schema)
        yield found


def _typed(text: str, schema: Mapping[str, Any]) -> Any:
    """Return the text of an example as its schema has it."""
    match schema.get("type"):
        case "integer":
            return int(text)
        case "number":
            return float(text)
        case "boolean":
            return text == "true"
    return text


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter: one that is left out is what None is in a struct."""
    found = {name: value for name, value in schema.items() if not (name == "default" and value is None)}
    kinds = [one for one in found.pop("anyOf", ()) if one.get("type") != "null"]
    return {**kinds[0], **found} if len(kinds) == 1 else {**found, "anyOf": kinds} if kinds else found


def _headers(route: Route) -> Iterator[dict[str, Any]]:
    if route.keyed:
        yield {
            "name": "Idempotency-Key",
            "in": "header",
            "description": "Makes a retry safe: an equal request under the same key is recorded once, and every"
            " attempt gets the same answer.",
            "schema": {"type": "string", "minLength": 1, "maxLength": KEY_CHARS_MAX, "pattern": "^[!-~]+$"},
        }
    for header in route.headers:
        yield {"name": header, "in": "header", "schema": {"type": "string"}}


def _body(route: Route, schemas: _Schemas) -> dict[str, Any]:
    assert route.body is not None
    content: dict[str, Any] = {}
    for content_type in route.body.content_types:
        if content_type != JSON:
            content[content_type] = {"schema": {}}
            continue
        schema = schemas.of(route.body.type)
        if route.operation:
            schema = schemas.whole(route.body.type)
            schema["properties"] = {
                name: one for name, one in schema["properties"].items() if name not in route.from_path
            }
            schema["required"] = [name for name in schema.get("required", ()) if name not in route.from_path]
            schema["additionalProperties"] = False
        content[JSON] = {"schema": schema}
        if route.example.startswith(("{", "[")):
            content[JSON]["example"] = msgspec.json.decode(route.example)
    return {"required": True, "content": content}


# ---- what an answer has


def _responses(route: Route, schemas: _Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for answer in route.answers:
        one = found.setdefault(str(answer.status), {"description": answer.about})
        if answer.status != HTTPStatus.NOT_MODIFIED:
            content = one.setdefault("content", {}).setdefault(answer.content_type.partition(";")[0], {})
            schema = _schema(answer, schemas)
            content["schema"] = {"anyOf": [content["schema"], schema]} if "schema" in content else schema
        if headers := _answer_headers(route, answer):
            one["headers"] = headers
    for status, codes in statuses_of(route).items():
        found[str(status)] = schemas.problem(status, codes, route.problem_type)
    return dict(sorted(found.items()))


def _schema(answer: Answer, schemas: _Schemas) -> dict[str, Any]:
    return schemas.of(answer.type) if answer.content_type == JSON and answer.type is not None else {}


def _answer_headers(route: Route, answer: Answer) -> dict[str, Any]:
    found = {}
    if route.keyed and answer.status < HTTPStatus.MULTIPLE_CHOICES:
        text = "true: an earlier attempt under the same key did it, and this is its answer."
        found["Idempotent-Replay"] = {"description": text, "schema": {"type": "string", "const": "true"}}
    if answer.status == HTTPStatus.ACCEPTED:
        found["Location"] = {"description": "The job.", "schema": {"type": "string"}}
    return found
