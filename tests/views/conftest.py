"""Views over notes, for the tests of everything that runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.conftest import CATALOG

from everlog.core.event import Event
from everlog.log.log import Log
from everlog.views.registry import Views
from everlog.views.view import CAUSAL, View


@pytest.fixture(params=["memory", "sqlite", "jsonl", "segments", "postgresql"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of store in turn."""
    return str(request.param)


@pytest.fixture(scope="module")
def make_log(make_log: Callable[..., Log], request: pytest.FixtureRequest) -> Iterator[Callable[..., Log]]:
    """As everywhere, and with PostgreSQL: a schema for each log, the same for the same path."""
    made: list[tuple[Log, str]] = []
    kept: dict[Path, str] = {}

    def make(kind: str = "memory", path: Path | None = None, **options: Any) -> Log:
        if kind != "postgresql":
            return make_log(kind, path, **options)
        from everlog.stores.postgres.store import PostgresStore

        schemas = request.getfixturevalue("postgres_schemas")
        for log, url in [one for one in made if one[0].writer.waiters.closed]:
            made.remove((log, url))
            if url not in kept.values():
                schemas.drop(url)
        url = schemas.new() if path is None else kept.get(path) or schemas.new()
        if path is not None:
            kept[path] = url
        timed = {"now_us": options["now_us"]} if "now_us" in options else {}
        options.setdefault("catalog", CATALOG)
        options.setdefault("make_views", Views)
        opened = Log(PostgresStore(url, **timed), **options)
        made.append((opened, url))
        return opened

    yield make
    for log, _ in made:
        log.close()


class Said(View):
    """What was said in every stream, in order of arrival."""

    name = "said"
    types = ("thing.said",)

    def initial(self) -> dict[str, Any]:
        return {"values": [], "count": 0}

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        if event.payload["value"] == "poison":
            state["values"].append("half of a change")
            raise ValueError("this cannot be applied")
        return {"values": [*state["values"], event.payload["value"]][-5:], "count": state["count"] + 1}


class ByActor(Said):
    """One state an actor, fed by many streams, changed in place."""

    name = "by-actor"

    def key(self, event: Event) -> str | None:
        return None if event.actor == "user:nobody" else event.actor

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        value = event.payload["value"]
        state["values"] = [*state["values"], value][-5:]
        if value == "poison":
            raise ValueError("this cannot be applied")
        state["count"] += 1
        return state


class Total(Said):
    """One state for everything."""

    name = "total"

    def key(self, event: Event) -> str:
        return "all"


class Causal(ByActor):
    name = "causal"
    order = CAUSAL


class CausalByStream(Said):
    name = "causal-by-stream"
    order = CAUSAL


class Everything(View):
    """Takes every event, and counts."""

    name = "everything"

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        return {**state, event.type: state.get(event.type, 0) + 1}


class Picky(View):
    """Its key is in the payload: so an event that cannot be read stops all of it."""

    name = "picky"
    types: ClassVar[tuple[str, ...]] = ("thing.said",)

    def key(self, event: Event) -> str:
        return str(event.payload["value"]["key"])

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        return {"count": state.get("count", 0) + 1}


ALL = (Said, ByActor, Total, Causal, CausalByStream, Everything)
