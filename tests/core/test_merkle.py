"""The tree of RFC 9162: against the definition in the RFC, written out."""

from __future__ import annotations

import hashlib

import pytest

from everlog.core.merkle import path, root, root_of_path


def node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def split(count: int) -> int:
    """The greatest power of two below the count."""
    return 1 << (count - 1).bit_length() - 1


def root_by_definition(leaves: list[bytes]) -> bytes:
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    at = split(len(leaves))
    return node(root_by_definition(leaves[:at]), root_by_definition(leaves[at:]))


def path_by_definition(leaves: list[bytes], index: int) -> list[bytes]:
    if len(leaves) == 1:
        return []
    at = split(len(leaves))
    if index < at:
        return [*path_by_definition(leaves[:at], index), root_by_definition(leaves[at:])]
    return [*path_by_definition(leaves[at:], index - at), root_by_definition(leaves[:at])]


def some_leaves(count: int) -> list[bytes]:
    return [hashlib.sha256(b"\0%d" % number).digest() for number in range(count)]


@pytest.mark.parametrize("count", range(131))
def test_roots_and_paths_are_those_of_the_rfc(count: int) -> None:
    leaves = some_leaves(count)
    assert root(leaves) == root_by_definition(leaves)
    for index in range(count):
        found = path(leaves, index)
        assert list(found) == path_by_definition(leaves, index)
        assert root_of_path(leaves[index], index, count, found) == root(leaves)


def test_a_path_leads_only_from_its_own_place_to_the_root() -> None:
    leaves = some_leaves(7)
    found = path(leaves, 3)
    assert root_of_path(leaves[2], 3, 7, found) != root(leaves)
    assert root_of_path(leaves[3], 2, 7, found) != root(leaves)
    assert root_of_path(leaves[3], 3, 7, found[:-1]) is None
    assert root_of_path(leaves[3], 3, 7, (*found, leaves[0])) is None
    assert root_of_path(leaves[3], 7, 7, found) is None
    with pytest.raises(IndexError):
        path(leaves, 7)
