"""A to-do app in Starlette: events in, a view out, retries that are safe, and 409 for a conflict.

pip install everlog starlette uvicorn
uvicorn todo_app:app
curl -X POST localhost:8000/todos/milk -d '{"title": "Buy milk"}' -H 'Idempotency-Key: 1'
curl -X POST localhost:8000/todos/milk/done
curl localhost:8000/todos
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import everlog

catalog = everlog.Catalog()


@catalog.event("todo.added")
class Added(msgspec.Struct):
    title: str


@catalog.event("todo.done")
class Done(msgspec.Struct):
    pass


class Todos(everlog.View):
    """One row per to-do."""

    name = "todos"
    types = ("todo.added", "todo.done")

    def apply(self, state: dict[str, Any], event: everlog.Event) -> dict[str, Any]:
        if event.type == "todo.added":
            return {"title": event.payload["title"], "done": False}
        return {**state, "done": True}


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    with everlog.open(os.environ.get("TODO_LOG", "sqlite:todo.db"), catalog=catalog, actor="service:todo") as log:
        app.state.log = log
        yield


async def add(request: Request) -> JSONResponse:
    """The stream must not exist yet. A retry with the same key gets the same answer, also after a crash."""
    payload = msgspec.json.decode(await request.body(), type=Added)
    record = await everlog.aio.append(
        request.app.state.log,
        payload,
        stream=f"todo/{request.path_params['name']}",
        expect=everlog.Expect.NONE,
        key=request.headers.get("Idempotency-Key", ""),
    )
    return JSONResponse({"position": record.position}, status_code=201)


async def done(request: Request) -> JSONResponse:
    record = await everlog.aio.append(
        request.app.state.log,
        Done(),
        stream=f"todo/{request.path_params['name']}",
        expect=everlog.Expect.EXISTS,
    )
    return JSONResponse({"position": record.position})


def show(request: Request) -> JSONResponse:
    """Not async: Starlette runs it in a thread, so that the view may catch up without holding up the event loop."""
    view = request.app.state.log.view(Todos)
    return JSONResponse({key.partition("/")[2]: state for key, state in view.items()})


async def refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, everlog.EverlogError)
    conflict = isinstance(error, everlog.errors.Conflict)
    body = {"code": error.code, "what": error.what, "why": error.why}
    return JSONResponse(body, status_code=409 if conflict else 503 if error.retryable else 422)


app = Starlette(
    routes=[
        Route("/todos", show),
        Route("/todos/{name}", add, methods=["POST"]),
        Route("/todos/{name}/done", done, methods=["POST"]),
    ],
    exception_handlers={everlog.EverlogError: refused},
    lifespan=lifespan,
)
