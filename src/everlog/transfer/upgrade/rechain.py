"""Compute the chains of a log of format 1 again, for the hash of the present format.

An event carries the hash of the event before it in its chain. The hash changes with the format, so `previous` changes
in every header but the first, and with it the hash of that header. Everything else in a header stays. What a purge
left has no header any more: it keeps its hash, and the event after it carries that.

An event whose predecessor is not in the log keeps `previous` as it is: nobody here can compute another one.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from everlog.core.codec import Packed, header_hash
from everlog.core.event import Purge, Purged
from everlog.transfer.upgrade.format1 import model
from everlog.transfer.upgrade.format1.model import Slot, decode_header

_LENGTH = len(b',""]') + 44  # what `previous` takes at the end of a header: base64 of 32 bytes


class Rechain:
    """Takes the slots in order of position and returns them with their new chains.

    `known` has the new hash for each old one of chains that came out of order.
    """

    def __init__(self, known: Mapping[bytes, bytes] | None = None) -> None:
        self._known = known or {}
        self._ends: dict[str, tuple[bytes, bytes]] = {}  # by origin: the hash of its last event, before and after
        self._lamport = 0

    def take(self, slot: Slot) -> Slot:
        if isinstance(slot, Packed):
            return self._event(slot)
        if isinstance(slot, Purged):
            lamport = slot.lamport or self._lamport  # the greatest before it, where its own is not known
            fresh = replace(slot, previous=self._new(slot.origin, slot.previous), lamport=lamport)
            self._ends[slot.origin] = (slot.hash, slot.hash)
            self._lamport = max(self._lamport, lamport)
            return fresh
        return slot

    def _event(self, slot: Packed) -> Packed:
        found = decode_header(slot.header)
        origin = found.origin
        if found.lamport > self._lamport:
            self._lamport = found.lamport
        header = slot.header
        if found.previous:
            header = with_previous(header, self._new(origin, found.previous))
        self._ends[origin] = (model.header_hash(slot.header), header_hash(header))
        place = slot.position, slot.sequence, slot.received_us
        return Packed(*place, header, slot.payload, slot.salt, slot.signature, slot.path)

    def _new(self, origin: str, previous: bytes) -> bytes:
        old, new = self._ends.get(origin, (b"", b""))
        return new if previous == old else self._known.get(previous, previous)


def with_previous(header: bytes, previous: bytes) -> bytes:
    """Return a header with another `previous`, which is its last element."""
    return b'%s,"%s"]' % (header[:-_LENGTH], b64encode(previous))


class Links:
    """Finds chains whose events are not in order, and computes their new hashes in the order of their numbers."""

    def __init__(self) -> None:
        self._ends: dict[str, bytes] = {}
        self._irregular: set[str] = set()

    def see(self, slot: Slot) -> None:
        """Look at a slot in the first pass."""
        if isinstance(slot, Purge):
            return
        if isinstance(slot, Purged):
            origin, previous, digest = slot.origin, slot.previous, slot.hash
        else:
            found = decode_header(slot.header)
            origin, previous, digest = found.origin, found.previous, model.header_hash(slot.header)
        self.see_link(origin, previous, digest)

    def see_link(self, origin: str, previous: bytes, digest: bytes) -> None:
        if previous != self._ends.get(origin, b""):
            self._irregular.add(origin)
        self._ends[origin] = digest

    def known(self, slots: Iterable[Slot]) -> dict[bytes, bytes]:
        """Return the new hash for each old one of the irregular chains; a second pass, and mostly not needed."""
        if not self._irregular:
            return {}
        chains: list[tuple[str, int, Packed | Purged]] = []
        for slot in slots:
            if isinstance(slot, Purged) and slot.origin in self._irregular:
                chains.append((slot.origin, slot.origin_seq, slot))
            elif isinstance(slot, Packed):
                found = decode_header(slot.header)
                if found.origin in self._irregular:
                    chains.append((found.origin, found.origin_seq, slot))
        hashes: dict[bytes, bytes] = {}
        for _, _, slot in sorted(chains, key=lambda chain: chain[:2]):
            if isinstance(slot, Purged):
                hashes[slot.hash] = slot.hash
                continue
            previous = decode_header(slot.header).previous
            fresh = with_previous(slot.header, hashes.get(previous, previous)) if previous else slot.header
            hashes[model.header_hash(slot.header)] = header_hash(fresh)
        return hashes
