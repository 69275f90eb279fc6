"""Whether the server lives, and whether it can take requests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.server.calling import Calls

from everlog.errors import Damaged
from everlog.server.app import App


def test_a_server_that_answers_is_alive_and_ready_and_needs_no_token(app: App) -> None:
    nobody = Calls(app, "")
    assert nobody.get("/healthz").json() == {"alive": True}
    assert nobody.get("/readyz").json() == {"ready": True, "checks": {"server": "ok", "log": "ok", "disk": "ok"}}


def test_a_server_that_stops_is_alive_and_not_ready_and_refuses_the_rest(app: App, calls: Calls) -> None:
    app.front.phase = "refusing"
    assert calls.get("/healthz").status_code == 200
    answer = calls.get("/readyz")
    assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
    assert answer.json()["detail"] == "server: refusing"
    assert answer.headers["connection"] == "close"
    refused = calls.get("/v1/events")
    assert (refused.status_code, refused.json()["code"]) == (503, "not_ready")
    assert (refused.json()["retryable"], refused.headers["retry-after"]) == (True, "1")


def test_while_it_drains_requests_are_answered_and_end_their_connection(app: App, calls: Calls) -> None:
    app.front.phase = "draining"
    answer = calls.get("/v1/events")
    assert (answer.status_code, answer.headers["connection"]) == (200, "close")
    assert calls.get("/readyz").status_code == 503


def test_a_log_that_cannot_be_read_is_the_reason_without_its_text(
    app: App, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> int:
        raise Damaged("/secret/path is damaged")

    monkeypatch.setattr(app.services["log"].log, "head", broken)
    answer = calls.get("/readyz")
    assert (answer.status_code, answer.json()["detail"]) == (503, "log: damaged")
    assert "secret" not in answer.text


def test_a_full_disk_is_the_reason(app: App, calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs(tmp_path)
    full = os.statvfs_result([*real[:4], 1, *real[5:10]])
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    assert calls.get("/readyz").json()["detail"] == "disk: almost full"
