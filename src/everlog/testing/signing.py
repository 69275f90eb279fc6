"""Signed logs for tests, with keys that are only in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from everlog.core.codec import header_bytes, header_hash
from everlog.stores.contract import Identity, Stored
from everlog.stores.identity import new_identity
from everlog.trust.group_signature import event_is_signed, proof_of
from everlog.trust.keys import PrivateKey
from everlog.trust.signer import KeysInMemory, Signer


def key(number: int) -> PrivateKey:
    """Return a key that is the same in every run."""
    return PrivateKey(number.to_bytes(32, "big"))


def signed_identity(own: PrivateKey, now_us: Callable[[], int] = lambda: time.time_ns() // 1000) -> Identity:
    """Return the identity of a new log that signs with a key: for `Store(…, identity=…)`."""
    return new_identity(now_us(), own.public.origin)


def signer(store: Stored, keys: Sequence[PrivateKey]) -> Signer:
    """Return what signs for a store: for `Log(…, signer=…)`."""
    return Signer(KeysInMemory(keys), store.identity.log_id)


def unsigned_events(store: Stored) -> list[int]:
    """Return the positions of the events that no key of their origin has signed in this log."""
    found = []
    for recorded in store.read():
        event = recorded.event
        signature, first, count = proof_of(event)
        hash = header_hash(header_bytes(event))
        if not event_is_signed(
            store.identity.log_id, event.origin, event.origin_seq, hash, (first, count), event.path, signature
        ):
            found.append(int(recorded.position))
    return found
