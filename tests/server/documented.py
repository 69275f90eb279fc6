"""Every answer is one that the table documents: its status, content type, schema, and the code of a problem."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import jsonschema_rs

from everlog.errors import NoSuchRoute, WrongMethod
from everlog.server.routes.openapi import codes_of, document
from everlog.server.routes.route import Route
from everlog.server.routes.routing import Table

_KNOWN: dict[tuple[str, ...], Documented] = {}


def documented(routes: Sequence[Route]) -> Documented:
    """Return the documentation of some routes; it is made once for equal tables."""
    names = tuple(route.name for route in routes)
    if names not in _KNOWN:
        _KNOWN[names] = Documented(routes)
    return _KNOWN[names]


class Documented:
    """What the table documents."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._table = Table(routes)
        self._document = document(routes)
        self._schemas: dict[tuple[str, int, str], Any] = {}

    def check(self, method: str, path: str, status: int, content_type: str, body: bytes) -> None:
        """Fail if the table does not document an answer."""
        kind = content_type.partition(";")[0]
        try:
            route, _ = self._table.find(method, path)
        except (NoSuchRoute, WrongMethod):
            assert status in (400, 404, 405, 414, 421), (status, path)
            return
        if status >= 400:
            assert kind in (route.problem_type, "application/problem+json"), (route.name, status, kind)
            if kind == "application/problem+json" and body:
                code = json.loads(body)["code"]
                assert code in codes_of(route), f"{route.name} reports {code}, and does not document it"
        else:
            known = [(one.status, one.content_type.partition(";")[0]) for one in route.answers]
            assert status == 304 or (status, kind) in known, (route.name, status, kind)
        if kind in ("application/json", "application/problem+json") and method != "HEAD" and body:
            errors = [str(one)[:500] for one in self._schema(route, status, kind).iter_errors(json.loads(body))]
            assert errors == [], (route.name, status, errors[:2])

    def _schema(self, route: Route, status: int, kind: str) -> Any:
        key = (route.name, status, kind)
        if key not in self._schemas:
            path = self._document["paths"][route.path.replace("+}", "}")]
            found = path[route.method.lower()]["responses"][str(status)]
            if "$ref" in found:
                found = self._document["components"]["responses"][found["$ref"].rpartition("/")[2]]
            schema = {**found["content"][kind]["schema"], "components": self._document["components"]}
            self._schemas[key] = jsonschema_rs.Draft202012Validator(schema)
        return self._schemas[key]
