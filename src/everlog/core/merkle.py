"""The Merkle tree of RFC 9162 over the hashes of events.

A leaf is the hash of an event, which is a leaf hash already (`everlog.core.codec.header_hash`). A node is the SHA-256
over the byte 1 and the two hashes below it. A tree of n leaves is split after the greatest power of two below n.

A proof is a list of hashes of subtrees. `inclusion_ranges` and `consistency_ranges` name these subtrees, each by its
first leaf and the leaf after its last, so that anyone who keeps hashes of subtrees can put a proof together
(`everlog.trust.tiles`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

_sha256 = hashlib.sha256


def root(leaves: Sequence[bytes]) -> bytes:
    """Return the root over these leaves, in order."""
    if not leaves:
        return _sha256(b"").digest()
    row = leaves
    while len(row) > 1:
        row = _above(row)
    return row[0]


def _above(row: Sequence[bytes]) -> Sequence[bytes]:
    """Return the row of nodes above a row, from the bottom of a tree."""
    # As `node`, without a call: every event that is signed comes here.
    pairs = [_sha256(b"\x01" + left + right).digest() for left, right in zip(row[::2], row[1::2], strict=False)]
    return pairs if len(row) % 2 == 0 else [*pairs, row[-1]]  # an odd hash at the end goes up as it is


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
        row = _above(row)
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
            found = node(beside, found) if index % 2 else node(found, beside)
        index, last = index // 2, last // 2
    return None if left else found


def consistency(leaves: Sequence[bytes], old: int) -> list[bytes]:
    """Return the proof that the tree over the first `old` leaves is the beginning of the tree over all of them."""
    return [root(leaves[first:end]) for first, end in consistency_ranges(old, len(leaves))]


def is_consistent(old: int, old_root: bytes, new: int, new_root: bytes, proof: Sequence[bytes]) -> bool:
    """Return whether a proof shows that the old tree is the beginning of the new one."""
    if not 0 <= old <= new:
        return False
    if old in (0, new):  # nothing, or the same tree: there is nothing to prove
        return not proof and old_root == (new_root if old else root(()))
    hashes = list(proof) if old & (old - 1) else [old_root, *proof]  # a whole subtree is not repeated in the proof
    if not hashes:
        return False
    last_old, last_new = old - 1, new - 1
    while last_old % 2:
        last_old, last_new = last_old // 2, last_new // 2
    found_old = found_new = hashes[0]
    for hash in hashes[1:]:
        if not last_new:
            return False
        if last_old % 2 or last_old == last_new:
            found_old, found_new = node(hash, found_old), node(hash, found_new)
            while last_old and not last_old % 2:
                last_old, last_new = last_old // 2, last_new // 2
        else:
            found_new = node(found_new, hash)
        last_old, last_new = last_old // 2, last_new // 2
    return not last_new and found_old == old_root and found_new == new_root


def inclusion_ranges(index: int, count: int) -> list[tuple[int, int]]:
    """Return the subtrees whose hashes lead from a leaf to the root, from the bottom."""
    if not 0 <= index < count:
        raise IndexError(f"leaf {index} of {count}")
    first, end = 0, count
    found: list[tuple[int, int]] = []
    while end - first > 1:
        middle = first + split(end - first)
        if index < middle:
            found.append((middle, end))
            end = middle
        else:
            found.append((first, middle))
            first = middle
    return found[::-1]


def consistency_ranges(old: int, count: int) -> list[tuple[int, int]]:
    """Return the subtrees whose hashes prove that the first `old` leaves are the beginning of `count` leaves."""
    if not 0 <= old <= count:
        raise IndexError(f"the first {old} of {count} leaves")
    first, end = 0, count
    found: list[tuple[int, int]] = []
    while old not in (0, end):
        middle = first + split(end - first)
        if old <= middle:
            found.append((middle, end))
            end = middle
        else:
            found.append((first, middle))
            first = middle
    if first:  # else the old tree is a whole subtree of the new one, and its root is known
        found.append((first, end))
    return found[::-1]


def split(count: int) -> int:
    """Return the greatest power of two below a count of leaves."""
    return 1 << (count - 1).bit_length() - 1


def node(left: bytes, right: bytes) -> bytes:
    return _sha256(b"\x01" + left + right).digest()
