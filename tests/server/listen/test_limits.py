"""Rates and connections: how much one token may use, and what it is told."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.server.calling import Calls
from tests.server.running import NOTE, new_log, problem_in, read_all, request, running

import everlog
from everlog.server.listen.front import Front
from everlog.server.listen.limits import Limits, Rates
from everlog.server.serve import make_app

# ---- rates


def test_a_bucket_gives_what_it_holds_and_then_what_flows_in() -> None:
    rates = Rates(10, 2)
    assert [rates.take("a", 0.0).allowed for _ in range(21)] == [True] * 20 + [False]
    assert [rates.take("a", 0.1).allowed for _ in range(2)] == [True, False]
    assert rates.take("b", 0.1) == (True, 19, 1)
    assert rates.take("a", 100.0).left == 19


def test_buckets_of_many_tokens_are_forgotten_when_they_are_full() -> None:
    rates = Rates(10, 2)
    for n in range(10_000):
        rates.take(f"old {n}", 0.0)
    for _ in range(20):
        rates.take("busy", 9.0)
    for n in range(5):
        rates.take(f"new {n}", 10.0)
    assert len(rates._buckets) < 10
    assert not rates.take("busy", 9.0).allowed


def test_a_token_beyond_its_rate_is_asked_to_wait_and_others_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everlog.server.listen.front.time", SimpleNamespace(monotonic=lambda: 100.0))
    with everlog.open(f"sqlite:{tmp_path}/log.db") as log:
        app = make_app({"log": log}, front=Front(Limits(requests_per_s=1, burst_s=5)))
        ada, eve = Calls.of(app, "ada"), Calls.of(app, "eve")
        found = [ada.get("/v1/events") for _ in range(6)]
        assert [one.status_code for one in found] == [200] * 5 + [429]
        assert found[0].headers["ratelimit-policy"] == '"token";q=5;w=5'
        assert found[0].headers["ratelimit"] == '"token";r=4;t=1'
        assert (found[5].json()["code"], found[5].json()["retryable"]) == ("too_many_requests", True)
        assert found[5].headers["retry-after"] == "1"
        assert found[5].headers["ratelimit"].startswith('"token";r=0;')
        assert eve.get("/v1/events").status_code == 200
        app.close()


def test_without_a_limit_there_are_no_headers_about_one(tmp_path: Path) -> None:
    with everlog.open(f"sqlite:{tmp_path}/log.db") as log:
        app = make_app({"log": log}, front=Front(Limits(requests_per_s=0)))
        assert "ratelimit" not in Calls.of(app, "ada").get("/v1/events").headers
        app.close()


def test_a_stranger_uses_up_the_rate_of_nobody(tmp_path: Path) -> None:
    with everlog.open(f"sqlite:{tmp_path}/log.db") as log:
        app = make_app({"log": log}, front=Front(Limits(requests_per_s=1, burst_s=2)))
        ada = Calls.of(app, "ada")
        stranger = Calls(app, "evl_" + "x" * 43)
        assert {stranger.get("/v1/events").status_code for _ in range(9)} == {401}
        assert ada.get("/v1/events").status_code == 200
        app.close()


# ---- refusals


def test_ten_refusals_of_a_token_per_second_are_recorded_and_all_are_counted(tmp_path: Path) -> None:
    with everlog.open(f"sqlite:{tmp_path}/log.db") as log:
        app = make_app({"log": log})
        ada, eve = Calls.of(app, "ada", actor="user:x"), Calls.of(app, "eve", actor="user:x")
        for _ in range(30):
            assert ada.post("/v1/events", {**NOTE, "type": "no.such"}).status_code == 422
        assert eve.post("/v1/events", {**NOTE, "type": "no.other"}).status_code == 422
        kept = [refusal.type for refusal in log.refusals(limit=None)]
        assert kept.count("no.other") == 1
        assert 10 <= kept.count("no.such") < 25  # ten at once, and ten more in each second that passed
        metrics = app.front.metrics
        assert metrics.problems.get("unknown_type") == 31
        assert metrics.refusals_not_recorded.get() == 30 - kept.count("no.such")
        app.close()


# ---- connections


def test_a_token_has_only_so_many_connections_and_gets_them_back(tmp_path: Path) -> None:
    limits = {"EVERLOG_CONNECTIONS_PER_TOKEN": "3"}
    with running(new_log(tmp_path), environment=limits) as server:
        ask = request("GET", "/v1/events", f"Authorization: Bearer {server.token}")
        held = [server.connect() for _ in range(3)]
        for own in held:
            own.sendall(ask)
            assert own.recv(65536).startswith(b"HTTP/1.1 200 ")
        close = request("GET", "/v1/events", f"Authorization: Bearer {server.token}", "Connection: close")
        assert problem_in(server.raw(close)) == (429, "too_many_requests")
        assert server.raw(request("GET", "/healthz", "Connection: close")).startswith(b"HTTP/1.1 200 ")
        held.pop().close()
        assert server.raw(close).startswith(b"HTTP/1.1 200 ")
        for own in held:
            own.close()


def test_a_server_has_only_so_many_connections(tmp_path: Path) -> None:
    with running(new_log(tmp_path), environment={"EVERLOG_CONNECTIONS_MAX": "5"}) as server:
        held = [server.connect() for _ in range(5)]
        for own in held:
            own.sendall(request("GET", "/healthz"))
            assert own.recv(65536).startswith(b"HTTP/1.1 200 ")
        with server.connect() as own:
            answer = read_all(own)
        assert problem_in(answer) == (503, "not_ready")
        assert b"\r\nretry-after: 1\r\n" in answer
        held.pop().close()
        assert server.raw(request("GET", "/healthz", "Connection: close")).startswith(b"HTTP/1.1 200 ")
        for own in held:
            own.close()


@pytest.mark.parametrize(("token", "before", "after"), [("b", "a", {"b": 1}), ("a", "", {"a": 2})])
def test_a_connection_counts_for_the_token_that_used_it_last(token: str, before: str, after: dict[str, int]) -> None:
    front = Front()
    front.claim("a", "")
    front.claim(token, before)
    assert front.by_token == after
    for name, count in after.items():
        for _ in range(count):
            front.release(name)
    assert front.by_token == {}
