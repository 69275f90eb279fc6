"""A page in a real browser exchanges a token for a cookie, and follows the log with the browser's own EventSource."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.remote.relay import Relay
from tests.server.browser.driver import Browser, browser, missing
from tests.server.running import NOTE, Running, new_log, start

from everlog.core.query import Cursor

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"a real browser: {missing()}")

FOLLOW = """
    window.seen = []; window.states = [];
    const source = window.source = new EventSource(arguments[0]);
    const keep = kind => event => window.seen.push({kind, id: event.lastEventId, data: JSON.parse(event.data)});
    source.onmessage = keep('message');
    source.addEventListener('reset', keep('reset'));
    source.addEventListener('bye', keep('bye'));
    source.onopen = () => window.states.push('open');
    source.onerror = () => window.states.push(source.readyState === 2 ? 'closed' : 'again');
"""
SIGN_IN = """
    const answer = await fetch('/v1/session', {method: 'POST', headers: {authorization: 'Bearer ' + arguments[0]}});
    return answer.status;
"""
STATUS = """
    const answer = await fetch(arguments[0], arguments[1] || {});
    return answer.status;
"""


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


class Behind:
    """A server behind a relay that can cut connections, and a page of the relay's origin in a browser."""

    def __init__(self, window: Browser, log: str) -> None:
        self.window = window
        self.relay = Relay()
        self.server: Running = start(log)
        self.relay.lead_to(self.server.port)
        self.origin = f"http://127.0.0.1:{self.relay.port}"
        window.go_to(f"{self.origin}/healthz")

    def append(self, text: str, stream: str = "note/1") -> None:
        with self.server.client() as client:
            answer = client.post("/v1/events", json={**NOTE, "stream": stream, "payload": {"text": text}})
            assert answer.status_code == 201, answer.text

    def seen(self, kind: str = "message") -> list[dict[str, Any]]:
        found = self.window.run("return JSON.stringify(window.seen)")
        return [one for one in json.loads(found) if one["kind"] == kind]

    def texts(self) -> list[str]:
        return [one["data"]["payload"]["text"] for one in self.seen()]

    def wait_for(self, count: int) -> None:
        self.window.wait_for(f"window.seen.length >= {count}")

    def restart(self) -> None:
        log = self.server.log
        self.close_server()
        self.server = start(log)
        self.relay.lead_to(self.server.port)

    def close_server(self) -> None:
        if self.server.process.poll() is None:
            self.server.kill()
        for pipe in (self.server.process.stdout, self.server.process.stderr):
            if pipe is not None:
                pipe.close()

    def close(self) -> None:
        self.window.run("if (window.source) window.source.close();")
        self.close_server()
        self.relay.close()


@pytest.fixture
def behind(window: Browser, tmp_path: Path) -> Iterator[Behind]:
    made = Behind(window, new_log(tmp_path))
    yield made
    made.close()


def test_a_page_follows_the_log_and_continues_after_a_cut_without_gap_or_repeat(behind: Behind) -> None:
    window = behind.window
    assert window.run(STATUS, "/v1/events") == 401
    assert window.run(SIGN_IN, behind.server.token) == 200
    assert window.run(STATUS, "/v1/events") == 200
    assert window.run("return document.cookie") == "", "scripts cannot read the cookie"
    for n in range(3):
        behind.append(f"text {n}")
    window.run(FOLLOW, "/v1/events/stream?kind=note")
    behind.wait_for(3)
    for n in range(3, 6):
        behind.append(f"text {n}")
        behind.wait_for(n + 1)
        assert behind.relay.cut() > 0  # the browser reconnects by itself, with Last-Event-ID
        behind.append(f"meanwhile {n}", stream="other/1")
        window.wait_for(f"window.states.filter(one => one === 'open').length >= {n - 1}")
    behind.append("text 6")
    behind.wait_for(7)
    assert behind.texts() == [f"text {n}" for n in range(7)]
    ids = [Cursor.of(one["id"]).position for one in behind.seen()]
    assert ids == [one["data"]["position"] for one in behind.seen()]


def test_a_page_gets_a_reset_and_a_bye_and_signs_in_again_after_a_restart(behind: Behind) -> None:
    window = behind.window
    assert window.run(SIGN_IN, behind.server.token) == 200
    behind.append("one", stream="note/1")
    behind.append("two", stream="note/2")
    window.run(FOLLOW, "/v1/events/stream")
    behind.wait_for(2)
    with behind.server.client() as client:
        body = {"reason": "asked to", "confirm": "purge note/1"}
        assert client.post("/v1/streams/note/1/purge", json=body).status_code == 200
    behind.wait_for(3)
    (reset,) = behind.seen("reset")
    assert reset["data"] == {"reason": "purged", "next": reset["id"]}
    assert behind.server.terminate() < 10
    behind.wait_for(4)
    (bye,) = behind.seen("bye")
    assert bye["data"] == {"reason": "shutdown", "next": bye["id"]}
    behind.restart()
    # A session ends with its server: the browser's own attempt is refused, and the page signs in again.
    window.wait_for("window.states.includes('closed')")
    assert window.run(SIGN_IN, behind.server.token) == 200
    window.run(FOLLOW, f"/v1/events/stream?after={bye['id']}")
    behind.append("three")
    behind.wait_for(1)
    assert behind.texts() == ["three"]


def test_a_page_of_this_host_may_write_with_its_cookie_and_a_page_of_another_site_may_not(behind: Behind) -> None:
    window, token = behind.window, behind.server.token
    request = {"method": "POST", "headers": {"content-type": "application/json"}, "body": json.dumps(NOTE)}
    assert window.run(SIGN_IN, token) == 200
    assert window.run(STATUS, "/v1/events", request) == 201
    # `localhost` is another site than 127.0.0.1. What a form could send gets there, but without the cookie.
    window.go_to(f"http://localhost:{behind.relay.port}/healthz")
    foreign = {"method": "POST", "mode": "no-cors", "credentials": "include", "body": json.dumps(NOTE)}
    window.run(STATUS, f"{behind.origin}/v1/events", foreign)
    assert str(window.run(STATUS, f"{behind.origin}/v1/events", {"credentials": "include"})).startswith("error")
    with behind.server.client() as client:
        assert client.get("/v1/events").json()["head"] == 1
    assert window.run(STATUS, "/v1/events") == 401
    assert window.run(SIGN_IN, token) == 200
    assert window.run(STATUS, "/v1/events") == 200, "the cookie is accepted over plain HTTP of this name, too"
