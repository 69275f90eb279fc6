"""Ed25519 keys, and the text forms of a public key.

The origin of a signed log is its public key: the base58 text of did:key without its prefix, which begins with `z6Mk`.

    z6MkhaXgBZD…                         an origin
    did:key:z6MkhaXgBZD…                 a decentralized identifier
    ssh-ed25519 AAAAC3NzaC1lZDI1NTE5…    OpenSSH
    NAME+1a2b3c4d+AXq8…                  a verifier key of signed notes (C2SP), which includes a name
"""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache

import msgspec

from everlog.core.ids import is_key as is_key
from everlog.errors import InvalidField
from everlog.hiding import shown

KEY_BYTES = 32
SIGNATURE_BYTES = 64

_DID = "did:key:"
_ED25519 = b"\xed\x01"  # the multicodec of an Ed25519 public key
_PREFIX = "z6Mk"
_ORIGIN_LENGTH = 48
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_NOTE_ED25519 = b"\x01"
_SSH = "ssh-ed25519"


class PublicKey(msgspec.Struct, frozen=True, gc=False):
    """A public key that is a point of the prime-order group, in its canonical encoding."""

    raw: bytes

    def __post_init__(self) -> None:
        if not _is_sound(self.raw):
            raise InvalidField(
                f"{self.raw.hex()[:64]} is not a public key",
                why="an Ed25519 key is 32 bytes: a point of the group of prime order, in its canonical form",
                hint="everlog keys list prints the keys of this folder",
                field="key",
            )

    @property
    def origin(self) -> str:
        return "z" + _base58(_ED25519 + self.raw)

    @property
    def did(self) -> str:
        return _DID + self.origin

    @property
    def openssh(self) -> str:
        blob = b"".join(len(part).to_bytes(4, "big") + part for part in (_SSH.encode(), self.raw))
        return f"{_SSH} {base64.b64encode(blob).decode()}"

    def note_id(self, name: str, algorithm: bytes = _NOTE_ED25519) -> bytes:
        """Return the 4 bytes by which a signed note names this key."""
        return hashlib.sha256(name.encode() + b"\n" + algorithm + self.raw).digest()[:4]

    def verifier(self, name: str) -> str:
        """Return the verifier key of signed notes for this name."""
        text = base64.b64encode(_NOTE_ED25519 + self.raw).decode()
        return f"{name}+{self.note_id(name).hex()}+{text}"

    def has_signed(self, message: bytes, signature: bytes) -> bool:
        """Return whether this key made the signature over exactly this message."""
        from nacl import bindings, exceptions  # loaded when something is signed or checked

        if len(signature) != SIGNATURE_BYTES:
            return False
        try:
            # libsodium refuses keys and nonces of small order, and a second encoding of the same signature.
            bindings.crypto_sign_open(signature + message, self.raw)
        except (exceptions.BadSignatureError, ValueError):
            return False
        return True


class PrivateKey:
    """A key that signs. Its bytes are in no text of it: not in its repr, and not in an error."""

    __slots__ = ("_secret", "public")

    def __init__(self, seed: bytes) -> None:
        from nacl import bindings

        raw, self._secret = bindings.crypto_sign_seed_keypair(seed)
        self.public = PublicKey(raw)

    @classmethod
    def new(cls) -> PrivateKey:
        import os

        return cls(os.urandom(KEY_BYTES))

    @property
    def seed(self) -> bytes:
        return self._secret[:KEY_BYTES]

    def sign(self, message: bytes) -> bytes:
        from nacl import bindings

        return bindings.crypto_sign(message, self._secret)[:SIGNATURE_BYTES]

    def __repr__(self) -> str:
        return f"PrivateKey of {self.public.origin}"

    def __reduce__(self) -> str:
        raise TypeError("a private key is not pickled")


@lru_cache(maxsize=4096)
def key_of(origin: str) -> PublicKey:
    """Return the key that an origin, a did:key or an OpenSSH line is. Anything else is refused."""
    text = origin.strip().removeprefix(_DID)
    raw = _ssh_key(text) if text.startswith(_SSH) else _origin_key(text)
    if raw is None:
        raise InvalidField(
            f"{shown(origin, 80)} is not the text of a public key",
            why="a key is written as z6Mk…, did:key:z6Mk… or ssh-ed25519 …",
            hint="everlog keys show prints all three forms",
            field="key",
        )
    return PublicKey(raw)


def _origin_key(text: str) -> bytes | None:
    if len(text) != _ORIGIN_LENGTH or not text.startswith(_PREFIX) or not set(text) <= set(_BASE58):
        return None
    number = 0
    for char in text[1:]:
        number = number * 58 + _BASE58.index(char)
    raw = number.to_bytes(40, "big").lstrip(b"\0")
    # 48 characters and this prefix leave one text per key.
    return raw[2:] if len(raw) == 2 + KEY_BYTES and raw[:2] == _ED25519 else None


def _ssh_key(text: str) -> bytes | None:
    try:
        blob = base64.b64decode(text.split()[1], validate=True)
    except (ValueError, IndexError):
        return None
    head = b"".join((len(_SSH).to_bytes(4, "big"), _SSH.encode(), KEY_BYTES.to_bytes(4, "big")))
    return blob[len(head) :] if blob.startswith(head) and len(blob) == len(head) + KEY_BYTES else None


def _base58(data: bytes) -> str:
    number, text = int.from_bytes(data, "big"), ""
    while number:
        number, digit = divmod(number, 58)
        text = _BASE58[digit] + text
    return text


def _is_sound(raw: bytes) -> bool:
    from nacl import bindings

    return len(raw) == KEY_BYTES and bool(bindings.crypto_core_ed25519_is_valid_point(raw))
