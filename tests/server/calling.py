"""Call an application without a socket, as one token. Every answer must be one that the table documents."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import httpx2
from tests.server.documented import documented

from everlog.server.app import App
from everlog.server.routes.route import Role

_CLIENT = httpx2.Client(base_url="http://127.0.0.1")
"""It only makes requests: a client that sends them takes longer than most answers."""


async def _answer(app: App, request: httpx2.Request) -> httpx2.Response:
    asked = iter([{"type": "http.request", "body": request.content, "more_body": False}])
    started: dict[str, Any] = {}
    pieces: list[bytes] = []
    ended = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if (message := next(asked, None)) is not None:
            return message
        await ended.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            started.update(message)
            return
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            ended.set()

    path, _, query = request.url.raw_path.partition(b"?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "scheme": request.url.scheme,
        "path": request.url.path,
        "raw_path": path,
        "query_string": query,
        "server": (request.url.host, request.url.port),
        "client": ("127.0.0.1", 123),
        "root_path": "",
    }
    await app(scope, receive, send)
    assert ended.is_set(), "the answer has no end"
    body = b"" if request.method == "HEAD" else b"".join(pieces)
    return httpx2.Response(started["status"], headers=started["headers"], content=body, request=request)


class Calls:
    """Requests with one token."""

    def __init__(self, app: App, secret: str) -> None:
        self.app = app
        self.secret = secret

    @classmethod
    def of(cls, app: App, name: str, *, role: Role = "append", within: str = "", actor: str = "user:ada") -> Calls:
        """Return the calls of a new token."""
        return cls(app, app.services["log"].tokens.new(name, actor=actor, role=role, within=within))

    def send(self, method: str, path: str, *, headers: dict[str, str] | None = None, **given: Any) -> httpx2.Response:
        own = {"authorization": f"Bearer {self.secret}"} if self.secret else {}
        request = _CLIENT.build_request(method, path, headers=own | (headers or {}), **given)
        found = asyncio.run(_answer(self.app, request))
        kind = found.headers.get("content-type", "")
        if not path.startswith("/v1/logs/"):
            documented(self.app.routes).check(method, found.request.url.path, found.status_code, kind, found.content)
        return found

    def get(self, path: str, **given: Any) -> httpx2.Response:
        return self.send("GET", path, **given)

    def post(self, path: str, body: Any = None, **given: Any) -> httpx2.Response:
        return self.send("POST", path, json=body, **given)
