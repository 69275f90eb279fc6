"""No request holds the event loop for long, however large it is."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.server.calling import Calls
from tests.server.running import NOTE

import everlog
from everlog.application.events.reading import Reading
from everlog.server import app as app_module
from everlog.server.callers import confined
from everlog.server.events import appending
from everlog.server.serve import make_app

LONG = [
    (app_module, "_unpacked"),
    (appending, "parse_json"),
    (appending, "parse_json_lines"),
    (appending, "_read_batch"),
    (confined, "own_draft"),
    (appending, "receipt_bytes"),
    (Reading, "rendered"),
]
"""What takes the longer, the more there is in a request or in its answer."""


def test_large_requests_are_read_and_prepared_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks at where the work is done, and not at how long it takes: that depends on the machine."""
    in_loop: list[str] = []
    called: set[str] = set()

    def watched(name: str, whole: Callable[..., Any]) -> Callable[..., Any]:
        def watching(*given: Any, **named: Any) -> Any:
            called.add(name)
            if asyncio._get_running_loop() is not None:
                in_loop.append(name)
            return whole(*given, **named)

        return watching

    for owner, name in LONG:
        monkeypatch.setattr(owner, name, watched(name, getattr(owner, name)))
    batch = json.dumps([{**NOTE, "payload": {"text": "x" * 1_000}}] * 100).encode()
    lines = b"\n".join([json.dumps(NOTE).encode()] * 1_000)
    with everlog.open("memory:", actor="user:host") as log:
        app = make_app({"log": log})
        calls = Calls.of(app, "writer", role="append", within="")
        for body, headers in (
            (batch, {"content-type": "application/json"}),
            (lines, {"content-type": "application/x-ndjson"}),
            (gzip.compress(batch), {"content-type": "application/json", "content-encoding": "gzip"}),
        ):
            assert calls.send("POST", "/v1/events:batch", content=body, headers=headers).status_code == 201
        assert len(calls.get("/v1/events?limit=10000").json()["events"]) == 1_200
        app.close()
    assert in_loop == []
    assert called == {name for _, name in LONG}
