"""Sealed fields: a personal value is encrypted inside the ordinary payload, with a key of the person it is about.

    "email": "sealed:1:Zk3…:bm9uY2U…"
              |        |    |
              |        |    base64 of nonce (24 bytes), ciphertext and tag (16 bytes)
              |        the id of the key, 22 characters
              the form of the envelope

The cipher is XChaCha20-Poly1305 with a random nonce. The plaintext is the canonical JSON of the value, so the size of
an envelope follows from the size of the value. The associated data names the event type, the field and the key:
an envelope that is moved to another type or field does not open. The hash, the commitment and every store see an
ordinary text.

When the key is destroyed, the value is gone from every copy of the log, and every hash and signature still holds.
"""

from __future__ import annotations

import os
from binascii import Error, a2b_base64, b2a_base64
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from everlog.catalog.personal import KEY_ID_CHARS, SEALED, Personal
from everlog.core.canonical import canonical, encode_plain
from everlog.errors import InvalidPayload, NotCanonical
from everlog.trust.ring import KeyRing

NONCE_BYTES = 24
TAG_BYTES = 16

_KEY_ID = slice(len(SEALED), len(SEALED) + KEY_ID_CHARS)
_BODY = len(SEALED) + KEY_ID_CHARS + 1


def seal(value: bytes, *, key: bytes, key_id: str, event_type: str, field: str, nonce: bytes) -> str:
    """Return the envelope of a value, which is given as canonical JSON. A nonce is never used twice."""
    sealed = _cipher()[0](value, f"{event_type}\n{field}\n{key_id}".encode(), nonce, key)
    return f"{SEALED}{key_id}:{b2a_base64(nonce + sealed, newline=False).decode()}"


def opened(envelope: str, *, key: bytes, event_type: str, field: str) -> Any:
    """Return the value of an envelope, or UNSET if it was not sealed with this key for this field, as a log does it.

    Every member that has the key can seal what no log accepts, such as a list of lists without end.
    """
    _, decrypt, cannot = _cipher()
    try:
        data = a2b_base64(envelope[_BODY:], strict_mode=True)
        bound = f"{event_type}\n{field}\n{envelope[_KEY_ID]}".encode()
        plain = decrypt(data[NONCE_BYTES:], bound, data[:NONCE_BYTES], key)
        value = msgspec.json.decode(plain)
        return value if _canonical(value) == plain else msgspec.UNSET
    except (cannot, Error, ValueError, RecursionError, msgspec.DecodeError, NotCanonical):
        return msgspec.UNSET


def _canonical(value: Any) -> bytes:
    return encode_plain(value) if type(value) is str else canonical(value)


@cache
def _cipher() -> tuple[Callable[..., bytes], Callable[..., bytes], type[Exception]]:
    """Return what encrypts, what decrypts, and the error of the latter. PyNaCl is loaded by a log that needs it."""
    from nacl import bindings, exceptions

    return (
        bindings.crypto_aead_xchacha20poly1305_ietf_encrypt,
        bindings.crypto_aead_xchacha20poly1305_ietf_decrypt,
        exceptions.CryptoError,
    )


def key_id_of(value: Any) -> str:
    """Return the id of the key with which a value of a payload is sealed; nothing if it is not sealed."""
    if type(value) is str and value.startswith(SEALED) and value[_BODY - 1 : _BODY] == ":":
        return value[_KEY_ID]
    return ""


class Sealing:
    """Seals and opens the personal fields of one log. The key ring is opened when a value needs it."""

    def __init__(self, open_ring: Callable[[], KeyRing]) -> None:
        self._open_ring = open_ring
        self._ring: KeyRing | None = None

    @property
    def ring(self) -> KeyRing:
        if self._ring is None:
            self._ring = self._open_ring()
        return self._ring

    def seal_all(
        self, event_type: str, personal: Mapping[str, Personal], payloads: Sequence[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return payloads of one type with their personal fields sealed. New keys are on the disk by then."""
        subjects = {
            (row, name): _subject(event_type, payload, name, mark)
            for row, payload in enumerate(payloads)
            for name, mark in personal.items()
            if payload.get(name) is not None  # there is nothing to hide
        }
        keys = self.ring.keys_of(set(subjects.values()))
        nonces = os.urandom(NONCE_BYTES * len(subjects))
        stored = list(map(dict, payloads))
        for place, ((row, name), subject) in enumerate(subjects.items()):
            key = keys[subject]
            stored[row][name] = seal(
                _canonical(payloads[row][name]),
                key=key.secret,
                key_id=key.id,
                event_type=event_type,
                field=name,
                nonce=nonces[place * NONCE_BYTES : (place + 1) * NONCE_BYTES],
            )
        return stored

    def open_value(self, event_type: str, field: str, value: str) -> Any:
        """Return the value of a field, or UNSET if its key is not here."""
        key = self.ring.key(key_id_of(value))
        return msgspec.UNSET if key is None else opened(value, key=key, event_type=event_type, field=field)


def _subject(event_type: str, payload: Mapping[str, Any], name: str, mark: Personal) -> str:
    """Return the person whom a field is about."""
    subject = payload.get(mark.of)
    if subject == "" or type(subject) not in (str, int):
        reason = f"it is personal, and the field {mark.of} does not name the person: it has to be a text or a number"
        raise InvalidPayload(event_type, [(f"$.{name}", reason)])
    return str(subject)
