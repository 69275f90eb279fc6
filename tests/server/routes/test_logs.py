"""Several logs behind one server: a caller learns the names of those that it has a token for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.calling import Calls
from tests.server.running import NOTE

import everlog
from everlog.server.app import App
from everlog.server.serve import make_app


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    names = ("log", "archive", "secret")
    logs = {name: everlog.open(f"sqlite:{tmp_path}/{name}.db", actor="user:host") for name in names}
    made = make_app(logs)
    yield made
    made.close()
    for log in logs.values():
        log.close()


def caller(app: App, *names: str) -> Calls:
    """Return the calls of a token of the last of some logs, with its role and scope."""
    token = app.services[names[-1]].tokens.new("ci", actor="service:ci", role="read", within="acme")
    return Calls(app, token)


def names_for(calls: Calls) -> list[str]:
    return [one["name"] for one in calls.get("/v1/logs").json()]


def test_the_list_has_the_logs_of_the_token_and_what_it_may_do(app: App) -> None:
    calls = caller(app, "archive")
    expected = {
        "name": "archive",
        "path": "/v1/logs/archive",
        "actor": "service:ci",
        "role": "read",
        "scope": "acme",
    }
    assert calls.get("/v1/logs").json() == [expected]
    assert calls.get("/v1/logs/archive/events").status_code == 200
    assert names_for(Calls(app, app.new_secret(actor="user:host"))) == ["log", "archive", "secret"]
    assert Calls(app, "").get("/v1/logs").status_code == 401


@pytest.mark.parametrize("path", ["events", "head", "do/log.append", "nothing-here", ""])
def test_a_log_of_others_is_answered_as_a_missing_one(app: App, path: str) -> None:
    for calls in (caller(app, "archive"), Calls(app, ""), Calls(app, "evl_wrong")):
        answers = [
            calls.send(method, f"/v1/logs/{name}/{path}", json=NOTE if method == "POST" else None)
            for method in ("GET", "POST")
            for name in ("secret", "absent")
        ]
        shown = [
            (one.status_code, re.sub(r'"request_id":"[^"]*"', "", one.text).replace("secret", "absent"))
            for one in answers
        ]
        assert shown[0] == shown[1]
        assert shown[2] == shown[3]
        assert {status for status, _ in shown} <= {401, 404, 405}
