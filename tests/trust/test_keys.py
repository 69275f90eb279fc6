"""Keys: their text forms, and what is refused as a key or a signature."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from everlog.errors import InvalidField
from everlog.trust.keys import PrivateKey, PublicKey, key_of

# RFC 8032, section 7.1, tests 1 to 3: seed, public key, message, signature.
RFC_8032 = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe"
        "24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302a"
        "eeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed2"
        "8dc027beceea1ec40a",
    ),
]
_ORDER = 2**252 + 27742317777372353535851937790883648493
_SMALL_ORDER = [
    bytes(32),
    bytes([1]) + bytes(31),
    bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
]
_NOT_CANONICAL = [
    bytes.fromhex("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes.fromhex("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    b"\xff" * 32,
]


@pytest.mark.parametrize(("seed", "public", "message", "signature"), RFC_8032)
def test_signatures_are_those_of_rfc_8032(seed: str, public: str, message: str, signature: str) -> None:
    key = PrivateKey(bytes.fromhex(seed))
    assert key.public.raw.hex() == public
    assert key.sign(bytes.fromhex(message)).hex() == signature
    assert key.public.has_signed(bytes.fromhex(message), bytes.fromhex(signature))
    assert not key.public.has_signed(bytes.fromhex(message) + b"!", bytes.fromhex(signature))


def test_the_forms_of_a_key_name_the_same_key() -> None:
    # The first test vector of did:key for Ed25519.
    key = key_of("did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp")
    assert key.raw.hex() == "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29"
    assert key == PrivateKey(bytes(32)).public
    assert key_of(key.origin) == key_of(key.did) == key_of(key.openssh) == key
    assert key.openssh == "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDtqJ7zOtqQtYqOo0CpvDXNlMhV3HeJDpjrASKGLWdop"
    # The example of C2SP's signed-note is made with this function: a name, the first bytes of a hash, the key.
    name, number, _ = key.verifier("example.com/log").split("+")
    assert (name, len(number)) == ("example.com/log", 8)


@pytest.mark.parametrize("raw", _SMALL_ORDER + _NOT_CANONICAL + [b"", b"x" * 31, b"x" * 33])
def test_a_key_that_everyone_can_sign_for_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidField, match="is not a public key"):
        PublicKey(raw)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "z6Mk",
        "01K9ZZZZZZZZZZZZZZZZZZZZZZ",
        "z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooW",  # one character short
        "z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp1",
        "z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooW0",  # 0 is not in base 58
        "did:web:example.com",
        "ssh-ed25519",
        "ssh-ed25519 AAAA",
        "ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIDtqJ7zOtqQtYqOo0CpvDXNlMhV3HeJDpjrASKGLWdop",
    ],
)
def test_other_text_is_not_a_key(text: str) -> None:
    with pytest.raises(InvalidField):
        key_of(text)


def test_a_malleated_signature_is_refused() -> None:
    key = PrivateKey.new()
    signature = key.sign(b"one")
    same_with_greater_s = signature[:32] + (int.from_bytes(signature[32:], "little") + _ORDER).to_bytes(32, "little")
    assert key.public.has_signed(b"one", signature)
    assert not key.public.has_signed(b"one", same_with_greater_s)
    assert not key.public.has_signed(b"one", bytes(32) + signature[32:])
    assert not key.public.has_signed(b"one", signature[:-1])
    assert not key.public.has_signed(b"one", signature + b"\0")


# The published vectors of ed25519-speccheck ("Taming the many EdDSAs"), one per line: message, key, signature. Each
# is accepted by some library: small order, mixed order, S too great, or another encoding of a point.
_SPECCHECK = [line.split() for line in Path(__file__).with_name("ed25519_speccheck.txt").read_text().splitlines()]
_SOUND_KEYS = (6, 7)  # of these, the signature alone is what must be refused


@pytest.mark.parametrize("number", range(12))
def test_a_signature_about_which_libraries_disagree_is_refused(number: int) -> None:
    message, raw, signature = (bytes.fromhex(text) for text in _SPECCHECK[number])
    if number in _SOUND_KEYS:
        assert not PublicKey(raw).has_signed(message, signature)
    else:
        with pytest.raises(InvalidField, match="is not a public key"):
            PublicKey(raw)


def test_a_private_key_does_not_show_itself() -> None:
    key = PrivateKey.new()
    assert key.seed.hex() not in repr(key) + str(key)
    with pytest.raises(TypeError):
        pickle.dumps(key)
