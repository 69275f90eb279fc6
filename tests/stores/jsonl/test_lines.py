"""One line of a day file and what it means."""

from __future__ import annotations

import json
import re
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from everlog.core.canonical import canonical
from everlog.core.codec import event_object
from everlog.core.event import Event
from everlog.core.ids import EventId
from everlog.stores.contract import encode_event
from everlog.stores.jsonl.index.groups import LineGroup
from everlog.stores.jsonl.lines import (
    BadLine,
    EventLine,
    PurgedLine,
    PurgeLine,
    SignedGroup,
    ended,
    erased_line,
    event_line,
    is_whole_object,
    purge_line,
    purged_line,
    read_line,
    read_marked_line,
)
from everlog.stores.jsonl.many_lines import read_events
from everlog.testing.builders import NOON, Chain

SEED = {
    "event_id": "01HN3R5K8D1234567890ABCDEF",
    "event_type": "WPStatusChanged",
    "event_version": 1,
    "lamport_clock": 42,
    "entity_id": "WP03",
    "entity_type": "WorkPackage",
    "timestamp": "2026-01-27T10:30:00Z",
    "actor": "builder-one",
    "causation_id": "cmd-abc123",
    "correlation_id": None,
    "payload": {"old_status": "doing", "new_status": "for_review"},
}
PURGED = PurgedLine(
    hash=b"h" * 32,
    id=EventId("01HN3R5K8D1234567890ABCDEF"),
    origin="01TESTORGN0000000000000000",
    origin_seq=3,
    previous=b"",
    purge="01HN3R5K8D1234567890ABCDEG",
    stream="note/1",
)
PURGE = PurgeLine(
    actor="user:ada",
    id="01HN3R5K8D1234567890ABCDEG",
    origin="01TESTORGN0000000000000000",
    purged_at=NOON,
    reason="asked to",
    scopes=("a", "b"),
    stream="note/1",
)


def events_of(data: bytes) -> list[Event]:
    """Return the events of lines, with what the lines leave out."""
    return read_events(data, LineGroup(data.splitlines()))


def without_what_follows(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name != "commitment" and (name, value) != ("version", 1)}


def test_a_line_is_the_portable_event_in_canonical_form_and_when_it_was_recorded() -> None:
    chain = Chain()
    chain.next()
    made = chain.next(
        payload={"text": "grüße\u2028\u0085", "n": 12, "f": 1.50, "deep": [{"a": None}]},
        tags={"team": "core", "build": "é"},
        scope="acme",
    )
    line = event_line(made, NOON)

    said = canonical(without_what_follows(event_object(made.event)))[:-1]
    assert line == said + f',"xsum":"{zlib.crc32(said):08x}"}}\n'.encode()
    assert line == canonical(json.loads(line)) + b"\n"
    assert line.count(b"\n") == 1
    found = read_line(line[:-1])
    assert isinstance(found, EventLine)
    assert (found.event(), found.arrived_at, found.batch, found.claims) == (made.event, NOON, None, {})
    assert found.hash() == made.hash
    assert events_of(line * 2) == [made.event, made.event]


def test_a_line_leaves_out_only_what_follows() -> None:
    """The commitment to what is not here, another version, and another time are written."""
    made = Chain().next().event
    erased = msgspec.structs.replace(made, payload={}, salt=b"", erased_by="01HN3R5K8D1234567890ABCDEG")
    wrong = msgspec.structs.replace(made, commitment=b"c" * 32)
    for event in (erased, wrong, msgspec.structs.replace(made, version=2)):
        encoded = encode_event(event)
        line = event_line(encoded, NOON + timedelta(seconds=1))
        found = read_line(line[:-1])
        assert isinstance(found, EventLine)
        assert (found.event(), found.hash(), found.arrived_at) == (event, encoded.hash, NOON + timedelta(seconds=1))
        assert (b'"commitment"' in line) == (event is not made and event.version == 1)
        assert events_of(line) == [event]


