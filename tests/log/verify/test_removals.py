"""What was erased or purged has a record that lists it, in the same write; without one, `verify` reports it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import everlog
from everlog.core.codec import header_bytes, header_hash
from everlog.core.event import Position, Recorded
from everlog.log.log import Log
from everlog.log.records import FORGETS, FORGOTTEN, PURGED, SubjectForgotten, events_listed, listed
from everlog.log.verify.verify import Report
from everlog.log.write.draft import Draft
from everlog.stores.contract import Problem

STORES = ["sqlite:log.db", "jsonl:log", "segments:log", "memory:"]


@pytest.fixture(params=STORES)
def log(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    monkeypatch.chdir(tmp_path)
    with everlog.open(request.param, actor="user:ada", signed=True) as opened:
        opened.append_batch([Draft("note.added", f"note/{n % 3}", {"text": f"text {n}"}) for n in range(6)])
        opened.append("note.added", stream="note/0", payload={"text": "one more"})
        yield opened


def place_of(recorded: Recorded) -> tuple[str, int, bytes]:
    event = recorded.event
    return event.origin, event.origin_seq, header_hash(header_bytes(event))


def erase(log: Log, *records: Recorded, recorded: bool = True) -> None:
    """Erase payloads, with a record or with an event that is none."""
    (places,) = listed(map(place_of, records))
    draft = Draft(FORGOTTEN, FORGETS, SubjectForgotten(["a key"], places))
    with log._store.open_write() as write:
        request = log.writer.request(
            [draft if recorded else Draft("note.added", "note/9", {"text": "x"})], "", "forget"
        )
        log.writer.prepare([request])
        (allowed,) = request.do(write).records
        write.erase([one.event.id for one in records], by=allowed.event.id)
        for stage in log.writer._stages.active:
            stage.run(write)


def test_a_purge_of_a_signed_log_records_what_it_removed(log: Log) -> None:
    gone = list(log.read(stream="note/0"))
    purge = log.purge("note/0", reason="asked to")

    (record,) = log.read(everlog.Query(types=frozenset((PURGED,))))
    assert record.position == purge.reserved + 1
    assert (record.event.stream, record.event.actor, record.event.origin) == (
        "log/purges",
        "user:ada",
        log.identity.origin,
    )
    assert (record.event.payload["stream"], record.event.payload["reason"]) == ("note/0", "asked to")
    assert list(events_listed(record.event)) == list(map(place_of, gone))
    report = log.verify()
    assert (report.ok, report.present, report.erased, report.purged, report.tampered) == (True, 5, 0, 3, 0)


def test_a_purge_without_its_record_is_reported(log: Log) -> None:
    with log._store.open_write() as write:
        write.purge("note/0", actor="user:ada", reason="asked to")

    report = log.verify()
    assert {problem.code for problem in report.problems} == {"purge_unrecorded"}
    assert (report.tampered, [problem.position for problem in report.problems]) == (3, [1, 4, 7])


def test_an_erased_event_has_a_record(log: Log) -> None:
    erase(log, *log.read(stream="note/1"))

    report = log.verify()
    assert (report.problems, report.present, report.erased, report.tampered) == ((), 6, 2, 0)


def test_a_payload_that_was_taken_out_without_a_record_is_tampered(log: Log) -> None:
    erase(log, *log.read(stream="note/1"), recorded=False)

    report = log.verify()
    assert [(problem.position, problem.code) for problem in report.problems] == [
        (2, "erasure_unrecorded"),
        (5, "erasure_unrecorded"),
    ]
    assert (report.present, report.erased, report.tampered) == (6, 0, 2)


def test_a_record_covers_only_what_it_lists(log: Log) -> None:
    first, second = log.read(stream="note/1")
    erase(log, first)
    (record,) = log.read(everlog.Query(types=frozenset((FORGOTTEN,))))
    with log._store.open_write() as write:
        write.erase([second.event.id], by=record.event.id)

    report = log.verify()
    assert [(problem.position, problem.code) for problem in report.problems] == [(5, "erasure_unrecorded")]
    assert (report.erased, report.tampered) == (1, 1)


def test_a_long_list_is_divided(log: Log) -> None:
    drafts = [Draft("note.added", "note/7", {"text": f"text {n}"}) for n in range(1_001)]
    log.append_batch(drafts)
    log.purge("note/7", reason="asked to")

    records = list(log.read(everlog.Query(types=frozenset((PURGED,)))))
    assert [len(list(events_listed(record.event))) for record in records] == [1_000, 1]
    assert log.verify().ok


def test_events_beside_lost_ones_are_present() -> None:
    lost = Problem(Position(1), "position_missing", "there is nothing", upto=Position(1000))
    changed = Problem(Position(1001), "payload_changed", "another payload")
    report = Report(events=200, purged=0, head=Position(1200), digest="", problems=(lost, changed))
    assert (report.present, report.tampered) == (199, 1001)
