"""Nodes for tests of sync: copies of one log, each with its own origin, in any store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from everlog import wiring
from everlog.catalog.builtin import KNOWS
from everlog.catalog.catalog import Catalog
from everlog.log.log import Log
from everlog.stores.identity import new_identity
from everlog.sync.exchange import Node
from everlog.testing.signing import key, signer
from everlog.trust.keys import PrivateKey
from everlog.trust.signer import Keys, Signer

CATALOG = Catalog()
STORES = ("memory", "sqlite", "jsonl", "segments")
_STARTED_US = 1_700_000_000_000_000


@CATALOG.event("note.written")
class Written(msgspec.Struct):
    text: Any = ""


def new_log_id() -> str:
    return new_identity(_STARTED_US).log_id


def open_node(
    store: str,
    folder: Path,
    log_id: str,
    name: str,
    *,
    url: str = "",
    catalog: Catalog = CATALOG,
    keys: Sequence[PrivateKey] = (),
    kept: Keys | None = None,
    **log: Any,
) -> Node:
    """Open a node, created if it is missing: a copy of the log with this id, under its own origin.

    With `keys` it is signed: the first one is its origin. `kept` is where its keys are, those that it makes included.
    """
    if not url:
        url = "memory:" if store == "memory" else f"{store}:{folder / name}"
    own = keys[0].public.origin if keys else ""
    identity = msgspec.structs.replace(new_identity(_STARTED_US, own), log_id=log_id)
    opened = wiring.open_store(url, base=Path(), identity=identity)
    if keys:
        log["signer"] = signer(opened, keys) if kept is None else Signer(kept, log_id)
    return Node(Log(opened, catalog, actor=f"user:{name}", **log))


def signed_nodes(store: str, folder: Path, count: int, **log: Any) -> list[Node]:
    """Open nodes that sign, the first with key 1."""
    log_id = new_log_id()
    return [
        open_node(store, folder, log_id, f"s{number}", keys=[key(number)], **log) for number in range(1, count + 1)
    ]


def nodes(store: str, folder: Path, count: int) -> list[Node]:
    log_id = new_log_id()
    return [open_node(store, folder, log_id, f"n{number}") for number in range(count)]


def write(node: Node, text: Any, stream: str = "note/1") -> str:
    return node.log.append("note.written", stream=stream, payload={"text": text}).event.id


def close(opened: Sequence[Node]) -> None:
    for node in opened:
        node.log.close()


def texts(node: Node) -> list[Any]:
    """Return what the events of a node say, in the order that is the same on every node, without `origin.knows`."""
    events = sorted((recorded.event for recorded in node.log.read()), key=lambda event: event.causal_order)
    return [event.payload.get("text") for event in events if event.type != KNOWS]
