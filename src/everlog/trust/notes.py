"""Signed notes of C2SP: a text with any number of signatures, which tools of others can check, too.

    everlog/01K9…/z6Mk…/8d2q…                  a checkpoint: the log, its origin and its epoch
    1042                                       the size of its tree
    CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2…          the root of its tree

    — everlog/01K9…/z6Mk…/8d2q… Az3grlgtzPI…   the signature of the log
    — z6Mk… jWbPPwAAAABkGFDLEZMHwSRaJN…        a cosignature, with its time

A signature line names its key by a name and four bytes of a hash. The name of a log's key contains the key, and the
name of a cosigner is its key. So a reader can check who signed without a list of keys. Whether a key is the right
one, only the reader knows.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

import msgspec

from everlog.core.chain import Chain
from everlog.errors import BadFile, InvalidField
from everlog.hiding import shown
from everlog.stores.contract import Identity
from everlog.trust.keys import SIGNATURE_BYTES, PrivateKey, PublicKey, is_key, key_of

NOTE_BYTES_MAX = 1_000_000
SIGNATURES_MAX = 100

ED25519, COSIGNATURE = b"\x01", b"\x04"

_DASH = "— "
_PREFIX = "everlog"
_HEADS = "everlog heads 1"
FORGOTTEN = "everlog forgotten 1"
"""The first line of the receipt of a forget."""

_TIME_BYTES = 8
_ID_BYTES = 4
_HASH_BYTES = 32
_SIZE_MAX = 2**63 - 1


class NoteSignature(msgspec.Struct, frozen=True):
    """One signature line."""

    name: str
    key_id: bytes
    signature: bytes


class Note(msgspec.Struct, frozen=True):
    """A text that ends with a line feed, and its signatures."""

    text: str
    signatures: tuple[NoteSignature, ...] = ()

    def __str__(self) -> str:
        """Return the note as it is written. One without a signature is its text alone."""
        lines = [
            f"{_DASH}{one.name} {base64.b64encode(one.key_id + one.signature).decode()}\n" for one in self.signatures
        ]
        return self.text + ("\n" + "".join(lines) if lines else "")

    def with_signature(self, new: NoteSignature) -> Note:
        """Return the note with one more signature; an earlier one of the same key is replaced."""
        kept = [one for one in self.signatures if (one.name, one.key_id) != (new.name, new.key_id)]
        return Note(self.text, (*kept, new))


class Verifier(msgspec.Struct, frozen=True):
    """A key with the name that it signs notes under, and the kind of its signatures."""

    name: str
    key: PublicKey
    algorithm: bytes = ED25519

    @property
    def key_id(self) -> bytes:
        return self.key.note_id(self.name, self.algorithm)

    def made(self, one: NoteSignature) -> bool:
        """Return whether a signature line names this key."""
        return (one.name, one.key_id) == (self.name, self.key_id)

    def accepts(self, text: str, signature: bytes) -> bool:
        """Return whether this key signed the text."""
        if self.algorithm == ED25519:
            return self.key.has_signed(text.encode(), signature)
        if len(signature) != _TIME_BYTES + SIGNATURE_BYTES:
            return False
        message = _cosigned(text, time_of(signature))
        return self.key.has_signed(message, signature[_TIME_BYTES:])


def sign(note: Note, name: str, key: PrivateKey) -> Note:
    """Return the note with the signature of a key under a name."""
    signature = key.sign(note.text.encode())
    return note.with_signature(NoteSignature(name, key.public.note_id(name, ED25519), signature))


def cosign(note: Note, key: PrivateKey, now_s: int) -> Note:
    """Return a checkpoint with a cosignature: at this time, it was the largest tree that this key knew of the log.

    `everlog.trust.witness` checks that before.
    """
    name = key.public.origin
    signature = now_s.to_bytes(_TIME_BYTES, "big") + key.sign(_cosigned(note.text, now_s))
    return note.with_signature(NoteSignature(name, key.public.note_id(name, COSIGNATURE), signature))


def _cosigned(text: str, time_s: int) -> bytes:
    return f"cosignature/v1\ntime {time_s}\n{text}".encode()


def time_of(signature: bytes) -> int:
    """Return the time of a cosignature, in seconds since 1970."""
    return int.from_bytes(signature[:_TIME_BYTES], "big")


# ---- reading


def parse_note(data: bytes, *, unsigned: bool = False) -> Note:
    """Return the note that these bytes are. With `unsigned`, a text without signatures is one, too."""
    if len(data) > NOTE_BYTES_MAX:
        raise _malformed(f"it has more than {NOTE_BYTES_MAX} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise _malformed("it is not UTF-8") from error
    if any(char < " " and char != "\n" for char in text):
        raise _malformed("it has a control character")
    body, blank, lines = text.rpartition("\n\n")
    if not blank and unsigned and text.endswith("\n"):
        return Note(text)
    if not blank or not lines.endswith("\n"):
        raise _malformed("it does not end with signatures after an empty line")
    given = lines[:-1].split("\n")
    if len(given) > SIGNATURES_MAX:
        raise _malformed(f"it has more than {SIGNATURES_MAX} signatures")
    return Note(body + "\n", tuple(dict.fromkeys(map(_signature_line, given))))


def _signature_line(line: str) -> NoteSignature:
    name, _, text = line.removeprefix(_DASH).partition(" ")
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if not line.startswith(_DASH) or not is_key_name(name) or len(data) <= _ID_BYTES:
        raise _malformed(f"{shown(line)} is not a signature line")
    return NoteSignature(name, data[:_ID_BYTES], data[_ID_BYTES:])


def is_key_name(name: str) -> bool:
    """Return whether a text may be the name of a key."""
    return bool(name) and "+" not in name and not any(char.isspace() for char in name)


def parse_verifier(text: str) -> Verifier:
    """Return the verifier key that a text is: `NAME+HASH+KEY`."""
    name, _, rest = text.partition("+")
    given, _, encoded = rest.partition("+")
    try:
        data = base64.b64decode(encoded, validate=True)
        found = Verifier(name, PublicKey(data[1:]), data[:1])
        if not is_key_name(name) or found.algorithm not in (ED25519, COSIGNATURE) or found.key_id.hex() != given:
            raise ValueError(text)
    except (binascii.Error, ValueError, InvalidField) as error:
        raise InvalidField(
            f"{shown(text)} is not a verifier key",
            why="it is written NAME+HASH+KEY, and the hash is that of the name and the key",
            hint="everlog keys show prints it",
            field="key",
        ) from error
    return found


def _malformed(why: str) -> BadFile:
    return BadFile(
        "this is not a signed note", why=why, hint="everlog checkpoint and everlog heads write signed notes"
    )


# ---- checkpoints


class Checkpoint(msgspec.Struct, frozen=True):
    """The size and root of the tree of a log, as `origin` claims them."""

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        root = base64.b64encode(self.root).decode()
        return "".join(f"{line}\n" for line in (self.origin, str(self.size), root, *self.extensions))


class LogName(msgspec.Struct, frozen=True):
    """What the origin line of a checkpoint names."""

    log_id: str
    origin: str
    epoch: str

    def __str__(self) -> str:
        return f"{_PREFIX}/{self.log_id}/{self.origin}/{self.epoch}"


def name_of(identity: Identity) -> LogName:
    return LogName(identity.log_id, identity.origin, identity.epoch)


def parse_name(text: str) -> LogName | None:
    """Return what an origin line names; None if it is not that of an everlog log."""
    parts = text.split("/")
    return LogName(*parts[1:]) if len(parts) == 4 and parts[0] == _PREFIX and all(parts) else None


def parse_checkpoint(text: str) -> Checkpoint:
    """Return the checkpoint that the text of a note is."""
    lines = text.removesuffix("\n").split("\n")
    if len(lines) < 3 or not all(lines):
        raise _no_checkpoint("it has at least three lines, and none is empty")
    origin, size, encoded, *extensions = lines
    if not (size.isascii() and size.isdigit() and len(size) < 20 and str(int(size)) == size):
        raise _no_checkpoint("its second line is the size of a tree")
    try:
        found = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if len(found) != _HASH_BYTES or base64.b64encode(found).decode() != encoded or int(size) > _SIZE_MAX:
        raise _no_checkpoint("its third line is a SHA-256 hash in base64")
    return Checkpoint(origin, int(size), found, tuple(extensions))


def _no_checkpoint(why: str) -> BadFile:
    return BadFile("this is not a checkpoint", why=why, hint="everlog checkpoint --out FILE writes one")


class Signed(msgspec.Struct, frozen=True):
    """Who signed a note, after each signature was checked. `unknown` are names that do not contain their key."""

    by: str = ""  # the key of the log or node
    cosigned: tuple[tuple[str, int], ...] = ()  # keys, each with its time in seconds
    unknown: tuple[str, ...] = ()


def who_signed(note: Note) -> Signed:
    """Check the signatures of a note. One wrong signature of a known key makes the whole note invalid."""
    first = note.text.partition("\n")[0]
    own = parse_name(first)
    by, cosigned, unknown = "", [], []
    for one in note.signatures:
        verifier = _self_named(one, first, own)
        if verifier is None:
            unknown.append(one.name)
        elif not verifier.accepts(note.text, one.signature):
            raise BadFile(
                f"the signature of {one.name} is wrong",
                why="the text was changed after it was signed, or the signature was made by another key",
                hint="get the file again from its source",
            )
        elif verifier.algorithm == COSIGNATURE:
            cosigned.append((verifier.key.origin, time_of(one.signature)))
        else:
            by = verifier.key.origin
    return Signed(by, tuple(cosigned), tuple(unknown))


def _self_named(one: NoteSignature, first: str, own: LogName | None) -> Verifier | None:
    """Return the key that the name of a signature tells: that of the log, or the name itself."""
    key = own.origin if own is not None and one.name == first else one.name
    if not is_key(key):
        return None
    try:
        known = key_of(key)
    except InvalidField:
        return None
    kinds = (
        (ED25519,)
        if one.name == first
        else (COSIGNATURE, ED25519)
        if first in (_HEADS, FORGOTTEN)
        else (COSIGNATURE,)
    )
    return next((found for kind in kinds if (found := Verifier(one.name, known, kind)).made(one)), None)


# ---- heads


def heads_text(log_id: str, chains: Mapping[str, Chain]) -> str:
    """Return every origin with its contiguous end and hash. It is the same for any copy, order or store."""
    lines = [_HEADS, log_id]
    for origin, chain in sorted(chains.items()):
        end = chain.end
        lines.append(f"{origin} {end.origin_seq} {base64.b64encode(end.hash).decode() or '-'}")
    return "".join(f"{line}\n" for line in lines)
