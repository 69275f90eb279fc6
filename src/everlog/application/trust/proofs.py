"""The proof of one position: a file that a stranger can check without the log.

header       the event's header, or `purge`: the record of a purge, or `hash`: what a purge left of an event
payload      its payload and salt, if they were asked for: the header commits to both
group        the signature of the event's author, over the events that were written together, and the path to it
inclusion    the path from the event to the root of the log's tree
checkpoint   the signed note with that root
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

import msgspec

from everlog.application.events.find import find_position
from everlog.application.trust.checkpoints import Checked, check_checkpoint, make_checkpoint
from everlog.core.codec import (
    HEADER_FIELDS,
    Packed,
    commitment,
    header_hash,
    purge_bytes,
    split_proof,
)
from everlog.core.event import Position, Purged
from everlog.core.merkle import path, root_of_path
from everlog.errors import BadFile, Damaged, EverlogError, NotFound
from everlog.log.log import Log
from everlog.trust.group_signature import event_is_signed
from everlog.trust.keys import PrivateKey, PublicKey, is_key
from everlog.trust.notes import parse_checkpoint, parse_name

FORMAT = "everlog proof 1"

_TEXTS = ("id", "type", "stream", "origin", "occurred_at", "actor")  # of a header, as they are shown
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)


class GroupProof(msgspec.Struct, frozen=True):
    """The signature over the group of an event, and the path from the event to its root."""

    origin: str
    origin_seq: int
    first: int
    count: int
    path: tuple[str, ...]
    signature: str


class Inclusion(msgspec.Struct, frozen=True):
    path: tuple[str, ...]


class ProofFile(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="format", tag=FORMAT):
    log: str
    position: int
    header: str = ""
    purge: str = ""
    hash: str = ""
    payload: str = ""
    salt: str = ""
    group: GroupProof | None = None
    inclusion: Inclusion
    checkpoint: str

    @property
    def leaf(self) -> bytes:
        if self.header or self.purge:
            return header_hash((self.header or self.purge).encode())
        return _bytes(self.hash)


def prove(log: Log, name: str, key: PrivateKey | None, *, payload: bool = False) -> ProofFile:
    """Return the proof of an event, by its id or position, or of what a purge left at a position."""
    position = find_position(log, name)
    note = make_checkpoint(log, key)
    size = parse_checkpoint(note.text).size
    if not 0 < position <= size:
        raise NotFound(f"there is no position #{position}", why=f"the log ends at #{size}", hint="everlog log -n 5")
    content = _content(log, position, payload=payload)
    inclusion = Inclusion(_texts(log.tree.inclusion(position - 1, size)))
    proof = ProofFile(
        log=log.identity.log_id, position=position, inclusion=inclusion, checkpoint=str(note), **content
    )
    if proof.leaf != log.tree.leaf(position - 1):
        raise Damaged(
            f"position #{position} is not what it was when the tree of the log was made",
            why="its hash is another one",
            hint="everlog verify",
            position=position,
        )
    return proof


def _content(log: Log, position: Position, *, payload: bool) -> dict[str, Any]:
    for purge in log.stored.purges(after=Position(position - 1)):
        if purge.reserved == position:
            return {"purge": purge_bytes(purge).decode()}
    place = next(log.stored.slots(after=Position(position - 1)), None)
    if place is None or place.position != position:
        raise Damaged(f"position #{position} cannot be read", hint="everlog verify", position=position)
    if isinstance(place, Purged):
        return {"hash": _text(place.hash), "group": _group_of_purged(log, place)}
    found: dict[str, Any] = {"header": place.header.decode(), "group": _group_of(place)}
    if payload:
        if not place.salt:
            raise NotFound(
                f"the event at #{position} has no payload", why="it was erased", hint="leave --payload out"
            )
        found |= {"payload": place.payload.decode(), "salt": _text(place.salt)}
    return found


def _group_of(place: Packed) -> GroupProof | None:
    signature, (first, count) = place.signature, place.signed_with
    if not first:
        signature, first, count = split_proof(place.signature)
    if not signature:
        return None
    header = _header(place.header.decode())
    return GroupProof(header["origin"], header["origin_seq"], first, count, _texts(place.path), _text(signature))


def _group_of_purged(log: Log, gone: Purged) -> GroupProof | None:
    """Return the proof that the author signed what was purged. A group has consecutive positions and numbers."""
    first, count = gone.signed_with
    if not first:
        return None
    start = gone.position - gone.origin_seq + first - 1
    hashes = [log.tree.leaf(index) for index in range(start, start + count)]
    found = path(hashes, gone.origin_seq - first)
    return GroupProof(gone.origin, gone.origin_seq, first, count, _texts(found), _text(gone.signature))


# ---- checking


class CheckedProof(msgspec.Struct, frozen=True):
    """A proof that was checked."""

    proof: ProofFile
    checked: Checked
    author: str  # the key that signed the event; empty if it is not signed
    payload: Any = None

    @property
    def facts(self) -> dict[str, Any]:
        header = _header(self.proof.header) if self.proof.header else {}
        shown: dict[str, Any] = {
            name: header[name] for name in ("id", "type", "stream", "actor", "occurred_at") if name in header
        }
        kind = "event" if header else "purge" if self.proof.purge else "purged event"
        given = {"payload": self.payload} if self.proof.payload else {}
        return {
            "proves": f"{kind} #{self.proof.position}",
            **shown,
            **given,
            "author": self.author or "not signed",
            **self.checked.facts,
        }


def check_proof(data: bytes, key: PublicKey | None = None) -> CheckedProof:
    """Check everything that a proof claims. With `key`, its checkpoint must be signed with that key."""
    try:
        proof = msgspec.json.decode(data, type=ProofFile)
    except _UNREADABLE as error:
        raise BadFile("this is not a proof", why=str(error), hint="everlog prove ID --out FILE writes one") from error
    checked = check_checkpoint(proof.checkpoint.encode(), key)
    size, name = checked.checkpoint.size, parse_name(checked.checkpoint.origin)
    if name is None or name.log_id != proof.log:
        raise _wrong("its checkpoint is of another log")
    if sum(map(bool, (proof.header, proof.purge, proof.hash))) != 1:
        raise _wrong("it has more or less than one of header, purge and hash")
    found = root_of_path(proof.leaf, proof.position - 1, size, [_bytes(one) for one in proof.inclusion.path])
    if found != checked.checkpoint.root:
        raise _wrong(f"position #{proof.position} of the tree is something else")
    return CheckedProof(proof, checked, _author(proof), _payload(proof))


def _payload(proof: ProofFile) -> Any:
    try:
        return msgspec.json.decode(proof.payload) if proof.payload else None
    except _UNREADABLE as error:
        raise _wrong("its payload cannot be read") from error


def _author(proof: ProofFile) -> str:
    """Return who signed the event. An event of a key without a right signature is refused."""
    header = _header(proof.header) if proof.header else {}
    if proof.payload and _text(commitment(_bytes(proof.salt), proof.payload.encode())) != header.get("commitment"):
        raise _wrong("the header commits to another payload")
    group = proof.group
    if group is None:
        if is_key(header.get("origin", "")):
            raise _wrong("its author is a key, and it has no signature")
        return ""
    if header and (header["origin"], header["origin_seq"]) != (group.origin, group.origin_seq):
        raise _wrong("the signature is of another event")
    path = [_bytes(one) for one in group.path]
    signed_with = (group.first, group.count)
    try:
        right = event_is_signed(
            proof.log, group.origin, group.origin_seq, proof.leaf, signed_with, path, _bytes(group.signature)
        )
    except EverlogError:  # the origin is no key
        right = False
    if not right:
        raise _wrong("the signature of its author is wrong")
    return group.origin


def _wrong(why: str) -> BadFile:
    return BadFile("the proof is wrong", why=why, hint="get the file again from its source")


def _header(text: str) -> dict[str, Any]:
    try:
        found = dict(zip(HEADER_FIELDS, msgspec.json.decode(text, type=list), strict=True))
    except _UNREADABLE as error:
        raise _wrong("its header cannot be read") from error
    if type(found["origin_seq"]) is not int or any(type(found[name]) is not str for name in _TEXTS):
        raise _wrong("its header has values that no log writes")
    return found


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _texts(hashes: Sequence[bytes]) -> tuple[str, ...]:
    return tuple(map(_text, hashes))


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _wrong("it has bytes that are not base64") from error
