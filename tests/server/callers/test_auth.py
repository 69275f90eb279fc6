"""Who calls: tokens, sessions of browsers, and what other sites cannot do."""

from __future__ import annotations

import time
from pathlib import Path

from tests.server.calling import Calls
from tests.server.events.test_appending import NOTE

import everlog
from everlog.server.app import App
from everlog.server.callers.auth import COOKIE
from everlog.server.callers.tokens import READ_AGAIN_S, Tokens
from everlog.server.serve import make_app

ORIGIN = {"origin": "http://127.0.0.1"}


def test_without_a_token_nothing_is_answered_but_the_reason(app: App) -> None:
    nobody = Calls(app, "")
    answer = nobody.get("/v1/events")
    assert (answer.status_code, answer.json()["code"]) == (401, "not_signed_in")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    for header in ("Basic abc", "Bearer", "Bearer ", "Bearer evl_wrong", "evl_wrong"):
        assert nobody.get("/v1/events", headers={"authorization": header}).status_code == 401


def test_a_role_allows_no_more_than_it_says(app: App) -> None:
    reader = Calls.of(app, "reader", role="read")
    answer = reader.post("/v1/events", NOTE)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert app.services["log"].log.head() == 0


def test_a_token_that_another_process_revokes_ends_within_seconds(tmp_path: Path) -> None:
    with everlog.open(f"sqlite:{tmp_path}/log.db") as log, everlog.open(f"sqlite:{tmp_path}/log.db") as elsewhere:
        app = make_app({"log": log})
        caller = Calls.of(app, "ci")
        assert caller.get("/v1/events").status_code == 200
        Tokens(elsewhere).revoke("ci")
        time.sleep(READ_AGAIN_S + 0.1)
        assert caller.get("/v1/events").status_code == 401
        app.close()


def test_a_rotated_token_has_one_valid_secret(app: App) -> None:
    tokens = app.services["log"].tokens
    old = Calls.of(app, "ci")
    new = Calls(app, tokens.rotate("ci"))
    assert (old.get("/v1/events").status_code, new.get("/v1/events").status_code) == (401, 200)


def test_the_log_keeps_no_secret(tmp_path: Path) -> None:
    with everlog.open(f"sqlite:{tmp_path}/log.db") as log:
        secret = Tokens(log).new("ci", actor="service:ci")
    assert not [path for path in tmp_path.iterdir() if secret[4:].encode() in path.read_bytes()]


def test_a_session_reads_and_its_writes_need_an_origin_of_this_host(app: App, calls: Calls) -> None:
    started = calls.post("/v1/session")
    assert started.status_code == 200
    cookie = started.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=")
    assert {"Secure", "HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    browser = Calls(app, "")
    own = {"cookie": cookie.partition(";")[0]}
    assert browser.get("/v1/events", headers=own).status_code == 200
    for origin in ({}, {"origin": "http://evil.example"}, {"origin": "null"}, {"origin": "http://127.0.0.1.evil"}):
        answer = browser.post("/v1/events", NOTE, headers=own | origin)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert app.services["log"].log.head() == 0
    assert browser.post("/v1/events", NOTE, headers=own | ORIGIN).status_code == 201


def test_a_changed_session_and_one_of_a_revoked_token_are_not_valid(app: App) -> None:
    caller = Calls.of(app, "ci")
    value = caller.post("/v1/session").headers["set-cookie"].partition(";")[0]
    browser = Calls(app, "")
    assert browser.get("/v1/events", headers={"cookie": value}).status_code == 200
    for wrong in (
        value[:-1] + ("0" if value[-1] != "0" else "1"),
        value.partition(".")[0],
        f"{COOKIE}=..",
        value[:20],
    ):
        assert browser.get("/v1/events", headers={"cookie": wrong}).status_code == 401
    app.services["log"].tokens.revoke("ci")
    assert browser.get("/v1/events", headers={"cookie": value}).status_code == 401
