"""The trace of a request: stored with its events, in its log lines, and no part of what makes two requests equal."""

from __future__ import annotations

import io
import json
import logging
import sys
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
from tests.server.calling import Calls
from tests.server.running import NOTE

from everlog.server.app import App
from everlog.server.observe import tracing
from everlog.server.observe.json_logs import logging_as_json

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"


def test_an_event_has_the_trace_of_its_request(app: App, calls: Calls) -> None:
    one = calls.post("/v1/events", NOTE, headers={"traceparent": TRACE}).json()
    assert one["tags"] == {"traceparent": TRACE}
    many = calls.post(
        "/v1/events:batch", [NOTE, {**NOTE, "tags": {"traceparent": OTHER}}], headers={"traceparent": TRACE}
    )
    assert [event["tags"]["traceparent"] for event in many.json()["events"]] == [TRACE, OTHER]


def test_events_of_a_command_have_it_too(app: App, calls: Calls) -> None:
    answer = calls.post("/v1/do/controlplane.org_create", {"org": "acme"}, headers={"traceparent": TRACE})
    assert answer.status_code == 200, answer.text
    log = app.services["log"].log
    assert {recorded.event.tags.get("traceparent") for recorded in log.read()} == {TRACE}


@pytest.mark.parametrize(
    "given", ["", "nonsense", "ff" + TRACE[2:], TRACE[:3] + "0" * 32 + TRACE[35:], TRACE + "-more"]
)
def test_a_malformed_trace_is_ignored(calls: Calls, given: str) -> None:
    answer = calls.post("/v1/events", NOTE, headers={"traceparent": given})
    assert answer.status_code == 201
    assert not answer.json().get("tags")


def test_a_retry_in_another_span_is_the_same_request(app: App, calls: Calls) -> None:
    first = calls.post("/v1/events", NOTE, headers={"idempotency-key": "k", "traceparent": TRACE})
    again = calls.post("/v1/events", NOTE, headers={"idempotency-key": "k", "traceparent": OTHER})
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert app.services["log"].log.head() == 1


def test_a_line_of_the_log_names_the_request_also_from_a_thread(app: App, calls: Calls) -> None:
    out = io.StringIO()
    app.front.log_requests = True
    service = app.services["log"]

    def warn() -> int:
        logging.getLogger("everlog").warning("slow %s", "disk")
        return 1

    service.log.head = warn  # type: ignore[method-assign, assignment]
    with logging_as_json(out, requests=True):
        calls.get("/readyz", headers={"x-request-id": "r-1", "traceparent": TRACE})
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(line["message"], line["request_id"]) for line in lines] == [
        *(("slow disk", "r-1"), ("GET server.readyz 200", "r-1"))
    ]
    assert {line["trace_id"] for line in lines} == {TRACE.split("-")[1]}
    assert (lines[1]["status"], lines[1]["route"]) == (200, "server.readyz")


def test_the_address_of_a_caller_is_what_a_proxy_says_only_behind_one(app: App, calls: Calls) -> None:
    app.front.log_requests = True
    seen = []
    for behind_proxy in (False, True):
        app.front.behind_proxy = behind_proxy
        out = io.StringIO()
        with logging_as_json(out, requests=True):
            calls.get("/healthz", headers={"x-forwarded-for": "6.6.6.6, 9.9.9.9"})
        seen.append(json.loads(out.getvalue())["client"])
    assert seen == ["127.0.0.1", "9.9.9.9"]


def test_opentelemetry_is_used_if_it_is_there(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for its API: the span that it starts is what the event has."""
    spans: list[tuple[str, Any]] = []

    class Tracer:
        @contextmanager
        def start_as_current_span(self, name: str, context: Any) -> Any:
            spans.append((name, context))
            yield

    package, trace, propagate = (ModuleType(name) for name in ("opentelemetry", "trace", "propagate"))
    trace.get_tracer = lambda name: Tracer()  # type: ignore[attr-defined]
    propagate.extract = lambda headers: headers["traceparent"]  # type: ignore[attr-defined]
    propagate.inject = lambda carrier: carrier.update(traceparent=OTHER)  # type: ignore[attr-defined]
    package.trace, package.propagate = trace, propagate  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "opentelemetry", package)
    monkeypatch.setattr(tracing, "_found", [])
    answer = calls.post("/v1/events", NOTE, headers={"traceparent": TRACE})
    assert answer.json()["tags"] == {"traceparent": OTHER}
    assert spans == [("POST", TRACE)]
