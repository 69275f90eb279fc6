"""An event and its place: what it says of itself, and what its header's hash covers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from everlog.core.codec import HEADER_FIELDS, header_bytes, header_hash
from everlog.core.event import EVENT_FIELDS, Event, Position, Purge, Recorded, microseconds
from everlog.testing.builders import NOON, event

CHANGES: dict[str, Any] = {
    "id": "01K00000000000000000000001",
    "type": "note.changed",
    "version": 2,
    "stream": "note/2",
    "lamport": 2,
    "origin": "01TESTORGN0000000000000001",
    "origin_seq": 2,
    "occurred_at": NOON + timedelta(microseconds=1),
    "actor": "user:bob",
    "scope": "acme",
    "request_id": "r",
    "causation_id": "c",
    "correlation_id": "c",
    "idempotency_key": "k",
    "tags": {"team": "a"},
    "commitment": b"\x01" * 32,
    "previous": b"\x01" * 32,
}
KEPT_OUT: dict[str, Any] = {"payload": {"other": 1}, "salt": b"x" * 16, "signature": b"s", "path": (b"p" * 32,)}
KEPT_OUT["erased_by"] = "01K00000000000000000000002"


def changed(original: Event, field: str, value: Any) -> Event:
    return msgspec.structs.replace(original, **{field: value})


def test_every_field_of_a_header_is_in_one_of_the_two_lists_below() -> None:
    assert set(CHANGES) == set(HEADER_FIELDS)
    assert set(CHANGES) | set(KEPT_OUT) == set(EVENT_FIELDS)


@pytest.mark.parametrize("field", sorted(CHANGES))
def test_the_hash_changes_with_every_field_of_the_header(field: str) -> None:
    original = event(id="01K00000000000000000000000")
    other = changed(original, field, CHANGES[field])
    assert header_hash(header_bytes(other)) != header_hash(header_bytes(original))


@pytest.mark.parametrize("field", sorted(KEPT_OUT))
def test_the_hash_does_not_change_with_what_may_be_erased_or_is_made_from_it(field: str) -> None:
    """F62: a payload can go and the chain still holds."""
    original = event()
    assert header_bytes(changed(original, field, KEPT_OUT[field])) == header_bytes(original)


def test_an_event_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        event().lamport = 5  # type: ignore[misc]


def test_events_do_not_share_their_empty_payload() -> None:
    bare = [field for field in EVENT_FIELDS if field in HEADER_FIELDS]
    one, other = (Event(*[getattr(event(), field) for field in bare]) for _ in range(2))
    one.payload["x"] = 1
    assert other.payload == {}


def test_the_kind_and_the_causal_order_follow_from_the_fields() -> None:
    found = event(stream="workpackage/WP03", lamport=9, id="01K00000000000000000000000")
    assert found.kind == "workpackage"
    assert found.causal_order == (9, "01K00000000000000000000000")


def test_moments_keep_their_microseconds() -> None:
    moment = datetime(2026, 11, 15, 12, 0, 0, 123_457, tzinfo=UTC)
    recorded = Recorded(Position(1), 1, microseconds(moment), event())
    assert recorded.received_at == moment
    purge = Purge(Position(2), "note/1", ("",), "user:ada", "why", microseconds(moment), 1, 1)
    assert purge.purged_at == moment


def test_events_and_records_are_equal_or_not_and_never_both() -> None:
    one = event()
    same, other = msgspec.structs.replace(one), msgspec.structs.replace(one, lamport=one.lamport + 1)
    places = [Recorded(Position(1), 1, 1, each) for each in (one, same, other)]
    for first, second, third in ((one, same, other), places):
        assert (first == second, first != second) == (True, False)
        assert (first == third, first != third) == (False, True)
