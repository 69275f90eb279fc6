"""Which names a request may be sent to.

A page of another site can have its own name lead to this machine (DNS rebinding), and its script then calls this
server as if it were its own. The browser still sends that name as `Host`. So a request is answered only if it names
an address, or a name that the server was given.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address

from everlog.errors import UnknownHost

_LOCAL = frozenset(("localhost", "127.0.0.1", "::1"))


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def known_hosts(names: Iterable[str]) -> frozenset[str]:
    """Return the names that requests may be sent to, with those of this machine."""
    return _LOCAL | {name.strip().lower().rstrip(".") for name in names if name.strip()}


def name_in(host: str) -> str:
    """Return the name in a header `Host`, without the port."""
    name = host.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0].rstrip(".")


def require_known_host(host: str, known: frozenset[str], own_address: str) -> None:
    """Refuse a request that was sent to another name. `own_address` is where its connection arrived."""
    if _is_known(host, known, own_address):
        return
    raise UnknownHost(
        f"this server is not {host[:80]!r}" if host else "the request names no host",
        why="it answers only under names that it knows, so that no web page can reach it under a name of the page",
        hint="start it with: everlog serve --host-name NAME; or use its address",
    )


@lru_cache(maxsize=256)
def _is_known(host: str, known: frozenset[str], own_address: str) -> bool:
    name = name_in(host)
    return name in known or (name == own_address and _is_address(name)) or name.endswith(".localhost")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
