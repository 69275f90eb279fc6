"""The bytes of an event: canonical headers, commitments, and three forms that give the same event back."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from everlog.core.canonical import NUMBER_MAX, canonical, parse_json
from everlog.core.codec import (
    Packed,
    commitment,
    event_from_object,
    event_object,
    from_msgpack,
    header_bytes,
    pack,
    read_payload,
    recorded_object,
    refuse_wrong_commitment,
    to_msgpack,
    unpack,
    unpack_all,
)
from everlog.core.event import Event, Position, Recorded
from everlog.core.query import Query
from everlog.errors import CommitmentMismatch, Damaged, NotCanonical, RejectedEvent
from everlog.log.log import Log
from everlog.testing.builders import Chain, event

PRINTABLE = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cf", "Zl", "Zp", "Cn", "Co"]), max_size=20)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-NUMBER_MAX, NUMBER_MAX)
    | st.floats(-NUMBER_MAX, NUMBER_MAX, allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
)
PAYLOADS = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
    st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3), max_leaves=5),
    max_size=5,
)


@st.composite
def events(draw: st.DrawFn) -> Event:
    made = event(
        payload=draw(PAYLOADS),
        scope=draw(st.sampled_from(["", "acme/shop"])),
        correlation_id=draw(PRINTABLE),
        lamport=draw(st.integers(1, NUMBER_MAX)),
        tags=draw(st.dictionaries(st.from_regex(r"[a-z][a-z0-9_.-]{0,8}", fullmatch=True), PRINTABLE, max_size=4)),
        previous=draw(st.sampled_from([b"", b"\x7f" * 32])),
    )
    moment = draw(st.datetimes(timezones=st.just(UTC)))
    signed = draw(st.booleans())
    return msgspec.structs.replace(
        made,
        occurred_at=moment,
        signature=b"s" * 64 if signed else b"",
        path=(b"p" * 32, b"q" * 32) if signed else (),
    )


@given(events())
def test_a_header_is_canonical_json(made: Event) -> None:
    data = header_bytes(made)
    assert rfc8785.dumps(json.loads(data)) == data
    assert canonical(parse_json(data)) == data


@given(events())
def test_an_event_comes_back_from_each_of_its_forms(made: Event) -> None:
    """Payload numbers may change their Python type (1.0 and 1 are one JSON number), never their canonical bytes."""
    place = Recorded(Position(3), 2, 1_000_001, made)
    text = msgspec.json.encode(event_object(made))
    for again in (
        from_msgpack(to_msgpack(made)),
        event_from_object(parse_json(text)),
        event_from_object(recorded_object(place)),
        unpack(pack(place)).event,
    ):
        assert header_bytes(again) == header_bytes(made)
        assert canonical(again.payload) == canonical(made.payload)
        assert (again.salt, again.signature, again.path) == (made.salt, made.signature, made.path)
        refuse_wrong_commitment(again)


def test_the_commitment_is_sha_256_over_salt_and_payload() -> None:
    assert commitment(b"salt", b"{}") == hashlib.sha256(b"salt{}").digest()


def test_the_object_has_names_leaves_out_what_is_empty_and_needs_no_place() -> None:
    found = recorded_object(Recorded(Position(3), 2, 0, event(scope="")))
    assert list(found)[:3] == ["position", "sequence", "received_at"]
    assert found["received_at"] == "1970-01-01T00:00:00Z"
    assert "scope" not in found
    assert "signature" not in found
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(
    "spoil",
    [
        lambda found: found.pop("id"),
        lambda found: found.update(lamport="1"),
        lambda found: found.update(lamport=1.5),
        lambda found: found.update(occurred_at="yesterday"),
        lambda found: found.update(commitment="not base64!"),
        lambda found: found.update(payload=[1]),
        lambda found: found.update(surprise=1),
        lambda found: found.update(payload={"n": 2**53}),
        lambda found: found.update(payload={"\ud800": 1}),
        lambda found: found.update(tags={"a": 1}),
    ],
)
def test_an_object_that_is_no_event_is_refused(spoil: Callable[[dict[str, Any]], Any]) -> None:
    found = event_object(event())
    spoil(found)
    with pytest.raises(NotCanonical):
        event_from_object(found)


def packed_with(payload: bytes) -> bytes:
    """An event in MessagePack whose payload is these bytes."""
    marker = {"here": "be payload"}
    data = to_msgpack(event(payload=marker))
    return data.replace(msgspec.msgpack.encode(marker), payload)


encode = msgspec.msgpack.encode


@pytest.mark.parametrize(
    "payload",
    [
        encode({"a": b"bytes"}),
        encode({"a": msgspec.msgpack.Ext(5, b"data")}),
        encode({"a": datetime(2026, 1, 1, tzinfo=UTC)}),  # an extension type as well
        encode({1: "a"}),
        encode({"a": {1: "b"}}),
        encode({"a": {b"k": "b"}}),
        encode({"a": {None: "b"}}),
        encode({"a": 2**53}),
        encode({"a": 2**63}),
        encode({"a": float("nan")}),
        encode({"a": float("inf")}),
        encode([1, 2]),
        encode(None),
        b"\x81\xa1a\xa1\xff",  # a string that is not UTF-8
        b"\x81\xa1a" + b"\x91" * 100_000 + b"\x01",  # nested without end
        b"\x81\xa1a" + b"\x81\xa1a" * 100_000 + b"\x01",
        b"\x81\xa1a\xdd\xff\xff\xff\xff",  # an array that says it has four thousand million members
        b"\x81\xa1a\xdb\xff\xff\xff\xff",  # a string that says it has four gigabytes
        b"\xc1",
    ],
)
def test_message_pack_with_anything_but_json_in_it_is_refused(payload: bytes) -> None:
    begun = time.perf_counter()
    with pytest.raises(NotCanonical):
        from_msgpack(packed_with(payload))
    assert time.perf_counter() - begun < 1


@given(st.binary(max_size=200))
def test_random_bytes_are_no_event(data: bytes) -> None:
    with pytest.raises(NotCanonical):
        from_msgpack(data)


def test_a_cut_event_is_refused_at_every_byte() -> None:
    data = to_msgpack(event())
    for end in range(len(data)):
        with pytest.raises(NotCanonical):
            from_msgpack(data[:end])


def test_bytes_that_are_no_record_are_damage_with_their_position() -> None:
    """G10: named, not skipped."""
    good = pack(Recorded(Position(9), 1, 0, event()))
    for header, payload in ((b"[1]", good.payload), (b"{", good.payload), (good.header, b"[1]"), (b"\xff", b"{}")):
        with pytest.raises(Damaged) as damage:
            unpack(Packed(good.position, 1, 0, header, payload, good.salt))
        assert damage.value.details["position"] == 9


def test_an_erased_payload_stays_erased_and_the_header_stays() -> None:
    """F62."""
    erased = msgspec.structs.replace(event(), payload={}, salt=b"")
    refuse_wrong_commitment(erased)
    packed = pack(Recorded(Position(1), 1, 0, erased))
    assert packed.payload == b""
    assert unpack(packed).event == erased


@pytest.mark.parametrize(
    "change", [{"payload": {"text": "other"}}, {"salt": b"y" * 16}, {"commitment": b"z" * 32}, {"salt": b""}]
)
def test_a_payload_that_is_not_the_committed_one_is_refused(change: dict[str, Any]) -> None:
    """F61. Without its salt a payload cannot be checked, so it is not taken on trust either."""
    with pytest.raises(CommitmentMismatch):
        refuse_wrong_commitment(msgspec.structs.replace(event(), **change))


# ---- the hostile list: byte-equal on every way, or refused; no third outcome


def deep(levels: int) -> Any:
    value: Any = "leaf"
    for _ in range(levels):
        value = [value]
    return value


HOSTILE: dict[str, Any] = {
    "U+0000": "\x00",
    "U+2028": "a\u2028b",
    "U+0085": "a\u0085b",
    "U+FEFF": "\ufeffx",
    "lone surrogate": "\ud800",
    "surrogates the wrong way round": "\udc00\ud800",
    "NFC": "\u00e9",
    "NFD": "e\u0301",
    "RTL": "\u202eabc\u202c",
    "beyond the BMP": "\U0001f600\U0010ffff",
    "noncharacter": "\uffff",
    "one as float": 1.0,
    "one": 1,
    "true": True,
    "minus zero": -0.0,
    "2^53-1": 2**53 - 1,
    "2^53": 2**53,
    "2^53+1": 2**53 + 1,
    "-2^53": -(2**53),
    "2^63": 2**63,
    "2^64": 2**64,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "small float": 5e-324,
    "1e21": 1e21,
    "0.1": 0.1,
    "empty": "",
    "space": " ",
    "64 KB": "x" * 65_536,
    "1 MB": "x" * 1_048_000,
    "over 1 MB": "x" * 1_048_577,
    "depth 62": deep(62),
    "depth 63": deep(63),
    "depth 64": deep(64),
    "__proto__": {"__proto__": {"x": 1}},
    "constructor": {"constructor": "x"},
    "empty key": {"": 1},
    "NUL key": {"\x00": 1},
    "surrogate key": {"\udfff": 1},
    "twin keys": {"\u00e9": 1, "e\u0301": 2},
    "keys in UTF-16 order": {"\ue000": 1, "\U0001f600": 2},
    "path": "../../etc/passwd",
    "SQL": "'; DROP TABLE events; --",
    "template": "${jndi:x}{{7*7}}",
    "script": "</script><script>alert(1)</script>",
    "CRLF": "a\r\nb",
    "escape": "\x1b[31m",
    "backslashes": "\\u0000\\",
    "null": None,
    "nothing": [[], {}, None],
    "tuple": (1, 2),
    "bytes": b"x",
    "set": {1},
    "int keys": {1: 2},
    "object": object(),
}


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_value_is_returned_byte_equal_by_the_codec_or_refused(value: Any) -> None:
    payload = {"value": value}
    try:
        expected = canonical(payload)
    except NotCanonical:
        if not isinstance(value, dict) or all(isinstance(key, str) for key in value):  # JSON has no others
            with pytest.raises(NotCanonical):
                parse_json(json.dumps(payload, default=lambda _: float("nan")))
        return
    made = event(payload=payload)
    for again in (
        from_msgpack(to_msgpack(made)),
        event_from_object(parse_json(json.dumps(event_object(made)), levels_around=1)),
    ):
        assert canonical(again.payload) == expected
    assert canonical(read_payload(expected)) == expected


@pytest.mark.filterwarnings("ignore")
def test_hostile_values_come_back_byte_equal_from_a_store_or_are_refused(
    kind: str, make_log: Callable[..., Log]
) -> None:
    """One validity rule at the door for all stores: what one accepts all must return."""
    kept: dict[str, bytes] = {}
    refused: dict[str, str] = {}
    with make_log(kind) as log:
        for number, (name, value) in enumerate(HOSTILE.items()):
            try:
                recorded = log.append("thing.said", stream=f"thing/{number}", payload={"value": value})
            except RejectedEvent as error:
                refused[name] = error.code
            else:
                kept[f"thing/{number}"] = canonical(recorded.event.payload)
                if not isinstance(value, bytes | set):  # a model turns these into text and an array
                    assert kept[f"thing/{number}"] == canonical({"value": value})
        for stream, expected in kept.items():
            (recorded,) = log.read(Query(stream=stream))
            assert canonical(recorded.event.payload) == expected
        assert log.head() == len(kept)
        assert log.verify().ok
    must_go = {"lone surrogate", "2^53", "2^53+1", "-2^53", "2^63", "2^64", "NaN", "Infinity", "1e21"}
    must_go |= {"surrogates the wrong way round", "surrogate key", "over 1 MB", "depth 64", "object"}
    assert must_go <= set(refused)
    assert set(refused.values()) == {"not_canonical", "invalid_payload", "event_too_large"}
    assert [name for name, code in refused.items() if code == "event_too_large"] == ["over 1 MB"]
    assert not set(refused) & {"depth 63", "1 MB", "64 KB", "2^53-1", "minus zero", "U+0000", "__proto__", "SQL"}


def test_many_slots_are_unpacked_as_one_by_one() -> None:
    chain = Chain()
    events = [chain.next(payload={"n": number, "text": "grüße"}).event for number in range(5)]
    events.append(msgspec.structs.replace(events[0], payload={}, salt=b"", erased_by=events[1].id))
    events.append(msgspec.structs.replace(events[2], signature=b"s" * 64, path=(b"p" * 32,)))
    slots = [pack(Recorded(Position(number), 1, 7, event)) for number, event in enumerate(events, 1)]
    assert unpack_all(slots) == [unpack(slot) for slot in slots]
    assert [recorded.event for recorded in unpack_all(slots)] == events
    assert unpack_all([]) == []


@pytest.mark.parametrize("wrong", [b"[", b"[],[]", b'{"a":1}', b"\xff", b"null"])
def test_of_many_slots_the_one_that_cannot_be_read_is_named(wrong: bytes) -> None:
    slots = [pack(Recorded(Position(number), 1, 7, Chain().next().event)) for number in range(1, 4)]
    for field in ("header", "payload"):
        if (field, wrong) == ("payload", b'{"a":1}'):
            continue
        slots[1] = msgspec.structs.replace(slots[0], position=Position(2), **{field: wrong})
        with pytest.raises(Damaged) as error:
            unpack_all(slots)
        assert error.value.details["position"] == 2
