"""Call an application without a socket, as one token. Every answer must be one that the table documents."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
from tests.server.documented import documented

from everlog.server.app import App
from everlog.server.routes.route import Role


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
        async def call() -> httpx2.Response:
            transport = httpx2.ASGITransport(app=self.app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                own = {"authorization": f"Bearer {self.secret}"} if self.secret else {}
                return await client.request(method, path, headers=own | (headers or {}), **given)

        found = asyncio.run(call())
        kind = found.headers.get("content-type", "")
        if not path.startswith("/v1/logs/"):
            documented(self.app.routes).check(method, found.request.url.path, found.status_code, kind, found.content)
        return found

    def get(self, path: str, **given: Any) -> httpx2.Response:
        return self.send("GET", path, **given)

    def post(self, path: str, body: Any = None, **given: Any) -> httpx2.Response:
        return self.send("POST", path, json=body, **given)
