"""The chains of origins, as rows of `state`.

"origin …" has the contiguous end: its number, its hash and its position. A chain with a hole or a fork has all of it
in "chain …" besides, so that an append to the log's own chain pays for one row. When the last hole is closed, the end
moves, and the second row counts no longer: it has the number of the end that it was written with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from everlog.core.chain import NO_CHAIN, Chain, simple_chain
from everlog.core.event import Link, Position
from everlog.stores.sqlite.groups import Fetch

_ORIGIN, _CHAIN = "origin ", "chain "

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Chain).decode


def chain_rows(origin: str, chain: Chain) -> Iterator[tuple[Any, ...]]:
    """Return the rows of a chain."""
    end = chain.contiguous
    yield (_ORIGIN + origin, 0, b"", 0) if end is None else (_ORIGIN + origin, end.last, end.hash, end.position)
    if not chain.simple:
        yield _CHAIN + origin, chain.end.origin_seq, _encode(chain), 0


def read_chain(fetch: Fetch, origin: str) -> Chain:
    """Return the chain of an origin."""
    return _chains(fetch(_ONE, (_ORIGIN + origin, _CHAIN + origin))).get(origin, NO_CHAIN)


def read_chains(fetch: Fetch) -> dict[str, Chain]:
    """Return the chains of all origins."""
    return _chains(fetch(_ALL, ()))


_ONE = "SELECT name, number, hash, position FROM state WHERE name IN (?, ?)"
_ALL = (
    "SELECT name, number, hash, position FROM state WHERE (name >= 'origin ' AND name < 'origin!')"
    " OR (name >= 'chain ' AND name < 'chain!')"
)


def _chains(rows: list[Any]) -> dict[str, Chain]:
    found = {name: (number, digest, position) for name, number, digest, position in rows}
    chains = {}
    for name, (number, digest, position) in found.items():
        if name.startswith(_ORIGIN):
            origin = name.removeprefix(_ORIGIN)
            whole = found.get(_CHAIN + origin)
            if whole is not None and whole[0] == number:
                chains[origin] = _decode(whole[1])
            else:
                chains[origin] = simple_chain(Link(number, digest), Position(position))
    return chains
