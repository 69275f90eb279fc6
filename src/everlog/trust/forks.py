"""Proof that an origin signed two different events with one number.

It holds no event, only hashes, with the signatures and paths that lead to them. So it is valid no matter who
delivers it, and a purge has nothing to remove from it. On every node the chain counts up to the last event before
the fork.
"""

from __future__ import annotations

import msgspec

from everlog.core.event import Event
from everlog.errors import EverlogError
from everlog.trust.group_signature import event_is_signed, proof_of
from everlog.trust.keys import is_key


class Leaf(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The hash of an event, and what proves that its origin signed it."""

    hash: bytes
    signature: bytes  # of its group
    first_seq: int
    count: int
    path: tuple[bytes, ...]


class ForkProof(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Two events of one origin with one number, the one with the lesser hash first."""

    origin: str
    origin_seq: int
    one: Leaf
    other: Leaf

    def holds(self, log_id: str) -> bool:
        """Return whether the origin signed both in this log."""
        if self.one.hash >= self.other.hash or not is_key(self.origin):
            return False
        return all(self._is_signed(log_id, leaf) for leaf in (self.one, self.other))

    def _is_signed(self, log_id: str, leaf: Leaf) -> bool:
        signed_with = (leaf.first_seq, leaf.count)
        try:
            return event_is_signed(
                log_id, self.origin, self.origin_seq, leaf.hash, signed_with, leaf.path, leaf.signature
            )
        except EverlogError:  # the origin looks like a key, and is none
            return False


def leaf_of(event: Event, hash: bytes) -> Leaf:
    """Return the proof that an event carries."""
    signature, first_seq, count = proof_of(event)
    return Leaf(hash, signature, first_seq, count, event.path)


def fork_of(origin: str, origin_seq: int, one: Leaf, other: Leaf) -> ForkProof:
    """Return the proof that two leaves make together."""
    first, second = sorted((one, other), key=lambda leaf: leaf.hash)
    return ForkProof(origin, origin_seq, first, second)
