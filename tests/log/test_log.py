"""Appending on every store: what is returned is what is read, and what is refused leaves nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from everlog.catalog.catalog import Catalog
from everlog.core.canonical import canonical
from everlog.core.codec import commitment, header_bytes, header_hash
from everlog.core.ids import id_text, id_uuid
from everlog.errors import (
    AlreadyPurged,
    EventTooLarge,
    IdConflict,
    IdFromTheFuture,
    InvalidField,
    InvalidPayload,
    LogClosed,
    RejectedEvent,
    SecretFound,
    TransitionRefused,
    UnknownType,
    WrongSequence,
)
from everlog.log.log import Log
from everlog.log.write.draft import Draft, Limits
from everlog.stores.small_state import read_notes
from everlog.testing.builders import event, put_note


def say(value: Any, stream: str = "thing/1", **fields: Any) -> Draft:
    return Draft(type="thing.said", stream=stream, payload={"value": value}, **fields)


def move(lane: str, stream: str = "workpackage/WP1") -> Draft:
    return Draft(type="workpackage.moved", stream=stream, payload={"went_to": lane})


def footprint(log: Log) -> tuple[object, ...]:
    """Everything that an append could leave behind."""
    with log._store.open_write() as writer:
        try:
            with writer.attempt():
                clock = writer.tick()
                raise LookupError
        except LookupError:
            pass
        return (log.head(), list(log.read()), read_notes(writer, ""), clock, writer.link(log.identity.origin))


def test_the_returned_record_is_what_is_read_back(log: Log) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=timezone(timedelta(hours=2)))
    returned = log.append(
        "thing.said",
        stream="thing/1",
        payload={"value": {"b": [1, 2.5, None], "a": "é"}},
        actor="user:ada",
        scope="acme/shop",
        occurred_at=moment,
        request_id="r1",
        causation_id="c1",
        correlation_id="c2",
        tags={"team": "b", "build.id": "7"},
        key="k1",
    )
    (read,) = log.read()
    assert read == returned == log.get(returned.event.id) == log.get(str(id_uuid(returned.event.id))) == log.get(1)
    found = returned.event
    assert (returned.position, returned.sequence, found.lamport, found.origin_seq, found.version) == (1, 1, 1, 1, 1)
    assert found.origin == log.identity.origin
    assert found.occurred_at == moment.astimezone(UTC)
    assert found.idempotency_key == "k1"
    assert found.commitment == commitment(found.salt, canonical(found.payload))
    assert (found.actor, found.scope, found.request_id, found.causation_id) == ("user:ada", "acme/shop", "r1", "c1")
    assert found.correlation_id == "c2"
    assert dict(found.tags) == {"team": "b", "build.id": "7"}


def test_each_event_is_chained_to_the_one_before_it_and_ids_grow(log: Log) -> None:
    records = [*(log.append("thing.said", stream=f"thing/{number % 2}") for number in range(5))]
    records += log.append_batch([say(number) for number in range(3)])
    previous = b""
    for number, recorded in enumerate(records, 1):
        assert recorded.position == recorded.event.origin_seq == recorded.event.lamport == number
        assert recorded.event.previous == previous
        previous = header_hash(header_bytes(recorded.event))
    ids = [recorded.event.id for recorded in records]
    assert ids == sorted(set(ids))
    assert len({recorded.event.salt for recorded in records}) == len(records)


def test_sequences_are_gapless_in_each_stream(log: Log) -> None:
    """G4."""
    for number in range(12):
        log.append_batch([say(number, f"thing/{number % 3}"), say(number, "thing/all")])
    for stream, count in (("thing/0", 4), ("thing/1", 4), ("thing/2", 4), ("thing/all", 12)):
        assert [recorded.sequence for recorded in log.read(stream=stream)] == list(range(1, count + 1))


@pytest.mark.parametrize(
    ("spoiler", "error"),
    [
        (say(2**53), RejectedEvent),
        (Draft(type="no.such", stream="thing/1"), UnknownType),
        (Draft(type="thing.said", stream="thing"), InvalidField),
        (say(1, actor="ada"), InvalidField),
        (say(1, scope="/"), InvalidField),
        (say(1, request_id="a\nb"), InvalidField),
        (say(1, correlation_id="x" * 257), InvalidField),
        (say(1, causation_id="\ud800"), InvalidField),
        (say(1, tags={"Team": "x"}), InvalidField),
        (say(1, expect=7), WrongSequence),
        (say(1, id="not an id"), InvalidField),
        (say(1, occurred_at=datetime(2026, 1, 1)), InvalidField),
        (move("done"), TransitionRefused),
        (say("x" * 1_048_576), EventTooLarge),
    ],
)
def test_one_bad_draft_leaves_nothing_of_its_batch(log: Log, spoiler: Draft, error: type[Exception]) -> None:
    """G2, also across streams and wherever in the batch it stands."""
    log.append("thing.said", stream="thing/0")
    before = footprint(log)
    good = [say("good", f"thing/{number}") for number in range(3)]
    for place in range(4):
        with pytest.raises(error):
            log.append_batch([*good[:place], spoiler, *good[place:]], key="k")
    assert len(log.refusals()) == 4
    with log._store.open_write() as writer:  # the refusals are all that there is more than before
        for note in read_notes(writer, "refusal/"):
            put_note(writer, note, None)
    assert footprint(log) == before
    assert log.verify().ok


def test_an_empty_batch_is_refused(log: Log) -> None:
    with pytest.raises(InvalidField, match="empty"):
        log.append_batch([])


def test_an_unknown_type_is_refused_with_what_was_probably_meant(log: Log) -> None:
    with pytest.raises(UnknownType) as refusal:
        log.append("thing.sayd", stream="thing/1")
    assert "thing.said" in refusal.value.hint


def test_all_defects_of_a_payload_are_told_at_once(log: Log) -> None:
    with pytest.raises(InvalidPayload) as refusal:
        log.append("note.added", stream="note/1", payload={"text": "", "topic": 5, "extra": 1})
    assert {path for path, _ in refusal.value.defects} == {"$.text", "$.topic", "$.extra"}


def test_a_secret_is_refused_in_a_payload_and_in_a_tag(log: Log) -> None:
    secret = "AKIA" + "ABCDEFGHIJKLMNOP"
    for draft in (say({"deep": [secret]}), say(1, tags={"team": secret})):
        with pytest.raises(SecretFound) as refusal:
            log.append_batch([say("fine"), draft])
        assert secret not in str(refusal.value) + repr(refusal.value.details)
    assert log.head() == 0


@pytest.mark.parametrize("value", [None, 5, b"x", ["a"], object()])
@pytest.mark.parametrize("field", ["stream", "actor", "scope", "id", "request_id", "causation_id", "correlation_id"])
def test_a_name_that_is_no_text_is_refused_or_not_given_at_all(log: Log, field: str, value: Any) -> None:
    fields: dict[str, Any] = {"type": "thing.said", "stream": "thing/1", "actor": "user:ada"}
    fields[field] = value
    try:
        log.append_batch([Draft(**fields)])
    except (RejectedEvent, TypeError):
        assert log.head() == 0
    else:
        assert value is None
        assert field in ("actor", "id")
    assert isinstance(log.refusals(), list)


# ---- size


def test_a_payload_may_have_one_mebibyte_and_not_a_byte_more(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    around = len(canonical({"value": ""}))
    log.append("thing.said", stream="thing/1", payload={"value": "x" * (1024 * 1024 - around)})
    with pytest.raises(EventTooLarge) as refusal:
        log.append("thing.said", stream="thing/1", payload={"value": "x" * (1024 * 1024 - around + 1)})
    assert refusal.value.details == {"size": 1024 * 1024 + 1, "limit": 1024 * 1024}
    assert log.head() == 1


def test_a_payload_above_64_kib_is_recorded_with_a_warning(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    around = len(canonical({"value": ""}))
    with caplog.at_level(logging.WARNING, logger="everlog"):
        log.append("thing.said", stream="thing/1", payload={"value": "x" * (64 * 1024 - around)})
        assert caplog.records == []
        log.append("thing.said", stream="thing/1", payload={"value": "x" * (64 * 1024 - around + 1)})
    assert ["65,537 bytes" in record.getMessage() for record in caplog.records] == [True]


def test_a_limit_below_the_warning_holds_and_warns_of_nothing(
    make_log: Callable[..., Log], caplog: pytest.LogCaptureFixture
) -> None:
    log = make_log(limits=Limits(payload_bytes_max=100))
    log.append("thing.said", stream="thing/1", payload={"value": "x" * 80})
    with pytest.raises(EventTooLarge):
        log.append("thing.said", stream="thing/1", payload={"value": "x" * 100})
    assert caplog.records == []


# ---- transitions


def test_moves_follow_the_rule_from_its_initial_state(log: Log) -> None:
    for lane in ("doing", "review", "doing", "planned", "doing"):
        log.append_batch([move(lane)])
    with pytest.raises(TransitionRefused) as refusal:
        log.append_batch([move("done")])
    details = refusal.value.details
    assert (details["current"], details["requested"]) == ("doing", "done")
    assert details["valid_transitions"] == ["review", "planned"]
    assert "review" in refusal.value.hint
    log.append_batch([move("doing", "workpackage/WP2")])  # another stream has a state of its own
    assert log.head() == 6


def test_two_moves_of_one_batch_follow_each_other(log: Log) -> None:
    log.append_batch([move("doing"), say("between"), move("review")])
    with pytest.raises(TransitionRefused):
        log.append_batch([move("doing"), move("done")])
    with pytest.raises(TransitionRefused):
        log.append_batch([move("done"), move("done")])
    log.append_batch([move("done")])


def test_the_state_of_an_old_event_is_read_through_its_upcaster(log: Log) -> None:
    """F44: a side path that would read the old payload would find no lane at all."""
    old = event("workpackage.moved", stream="workpackage/WP1", payload={"new_status": "doing"})
    log.admit([old])
    assert next(log.read()).event.payload == {"went_to": "doing"}
    with pytest.raises(TransitionRefused) as refusal:
        log.append_batch([move("doing")])
    assert refusal.value.details["current"] == "doing"
    log.append_batch([move("review")])


# ---- trying without doing


def test_a_dry_run_answers_as_if_and_leaves_nothing(log: Log) -> None:
    log.append("thing.said", stream="thing/1")
    before = footprint(log)
    tried = log.append("thing.said", stream="thing/1", payload={"value": 1}, key="k", expect=1, dry_run=True)
    assert (tried.position, tried.sequence, tried.event.lamport) == (2, 2, 2)
    assert footprint(log) == before
    with pytest.raises(WrongSequence):
        log.append("thing.said", stream="thing/1", expect=9, dry_run=True)
    with pytest.raises(UnknownType):
        log.append("no.such", stream="thing/1", dry_run=True)
    assert footprint(log) == before
    assert log.refusals() == []
    receipt = log.writer.commit([say(2)], key="k")
    assert (receipt.replayed, receipt.records[0].position) == (False, 2)


def test_a_dry_run_of_a_known_request_says_so(log: Log) -> None:
    first = log.writer.commit([say(1)], key="k")
    tried = log.writer.commit([say(1)], key="k", dry_run=True)
    assert tried.replayed
    assert tried.records == first.records


# ---- ids and times of the caller

GIVEN = "01K00000000000000000000000"


def test_the_same_id_with_the_same_content_is_a_retry(log: Log) -> None:
    """G5."""
    first = log.append("thing.said", stream="thing/1", payload={"value": 1.0}, id=GIVEN)
    for spelling in (GIVEN, GIVEN.lower(), str(id_uuid(GIVEN))):
        again = log.writer.commit([say(1, id=spelling)])
        assert again.replayed
        assert again.records == (first,)
    assert log.head() == 1
    assert first.event.id == GIVEN


@pytest.mark.parametrize(
    "other",
    [
        say(True, id=GIVEN),  # equal to 1 in Python, and another JSON value
        say("1", id=GIVEN),
        say(1, "thing/2", id=GIVEN),
        say(1, id=GIVEN, actor="user:bob"),
        say(1, id=GIVEN, scope="acme"),
        say(1, id=GIVEN, tags={"team": "b"}),
        say(1, id=GIVEN, causation_id="x"),
        say(1, id=GIVEN, correlation_id="x"),
        Draft(type="note.added", stream="thing/1", payload={"text": "x"}, id=GIVEN),
    ],
)
def test_the_same_id_with_other_content_is_refused(log: Log, other: Draft) -> None:
    """G5, F54."""
    log.append_batch([say(1, id=GIVEN)])
    with pytest.raises(IdConflict) as refusal:
        log.append_batch([other])
    assert refusal.value.details["id"] == GIVEN
    assert log.head() == 1
    assert log.refusals(code="id_conflict")


def test_a_batch_is_retried_as_a_whole(log: Log) -> None:
    ids = [f"01K0000000000000000000000{number}" for number in range(4)]
    batch = [say(number, id=ids[number]) for number in range(3)]
    first = log.append_batch(batch)
    assert log.append_batch(batch) == first
    with pytest.raises(IdConflict, match="some events"):
        log.append_batch([*batch, say(3, id=ids[3])])
    with pytest.raises(IdConflict):
        log.append_batch([say(8, id=ids[3]), say(9, id=ids[3])])
    assert log.head() == 3


def test_an_id_from_the_future_is_refused_and_one_of_tomorrow_is_not(log: Log, clock: Any) -> None:
    day_ms = 24 * 3600 * 1000
    now_ms = clock() // 1000
    log.append_batch([say(1, id=id_text((now_ms + day_ms) << 80))])
    with pytest.raises(IdFromTheFuture):
        log.append_batch([say(1, id=id_text((now_ms + day_ms + 1) << 80))])
    assert log.head() == 1


def test_old_and_future_ids_are_found_among_those_of_the_log(log: Log) -> None:
    """A store may lean on its own ids growing; those of callers do not."""
    mine = [log.append("thing.said", stream="thing/1").event.id for _ in range(150)]
    given = [f"01K000000000000000000000{number:02}" for number in range(20)]
    for event_id in given:
        log.append_batch([say(event_id, id=event_id)])
        mine.append(log.append("thing.said", stream="thing/1").event.id)
    for event_id in (*mine, *given):
        found = log.get(event_id)
        assert found is not None
        assert found.event.id == event_id
    assert log.get("01K00000000000000000000099") is None


def test_the_id_of_a_purged_event_is_not_given_again(log: Log) -> None:
    log.append_batch([say(1, id=GIVEN)])
    log.purge("thing/1", reason="test")
    with pytest.raises(AlreadyPurged):
        log.append_batch([say(1, id=GIVEN)])
    assert log.get(GIVEN) is None


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2026, 1, 1),
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
        datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-12))),
        "2026-01-01T00:00:00Z",
    ],
)
def test_a_time_that_names_no_moment_is_refused(log: Log, moment: Any) -> None:
    with pytest.raises(InvalidField) as refusal:
        log.append_batch([say(1, occurred_at=moment)])
    assert refusal.value.details["field"] == "occurred_at"
    assert log.head() == 0


def test_times_of_any_zone_are_stored_in_utc(log: Log) -> None:
    odd = timezone(timedelta(hours=5, minutes=45, seconds=7))
    returned = log.append("thing.said", stream="thing/1", occurred_at=datetime(2026, 1, 1, 6, tzinfo=odd))
    assert returned.event.occurred_at == datetime(2026, 1, 1, 0, 14, 53, tzinfo=UTC)
    assert log.verify().ok


# ---- what is stored belongs to the log


def test_changing_what_was_given_or_returned_changes_nothing_stored(log: Log) -> None:
    inner = [1, 2]
    payload = {"value": {"list": inner}}
    tags = {"team": "a"}
    returned = log.append("thing.said", stream="thing/1", payload=payload, tags=tags)
    inner.append(3)
    payload["value"]["more"] = [4]
    tags["team"] = "b"
    tags["x y"] = "z"
    assert returned.event.payload == {"value": {"list": [1, 2]}}
    assert dict(returned.event.tags) == {"team": "a"}
    returned.event.payload["value"]["list"].append(9)
    (read,) = log.read()
    assert read.event.payload == {"value": {"list": [1, 2]}}
    assert dict(read.event.tags) == {"team": "a"}
    assert log.verify().ok


def test_a_returned_record_shares_nothing_with_later_ones(log: Log) -> None:
    first = log.append_batch([Draft(type="thing.said", stream="thing/1")])[0]
    assert isinstance(first.event.tags, dict)
    first.event.tags["planted"] = "x"
    first.event.payload["planted"] = "x"
    second = log.append_batch([Draft(type="thing.said", stream="thing/1")])[0]
    assert dict(second.event.tags) == {}
    assert second.event.payload == {"value": None}


def test_everything_survives_closing_and_opening(make_log: Callable[..., Log], tmp_path: Any) -> None:
    """G1."""
    with make_log("sqlite", tmp_path / "log.db") as log:
        returned = log.append_batch(
            [say(number, f"thing/{number % 7}", tags={"n": str(number)}) for number in range(300)]
        )
    with make_log("sqlite", tmp_path / "log.db") as log:
        assert list(log.read()) == returned
        assert log.append("thing.said", stream="thing/1").event.lamport == 301
        assert log.verify().ok


def test_a_closed_log_says_so_and_closing_twice_is_fine(log: Log) -> None:
    log.append("thing.said", stream="thing/1")
    log.close()
    log.close()
    for use in (
        lambda: log.append("thing.said", stream="thing/1"),
        lambda: log.append("no.such", stream="thing/1"),
        lambda: list(log.read()),
        lambda: log.page_after(0),
        lambda: next(iter(log.subscribe())),
        lambda: log.purge("thing/1", reason="x"),
    ):
        with pytest.raises((LogClosed, UnknownType)):
            use()


def test_a_log_reads_upcast_and_stores_as_written(log: Log, catalog: Catalog) -> None:
    old = event("workpackage.moved", stream="workpackage/WP9", payload={"new_status": "doing"})
    (recorded,) = log.admit([old])
    assert recorded.event.version == 1
    for found in (log.get(old.id), log.get(1), *log.read(), *log.page_after(0).events):
        assert found is not None
        assert (found.event.version, found.event.payload) == (2, {"went_to": "doing"})
    (stored,) = log._store.read()
    assert stored.event == old
    assert catalog.typed(old).went_to == "doing"
