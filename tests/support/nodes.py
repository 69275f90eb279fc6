"""Nodes for tests of sync: copies of one log, each with its own origin, in any store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from everlog import wiring
from everlog.catalog.catalog import Catalog
from everlog.log.log import Log
from everlog.stores.identity import new_identity
from everlog.sync.exchange import Node

CATALOG = Catalog()
STORES = ("memory", "sqlite", "jsonl", "segments")
_STARTED_US = 1_700_000_000_000_000


@CATALOG.event("note.written")
class Written(msgspec.Struct):
    text: Any = ""


def new_log_id() -> str:
    return new_identity(_STARTED_US).log_id


def open_node(
    store: str, folder: Path, log_id: str, name: str, *, url: str = "", catalog: Catalog = CATALOG, **log: Any
) -> Node:
    """Open a node, created if it is missing: a copy of the log with this id, under its own origin."""
    if not url:
        url = "memory:" if store == "memory" else f"{store}:{folder / name}"
    identity = msgspec.structs.replace(new_identity(_STARTED_US), log_id=log_id)
    opened = wiring.open_store(url, base=Path(), identity=identity)
    return Node(Log(opened, catalog, actor=f"user:{name}", **log))


def nodes(store: str, folder: Path, count: int) -> list[Node]:
    log_id = new_log_id()
    return [open_node(store, folder, log_id, f"n{number}") for number in range(count)]


def write(node: Node, text: Any, stream: str = "note/1") -> str:
    return node.log.append("note.written", stream=stream, payload={"text": text}).event.id


def close(opened: Sequence[Node]) -> None:
    for node in opened:
        node.log.close()


def texts(node: Node) -> list[Any]:
    """Return what the events of a node say, in the order that is the same on every node."""
    events = sorted((recorded.event for recorded in node.log.read()), key=lambda event: event.causal_order)
    return [event.payload.get("text") for event in events]
