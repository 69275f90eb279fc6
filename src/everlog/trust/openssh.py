"""Ed25519 private keys in the format of OpenSSH (`ssh-keygen -t ed25519`).

A key without a passphrase is read here. One with a passphrase needs the libraries
cryptography and bcrypt.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

from everlog.errors import BadFile, NoKey, Unavailable
from everlog.trust.keys import KEY_BYTES

_BEGIN, _END = b"-----BEGIN OPENSSH PRIVATE KEY-----", b"-----END OPENSSH PRIVATE KEY-----"
_MAGIC = b"openssh-key-v1\0"
_ED25519 = b"ssh-ed25519"


def read_openssh(data: bytes, passphrase: Callable[[], bytes]) -> bytes:
    """Return the 32 secret bytes of a key. The passphrase is asked for only if the key has one."""
    text = data.strip()
    if not (text.startswith(_BEGIN) and text.endswith(_END)):
        raise _refused("it is no private key of OpenSSH, and no key file of everlog")
    try:
        blob = base64.b64decode(b"".join(text[len(_BEGIN) : -len(_END)].split()), validate=True)
        if not blob.startswith(_MAGIC):
            raise ValueError("it does not begin as such a key does")
        parts = _Parts(blob[len(_MAGIC) :])
        cipher, kdf, _ = parts.text(), parts.text(), parts.text()
        if parts.number() != 1:
            raise ValueError("it has several keys")
        public = _Parts(parts.text())
        if public.text() != _ED25519:
            raise _refused("it is not an Ed25519 key: ssh-keygen -t ed25519 makes one")
        if (cipher, kdf) != (b"none", b"none"):
            return _decrypted(data, passphrase)
        return _plain(_Parts(parts.text()), public.text())
    except (ValueError, IndexError):
        raise _refused("it is damaged") from None  # nothing of the file is quoted


def _plain(parts: _Parts, public: bytes) -> bytes:
    if parts.number() != parts.number():
        raise ValueError("the two check numbers differ")
    kind, own, secret = parts.text(), parts.text(), parts.text()
    if kind != _ED25519 or own != public or len(secret) != 2 * KEY_BYTES or secret[KEY_BYTES:] != public:
        raise ValueError("the private key is not that of the public one")
    return secret[:KEY_BYTES]


def _decrypted(data: bytes, passphrase: Callable[[], bytes]) -> bytes:
    try:
        from cryptography.exceptions import InvalidKey, InvalidTag, UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError as error:
        raise _needs_the_extra(error) from error
    try:
        key = serialization.load_ssh_private_key(data, passphrase())
    except UnsupportedAlgorithm as error:  # without bcrypt
        raise _needs_the_extra(error) from error
    except (ValueError, TypeError, InvalidKey, InvalidTag):
        raise NoKey(
            "the OpenSSH key was not opened",
            why="the passphrase is wrong, or the file is damaged",
            hint="try again with the right passphrase",
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise _refused("it is not an Ed25519 key")
    return bytes(key.private_bytes_raw())


def _needs_the_extra(error: Exception) -> Unavailable:
    return Unavailable(
        "an OpenSSH key with a passphrase needs the libraries cryptography and bcrypt",
        why=str(error),
        hint="pip install 'cryptography[ssh]', or remove the passphrase of a copy with ssh-keygen -p",
    )


class _Parts:
    """Texts and numbers, each text with its length before it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        self._at += 4
        if self._at > len(self._data):
            raise ValueError("it ends too early")
        return int.from_bytes(self._data[self._at - 4 : self._at], "big")

    def text(self) -> bytes:
        size = self.number()
        self._at += size
        if self._at > len(self._data):
            raise ValueError("it ends too early")
        return self._data[self._at - size : self._at]


def _refused(why: str) -> BadFile:
    return BadFile(
        "the file has no key that can be imported",
        why=why,
        hint="everlog keys import takes an Ed25519 key of OpenSSH, or a file of everlog keys export",
    )
