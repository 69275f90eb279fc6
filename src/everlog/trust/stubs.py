"""What a purge left of an event, as it travels to nodes that never had the event.

    stub/ORIGIN/NUMBER    the proof of a stub whose group is not here, kept beside the events

A stub shows that the origin signed an event with this number and hash. That the event was purged shows a signed
record, `stream.purged`, which lists it. A node takes a stub only with both.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from everlog.core.canonical import NUMBER_MAX
from everlog.core.event import Purged
from everlog.core.ids import id_matches, is_key, parse_id
from everlog.errors import EverlogError
from everlog.stores.open_write import OpenWrite
from everlog.stores.small_state import NOTES, RowReader, read_note, with_checksum, without_checksum
from everlog.trust.forks import Leaf, leaf_of
from everlog.trust.group_signature import event_is_signed

_PREFIX = "stub/"
_HASH_BYTES = 32
_leaf = msgspec.json.Decoder(Leaf)


class Stub(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a purge left of an event, with the proof that its origin signed it."""

    id: str
    origin: str
    origin_seq: int
    hash: bytes
    previous: bytes
    lamport: int
    signature: bytes = b""
    first_seq: int = 0
    count: int = 0
    path: tuple[bytes, ...] = ()

    def holds(self, log_id: str) -> bool:
        """Return whether it is one that a log could have, and the origin signed the event in this log.

        An origin that is no key signs nothing: anybody can write under its name.
        """
        numbers = (self.origin_seq, self.lamport)
        if not all(1 <= number <= NUMBER_MAX for number in numbers) or len(self.hash) != _HASH_BYTES:
            return False
        try:
            if parse_id(self.id) != self.id or len(self.previous) not in (0, _HASH_BYTES):
                return False
            return not is_key(self.origin) or self._is_of_origin(log_id)
        except EverlogError:
            return False

    def _is_of_origin(self, log_id: str) -> bool:
        """Return whether the origin signed it under this id.

        The hash covers the id, but the header that would show it is gone. So the id must be the one of this number.
        Otherwise a node that passes the stub on could give it the id of a later event, which would then be refused.
        """
        return id_matches(self.id, self.origin, self.origin_seq) and self._is_signed(log_id)

    def _is_signed(self, log_id: str) -> bool:
        signed_with = (self.first_seq, self.count)
        return event_is_signed(
            log_id, self.origin, self.origin_seq, self.hash, signed_with, self.path, self.signature
        )

    @property
    def leaf(self) -> Leaf:
        return Leaf(self.hash, self.signature, self.first_seq, self.count, self.path)


def keep_proof(write: OpenWrite, origin: str, number: int, leaf: Leaf) -> None:
    """Keep the proof of a stub, so that it can be sent to others."""
    if leaf.count:
        write.put(NOTES, {_key(origin, number): with_checksum(msgspec.json.encode(leaf))})


def keep_proofs(write: OpenWrite, stubs: Iterable[Purged]) -> None:
    """Keep the proofs of events that this write purges, of those that were stored without their group."""
    for stub in stubs:
        if is_key(stub.origin) and not stub.signed_with[0]:
            recorded = write.stored.get(stub.id)
            if recorded is not None:
                keep_proof(write, stub.origin, stub.origin_seq, leaf_of(recorded.event, stub.hash))


def kept_proof(state: RowReader, origin: str, number: int) -> Leaf | None:
    """Return the proof of a stub whose group is not here. Raise Damaged if it cannot be read."""
    key = _key(origin, number)
    text = read_note(state, key)
    return None if text is None else _leaf.decode(without_checksum(key, text))


def _key(origin: str, number: int) -> str:
    return f"{_PREFIX}{origin}/{number}"
