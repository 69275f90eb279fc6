"""The route table: every entry states its policy, an example, its problems and its statuses."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from everlog.application.operations.registry import operations
from everlog.programs.command import Command, Question
from everlog.programs.operations import Operation
from everlog.programs.policy import ROLES, Policy
from everlog.server.routes.asyncapi import stream_document
from everlog.server.routes.openapi import codes_of, document, statuses_of
from everlog.server.routes.route import Answer, Route
from everlog.server.routes.routing import Table
from everlog.server.routes.table import routes
from everlog.wire.problems import every_error

OPERATIONS = operations()
ROUTES = routes(OPERATIONS)
CODES = {kind.code for kind in every_error()}


def defects_of(route: Route) -> list[str]:
    """Return what an entry of the table lacks."""
    found = []
    if not isinstance(route.policy, Policy) or route.policy.role not in ROLES:
        found.append("a policy")
    if not route.about.endswith((".", "…")):
        found.append("a sentence about it")
    if not route.answers or not all(one.about and one.status < 400 for one in route.answers):
        found.append("the statuses of its answers")
    unknown = set(codes_of(route)) - CODES
    if unknown or not statuses_of(route):
        found.append(f"problems that exist: {unknown}")
    if route.method == "POST" and route.body is not None and route.body.type is not bytes:
        if route.example.startswith(("{", "[")):
            msgspec.json.decode(route.example)
        elif not route.example.startswith("/"):
            found.append("an example that is a body")
    elif not route.example.startswith("/"):
        found.append("an example that is a path")
    if route.policy.destructive and "confirmation_needed" not in codes_of(route) and route.name != "do.group.skip":
        found.append("a confirmation")
    return found


@pytest.mark.parametrize("route", [pytest.param(one, id=one.name) for one in ROUTES])
def test_an_entry_states_its_policy_an_example_its_problems_and_its_statuses(route: Route) -> None:
    if route.operation == "group.skip":
        return  # a reason is required in place of a confirmation
    assert defects_of(route) == []


def test_an_entry_without_a_part_is_found() -> None:
    route = ROUTES[0]
    for lacking in ({"problems": ("no_such_code",)}, {"answers": ()}, {"example": "hello"}, {"about": "no sentence"}):
        assert defects_of(msgspec.structs.replace(route, **lacking)), lacking


@pytest.mark.parametrize("operation", [pytest.param(one, id=one.name) for one in OPERATIONS])
def test_an_operation_has_an_example_that_fits_and_a_route_with_its_policy(operation: Operation) -> None:
    assert isinstance(operation.policy, Policy)
    operation.read(operation.value.example)
    kind, method = ("do", "POST") if operation.records else ("ask", "GET")
    route, _ = Table(ROUTES).find(method, f"/v1/{kind}/{operation.name}")
    assert (route.operation, route.policy) == (operation.name, operation.policy)
    if issubclass(operation.value, Question):
        assert operation.policy.idempotent
        assert not operation.policy.destructive
    if issubclass(operation.value, Command):
        assert route.keyed


def test_names_and_paths_are_unique() -> None:
    assert len({route.name for route in ROUTES}) == len(ROUTES)
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)


def test_every_program_and_every_part_of_the_log_is_reached() -> None:
    groups = {operation.name.partition(".")[0] for operation in OPERATIONS}
    assert {"agents", "community", "controlplane", "issues", "workpackages"} <= groups
    assert {"log", "view", "group", "snapshot"} <= groups


# ---- documents


def test_the_openapi_document_has_every_route_with_its_parameters_and_answers() -> None:
    found = document(ROUTES)
    json.dumps(found)
    listed = {
        (method.upper(), one["operationId"]) for path in found["paths"].values() for method, one in path.items()
    }
    assert listed == {(route.method, route.name) for route in ROUTES}
    state = found["paths"]["/v1/streams/{kind}/{id}/state"]["get"]
    assert [one["name"] for one in state["parameters"]] == ["kind", "id", "as_of", "view"]
    create = found["paths"]["/v1/do/issues.create"]["post"]
    assert "Idempotency-Key" in [one["name"] for one in create["parameters"]]
    assert create["requestBody"]["content"]["application/json"]["example"]["title"] == "The door squeaks"
    references = _references(found)
    assert references
    for reference in references:
        place: Any = found
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]


def test_a_field_that_the_path_has_is_neither_in_the_query_nor_in_the_body() -> None:
    found = document(ROUTES)["paths"]
    take = found["/v1/groups/{group}/members/{member}/take"]["post"]
    body = take["requestBody"]["content"]["application/json"]["schema"]
    assert not {"group", "member"} & (set(body["properties"]) | set(body["required"]))
    rows = found["/v1/views/{view}"]["get"]["parameters"]
    assert [one["in"] for one in rows if one["name"] == "view"] == ["path"]


def test_the_asyncapi_document_has_the_stream_and_its_messages() -> None:
    found = stream_document(ROUTES)
    assert found["asyncapi"] == "3.0.0"
    assert [one["address"] for one in found["channels"].values()] == ["/v1/events/stream"]
    assert set(found["components"]["messages"]) == {"event", "reset", "bye"}
    for reference in _references(found):
        place: Any = found
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]


def _references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(_references, value.values()))
    return set().union(*map(_references, value)) if isinstance(value, list) else set()


# ---- finding routes


@pytest.mark.parametrize(
    ("path", "name", "params"),
    [
        ("/v1/views/streams", "views.rows", {"view": "streams"}),
        ("/v1/views/streams:lag", "views.lag", {"view": "streams"}),
        ("/v1/views/streams/note/1", "views.get", {"view": "streams", "key": "note/1"}),
        ("/v1/streams/note/1", "streams.get", {"kind": "note", "id": "1"}),
        ("/v1/events/stream", "events.stream", {}),
        ("/v1/events/01M7", "events.get", {"id": "01M7"}),
    ],
)
def test_the_most_exact_route_is_found(path: str, name: str, params: dict[str, str]) -> None:
    route, found = Table(ROUTES).find("GET", path)
    assert (route.name, found) == (name, params)


def test_an_answer_with_two_forms_documents_both() -> None:
    one = document([ROUTES[0]])["paths"][ROUTES[0].path][ROUTES[0].method.lower()]
    assert set(one["responses"]) >= {str(answer.status) for answer in ROUTES[0].answers}
    assert isinstance(ROUTES[0].answers[0], Answer)