def test_a_line_that_is_erased_keeps_everything_else() -> None:
    made = Chain().next(payload={"text": "secret"}, tags={"team": "core"}, scope="acme")
    group = SignedGroup(1, 1, b"s" * 64)
    whole = event_line(
        made, NOON, via="01TESTORGN0000000000000009", batch=(2, 3), claims={"bmFtZQ==": 2}, group=group
    )
    before = read_line(whole[:-1])
    assert isinstance(before, EventLine)
    line = erased_line(before, "01HN3R5K8D1234567890ABCDEG")
    found = read_line(line[:-1])
    assert isinstance(found, EventLine)
    assert b"secret" not in line
    assert (found.payload, found.salt, found.erased_by) == (msgspec.Raw(b"{}"), b"", "01HN3R5K8D1234567890ABCDEG")
    assert found.hash() == before.hash() == made.hash
    kept = ("arrived_at", "via", "batch", "claims", "group", "tags", "scope")
    assert [getattr(found, name) for name in kept] == [getattr(before, name) for name in kept]


@pytest.mark.parametrize("lacking", [b'"salt":"[^"]*",', b'"payload":[^}]*},'])
def test_a_line_without_a_part_of_the_event_is_not_read(lacking: bytes) -> None:
    line = event_line(Chain().next(payload={"text": "x"}), NOON)
    text = re.sub(lacking, b'"payload":[],' if b"payload" in lacking else b"", line)
    with pytest.raises(BadLine, match=r"neither a salt nor a commitment|not an object"):
        read_line(ended(text[: text.index(b',"xsum"')] + b"}")[:-1])


@pytest.mark.parametrize("payload", [{}, {"text": ""}])
def test_an_empty_payload_is_left_out_and_comes_back(payload: dict[str, str]) -> None:
    made = Chain().next(payload=payload)
    line = event_line(made, NOON)
    assert (b'"payload"' in line) == bool(payload)
    assert events_of(line) == [made.event]


def test_an_erased_payload_stays_erased() -> None:
    made = encode_event(msgspec.structs.replace(Chain().next().event, payload={}, salt=b""))
    line = event_line(made, NOON)
    assert b"payload" not in line
    assert events_of(line) == [made.event]


def test_a_signature_and_its_path_come_back() -> None:
    signed = encode_event(
        msgspec.structs.replace(Chain().next().event, signature=b"s" * 64, path=(b"a" * 32, b"b" * 32))
    )
    assert events_of(event_line(signed, NOON)) == [signed.event]


def test_what_is_local_is_told_beside_the_event() -> None:
    made = Chain().next()
    line = event_line(made, NOON, via="01TESTORGN0000000000000009", batch=(2, 3), claims={"bmFtZQ==": 2})
    found, batch = read_marked_line(line[:-1])

    assert isinstance(found, EventLine)
    assert (found.via, found.claims, batch) == ("01TESTORGN0000000000000009", {"bmFtZQ==": 2}, (2, 3))
    assert found.event() == made.event
    assert b'"via"' not in event_line(made, NOON, via=made.event.origin)
    assert events_of(line) == [made.event]


def test_a_purge_and_what_it_left_come_back() -> None:
    assert read_line(purged_line(PURGED)[:-1]) == PURGED
    assert read_line(purge_line(PURGE)[:-1]) == PURGE
    assert read_marked_line(purge_line(PURGE, batch=(1, 2))[:-1]) == (PURGE, (1, 2))
    assert purge_line(PURGE) == canonical(json.loads(purge_line(PURGE))) + b"\n"
    claimed = msgspec.structs.replace(PURGED, claims={"bmFtZQ==": 1}, via="01TESTORGN0000000000000009")
    assert read_line(purged_line(claimed)[:-1]) == claimed


def test_what_a_purged_line_does_not_say_is_nothing() -> None:
    """Such are the lines of seed shape and of copies: nothing was known of them but their place in the chain."""
    bare = PurgedLine(
        hash=PURGED.hash, id=PURGED.id, origin=PURGED.origin, origin_seq=1, previous=b"", purge=PURGED.purge
    )
    line = read_line(purged_line(bare)[:-1])
    assert isinstance(line, PurgedLine)
    assert (line.stream, line.sequence, line.lamport, line.via, line.claims, line.group) == ("", 0, 0, "", {}, None)


