"""What docs/reference/formats.md says of sealed fields and of keys is enough to read a value from the files alone."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from pathlib import Path
from typing import Annotated

import msgspec
import pytest
from nacl import pwhash
from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_decrypt,
    crypto_box_seal_open,
    crypto_sign_ed25519_pk_to_curve25519,
    crypto_sign_ed25519_sk_to_curve25519,
    crypto_sign_seed_keypair,
)

import everlog
from everlog import Personal
from everlog.trust.key_files import KeyFolder
from everlog.trust.ring import KeyRing
from everlog.trust.unfinished import Unfinished

VALUE, PERSON = "grace@example.org", "customer/41"


class Registered(msgspec.Struct):
    customer: str
    email: Annotated[str, Personal(of="customer")]


def decrypted(data: bytes, bound: str, key: bytes) -> bytes:
    return crypto_aead_xchacha20poly1305_ietf_decrypt(data[24:], bound.encode(), data[:24], key)


def secret_of(ring: Path, key_file: Path | None) -> bytes:
    ((name, text),) = json.loads((ring / "secret").read_text()).items()
    if key_file is None:
        assert name == ""
        return b64decode(text)
    held = json.loads(key_file.read_text())
    assert (held["everlog"], held["format"], held["public"]) == ("key", 1, name)
    public, secret = crypto_sign_seed_keypair(b64decode(held["secret"]))
    box_keys = crypto_sign_ed25519_pk_to_curve25519(public), crypto_sign_ed25519_sk_to_curve25519(secret)
    return crypto_box_seal_open(b64decode(text), *box_keys)


@pytest.mark.parametrize("signed", [False, True])
def test_a_sealed_value_is_read_from_the_files(tmp_path: Path, signed: bool) -> None:
    catalog = everlog.Catalog()
    catalog.event("customer.registered")(Registered)
    with everlog.open(f"sqlite:{tmp_path / 'log.db'}", catalog=catalog, actor="user:ada", signed=signed) as log:
        log.append(Registered(PERSON, VALUE), stream=PERSON)
        (stored,) = log.stored.read()
        origin, log_id = log.identity.origin, log.identity.log_id
    keys = tmp_path / "log.db.keys"
    ring = keys / "ring"
    secret = secret_of(ring, keys / f"{origin}.key" if signed else None)
    (line,) = (ring / "keys").read_text().splitlines()
    key_id, _, wrapped = json.loads(line)
    plain = decrypted(b64decode(wrapped), key_id, secret)
    assert (len(plain[:32]), plain[32:].decode()) == (32, PERSON)

    found = re.fullmatch(r"sealed:1:(.{22}):(.*)", stored.event.payload["email"])
    assert found is not None
    assert found[1] == key_id
    value = decrypted(b64decode(found[2]), f"customer.registered\nemail\n{key_id}", plain[:32])
    assert value == json.dumps(VALUE).encode()
    if signed:
        assert (keys / f"{origin}.{log_id}.end").read_bytes() == b"%016d\n" % 1

    Unfinished(KeyRing(ring) if not signed else _ring(ring, keys, origin)).write(b"a note")
    assert decrypted((ring / "forgetting").read_bytes(), "note", secret) == b"a note"


def _ring(ring: Path, keys: Path, origin: str) -> KeyRing:
    return KeyRing(ring, node_keys=[KeyFolder(keys).load(origin)])


def test_a_protected_key_is_read_with_its_passphrase(tmp_path: Path) -> None:
    made = KeyFolder(tmp_path / "keys", passphrase=lambda name: b"correct horse").new(protect=True)
    held = json.loads((tmp_path / "keys" / f"{made.public.origin}.key").read_text())
    how = held["protection"]
    assert how["kdf"] == "argon2id"
    limits = {"opslimit": how["ops"], "memlimit": how["mem"]}
    wrapping = pwhash.argon2id.kdf(32, b"correct horse", b64decode(how["salt"]), **limits)
    assert decrypted(b64decode(how["nonce"]) + b64decode(held["secret"]), held["public"], wrapping) == made.seed
