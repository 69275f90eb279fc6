"""Succession: the last event of a chain names the key under which its log continues, and both keys have signed it.

    origin.succeeded    {"successor": "z6Mk…", "proof": "…"}

The old key signs the event, as every event of its chain. `proof` is the signature of the new key, in base64, over

    everlog successor 1
    01K9…                  the id of the log
    z6Mk…                  the old origin
    z6Mk…                  the new origin

each line ended by a line feed. So nobody names a key that is not theirs. Nothing counts after it in the old chain,
and the standing of the old key passes to the new one. The note `succession/ORIGIN` beside the events has it, too.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.core.event import Event
from everlog.errors import EverlogError
from everlog.stores.open_write import OpenWrite
from everlog.stores.small_state import NOTES, RowReader, read_notes, with_checksum, without_checksum
from everlog.trust.keys import PrivateKey, is_key, key_of
from everlog.trust.standing import Branch, Limit, Rights, branch_of

SUCCEEDED = "origin.succeeded"
CATALOG = Catalog()
"""No catalog of a log includes it: only `everlog keys rotate` records such an event."""

_NOTES = "succession/"


@CATALOG.event(SUCCEEDED)
class Succeeded(msgspec.Struct, frozen=True, kw_only=True):
    """A log continues under another key."""

    successor: str
    proof: str


class Succession(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Which key follows an origin, after which number of its chain."""

    origin: str
    origin_seq: int
    successor: str


def succeeded_by(log_id: str, origin: str, successor: PrivateKey) -> Succeeded:
    """Return the payload with which an origin names its successor."""
    new = successor.public.origin
    proof = successor.sign(_message(log_id, origin, new))
    return Succeeded(successor=new, proof=base64.b64encode(proof).decode())


def succession_of(log_id: str, event: Event) -> Succession | None:
    """Return the succession that an event states; None if it states none, or the successor did not agree."""
    if event.type != SUCCEEDED or not is_key(event.origin):
        return None
    try:
        found = msgspec.convert(event.payload, Succeeded)
        proof = base64.b64decode(found.proof, validate=True)
        message = _message(log_id, event.origin, found.successor)
        # Only the one text of a key: an origin is compared as it is.
        if key_of(found.successor).origin != found.successor or found.successor == event.origin:
            return None
        agreed = key_of(found.successor).has_signed(message, proof)
    except (ValueError, msgspec.ValidationError, EverlogError):
        return None
    return Succession(event.origin, event.origin_seq, found.successor) if agreed else None


def _message(log_id: str, old: str, new: str) -> bytes:
    return f"everlog successor 1\n{log_id}\n{old}\n{new}\n".encode()


# ---- beside the events


_succession = msgspec.json.Decoder(Succession)


def successions_in(state: RowReader) -> dict[str, Succession]:
    """Return the successions that were recorded, by origin. Raise Damaged if one cannot be read."""
    found = [_succession.decode(without_checksum(key, text)) for key, text in read_notes(state, _NOTES).items()]
    return {one.origin: one for one in found}


def put_succession(write: OpenWrite, one: Succession) -> None:
    write.put(NOTES, {_NOTES + one.origin: with_checksum(msgspec.json.encode(one))})


# ---- standing


class WithSuccessors:
    """Rights that pass from a key to its successor, and end where the chain names one.

    The successor of a key that was revoked counts for nothing, unless the rights themselves name it: it could
    otherwise continue where the revoked one could not. `forks` are the numbers at which chains fork: a succession at
    or after one counts for nothing.
    """

    def __init__(self, rights: Rights, successions: Mapping[str, Succession], forks: Mapping[str, int]) -> None:
        self._rights = rights
        self.begun, self.may_remove = rights.begun, rights.may_remove
        self._ended = {
            origin: one.origin_seq
            for origin, one in successions.items()
            if origin not in forks or one.origin_seq < forks[origin]
        }
        self._before: dict[str, list[Succession]] = {}
        for origin in self._ended:
            self._before.setdefault(successions[origin].successor, []).append(successions[origin])
        self.named = {*rights.named, *self._before}

    def branch(self, origin: str) -> Branch | None:
        return branch_of(self._rights, origin)

    def limit(self, origin: str) -> Limit | None:
        found, ended = self._standing(origin, ()), self._ended.get(origin)
        if ended is not None and (found is None or ended < found.upto):
            return Limit(ended, "revoked_author")
        return found

    def _standing(self, origin: str, seen: Collection[str]) -> Limit | None:
        """Return what the rights state of an origin, or of the keys before it."""
        found = self._rights.limit(origin)
        if found is None or found.code != "unknown_author" or origin in seen:
            return found
        before = [(one, self._standing(one.origin, (*seen, origin))) for one in self._before.get(origin, ())]
        reached = [limit for one, limit in before if limit is None or one.origin_seq <= limit.upto]
        if None in reached:
            return None
        return Limit(0, "revoked_author") if reached else found


def with_successors(rights: Rights, successions: Mapping[str, Succession], forks: Mapping[str, int]) -> Rights:
    return WithSuccessors(rights, successions, forks) if successions else rights
