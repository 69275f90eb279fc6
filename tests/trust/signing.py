"""Chains of events that a key signs, as another node would send them."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from everlog.core.codec import proof
from everlog.core.event import Event
from everlog.core.ids import EventId, id_text
from everlog.core.merkle import paths, root
from everlog.stores.contract import encode_event
from everlog.testing.builders import event
from everlog.trust.group_signature import GroupSignature, signed_message
from everlog.trust.keys import PrivateKey

LOG_ID = "01K9ZZZZZZZZZZZZZZZZZZZZZZ"
_MS = 1_763_000_000_000


class Author:
    """A key that adds to its chain. A copy of it (`twin`) continues the same chain in its own way."""

    def __init__(self, seed: int, log_id: str = LOG_ID) -> None:
        self.key = PrivateKey(seed.to_bytes(32, "big"))
        self.origin = self.key.public.origin
        self.log_id = log_id
        self.number, self.previous, self.lamport = 0, b"", 0
        self.groups: list[GroupSignature] = []
        self.ms = _MS  # the time in its ids: two branches of one chain have different ids if their times differ

    def twin(self) -> Author:
        other = Author(int.from_bytes(self.key.seed, "big"), self.log_id)
        other.number, other.previous, other.lamport, other.ms = self.number, self.previous, self.lamport, self.ms
        return other

    def write(self, count: int = 1, **fields: Any) -> list[Event]:
        """Return the events of one write: one signed group, each event with its own proof."""
        bare, hashes, first = [], [], self.number + 1
        for _ in range(count):
            self.number += 1
            self.lamport = fields.get("lamport", self.lamport + 1)
            made = event(
                **{
                    "id": id_of(self.origin, self.number, self.ms),
                    "stream": f"note/{self.number % 3}",
                    "payload": {"text": f"{self.number}"},
                    **fields,
                    "origin": self.origin,
                    "origin_seq": self.number,
                    "previous": self.previous,
                    "lamport": self.lamport,
                }
            )
            self.previous = encode_event(made).hash
            bare.append(made)
            hashes.append(self.previous)
        signature = self.key.sign(signed_message(self.log_id, self.origin, first, count, root(hashes)))
        self.groups.append(GroupSignature(self.origin, first, count, signature))
        carried = proof(signature, (first, count))
        return [replace(one, signature=carried, path=way) for one, way in zip(bare, paths(hashes), strict=True)]


def id_of(origin: str, number: int, ms: int) -> EventId:
    """Return an id that encodes its origin: 52 bits of a hash around the version and the variant."""
    bits = int.from_bytes(sha256(origin.encode()).digest(), "big") >> (256 - 52)
    high, low = bits >> 40, bits & (2**40 - 1)
    return id_text(ms << 80 | 7 << 76 | high << 64 | 2 << 62 | low << 22 | number % 2**22)


def unproven(events: Sequence[Event]) -> list[Event]:
    """Return events as they travel beside the signatures of their groups."""
    return [replace(one, signature=b"", path=()) for one in events]
