"""The proof of an event that is in the log already, or was purged from it: one half of the proof of a fork."""

from __future__ import annotations

from everlog.core.codec import Packed, header_hash, split_proof, unpack
from everlog.core.event import Purged
from everlog.core.merkle import path
from everlog.log.read.accounting import Places
from everlog.stores.open_write import OpenWrite
from everlog.trust.forks import Leaf
from everlog.trust.stubs import kept_proof


def recorded_leaf(write: OpenWrite, origin: str, number: int) -> Leaf | None:
    """Return the proof of an event that is recorded, or was purged."""
    return kept_proof(write, origin, number) or _leaf_in_log(write, origin, number)


def _leaf_in_log(write: OpenWrite, origin: str, number: int) -> Leaf | None:
    """Read the log up to an event, and return its proof, or that of what a purge left of it.

    Raise Damaged if the event is not found and something of the log cannot be read.
    """
    hashes: dict[int, bytes] = {}
    wanted: Purged | None = None  # its path follows from the others of its group
    places = Places(write.stored)
    for slot in places:
        event = slot if isinstance(slot, Purged) else unpack(slot).event
        if event.origin != origin:
            continue
        hashes[event.origin_seq] = slot.hash if isinstance(slot, Purged) else header_hash(slot.header)
        if event.origin_seq == number and wanted is None:
            if isinstance(slot, Packed):
                signature, first, count = split_proof(slot.proof)
                return Leaf(hashes[number], signature, first, count, slot.path) if count else None
            wanted = slot
        if wanted is not None:
            first, count = wanted.signed_with
            group = range(first, first + count)
            if not count or event.origin_seq >= group.stop - 1:
                leaves = [hashes[one] for one in group if one in hashes]
                if number not in group or len(leaves) < count:
                    break
                return Leaf(wanted.hash, wanted.signature, first, count, path(leaves, number - first))
    places.raise_if_lost()
    return None
