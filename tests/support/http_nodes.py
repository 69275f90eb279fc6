"""Nodes that reach each other over real HTTP, on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from everlog.application.sync.listen import listen
from everlog.sync.carriers.http_client import HttpPeer
from everlog.sync.exchange import Node, Synced


@contextmanager
def reachable(*nodes: Node) -> Iterator[list[str]]:
    """Have nodes listen, each on its own port, to everybody who signs for them."""
    with ExitStack() as stack:
        listeners = [listen(node, "127.0.0.1:0", open_to_all=True) for node in nodes]
        for listener in listeners:
            stack.callback(listener.close)
        yield [listener.url for listener in listeners]


def sync(node: Node, url: str) -> Synced:
    peer = HttpPeer(url, key=node.log.signing_key())
    try:
        return node.sync_with(peer)
    finally:
        peer.close()
