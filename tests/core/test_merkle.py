"""The tree of RFC 9162: against the definition in the RFC, written out."""

from __future__ import annotations

import hashlib

import pytest

from everlog.core.merkle import consistency, inclusion_ranges, is_consistent, path, root, root_of_path


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


def consistency_by_definition(leaves: list[bytes], old: int, whole: bool = True) -> list[bytes]:
    if old == len(leaves):
        return [] if whole else [root_by_definition(leaves)]
    at = split(len(leaves))
    if old <= at:
        return [*consistency_by_definition(leaves[:at], old, whole), root_by_definition(leaves[at:])]
    return [*consistency_by_definition(leaves[at:], old - at, False), root_by_definition(leaves[:at])]


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
        ranges = inclusion_ranges(index, count)
        assert [root(leaves[first:end]) for first, end in ranges] == list(found)


@pytest.mark.parametrize("count", range(1, 131))
def test_consistency_proofs_are_those_of_the_rfc(count: int) -> None:
    leaves = some_leaves(count)
    for old in range(1, count + 1):
        found = consistency(leaves, old)
        assert found == consistency_by_definition(leaves, old)
        assert is_consistent(old, root(leaves[:old]), count, root(leaves), found)


@pytest.mark.parametrize("count", range(1, 33))
def test_a_consistency_proof_proves_nothing_else(count: int) -> None:
    leaves = some_leaves(count)
    other = hashlib.sha256(b"other").digest()
    for old in range(1, count + 1):
        old_root, new_root, proof = root(leaves[:old]), root(leaves), consistency(leaves, old)
        assert not is_consistent(old, other, count, new_root, proof)
        assert not is_consistent(old, old_root, count, other, proof)
        assert not is_consistent(old, old_root, count, new_root, [*proof, other])
        for place in range(len(proof)):
            assert not is_consistent(old, old_root, count, new_root, proof[:place] + proof[place + 1 :])
            assert not is_consistent(old, old_root, count, new_root, [*proof[:place], other, *proof[place + 1 :]])
        for wrong in {old - 1, old + 1, count + 1} - {old, 0}:
            assert not is_consistent(wrong, old_root, count, new_root, proof)


def test_a_rewritten_reordered_or_cut_log_is_not_consistent() -> None:
    leaves = some_leaves(20)
    old_root = root(leaves[:13])
    for other in (
        [*leaves[:4], leaves[19], *leaves[5:]],
        [*leaves[:3], leaves[4], leaves[3], *leaves[5:]],
        [*leaves[:3], *leaves[4:]],
    ):
        assert not is_consistent(13, old_root, len(other), root(other), consistency(other, 13))
    assert not is_consistent(13, old_root, 12, root(leaves[:12]), [])
    with pytest.raises(IndexError):
        consistency(leaves[:12], 13)


def test_every_tree_continues_the_empty_one() -> None:
    leaves = some_leaves(3)
    assert consistency(leaves, 0) == []
    assert is_consistent(0, root([]), 3, root(leaves), [])
    assert not is_consistent(0, leaves[0], 3, root(leaves), [])


# The tree of RFC 6962, which RFC 9162 took over, as its implementation (certificate-transparency, `merkletree`) tests
# it: these eight leaves, and the roots of the trees over the first one, two, and so on.
LEAVES = [
    bytes.fromhex(text)
    for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
PROOFS = {  # (old, new): of the same test
    (1, 1): [],
    (1, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (6, 8): [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 5): [
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
}


def test_the_published_trees_and_proofs() -> None:
    leaves = [hashlib.sha256(b"\0" + leaf).digest() for leaf in LEAVES]
    assert [root(leaves[:count]).hex() for count in range(1, 9)] == ROOTS
    for (old, new), proof in PROOFS.items():
        assert [hash.hex() for hash in consistency(leaves[:new], old)] == proof


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
