"""Peers that lie about what they have: a node believes nothing that it cannot check, and honest nodes still agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.nodes import close, signed_nodes, texts, write

from everlog.errors import EverlogError
from everlog.sync.exchange import Node
from everlog.sync.wire import Heads, OriginHead, RunHead, decode, encode
from everlog.testing.signing import key
from everlog.trust.forks import ForkProof, Leaf

Lie = Callable[[Heads, Heads], Heads]
"""Makes other heads of those that a peer has and those of the node that asks."""

LIES: dict[str, Lie] = {}


def lie(make: Lie) -> Lie:
    LIES[make.__name__] = make
    return make


def changed(heads: Heads, **given: Any) -> Heads:
    return msgspec.structs.replace(heads, **given)


def ends(heads: Heads, change: Callable[[OriginHead], OriginHead]) -> Heads:
    return changed(heads, origins={origin: change(head) for origin, head in heads.origins.items()})


@lie
def ends_that_are_far_ahead(theirs: Heads, ours: Heads) -> Heads:
    return ends(theirs, lambda head: changed_head(head, end=2**53 - 1))


@lie
def ends_that_are_behind(theirs: Heads, ours: Heads) -> Heads:
    return ends(theirs, lambda head: changed_head(head, end=0, hash=b""))


@lie
def other_hashes_at_the_same_ends(theirs: Heads, ours: Heads) -> Heads:
    return ends(theirs, lambda head: changed_head(head, hash=b"x" * 32))


@lie
def numbers_beyond_a_hole_that_nobody_has(theirs: Heads, ours: Heads) -> Heads:
    return ends(theirs, lambda head: changed_head(head, beyond=[RunHead(10**9, 10**9 + 5, b"x" * 32)]))


@lie
def heads_that_are_equal_to_those_of_the_node_that_asks(theirs: Heads, ours: Heads) -> Heads:
    return ours


@lie
def a_count_without_origins(theirs: Heads, ours: Heads) -> Heads:
    return changed(theirs, origins={}, count=10**9)


@lie
def an_equal_fingerprint_with_other_ends(theirs: Heads, ours: Heads) -> Heads:
    return changed(theirs, count=ours.count, fingerprint=ours.fingerprint)


@lie
def a_chain_of_a_key_that_does_not_exist(theirs: Heads, ours: Heads) -> Heads:
    return changed(theirs, origins={**theirs.origins, "z6Mk" + "1" * 44: OriginHead(5, b"x" * 32)})


@lie
def a_fork_of_an_honest_node_that_nobody_signed(theirs: Heads, ours: Heads) -> Heads:
    leaves = [Leaf(bytes([number]) * 32, b"s" * 64, 1, 1, ()) for number in (1, 2)]
    return changed(theirs, forks=[ForkProof(origin, 1, *leaves) for origin in ours.origins])


def changed_head(head: OriginHead, **given: Any) -> OriginHead:
    return msgspec.structs.replace(head, **given)


@pytest.fixture(params=["memory", "sqlite"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Node]]:
    found = signed_nodes(request.param, tmp_path, 3)
    for node in found:
        write(node, f"of {node.log.identity.origin[-4:]}")
        write(node, "more", "note/2")
    yield found
    close(found)


@pytest.mark.parametrize("name", LIES)
def test_a_peer_with_false_heads_changes_nothing_for_others(made: list[Node], name: str) -> None:
    one, other, liar = made

    def ask(request: str, body: bytes) -> bytes:
        reply = liar.answer(request, body)
        return encode(LIES[name](decode(reply, Heads), one.heads())) if request == "heads" else reply

    with suppress(EverlogError):  # it may be refused, and nothing else may happen
        one.sync_with(ask, peer="peer:liar")
    assert one.log.forks() == []
    assert not one.log.verdicts()
    own = [event for event in texts(one) if event is not None]
    assert one.sync_with(other.answer).equal
    assert set(own) <= set(texts(one))
    assert texts(one) == texts(other)
    assert one.sync_with(liar.answer).equal  # it was its answer that was false, not what it has
    for node in (one, other):
        assert node.log.verify().ok
        write(node, "still writes")


def test_heads_of_another_log_are_refused(made: list[Node], tmp_path: Path) -> None:
    one, other, _ = made

    def ask(request: str, body: bytes) -> bytes:
        return encode(changed(decode(other.answer(request, body), Heads), community_id=key(7).public.origin))

    with pytest.raises(EverlogError, match="a peer has the log"):
        one.sync_with(ask)
    assert one.sync_with(other.answer).equal
