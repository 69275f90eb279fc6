"""A node that listens: who is answered, and where."""

from __future__ import annotations

from everlog.application.sync.peers import knows
from everlog.application.sync.places import need_extra
from everlog.errors import InvalidField, NoKey
from everlog.os_errors import survive_closed_connections
from everlog.sync.exchange import Node
from everlog.trust.keys import is_key

try:
    from everlog.sync.carriers.http_server import Asker, Listener
    from everlog.sync.carriers.http_signatures import Doorkeeper
except ImportError as error:
    raise need_extra(error) from error

DEFAULT = "127.0.0.1:7474"


def listen(node: Node, address: str, *, open_to_all: bool) -> Listener:
    """Answer peers at an address until the listener is closed.

    A log without a key cannot be named in a request, so it answers only if it answers everybody.
    """
    log = node.log
    if not open_to_all and not is_key(log.identity.origin):
        raise NoKey(
            "this log has no key, and so it cannot know who asks",
            why="requests are signed for the key of the node that answers",
            hint="--listen … --open answers everybody; everlog config set sign required, then append, makes a key",
        )
    door = Door(node, open_to_all=open_to_all)
    survive_closed_connections()
    host, port = parse_address(address)
    return Listener(host, port, door.answer)


class Door:
    """Answers peers that may ask: those whose requests are signed by a key that is known here."""

    def __init__(self, node: Node, *, open_to_all: bool = False) -> None:
        log = node.log
        self._node = node
        self._keeper = Doorkeeper(lambda: log.identity.origin, lambda key: knows(log, key), open_to_all=open_to_all)

    def answer(self, request: str, body: bytes, asker: Asker) -> bytes:
        key = self._keeper.asker(asker.method, asker.path, asker.headers, body)
        return self._node.answer(request, body, peer=f"peer:{key or asker.address}")


def parse_address(text: str) -> tuple[str, int]:
    """Return the host and the port of HOST:PORT, [HOST]:PORT or PORT."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InvalidField(
            f"{text[:80]} is not an address to listen at",
            why="an address is HOST:PORT",
            hint=f"everlog sync --listen {DEFAULT}",
            field="listen",
        )
    return host.strip("[]") or "127.0.0.1", int(port)
