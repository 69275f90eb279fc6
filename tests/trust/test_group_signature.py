"""What the signature of a group covers: every line of it."""

from __future__ import annotations

import hashlib

from msgspec.structs import replace

from everlog.core.codec import proof
from everlog.core.merkle import path, root
from everlog.testing.builders import Chain
from everlog.trust.group_signature import event_is_signed, group_is_signed, proof_of, signed_message
from everlog.trust.keys import PrivateKey

LOG = "01K9ZZZZZZZZZZZZZZZZZZZZZZ"
KEY = PrivateKey(bytes(range(32)))
ORIGIN = KEY.public.origin
HASHES = [hashlib.sha256(bytes([number])).digest() for number in range(7)]
SIGNATURE = KEY.sign(signed_message(LOG, ORIGIN, 41, len(HASHES), root(HASHES)))


def test_the_signed_bytes_are_six_lines() -> None:
    assert signed_message(LOG, ORIGIN, 41, 7, root(HASHES)).decode() == (
        f"everlog group 1\n{LOG}\n{ORIGIN}\n41\n7\n{root(HASHES).hex()}\n"
    )


def test_a_group_is_signed_as_a_whole_and_nowhere_else() -> None:
    other = PrivateKey(bytes(32)).public.origin
    assert group_is_signed(LOG, ORIGIN, 41, HASHES, SIGNATURE)
    assert not group_is_signed(LOG[:-1] + "0", ORIGIN, 41, HASHES, SIGNATURE)
    assert not group_is_signed(LOG, other, 41, HASHES, SIGNATURE)
    assert not group_is_signed(LOG, ORIGIN, 40, HASHES, SIGNATURE)
    assert not group_is_signed(LOG, ORIGIN, 41, HASHES[:-1], SIGNATURE)
    assert not group_is_signed(LOG, ORIGIN, 41, [*HASHES[1:], HASHES[0]], SIGNATURE)


def test_an_event_is_signed_by_its_path_at_its_number_only() -> None:
    for index, hash in enumerate(HASHES):
        way = path(HASHES, index)
        assert event_is_signed(LOG, ORIGIN, 41 + index, hash, (41, 7), way, SIGNATURE)
        assert not event_is_signed(LOG, ORIGIN, 42 + index, hash, (41, 7), way, SIGNATURE)
        assert not event_is_signed(LOG, ORIGIN, 41 + index, hash, (41, 8), way, SIGNATURE)
        assert not event_is_signed(LOG, ORIGIN, 41 + index, hash, (41, 7), way[:-1], SIGNATURE)
        assert not event_is_signed(LOG, ORIGIN, 41 + index, hash, (41, 7), (), SIGNATURE)


def test_the_proof_of_an_event_has_the_signature_and_the_numbers_of_its_group() -> None:
    event = replace(Chain().next().event, signature=proof(SIGNATURE, (41, 7)))
    assert proof_of(event) == (SIGNATURE, 41, 7)
    assert proof_of(replace(event, signature=b"")) == (b"", 0, 0)
    assert proof_of(replace(event, signature=SIGNATURE)) == (b"", 0, 0), "without its numbers it proves nothing"
