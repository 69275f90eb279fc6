"""What a signature covers: the group of events that were written together.

    everlog group 1
    01K9…                  the id of the log, so that the group is worthless in another one
    z6Mk…                  the origin, which is the key
    41                     the number of its first event
    8                      how many events it has
    9f8a…                  the root of the RFC 9162 tree over the hashes of its events, in hexadecimal

Each line ends with a line feed. A stored group has at most `GROUP_MAX` events, so a larger write has several
signatures, all of them under one flush.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from everlog.core.codec import split_proof
from everlog.core.event import Event
from everlog.core.merkle import root, root_of_path
from everlog.trust.keys import key_of


class GroupSignature(msgspec.Struct, frozen=True, gc=False):
    """The signature of a group that travels beside its events."""

    origin: str
    first_seq: int
    count: int
    signature: bytes


def proof_of(event: Event) -> tuple[bytes, int, int]:
    """Return the signature of the group of an event, and the first number and the count of the group.

    It is nothing, 0 and 0 for an event that carries no signature, or bytes that are none.
    """
    return split_proof(event.signature)


def signed_message(log_id: str, origin: str, first_seq: int, count: int, root: bytes) -> bytes:
    """Return the exact bytes that the signature of a group covers."""
    return f"everlog group 1\n{log_id}\n{origin}\n{first_seq}\n{count}\n{root.hex()}\n".encode()


def group_is_signed(log_id: str, origin: str, first_seq: int, hashes: Sequence[bytes], signature: bytes) -> bool:
    """Return whether the key of the origin signed this whole group in this log."""
    message = signed_message(log_id, origin, first_seq, len(hashes), root(hashes))
    return key_of(origin).has_signed(message, signature)


def event_is_signed(
    log_id: str,
    origin: str,
    origin_seq: int,
    hash: bytes,
    signed_with: tuple[int, int],
    path: Sequence[bytes],
    signature: bytes,
) -> bool:
    """Return whether the key of the origin signed the group that has this event, by the path from it to the root."""
    first_seq, count = signed_with
    found = root_of_path(hash, origin_seq - first_seq, count, path)
    return found is not None and key_of(origin).has_signed(
        signed_message(log_id, origin, first_seq, count, found), signature
    )
