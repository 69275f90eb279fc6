"""Envelopes: what opens them, what does not, and what they cost."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import pytest

from everlog.catalog.personal import Personal
from everlog.core.canonical import canonical
from everlog.errors import InvalidPayload
from everlog.trust.ring import KeyRing
from everlog.trust.sealing import Sealing, key_id_of, opened, seal

KEY, KEY_ID, NONCE = bytes(range(32)), "A" * 22, bytes(range(24))


def sealed(value: Any, **changes: Any) -> str:
    given: dict[str, Any] = {"key": KEY, "key_id": KEY_ID, "event_type": "a.b", "field": "email", "nonce": NONCE}
    return seal(canonical(value), **{**given, **changes})


@pytest.mark.parametrize("value", ["ada@example.org", "", 7, 1.5, True, [1, "é"], {"b": 1, "a": None}])
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    envelope = sealed(value)
    assert key_id_of(envelope) == KEY_ID
    assert opened(envelope, key=KEY, event_type="a.b", field="email") == value
    assert canonical({"email": envelope}).decode() == f'{{"email":"{envelope}"}}'  # nothing in it is escaped


def test_the_bytes_of_an_envelope_are_fixed() -> None:
    """Envelopes are stored for ever: this one, and any other, must open with every later version."""
    expected = "sealed:1:AAAAAAAAAAAAAAAAAAAAAA:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXvKNrHrIuxvBAcMq0EGb9luARd/my"
    assert sealed("ada") == expected


def test_the_size_follows_from_the_size_of_the_value() -> None:
    sizes = {len(sealed(text, nonce=os.urandom(24))) for text in ("ada", "bob", "eve")}
    assert len(sizes) == 1


@pytest.mark.parametrize(
    "changes",
    [{"key": bytes(32)}, {"event_type": "a.c"}, {"field": "name"}],
)
def test_an_envelope_opens_only_where_it_was_sealed(changes: dict[str, Any]) -> None:
    given: dict[str, Any] = {"key": KEY, "event_type": "a.b", "field": "email"}
    assert opened(sealed("ada"), **{**given, **changes}) is msgspec.UNSET


@pytest.mark.parametrize(
    "plain",
    [
        b"[" * 100_000 + b"]" * 100_000,
        b"1e999",
        b"1" * 21,
        b'"\\ud800"',
        b"1.0",
        b'{"a":1,"a":2}',
        b' "x"',
        b"",
        b"\xff",
    ],
    ids=["deep", "endless", "long", "half a character", "float", "twice", "space", "empty", "bytes"],
)
def test_what_no_log_seals_does_not_open(plain: bytes) -> None:
    """Every member that has the key can seal it, and nobody could read the event otherwise."""
    envelope = seal(plain, key=KEY, key_id=KEY_ID, event_type="a.b", field="email", nonce=NONCE)
    assert opened(envelope, key=KEY, event_type="a.b", field="email") is msgspec.UNSET


def test_a_changed_envelope_does_not_open() -> None:
    envelope = sealed("ada")
    other_id = envelope.replace(KEY_ID, "B" * 22)
    for changed in (other_id, envelope[:-4], envelope[:-2] + "!!", "sealed:1:", "sealed:1:" + "A" * 22 + ":"):
        assert opened(changed, key=KEY, event_type="a.b", field="email") is msgspec.UNSET
    for other in ("sealed:1:", "sealed:1:short:", "ada", 7, None):
        assert key_id_of(other) == ""


PERSONAL = {"email": Personal("customer"), "phone": Personal("contact")}


def test_one_payload_may_hold_fields_of_several_persons() -> None:
    sealing = Sealing(lambda: KeyRing(None))
    given = {"customer": "c/1", "contact": 2, "email": "ada@example.org", "phone": "123", "order": 7}
    (stored,) = sealing.seal_all("a.b", PERSONAL, [given])
    assert {name: stored[name] for name in ("customer", "contact", "order")} == {
        "customer": "c/1",
        "contact": 2,
        "order": 7,
    }
    assert given["email"] == "ada@example.org"  # the caller's payload is as it was
    assert key_id_of(stored["email"]) != key_id_of(stored["phone"])
    assert sealing.open_value("a.b", "email", stored["email"]) == "ada@example.org"
    sealing.ring.destroy(sealing.ring.ids_of("c/1"))
    assert sealing.open_value("a.b", "email", stored["email"]) is msgspec.UNSET
    assert sealing.open_value("a.b", "phone", stored["phone"]) == "123"


def test_nothing_is_sealed_for_nobody() -> None:
    sealing = Sealing(lambda: KeyRing(None))
    for nobody in ("", None, True, 1.5, ["c"]):
        with pytest.raises(InvalidPayload, match="customer"):
            sealing.seal_all("a.b", PERSONAL, [{"customer": nobody, "email": "ada", "phone": None}])
    assert sealing.seal_all("a.b", PERSONAL, [{"customer": "", "email": None}]) == [{"customer": "", "email": None}]


def test_equal_values_have_different_envelopes() -> None:
    sealing = Sealing(lambda: KeyRing(None))
    payload = {"customer": "c", "email": "ada", "phone": None}
    one, other = sealing.seal_all("a.b", PERSONAL, [payload, payload])
    assert one["email"] != other["email"]
    assert key_id_of(one["email"]) == key_id_of(other["email"])
