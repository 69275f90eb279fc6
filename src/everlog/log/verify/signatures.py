"""What `verify` checks of signatures: one Ed25519 check per group, over the root of the hashes of all its events.

An event whose origin is a key must be signed, in this log and by that key. An event of any other origin must not
carry a signature: nobody could check it. What purges left takes part through its hash.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from everlog.core.codec import Packed, split_proof
from everlog.core.event import START, Event, Position, Purged
from everlog.core.group import EventLink, Group, GroupFacts, StoredEvent
from everlog.core.ids import is_key
from everlog.core.merkle import root, root_of_path
from everlog.errors import Damaged, InvalidField
from everlog.stores.contract import Problem
from everlog.trust.group_signature import signed_message
from everlog.trust.keys import key_of

_MISSING = "its origin is a key, and it is not signed"
_INVALID = "the key of its origin did not sign it in this log"
_UNEXPECTED = "its origin is not a key, and it carries a signature"
_STUBS_MAX = 10_000


class Signatures:
    """Checks the signatures of one log."""

    def __init__(self, log_id: str) -> None:
        self._log_id = log_id
        self._stubs: dict[tuple[str, bytes, tuple[int, int]], dict[int, bytes]] = {}  # of groups that were purged

    def of_group(self, group: Group, linked: Sequence[tuple[StoredEvent, EventLink]]) -> Iterator[Problem]:
        """Check a group as it is stored, with the events that are left of it."""
        facts = group.facts
        if facts.signature:
            yield from self._of_signed(group, linked)
        elif is_key(facts.origin) or any(stored.recorded.event.signature for stored, _ in linked):
            for stored, link in linked:  # from another log, whose group is not here
                event = stored.recorded.event
                yield from self._of_event(
                    stored.recorded.position, facts.origin, event.origin_seq, link.hash, event.signature, event.path
                )

    def _of_signed(self, group: Group, linked: Sequence[tuple[StoredEvent, EventLink]]) -> Iterator[Problem]:
        facts = group.facts
        if is_key(facts.origin):
            if len(linked) == facts.count:
                hashes = [link.hash for _, link in linked]
            else:
                try:
                    hashes = group.hashes()
                except Damaged:
                    hashes = []  # what a purge left is missing; that is reported, too
            if len(hashes) == facts.count and self._is_signed(facts.origin, facts, root(hashes)):
                return
        if linked:
            first, last = linked[0][0].recorded.position, linked[-1][0].recorded.position
            code = "signature_invalid" if is_key(facts.origin) else "signature_unexpected"
            reason = _INVALID if is_key(facts.origin) else _UNEXPECTED
            yield Problem(first, code, reason, upto=last if last > first else START)

    def _is_signed(self, origin: str, facts: GroupFacts, top: bytes) -> bool:
        return _root_is_signed(self._log_id, origin, facts.first_seq, facts.count, top, facts.signature)

    def of_slot(self, place: Packed, event: Event, digest: bytes) -> Iterator[Problem]:
        """Check an event by itself, by the path to the root of its group."""
        if place.signature or is_key(event.origin):
            yield from self._of_event(place.position, event.origin, event.origin_seq, digest, place.proof, place.path)

    def of_stub(self, stub: Purged) -> Iterator[Problem]:
        """Check a group of which purges have left nothing else, once all of it was seen."""
        if not stub.signature or not stub.signed_with[0]:
            return
        key = (stub.origin, stub.signature, stub.signed_with)
        if len(self._stubs) >= _STUBS_MAX:
            self._stubs.clear()
        found = self._stubs.setdefault(key, {})
        found[stub.origin_seq] = stub.hash
        first, count = stub.signed_with
        if len(found) == count:
            del self._stubs[key]
            top = root([found.get(number, b"") for number in range(first, first + count)])
            if not (
                is_key(stub.origin) and _root_is_signed(self._log_id, stub.origin, first, count, top, stub.signature)
            ):
                yield Problem(stub.position, "signature_invalid", "what purges left of its group was not signed so")

    def _of_event(
        self,
        position: Position,
        origin: str,
        number: int,
        digest: bytes,
        proof: bytes,
        path: tuple[bytes, ...],
    ) -> Iterator[Problem]:
        if not is_key(origin):
            if proof:
                yield Problem(position, "signature_unexpected", _UNEXPECTED)
            return
        if not proof:
            yield Problem(position, "signature_missing", _MISSING)
            return
        signature, first, count = split_proof(proof)
        top = root_of_path(digest, number - first, count, path) if count else None
        if top is None or not _root_is_signed(self._log_id, origin, first, count, top, signature):
            yield Problem(position, "signature_invalid", _INVALID)


@lru_cache(maxsize=1024)
def _root_is_signed(log_id: str, origin: str, first: int, count: int, top: bytes, signature: bytes) -> bool:
    """Return whether a key signed a group. Neighbours that are checked one by one have the same root."""
    try:
        return key_of(origin).has_signed(signed_message(log_id, origin, first, count, top), signature)
    except InvalidField:
        return False
