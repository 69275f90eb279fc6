"""The shape of a CID, the name that a file has by its content. Checked to the last byte, not only by its letters.

    version 0    Qm…                the SHA-256 of the content, in base 58
    version 1    b… f… z… k…        a letter for the base, then in it: 1, codec, the hash's code and length, the hash

Two spellings in different bases are two names here: the recorded spelling is kept.
"""

from __future__ import annotations

from base64 import b32decode

CHARACTERS_MAX = 128

_BASE_58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BASE_36 = "0123456789abcdefghijklmnopqrstuvwxyz"
_BASE_32 = "abcdefghijklmnopqrstuvwxyz234567"
_BASE_16 = "0123456789abcdef"
_SHA_256 = 0x12
_SHA_256_BYTES = 32
_VARINT_BYTES_MAX = 9


def require_cid(text: str) -> None:
    """Refuse, as a ValueError, what is not a CID."""
    if len(text) > CHARACTERS_MAX:
        raise ValueError(f"a CID has at most {CHARACTERS_MAX} characters here, not {len(text)}")
    if text.startswith("Qm"):
        _require_hash(_by_number(text, _BASE_58), "a CID that begins with Qm", only_sha_256=True)
        return
    version, rest = _varint(_decoded(text))
    if version != 1:
        raise ValueError(f"it says version {version} of CIDs, and there are 0 (Qm…) and 1")
    _, rest = _varint(rest)
    _require_hash(rest, "the CID")


def _decoded(text: str) -> bytes:
    digits = text[1:]
    match text[:1]:
        case "b":
            _require_digits(digits, _BASE_32)
            try:
                return b32decode(digits.upper() + "=" * (-len(digits) % 8))
            except ValueError as error:
                raise ValueError("its length is none that base 32 has") from error
        case "f":
            _require_digits(digits, _BASE_16)
            if len(digits) % 2:
                raise ValueError("its length is none that base 16 has")
            return bytes.fromhex(digits)
        case "z":
            return _by_number(digits, _BASE_58)
        case "k":
            return _by_number(digits, _BASE_36)
    raise ValueError("a CID begins with Qm, or with b, f, z or k for its base")


def _by_number(digits: str, alphabet: str) -> bytes:
    """Return the bytes of a number in a base that is no power of two; each leading zero digit is a zero byte."""
    _require_digits(digits, alphabet)
    number = 0
    for digit in digits:
        number = number * len(alphabet) + alphabet.index(digit)
    zeros = len(digits) - len(digits.lstrip(alphabet[0]))
    return bytes(zeros) + number.to_bytes((number.bit_length() + 7) // 8, "big")


def _require_digits(digits: str, alphabet: str) -> None:
    stray = next((digit for digit in digits if digit not in alphabet), None)
    if stray is not None:
        raise ValueError(f"{stray!r} is no digit of its base")
    if not digits:
        raise ValueError("there is nothing after the letter for its base")


def _varint(data: bytes) -> tuple[int, bytes]:
    """Return the unsigned number at the front, seven bits per byte, and what follows it."""
    value = 0
    for place, byte in enumerate(data[:_VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            if byte == 0 and place:
                raise ValueError("a number in it is not in its shortest form")
            return value, data[place + 1 :]
    raise ValueError("it ends too early")


def _require_hash(data: bytes, what: str, *, only_sha_256: bool = False) -> None:
    code, rest = _varint(data)
    length, digest = _varint(rest)
    if only_sha_256 and code != _SHA_256:
        raise ValueError(f"{what} is of a SHA-256 hash, and this one is not")
    if len(digest) != length:
        raise ValueError(f"it promises a hash of {length} bytes and has {len(digest)}")
    if code == _SHA_256 and length != _SHA_256_BYTES:
        raise ValueError(f"a SHA-256 hash has {_SHA_256_BYTES} bytes, not {length}")
