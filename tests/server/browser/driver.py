"""A real browser: Chromium without a window, led over the WebDriver protocol."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
START_S = 60.0
SCRIPT_S = 60.0
_ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-proxy-server"),
)


def missing() -> str:
    """Return what is not installed, if anything is."""
    if shutil.which("chromedriver") is None:
        return "chromedriver is not installed"
    return "" if _browser() else "no Chromium is installed"


def _browser() -> str:
    return next((found for name in BROWSERS if (found := shutil.which(name))), "")


class Browser:
    """One window of a browser."""

    def __init__(self, client: httpx2.Client, session: str) -> None:
        self._client = client
        self._session = session

    def go_to(self, url: str) -> None:
        """Open a page; scripts then run with its origin."""
        self._send("url", {"url": url})

    def run(self, script: str, *given: Any) -> Any:
        """Run the body of an asynchronous function in the page, with `given` as `arguments`; return its result."""
        body = (
            "const done = arguments[arguments.length - 1], given = [...arguments].slice(0, -1);"
            f"(async (...arguments) => {{ {script} }})(...given).then(done, error => done('error: ' + error));"
        )
        return self._send("execute/async", {"script": body, "args": list(given)})

    def wait_for(self, script: str, *, upto_s: float = 30.0) -> Any:
        """Return the value of an expression in the page as soon as it is true."""
        end = time.monotonic() + upto_s
        while not (found := self.run(f"return {script}")):
            assert time.monotonic() < end, (script, self.run("return JSON.stringify(window.seen || [])"))
            time.sleep(0.05)
        return found

    def _send(self, path: str, body: dict[str, Any]) -> Any:
        answer = self._client.post(f"/session/{self._session}/{path}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["value"]


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Start a browser with an empty profile; it ends with the context."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "HOME": str(folder)}
    command = ["chromedriver", f"--port={port}"]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=SCRIPT_S + 30, trust_env=False) as client:
            _wait_until_ready(client)
            options = {"binary": _browser(), "args": [*_ARGUMENTS, f"--user-data-dir={folder / 'profile'}"]}
            wanted = {"alwaysMatch": {"goog:chromeOptions": options, "timeouts": {"script": int(SCRIPT_S * 1000)}}}
            answer = client.post("/session", json={"capabilities": wanted})
            assert answer.status_code == 200, answer.text
            session = answer.json()["value"]["sessionId"]
            try:
                yield Browser(client, session)
            finally:
                client.delete(f"/session/{session}")
    finally:
        driver.terminate()
        driver.wait(timeout=30)


def _wait_until_ready(client: httpx2.Client) -> None:
    end = time.monotonic() + START_S
    while True:
        try:
            if client.get("/status").json()["value"]["ready"]:
                return
        except (httpx2.TransportError, ValueError):
            pass  # it has not begun to listen
        assert time.monotonic() < end, "the driver of the browser did not start"
        time.sleep(0.05)
