"""A purge with an idempotency key: a retry gets the same answer, and removes nothing that was recorded since."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from tests.server.calling import Calls
from tests.server.running import NOTE

from everlog.server.app import App

BODY = {"stream": "note/1", "reason": "asked to", "confirm": "purge note/1"}
PATHS = {"/v1/do/log.purge": BODY, "/v1/streams/note/1/purge": {"reason": "asked to", "confirm": "purge note/1"}}


def purge(calls: Calls, key: str, path: str = "/v1/do/log.purge", **changed: Any) -> httpx2.Response:
    return calls.post(path, PATHS[path] | changed, headers={"idempotency-key": key} if key else {})


@pytest.mark.parametrize("path", PATHS)
def test_a_retry_gets_the_same_bytes_and_removes_nothing_more(app: App, calls: Calls, path: str) -> None:
    for _ in range(3):
        calls.post("/v1/events", NOTE)
    first = purge(calls, "k", path)
    assert (first.status_code, first.json()["events"]) == (200, 3)
    calls.post("/v1/events", NOTE)  # the stream goes on
    again = purge(calls, "k", path)
    assert (again.content, again.headers["idempotent-replay"]) == (first.content, "true")
    assert len(list(app.services["log"].log.read())) == 1
    assert purge(calls, "other", path).json()["events"] == 1
    assert purge(calls, "", path).status_code == 404


def test_a_key_names_one_request_of_one_caller(app: App, calls: Calls) -> None:
    for stream in ("note/1", "note/2"):
        calls.post("/v1/events", {**NOTE, "stream": stream})
    assert purge(calls, "k").status_code == 200
    other = purge(calls, "k", reason="another reason")
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_key_reuse")
    second = Calls.of(app, "bob", role="admin", actor="user:bob")
    assert purge(second, "k", stream="note/2", confirm="purge note/2").status_code == 200
    limited = Calls.of(app, "limited", role="admin", within="acme")
    assert purge(limited, "k").status_code == 404, "the key of a caller without a limit is not that of a tenant"


def test_a_refusal_and_a_dry_run_take_no_key(calls: Calls) -> None:
    calls.post("/v1/events", NOTE)
    assert purge(calls, "k", confirm="").status_code == 412
    assert purge(calls, "k", dry_run=True).json()["dry_run"] is True
    assert purge(calls, "k").json()["dry_run"] is False


def test_retries_at_once_are_one_purge_and_one_answer(app: App, calls: Calls) -> None:
    for _ in range(3):
        calls.post("/v1/events", NOTE)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: purge(calls, "k"), range(16)))
    assert {one.status_code for one in answers} == {200}
    assert len({one.content for one in answers}) == 1
    assert len(app.services["log"].log.stored.purges()) == 1
