"""Every example of the table runs: those of the programs after the same preparation as on the command line."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cli.conftest import Run, everlog, place
from tests.programs.test_surfaces import COMMANDS, FIRST, MADE_BEFORE, NEEDS_A_FORK, SETUP, _without, prepared
from tests.server.calling import Calls

import everlog as library
from everlog.application.operations.registry import operations
from everlog.programs import TYPES
from everlog.programs.operations import Operation
from everlog.server.app import App
from everlog.server.routes.route import Route
from everlog.server.routes.table import routes
from everlog.server.serve import make_app

__all__ = ["everlog", "place"]

OPERATIONS = operations()
OF_PROGRAMS = [pytest.param(one, id=one.name) for one in OPERATIONS if one.name.partition(".")[0] in TYPES]
OF_LOG = [
    pytest.param(one, id=one.name)
    for one in routes(OPERATIONS)
    if one.operation.partition(".")[0] not in TYPES and not one.path.startswith("/sync/")
]
ANSWERED_LATER = ("events.stream",)


@pytest.mark.parametrize("operation", OF_PROGRAMS)
def test_the_example_of_a_command_or_question_runs(
    operation: Operation, everlog: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = operation.value
    monkeypatch.setenv("EVERLOG_ACTOR", "user:ada")
    assert everlog("init").code == 0
    group = next(group for group, name in _GROUPS.items() if name == operation.name.partition(".")[0])
    words = " ".join(COMMANDS[value][0]) if value in COMMANDS else group
    typed = f"{group} {value.examples[0]}" if value.examples else words  # type: ignore[union-attr]
    made = any(typed.startswith(one) for one in MADE_BEFORE)
    for line in _without(group, typed) if made else SETUP[group]:
        assert everlog(group, *shlex.split(line)).code == 0, line
    names = dict(prepared(everlog, group))
    for start, lines in FIRST.items():
        for line in lines if typed.startswith(start) else ():
            assert everlog(group, *[names.get(word, word) for word in shlex.split(line)]).code == 0, line
    actor = (re.findall(r"--actor (\S+)", typed) or ["user:ada"])[0]
    with library.open("sqlite:.everlog/log.db", actor="user:ada") as log:
        app = make_app({"log": log})
        try:
            given = json.loads(_replaced(json.dumps(dict(value.example)), names))
            calls = Calls.of(app, "example", role="append", actor=actor)
            if operation.records:
                answer = calls.post(f"/v1/do/{operation.name}", given)
            else:
                answer = calls.get(f"/v1/ask/{operation.name}", params=_pairs(given))
            wanted = 404 if typed.startswith(NEEDS_A_FORK) else 200
            assert answer.status_code == wanted, answer.text
        finally:
            app.close()


@pytest.mark.parametrize("operation", [one for one in OF_PROGRAMS if one.values[0].value in COMMANDS])  # type: ignore[union-attr]
def test_the_example_is_that_of_the_command_line(operation: Operation) -> None:
    value = operation.value
    words, command = COMMANDS[value]
    typed = shlex.split(value.examples[0])[len(words) - 1 :]  # type: ignore[union-attr]
    context = command.make_context(words[-1], typed)
    for name, given in value.example.items():
        if name in context.params and name not in ("valid", "since", "node"):
            found = context.params[name]
            assert (list(found) if isinstance(found, tuple) else found) == given, name


def _replaced(text: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        text = text.replace(old, new)
    return text


def _pairs(given: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (name, str(one).lower() if isinstance(one, bool) else str(one))
        for name, value in given.items()
        for one in (value if isinstance(value, list) else [value])
    ]


_GROUPS = {
    "agent": "agents",
    "community": "community",
    "control": "controlplane",
    "issue": "issues",
    "wp": "workpackages",
}


# ---- the log itself


@pytest.fixture
def prepared_app(everlog: Run) -> Iterator[App]:
    """A server over a log with notes, a group of consumers with a dead letter, and a folder for snapshots."""
    assert everlog("init").code == 0
    assert everlog("config", "set", "snapshots", "snapshots").code == 0
    with library.open(actor="user:ada") as log:
        for text in ("hello", "world"):
            log.append("note.added", stream="note/1", payload={"text": text})
        app = make_app({"log": log})
        yield app
        app.close()


@pytest.mark.parametrize("route", OF_LOG)
def test_the_example_of_a_route_runs(route: Route, prepared_app: App) -> None:
    if route.name in ANSWERED_LATER:
        return  # a stream does not end; tests of streaming follow it
    calls = Calls.of(prepared_app, "example", role="admin")
    names = _made_for(route, calls)
    path = route.example_path or (route.example if route.example.startswith("/") else route.path)
    if route.method != "POST" or route.body is None:
        answer = calls.send(route.method, _replaced(route.example, names))
    else:
        answer = calls.post(_replaced(path, names), json.loads(_replaced(route.example, names)))
    assert answer.status_code < 300, (path, answer.text)
    if answer.status_code == 202:
        _require_done(calls, answer.headers["location"])


def _made_for(route: Route, calls: Calls) -> dict[str, str]:
    """Make what an example names; return what must be replaced in it."""
    names = {"01M7GNA1VYFX6R4DN7FYV6RCAF": calls.get("/v1/at/1").json()["id"]}
    if route.name == "jobs.get":
        names["01M7GNA1VYFX6R4DN7FYV6RCAF"] = calls.post("/v1/verify", {}).json()["id"]
    if not route.operation.startswith("group."):
        return names
    member = "/v1/groups/mailer/members/mailer-1"
    if not route.name.endswith("join"):
        calls.post(f"{member}/join", {"kind": "note"})
    if route.operation in ("group.ack", "group.nack"):
        (first,) = calls.post(f"{member}/take", {"max": 1}).json()["deliveries"]
        names['"token":1'] = f'"token":{first["token"]}'
    if route.operation in ("group.retry", "group.skip"):
        for _ in range(5):
            (first,) = calls.post(f"{member}/take", {"max": 1, "wait": 5}).json()["deliveries"]
            body = {"position": 1, "token": first["token"], "reason": "no", "retry_in_s": 0}
            assert calls.post(f"{member}/nack", body).status_code == 200
        calls.post(f"{member}/take", {"max": 1})
    return names


def _require_done(calls: Calls, path: str) -> None:
    for _ in range(200):
        job = calls.get(path).json()
        if job["ended_at"] is not None:
            break
    assert job["status"] == "done", job
