"""Complete a foreign event from its own content: with the same result on every machine and in every run (F71).

Nothing here is random and nothing depends on the log, the clock or the path of the file. So importing twice, partly,
or on two machines gives the same ids, the same hashes and the same chain, and logs that imported the same file can
later exchange their events.

    seed       SHA-256 of the namespace and the object as JSON with sorted keys
    origin     import-… of the namespace; without a given one, the namespace is the first event of the file
    id         as given; else the time of the event and 74 bits of the seed, as a UUIDv7
    salt       16 bytes of the seed's hash: only a reader of the whole line can compute it
    time       as given; else that of the line before, or 1970
    lamport    as given; else one more than the greatest above it in the file
    previous   the hash of the event before it in the file
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Any

from everlog.core.codec import SALT_BYTES, commitment, payload_bytes
from everlog.core.event import BEGINNING, Event, Link, microseconds
from everlog.core.ids import EventId, id_text
from everlog.stores.contract import Encoded, encode_event
from everlog.transfer.foreign import Foreign

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS_MAX = (1 << 48) - 1


def stable_bytes(found: Any) -> bytes:
    """Return an object as bytes that do not depend on how it was written: spaces, order of keys, line or array."""
    # Not canonical(): with a payload of the maximum depth inside, the whole object is deeper than a value may be.
    return json.dumps(found, sort_keys=True, separators=(",", ":")).encode()


class Filler:
    """Completes the events of one namespace, in order. `lamport` and `moment` are those before the first event."""

    def __init__(self, namespace: str = "", *, lamport: int = 0, moment: datetime = _EPOCH) -> None:
        self._name = f"name {namespace}".encode() if namespace else b""
        self._link = BEGINNING
        self.moment = moment
        self.lamport = lamport
        self.counted = 0  # events that came without a lamport value

    @property
    def origin(self) -> str:
        """The origin of the events; empty before the first one."""
        return f"import-{_sha256(b'origin', self._name).hex()[:32]}" if self._name else ""

    def new_id(self, foreign: Foreign, stable: bytes) -> EventId:
        """Return the id for an event that has none, or whose own id is replaced."""
        return _id(foreign.occurred_at or self.moment, self._seed(stable))

    def skip(self, foreign: Foreign, stable: bytes) -> None:
        """Skip one event: continue as after `fill`, without building it."""
        self._seed(stable)
        self.moment = foreign.occurred_at or self.moment

    def _seed(self, stable: bytes) -> bytes:
        self._name = self._name or b"first " + _sha256(b"first", stable)
        return _sha256(b"event", self._name, stable)

    def fill(self, foreign: Foreign, stable: bytes) -> Encoded:
        """Return the event of an object that was read as `foreign`; `stable` are its `stable_bytes`."""
        seed = self._seed(stable)
        self.moment = foreign.occurred_at or self.moment
        salt = _sha256(b"salt", seed)[:SALT_BYTES]
        number = self._link.origin_seq + 1
        self.counted += foreign.lamport is None
        lamport = self.lamport + 1 if foreign.lamport is None else foreign.lamport
        self.lamport = max(self.lamport, lamport)
        sealed = encode_event(
            Event(
                id=foreign.id or _id(self.moment, seed),
                type=foreign.type,
                version=foreign.version,
                stream=foreign.stream,
                lamport=lamport,
                origin=self.origin,
                origin_seq=number,
                occurred_at=self.moment,
                actor=foreign.actor,
                scope=foreign.scope,
                request_id=foreign.request_id,
                causation_id=foreign.causation_id,
                correlation_id=foreign.correlation_id,
                idempotency_key=foreign.idempotency_key,
                tags=foreign.tags,
                commitment=commitment(salt, payload_bytes(foreign.payload)),
                previous=self._link.hash,
                payload=foreign.payload,
                salt=salt,
            )
        )
        self._link = Link(number, sealed.hash)
        return sealed


def _id(moment: datetime, seed: bytes) -> EventId:
    ms = min(max(microseconds(moment) // 1000, 0), _MS_MAX)
    random = int.from_bytes(seed[:10], "big")
    high, low = (random >> 62) & 0xFFF, random & ((1 << 62) - 1)
    return id_text(ms << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low)


def _sha256(*parts: bytes) -> bytes:
    """Return a hash over several parts, each with its length, so that no two lists of parts are the same bytes."""
    digest = hashlib.sha256(b"everlog import 1")
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()
