"""The log's memory of its own noes: every one of them, with its facts, and never a payload."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.at_once import at_once

from everlog.catalog.builtin import BUILT_IN
from everlog.catalog.declared import read_types
from everlog.core.ids import EventId
from everlog.errors import (
    Conflict,
    EverlogError,
    InvalidPayload,
    RejectedEvent,
    StorageFull,
    UnknownType,
    WrongSequence,
)
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.stores.small_state import read_notes
from everlog.stores.sqlite.store import SqliteStore

REFUSED: dict[str, dict[str, Any]] = {
    "unknown_type": {"type": "no.such"},
    "invalid_payload": {"type": "note.added", "payload": {"tex": "x"}},
    "invalid_field": {"actor": "ada"},
    "not_canonical": {"payload": {"value": 2**60}},
    "event_too_large": {"payload": {"value": "x" * 1_100_000}},
    "secret_found": {"payload": {"value": "AKIA" + "ABCDEFGHIJKLMNOP"}},
    "transition_refused": {"type": "workpackage.moved", "stream": "workpackage/1", "payload": {"went_to": "done"}},
    "id_from_the_future": {"id": "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"},
    "wrong_sequence": {"expect": 9},
    "id_conflict": {"id": "01K00000000000000000000000", "payload": {"value": "other"}},
    "idempotency_key_reuse": {"key": "used", "payload": {"value": "other"}},
}


def attempt(log: Log, **fields: Any) -> None:
    named = {"type": "thing.said", "stream": "thing/1", "actor": "user:ada", **fields}
    log.append(named.pop("type"), **named)


@pytest.mark.parametrize("code", sorted(REFUSED))
def test_every_refused_append_is_recorded_with_its_facts(log: Log, clock: Any, code: str) -> None:
    attempt(log, id="01K00000000000000000000000")
    attempt(log, key="used", operation="op")
    with pytest.raises(EverlogError) as raised:
        attempt(log, **{"operation": "op", **REFUSED[code]})
    (refusal,) = log.refusals()
    assert refusal.code == code == raised.value.code
    assert refusal.stream == REFUSED[code].get("stream", "thing/1")
    assert refusal.type == REFUSED[code].get("type", "thing.said")
    assert refusal.actor == REFUSED[code].get("actor", "user:ada")
    assert refusal.operation == "op"
    assert refusal.reason == str(raised.value)[:2000]
    assert refusal.hint == raised.value.hint
    assert refusal.refused_at.timestamp() * 1_000_000 == clock()
    assert set(refusal.context) == set(raised.value.details)
    assert log.head() == 2


def test_refusals_are_found_by_their_facts_the_newest_first(log: Log, clock: Any) -> None:
    for number in range(6):
        clock.us += 1000
        with pytest.raises(UnknownType):
            attempt(log, type=f"no.such{number}", stream=f"thing/{number % 2}", actor=f"user:{number % 3}")
    with pytest.raises(WrongSequence):
        attempt(log, expect=5)
    assert [refusal.type for refusal in log.refusals(code="unknown_type")] == [
        f"no.such{n}" for n in (5, 4, 3, 2, 1, 0)
    ]
    assert [refusal.type for refusal in log.refusals(stream="thing/1", code="unknown_type", limit=2)] == [
        "no.such5",
        "no.such3",
    ]
    assert [refusal.type for refusal in log.refusals(actor="user:0")] == ["no.such3", "no.such0"]
    assert len(log.refusals(limit=3)) == 3
    assert log.refusals(limit=0) == []
    assert log.refusals(code="nothing") == []
    assert log.writer.refusals.counts()[-1][2] == 1
    attempt(log)
    with pytest.raises(WrongSequence):
        attempt(log, expect=5)
    assert log.writer.refusals.counts()[0] == ("wrong_sequence", "thing.said", 2)


def test_refusals_are_kept_ninety_days(log: Log, clock: Any) -> None:
    with pytest.raises(UnknownType):
        attempt(log, type="no.such")
    clock.us += 90 * 24 * 3600 * 1_000_000 - 1
    assert len(log.refusals()) == 1
    clock.us += 1
    assert log.refusals() == []


SENTINEL = "planted-sentinel-value"
PLANTED: list[dict[str, Any]] = [
    {"type": "no.such", "payload": {"value": SENTINEL}},
    {"type": "note.added", "payload": {"text": 5, "topic": SENTINEL}},
    {"type": "note.added", "payload": {"text": "x", "topic": [SENTINEL]}},
    {"type": "note.added", "payload": {"text": SENTINEL * 1000}},
    {"payload": {"value": [SENTINEL, 2**60]}},
    {"payload": {"value": SENTINEL * 60_000}},
    {"payload": {"value": [SENTINEL, "AKIA" + "ABCDEFGHIJKLMNOP"]}},
    {"payload": {"value": SENTINEL}, "expect": 9},
    {"payload": {"value": SENTINEL}, "actor": "ada"},
    {"payload": {"value": SENTINEL}, "id": "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"},
    {"payload": {"value": SENTINEL}, "key": "used"},
    {"payload": SENTINEL},
]


def test_no_value_of_a_refused_payload_reaches_the_disk(make_log: Callable[..., Log], tmp_path: Path) -> None:
    with make_log("sqlite", tmp_path / "log.db") as log:
        attempt(log, key="used")
        for fields in PLANTED:
            with pytest.raises(EverlogError):
                attempt(log, **fields)
        assert len(log.refusals()) == len(PLANTED)
        attempt(log)  # takes them along
        assert len(read_notes(log._store.small_state, "refusal/")) == len(PLANTED)
        everything = [path.read_bytes() for path in tmp_path.iterdir()]
        assert not any(SENTINEL.encode() in content for content in everything)
        assert any(b"refusal/" in content for content in everything)


@pytest.mark.parametrize("name", ["\ud800", "x" * 3_000_000, "\x00", "a\nb", "\u202e"], ids=ascii)
def test_refusals_of_the_oddest_names_can_be_written_and_read_and_stay_small(log: Log, name: str) -> None:
    for fields in ({"type": name}, {"stream": name}, {"actor": name}, {"tags": {name: "x"}}, {"request_id": name}):
        with pytest.raises(RejectedEvent):
            attempt(log, **fields, operation=name)
    assert len(log.refusals()) == 5
    attempt(log)  # takes them along
    assert len(read_notes(log._store.small_state, "refusal/")) == 5
    assert len(log.refusals()) == 5
    assert all(len(text) < 40_000 for text in read_notes(log._store.small_state, "refusal/").values())


def test_an_operation_that_is_no_text_does_not_spoil_the_memory(log: Log) -> None:
    with pytest.raises(UnknownType):
        log.writer.commit([Draft(type="no.such", stream="thing/1")], operation=7)  # type: ignore[arg-type]
    assert [refusal.operation for refusal in log.refusals()] == ["7"]


def test_a_payload_with_thousands_of_defects_is_remembered_in_short(log: Log) -> None:
    with pytest.raises(RejectedEvent):
        attempt(log, type="note.added", payload={f"field{number}": 1 for number in range(5000)})
    (refusal,) = log.refusals()
    assert len(refusal.reason) <= 2000
    assert len(refusal.context["defects"]) == 100


def test_an_empty_batch_is_a_refusal_too(log: Log) -> None:
    with pytest.raises(RejectedEvent):
        log.append_batch([])
    assert [(refusal.code, refusal.stream) for refusal in log.refusals()] == [("invalid_field", "")]


@pytest.mark.parametrize("trouble", [StorageFull("the disk is full"), OSError("gone"), RuntimeError("no idea")])
def test_a_store_that_cannot_record_does_not_mask_the_refusal(
    make_log: Callable[..., Log],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    trouble: Exception,
) -> None:
    log = make_log("memory")

    def fail(staged: object) -> None:
        raise trouble

    monkeypatch.setattr(log._store, "_persist", fail)
    with caplog.at_level(logging.WARNING, logger="everlog"):
        with pytest.raises(UnknownType):
            attempt(log, type="no.such")
        log.close()
    assert "could not be recorded" in caplog.text


def test_trouble_of_the_store_is_not_a_refusal(make_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch) -> None:
    log = make_log("memory")
    persist = log._store._persist  # type: ignore[attr-defined]
    troubles = [StorageFull("the disk is full")]

    def fail_once(staged: object) -> None:
        if troubles:
            raise troubles.pop()
        persist(staged)

    monkeypatch.setattr(log._store, "_persist", fail_once)
    with pytest.raises(StorageFull):
        attempt(log)
    assert log.refusals() == []


def test_refusals_move_neither_positions_nor_the_clock(log: Log) -> None:
    for _ in range(5):
        with pytest.raises(Conflict):
            attempt(log, expect=9)
    recorded = log.append("thing.said", stream="thing/1")
    assert (recorded.position, recorded.event.lamport, recorded.event.origin_seq) == (1, 1, 1)
    assert log.verify().ok


def test_a_wrong_choice_is_not_quoted_in_what_is_kept(tmp_path: Path) -> None:
    """Decision 0009: what was refused must not come into the log by the refusal."""
    catalog = read_types('[types."deploy.finished"]\nfields = { result = "ok | failed" }\n')
    catalog.include(BUILT_IN)
    log = Log(SqliteStore(tmp_path / "log.db"), catalog)
    with pytest.raises(InvalidPayload):
        log.append("deploy.finished", stream="deploy/1", payload={"result": "sentinel-of-a-choice"})
    secret_key = "AKIA" + "IOSFODNN7EXAMPLE"
    with pytest.raises(InvalidPayload):
        log.append("deploy.finished", stream="deploy/1", payload={"result": "ok", secret_key: 1})

    (second, first) = log.refusals()
    assert first.reason.endswith("it is not one of 'ok', 'failed'")
    assert "***" in second.reason
    log.close()
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"sentinel-of-a-choice" not in kept
    assert secret_key.encode() not in kept


def test_threads_that_are_refused_at_once_are_all_remembered(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    source, take = log.writer.refusals._ids, log.writer.refusals._ids.take

    def slowly(count: int) -> list[EventId]:
        before = source._counter
        time.sleep(0.01)  # another thread may come in between here, as it may between any two steps of the real one
        source._counter = before
        return take(count)

    take(1)
    monkeypatch.setattr(source, "take", slowly)
    at_once(*[partial(_be_refused, log)] * 4)
    assert len(log.refusals()) == 4


def _be_refused(log: Log) -> None:
    with pytest.raises(UnknownType):
        log.append("never.heard_of", stream="note/1")


# ---- what a refusal costs, and how many are kept


def refuse(log: Log, times: int, **fields: Any) -> None:
    for _ in range(times):
        with pytest.raises(UnknownType):
            attempt(log, **{"type": "no.such", **fields})


def test_a_refusal_needs_no_write_of_its_own_and_goes_along_with_the_next_commit(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[int] = []
    write = log._store.open_write

    def counted() -> Any:
        writes.append(1)
        return write()

    monkeypatch.setattr(log._store, "open_write", counted)
    refuse(log, 50)
    assert (len(writes), len(log.refusals(limit=None)), len(read_notes(log._store.small_state, "refusal/"))) == (
        0,
        50,
        0,
    )
    log.writer.earlier_outcome("op", "k", {}, in_write=True)  # a write that records nothing takes nothing along
    assert (len(writes), len(read_notes(log._store.small_state, "refusal/"))) == (1, 0)
    attempt(log)
    assert (len(writes), len(read_notes(log._store.small_state, "refusal/"))) == (2, 50)
    assert len(log.refusals(limit=None)) == 50
    attempt(log)
    assert len(read_notes(log._store.small_state, "refusal/")) == 50


def test_refusals_survive_a_failed_commit_and_go_along_with_the_next(
    make_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make_log("memory")
    persist = log._store._persist  # type: ignore[attr-defined]

    def fail(staged: object) -> None:
        raise StorageFull("the disk is full")

    refuse(log, 3)
    monkeypatch.setattr(log._store, "_persist", fail)
    with pytest.raises(StorageFull):
        attempt(log)
    assert len(log.refusals()) == 3
    monkeypatch.setattr(log._store, "_persist", persist)
    attempt(log)
    assert len(read_notes(log._store.small_state, "refusal/")) == 3


def test_what_waits_is_written_when_the_log_is_closed(make_log: Callable[..., Log], tmp_path: Path) -> None:
    for kind, name in (("sqlite", "log.db"), ("jsonl", "log"), ("segments", "segments")):
        log = make_log(kind, tmp_path / name)
        refuse(log, 2)
        log.close()
        with make_log(kind, tmp_path / name) as again:
            assert len(again.refusals()) == 2, kind


def test_a_hundred_refusals_of_an_actor_are_recorded_in_a_minute_and_the_rest_are_counted(
    log: Log, clock: Any
) -> None:
    clock.us -= clock.us % 60_000_000
    refuse(log, 70)
    attempt(log)
    refuse(log, 180)
    refuse(log, 3, actor="user:bob")
    assert [(one.actor, one.left_out) for one in log.writer.refusals.left_out()] == [("user:ada", 150)]
    attempt(log)
    assert len(read_notes(log._store.small_state, "refusal/")) == 103
    assert len(log.refusals(limit=None, actor="user:ada")) == 100
    assert len(log.refusals(limit=None, actor="user:bob")) == 3
    assert [(one.actor, one.left_out) for one in log.writer.refusals.left_out()] == [("user:ada", 150)]
    clock.us += 60_000_000
    refuse(log, 101)
    attempt(log)
    assert len(log.refusals(limit=None, actor="user:ada")) == 200
    assert [(one.left_out, one.at.second) for one in log.writer.refusals.left_out()] == [(1, 0), (150, 0)]


def test_the_bound_holds_for_all_handles_together(make_log: Callable[..., Log], tmp_path: Path, clock: Any) -> None:
    for kind, name in (("sqlite", "log.db"), ("jsonl", "log")):
        handles = [make_log(kind, tmp_path / name, now_us=clock) for _ in range(3)]
        for handle in handles:
            refuse(handle, 80)
        for handle in handles:
            handle.close()
        with make_log(kind, tmp_path / name, now_us=clock) as again:
            assert len(again.refusals(limit=None)) == 100, kind
            assert [one.left_out for one in again.writer.refusals.left_out()] == [140], kind


def test_a_purge_forgets_refusals_that_still_wait(log: Log) -> None:
    attempt(log, stream="thing/1")
    attempt(log, stream="thing/2")
    refuse(log, 2, stream="thing/1")
    refuse(log, 1, stream="thing/2")
    log.purge("thing/1", reason="a test")
    assert [one.stream for one in log.refusals()] == ["thing/2"]


def test_very_many_that_wait_are_written_at_once(log: Log, clock: Any) -> None:
    for number in range(1001):
        refuse(log, 1, actor=f"user:a{number}")
    assert len(read_notes(log._store.small_state, "refusal/")) == 1000
    assert len(log.refusals(limit=None)) == 1001