def test_every_changed_bit_of_every_kind_of_line_is_noticed() -> None:
    made = Chain().next(payload={"b": 1, "a": 2.5})
    for line in (
        event_line(made, NOON, via="01TESTORGN0000000000000009", batch=(1, 2), claims={"b": 1, "a": 2})[:-1],
        purged_line(PURGED)[:-1],
        purge_line(PURGE, batch=(2, 2))[:-1],
    ):
        for bit in range(len(line) * 8):
            changed = bytearray(line)
            changed[bit // 8] ^= 1 << bit % 8
            with pytest.raises(BadLine):
                read_line(bytes(changed))


def test_a_line_without_its_last_member_is_not_ours() -> None:
    line = event_line(Chain().next(), NOON)
    with pytest.raises(BadLine, match="checksum"):
        read_line(line[: line.index(b',"xsum"')] + b"}")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"   ", "empty"),
        (b"{}", "missing required field"),
        (b"no json", "malformed"),
        (b'{"id":"x"', "truncated"),
        (b"\x00\x00\x00", "malformed"),
        (b"<<<<<<< HEAD", "conflict marker"),
        (b"=======", "conflict marker"),
        (b">>>>>>> theirs", "conflict marker"),
        (b'{"purge":{}}', "missing required field"),
        (b'{"purged":{"id":1}}', "Expected"),
        (b'{"batch":[1,2]}', "neither"),
        (b'{"purge":null,"purged":null}', "neither"),
        (b'{"payload":{"a":' + b"[" * 100_000, "deep"),
    ],
)
def test_a_line_that_says_nothing_says_why(data: bytes, reason: str) -> None:
    with pytest.raises(BadLine, match=reason):
        read_line(data)


def test_a_member_that_nobody_knows_makes_a_line_unreadable() -> None:
    line = event_line(Chain().next(), NOON)
    with pytest.raises(BadLine, match="unknown field"):
        read_line(line.replace(b'"type"', b'"news":1,"type"')[:-1])


def test_the_seeds_own_line_is_read_as_an_event_that_every_clone_makes_the_same() -> None:
    data = json.dumps(SEED).encode()
    one, other = read_line(data), read_line(data)
    assert one == other
    assert isinstance(one, EventLine)
    event = one.event()
    assert (event.id, event.type, event.version, event.lamport) == (SEED["event_id"], "WPStatusChanged", 1, 42)
    assert (event.stream, event.actor) == ("workpackage/WP03", "agent:builder-one")
    assert (event.causation_id, event.correlation_id) == ("cmd-abc123", "")
    assert event.payload == SEED["payload"]
    assert (event.origin, event.origin_seq, event.previous) == (event.id, 1, b"")
    assert event.occurred_at == one.arrived_at == datetime(2026, 1, 27, 10, 30, tzinfo=UTC)


def test_two_names_of_the_seed_never_become_one_stream() -> None:
    streams = set()
    names = ["a b", "a_b", "a~b", "a~20.b", "~a", "-a", "x-a", "é"]
    for name in names:
        found = read_line(json.dumps({**SEED, "entity_id": name}).encode())
        assert isinstance(found, EventLine)
        streams.add(found.stream)
    assert len(streams) == len(names)


@pytest.mark.parametrize(
    "wrong",
    [
        {"event_id": "short"},
        {"lamport_clock": 0},
        {"lamport_clock": "1"},
        {"timestamp": "yesterday"},
        {"event_type": "no type"},
        {"entity_id": ""},
        {"payload": [1]},
        {"causation_id": "\u0000"},
    ],
)
def test_a_line_of_the_seed_that_does_not_fit_is_refused_with_the_reason(wrong: dict[str, object]) -> None:
    with pytest.raises(BadLine, match="another program's event, but"):
        read_line(json.dumps({**SEED, **wrong}).encode())


def test_a_torn_line_is_never_a_whole_object() -> None:
    line = event_line(Chain().next(payload={"text": "a}b{"}), NOON)[:-1]
    assert not any(is_whole_object(line[:cut]) for cut in range(len(line)))
    assert is_whole_object(line)
    assert is_whole_object(line + b"\x0b")
