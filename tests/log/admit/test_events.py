"""Events that were made elsewhere: kept as they are, or refused with a reason; never half of either."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.log.secrets.planted_secrets import planted
from tests.trust.signing import Author, unproven

from everlog.core.clock import JUMP_MAX
from everlog.core.codec import event_from_object, event_object, from_msgpack, header_bytes, to_msgpack
from everlog.core.event import Event
from everlog.core.ids import id_text
from everlog.errors import (
    AlreadyPurged,
    ClockJump,
    CommitmentMismatch,
    EverlogError,
    IdConflict,
    IdFromTheFuture,
    InvalidField,
    InvalidSignature,
    NotCanonical,
    SecretFound,
)
from everlog.log.admit.events import refuse_secret
from everlog.log.log import Log
from everlog.stores.contract import encode_event
from everlog.testing.builders import Chain, event

ID = "01K00000000000000000000000"


def changed(original: Event, **fields: Any) -> Event:
    return msgspec.structs.replace(original, **fields)


def clock_of(log: Log) -> int:
    """The Lamport value of the next local event, less one; leaves an event behind."""
    return log.append("thing.said", stream="thing/1").event.lamport - 1


def test_an_event_from_elsewhere_is_stored_as_it_is(log: Log) -> None:
    chain = Chain()
    sent = [chain.next(type="unknown.here", stream="note/1", tags={"team": "a"}).event for _ in range(3)]
    admitted = log.admit(sent)
    assert [recorded.event for recorded in admitted] == sent == [recorded.event for recorded in log.read()]
    assert [recorded.position for recorded in admitted] == [1, 2, 3]
    assert log.verify().ok


@pytest.mark.parametrize("kind", ["memory", "sqlite", "jsonl", "segments"])
def test_an_event_that_was_read_from_another_log_is_stored_as_it_is(
    make_log: Callable[..., Log], tmp_path: Path, kind: str
) -> None:
    """It arrives later here. Its time is that of the event, whatever the other log stored of it."""
    with make_log(kind, tmp_path / "one") as one, make_log(kind, tmp_path / "other") as other:
        for number in range(3):
            one.append("thing.said", stream=f"thing/{number}")
        time.sleep(0.002)
        sent = [recorded.event for recorded in one.read()]
        other.admit(sent)
        assert [recorded.event for recorded in other.read()] == sent
        assert other.verify().ok


def test_an_unknown_type_is_kept_for_those_who_know_it(log: Log) -> None:
    """Refusing it would let old nodes fall apart from new ones."""
    (recorded,) = log.admit([event("future.happened", payload={"any": ["thing"]})])
    assert log.get(recorded.event.id) == recorded
    assert log.page_after(0).events == (recorded,)


def test_events_travel_through_both_forms_and_back(make_log: Callable[..., Log]) -> None:
    one, other = make_log("memory"), make_log("sqlite")
    for number in range(10):
        one.append("thing.said", stream=f"thing/{number % 3}", payload={"value": {"é": number / 3}})
    events = [recorded.event for recorded in one.read()]
    other.admit([from_msgpack(to_msgpack(found)) for found in events[:5]])
    other.admit([event_from_object(msgspec.json.decode(msgspec.json.encode(event_object(e)))) for e in events[5:]])
    assert [header_bytes(recorded.event) for recorded in other.read()] == [header_bytes(found) for found in events]
    assert other.verify().ok
    assert other.verify().digest == one.verify().digest


def test_duplicates_are_left_out(log: Log) -> None:
    """G5: also within one batch, and whichever way they come."""
    chain = Chain()
    sent = [chain.next().event for _ in range(3)]
    assert len(log.admit(sent[:2])) == 2
    assert [recorded.event for recorded in log.admit([*sent, sent[2]])] == [sent[2]]
    assert log.admit(sent) == []
    assert log.head() == 3


def test_nothing_is_admitted_of_nothing(log: Log) -> None:
    assert log.admit([]) == []
    assert clock_of(log) == 0


def test_the_same_id_with_other_content_is_a_conflict(log: Log) -> None:
    """F54: the first one stays."""
    first = event(id=ID, payload={"text": "first"})
    log.admit([first])
    for other in (event(id=ID, payload={"text": "second"}), changed(first, actor="user:eve")):
        with pytest.raises(IdConflict):
            log.admit([event(), other])
    with pytest.raises(IdConflict):
        log.admit([event(id="01K00000000000000000000001"), event(id="01K00000000000000000000001", lamport=2)])
    assert [recorded.event for recorded in log._store.read()] == [first]


def test_a_purged_event_does_not_come_back(log: Log) -> None:
    sent = event(stream="note/1")
    log.admit([sent])
    log.purge("note/1", reason="test")
    for again in (sent, changed(sent, actor="user:eve")):
        with pytest.raises(AlreadyPurged):
            log.admit([event(stream="note/2"), again])
    assert list(log.read()) == []


@pytest.mark.parametrize(
    "change",
    [{"payload": {"text": "forged"}}, {"salt": b"x" * 16}, {"commitment": b"x" * 32}, {"salt": b""}],
    ids=lambda change: next(iter(change)),
)
def test_a_payload_that_is_not_the_committed_one_is_refused(log: Log, change: dict[str, Any]) -> None:
    with pytest.raises(CommitmentMismatch):
        log.admit([event(), changed(event(), **change)])
    assert log.head() == 0


def test_an_erased_event_is_kept_without_its_payload(log: Log) -> None:
    """F62."""
    erased = changed(event("future.happened"), payload={}, salt=b"")
    log.admit([erased])
    assert next(log.read()).event == erased
    assert log.verify().ok


# ---- the clock


def test_the_clock_goes_above_what_was_received(log: Log) -> None:
    log.admit([event("x.y", lamport=41)])
    # Receiving 41 makes it 42 (the receive rule), and the next event is sent with 43.
    assert log.append("thing.said", stream="thing/1").event.lamport == 43
    log.admit([event("x.y", lamport=5, origin="01TESTORGN0000000000000009")])
    lamports = [recorded.event.lamport for recorded in log.read()]
    assert log.append("thing.said", stream="thing/1").event.lamport > max(lamports)


@pytest.mark.parametrize("lamport", [0, -5, JUMP_MAX + 9, 2**53, 2**63 - 2, 2**70])
def test_a_jump_of_the_clock_is_refused_and_moves_nothing(log: Log, lamport: int) -> None:
    """F58."""
    with pytest.raises(ClockJump):
        log.admit([event(lamport=3), event(lamport=lamport, origin="01TESTORGN0000000000000009")])
    assert log.head() == 0
    assert clock_of(log) == 0


def test_a_large_honest_step_is_taken(log: Log) -> None:
    log.admit([event(lamport=JUMP_MAX)])
    assert log.head() == 1


# ---- shapes


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", ID.lower()),  # the same id to a person, another one to every index
        ("id", "OIL00000000000000000000000"),
        ("id", "01900000-0000-7000-8000-000000000000"),
        ("id", "x"),
        ("type", "no type"),
        ("stream", "nostream"),
        ("actor", "ada"),
        ("actor", "\ud800"),
        ("scope", "/"),
        ("origin", ""),
        ("origin", "a\nb"),
        ("request_id", "\ud800"),
        ("causation_id", "x" * 300),
        ("correlation_id", "\x00"),
        ("idempotency_key", "\u2028"),
        ("tags", {"Upper": "x"}),
        ("tags", {"a": "\ud800"}),
        ("tags", {"a": 1}),
        ("version", 0),
        ("version", 2**53),
        ("version", 10**30),
        ("origin_seq", 0),
        ("origin_seq", 2**64),
        ("occurred_at", datetime(2026, 1, 1)),
        ("occurred_at", datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=2)))),
        ("commitment", b"short"),
        ("previous", b"short"),
    ],
)
def test_an_event_that_no_log_could_have_made_is_refused(log: Log, field: str, value: Any) -> None:
    """One rule at the door: what a store could not give back as it came does not come in."""
    with pytest.raises((InvalidField, CommitmentMismatch)):
        log.admit([event(), changed(event(id=ID), **{field: value})])
    assert log.head() == 0
    assert log.verify().ok


def test_an_id_from_the_future_is_refused(log: Log, clock: Any) -> None:
    with pytest.raises(IdFromTheFuture):
        log.admit([event(id=id_text((clock() // 1000 + 24 * 3600 * 1000 + 1) << 80))])


@pytest.mark.parametrize("payload", [{"a": "\ud800"}, {"a": 2**60}, {"a": b"x"}, {"a": {1: 2}}])
def test_a_payload_without_a_json_form_is_refused(log: Log, payload: dict[str, Any]) -> None:
    with pytest.raises((NotCanonical, CommitmentMismatch)):
        log.admit([changed(event(), payload=payload)])
    assert log.head() == 0


def test_one_bad_event_leaves_nothing_of_its_batch(log: Log) -> None:
    """G2."""
    for place in range(3):
        chain = Chain()
        batch = [chain.next().event for _ in range(3)]
        batch[place] = changed(batch[place], payload={"text": "forged"})
        with pytest.raises(EverlogError):
            log.admit(batch)
    assert log.head() == 0
    assert clock_of(log) == 0


def test_own_and_foreign_chains_stand_side_by_side(log: Log) -> None:
    one, other = Chain("01TESTORGN000000000000000A"), Chain("01TESTORGN000000000000000B")
    for _ in range(3):
        log.append("thing.said", stream="thing/1")
        log.admit([one.next(type="x.y").event])
        log.admit([other.next(type="x.y").event, other.next(type="x.y").event])
    assert log.verify().problems == ()


def test_a_peers_events_may_come_in_any_order(log: Log) -> None:
    chain = Chain()
    sent = [chain.next(type="x.y").event for _ in range(5)]
    log.admit([sent[3]])
    log.admit([sent[1], sent[0]])
    log.admit([sent[4], sent[2]])
    assert log.verify().problems == ()
    assert {recorded.event.id for recorded in log.read()} == {made.id for made in sent}


def test_an_event_that_claims_our_own_origin_is_refused(log: Log) -> None:
    """F11: only this log adds to its own chain; a forged link would make our own proof fail."""
    log.append("note.added", stream="note/1", payload={"text": "ours"})
    forged = event(stream="note/1", origin=log.identity.origin, origin_seq=2, lamport=2)
    with pytest.raises(IdConflict):
        log.admit([forged])

    log.append("note.added", stream="note/1", payload={"text": "ours again"})
    assert [recorded.event.payload["text"] for recorded in log.read()] == ["ours", "ours again"]
    assert log.verify().problems == ()
    (ours, _) = log.read()
    assert log.admit([ours.event]) == []


def test_what_is_here_already_does_not_move_the_clock(log: Log) -> None:
    peers = event(lamport=50)
    log.admit([peers])
    log.admit([peers])
    assert log.append("note.added", stream="note/1", payload={"text": "next"}).event.lamport == 52


def test_an_event_of_a_key_is_refused_without_its_proof(log: Log) -> None:
    """Anybody could make one in the name of that key, and `verify` would call the log tampered with."""
    author = Author(1, log.identity.log_id)
    sent = author.write(2)
    elsewhere = Author(1, "01K9ZZZZZZZZZZZZZZZZZZZZZ0").write(1)
    for bad in (unproven(sent), [sent[0], replace(sent[1], actor="user:eve")], elsewhere):
        with pytest.raises(InvalidSignature, match="is not signed by its origin"):
            log.admit(bad)
        assert log.head() == 0
    assert [recorded.event for recorded in log.admit(sent)] == sent
    assert log.verify().ok


@pytest.mark.parametrize("field", ["request_id", "idempotency_key", "tags"])
def test_a_secret_outside_the_payload_is_refused_and_other_texts_are_not(field: str) -> None:
    """As an append does. A text that only looks suspicious at first is no secret."""
    for seed in range(5):
        for text, is_secret in ((planted(seed)["aws id"], True), ("password-changed, see note", False)):
            fields: dict[str, Any] = {field: {"team": text} if field == "tags" else text}
            sent = encode_event(changed(Chain().next().event, **fields))
            if is_secret:
                with pytest.raises(SecretFound):
                    refuse_secret(sent)
            else:
                refuse_secret(sent)
