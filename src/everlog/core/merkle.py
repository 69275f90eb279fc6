"""The Merkle tree of RFC 9162 over the hashes of events.

A leaf is the hash of an event, which is a leaf hash already (`everlog.core.codec.header_hash`). A node is the SHA-256
over the byte 1 and the two hashes below it. A tree of n leaves is split after the greatest power of two below n.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

_sha256 = hashlib.sha256


def root(leaves: Sequence[bytes]) -> bytes:
    """Return the root over these leaves, in order."""
    if not leaves:
        return _sha256(b"").digest()
    row = list(leaves)
    while len(row) > 1:  # an odd hash at the end goes up as it is: the same tree, from the bottom
        pairs = [_node(row[place], row[place + 1]) for place in range(0, len(row) - 1, 2)]
        row = pairs if len(row) % 2 == 0 else [*pairs, row[-1]]
    return row[0]


def path(leaves: Sequence[bytes], index: int) -> tuple[bytes, ...]:
    """Return the hashes that lead from a leaf to the root, from the bottom."""
    if not 0 <= index < len(leaves):
        raise IndexError(f"leaf {index} of {len(leaves)}")
    return _path(_rows(leaves), index)


def paths(leaves: Sequence[bytes]) -> list[tuple[bytes, ...]]:
    """Return the paths of all leaves; each node is computed once."""
    rows = _rows(leaves)
    return [_path(rows, index) for index in range(len(leaves))]


def _rows(leaves: Sequence[bytes]) -> list[Sequence[bytes]]:
    """Return the tree from the bottom, without its root."""
    found, row = [], leaves
    while len(row) > 1:
        found.append(row)
        pairs = [_node(row[place], row[place + 1]) for place in range(0, len(row) - 1, 2)]
        row = pairs if len(row) % 2 == 0 else [*pairs, row[-1]]
    return found


def _path(rows: Sequence[Sequence[bytes]], index: int) -> tuple[bytes, ...]:
    beside = [(row, (index >> level) ^ 1) for level, row in enumerate(rows)]
    return tuple([row[place] for row, place in beside if place < len(row)])


def root_of_path(leaf: bytes, index: int, count: int, hashes: Sequence[bytes]) -> bytes | None:
    """Return the root that a path leads to, or None if a leaf of such a tree has no path of this length."""
    if not 0 <= index < count:
        return None
    last, found, left = count - 1, leaf, list(hashes)
    while last:
        if index % 2 or index < last:
            if not left:
                return None
            beside = left.pop(0)
            found = _node(beside, found) if index % 2 else _node(found, beside)
        index, last = index // 2, last // 2
    return None if left else found


def _node(left: bytes, right: bytes) -> bytes:
    return _sha256(b"\x01" + left + right).digest()
