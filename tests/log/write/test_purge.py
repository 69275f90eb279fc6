"""A purge removes a stream for good and leaves an account of it (G3, G9)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from everlog.core.event import Position
from everlog.core.query import Query
from everlog.errors import AlreadyPurged, InvalidField, NotFound, QueryMatched, WrongSequence
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.log.write.expect import Expect, NoMatch


def fill(log: Log) -> None:
    for number in range(6):
        log.append(
            "thing.said", stream=f"thing/{number % 2}", payload={"value": number}, scope=f"acme/{number % 2}/{number}"
        )


def test_a_purge_takes_the_events_and_leaves_the_account(log: Log, clock: Any) -> None:
    fill(log)
    kept = [recorded for recorded in log.read() if recorded.event.stream == "thing/1"]
    purge = log.purge("thing/0", actor="user:ada", reason="asked to")
    assert (purge.reserved, purge.count, purge.sequence) == (7, 3, 3)
    assert (purge.stream, purge.actor, purge.reason) == ("thing/0", "user:ada", "asked to")
    assert purge.scopes == ("acme/0/0", "acme/0/2", "acme/0/4")
    assert purge.purged_us == clock()
    assert list(log.read()) == kept
    assert log.stored.purges() == [purge]
    assert log.head() == 7
    report = log.verify()
    assert (report.ok, report.events, report.purged) == (True, 3, 3)


def test_no_event_ever_gets_the_reserved_position_and_the_stream_goes_on(log: Log) -> None:
    fill(log)
    log.purge("thing/0", reason="test")
    after = log.append("thing.said", stream="thing/0")
    assert (after.position, after.sequence) == (8, 4)
    assert log.get(7) is None
    assert log.verify().ok


def test_a_stream_can_be_purged_again(log: Log) -> None:
    fill(log)
    log.purge("thing/0", reason="test")
    log.append("thing.said", stream="thing/0")
    second = log.purge("thing/0", reason="again")
    assert (second.reserved, second.count, second.sequence) == (9, 1, 4)
    assert log.append("thing.said", stream="thing/0").sequence == 5
    assert log.verify().ok


def test_there_must_be_something_to_purge(log: Log) -> None:
    fill(log)
    with pytest.raises(NotFound):
        log.purge("thing/9", reason="test")
    log.purge("thing/0", reason="test")
    with pytest.raises(NotFound):
        log.purge("thing/0", reason="test")
    assert log.head() == 7


def test_a_purge_with_odd_names_is_refused(log: Log) -> None:
    fill(log)
    for wrong in ({"stream": "thing"}, {"actor": "ada"}, {"reason": "a\nb"}):
        with pytest.raises(InvalidField):
            log.purge(**{"stream": "thing/0", "reason": "x", **wrong})
    assert log.stored.purges() == []


def test_a_purge_among_appends_to_the_same_stream_never_fails(kind: str, make_log: Callable[..., Log]) -> None:
    """A purge that shared its write with an append of its stream would be refused for no fault of its caller."""
    with make_log(kind) as log:
        log.append("thing.said", stream="thing/0")
        done = threading.Event()

        def appender() -> None:
            while not done.is_set():
                log.append("thing.said", stream="thing/0")

        threads = [threading.Thread(target=appender) for _ in range(4)]
        for thread in threads:
            thread.start()
        count = 0
        try:
            for _ in range(20):
                with suppress(NotFound):  # nothing was appended since the last one
                    count += log.purge("thing/0", reason="test").count
        finally:
            done.set()
            for thread in threads:
                thread.join()
        report = log.verify()
        assert report.problems == ()
        assert report.purged == count


def test_nothing_of_a_purged_payload_stays_in_the_files(make_log: Callable[..., Log], tmp_path: Any) -> None:
    """F63: a sentinel is planted, and every byte of the folder is looked at."""
    sentinel = "sentinel-that-must-go"
    path = tmp_path / "log.db"
    with make_log("sqlite", path) as log:
        log.append("thing.said", stream="thing/0", payload={"value": sentinel}, tags={"note": sentinel})
        log.append("thing.said", stream="thing/1", payload={"value": "stays"})
        assert any(sentinel.encode() in file.read_bytes() for file in tmp_path.iterdir())
        log.purge("thing/0", reason="asked to")
        assert not any(sentinel.encode() in file.read_bytes() for file in tmp_path.iterdir())
        assert any(b"stays" in file.read_bytes() for file in tmp_path.iterdir())


def test_a_purged_request_cannot_come_back_by_its_id(log: Log) -> None:
    record = log.append("thing.said", stream="thing/0")
    log.purge("thing/0", reason="test")
    with pytest.raises(AlreadyPurged):
        log.append("thing.said", stream="thing/0", id=record.event.id)
    with pytest.raises(AlreadyPurged):
        log.admit([record.event])


def test_what_must_stay_known_is_recorded_with_the_purge_or_neither_is_done(log: Log) -> None:
    fill(log)
    left = Draft("thing.said", "tombstone/0", {"value": "thing/0"}, expect=Expect.NONE)
    purge, (recorded,) = log.purge("thing/0", record=[left], reason="test")
    assert (recorded.position, purge.reserved, recorded.event.stream) == (7, 8, "tombstone/0")
    with pytest.raises(WrongSequence):
        log.purge("thing/1", record=[left], reason="test")
    with pytest.raises(QueryMatched):
        unseen = NoMatch(Query(stream="thing/1"), after=Position(4))
        log.purge("thing/1", record=[Draft("thing.said", "tombstone/1", {}, expect=unseen)], reason="test")
    with pytest.raises(InvalidField):
        log.purge("thing/1", record=[Draft("thing.said", "no stream", {})], reason="test")
    with pytest.raises(NotFound):
        log.purge("thing/0", record=[Draft("thing.said", "tombstone/1", {"value": 1})], reason="again")
    assert (log.head(), log.stored.purges(), len(list(log.read(stream="thing/1")))) == (8, [purge], 3)
    assert log.verify().ok


def test_what_is_remembered_of_refusals_about_a_stream_goes_with_it_and_of_others_stays(log: Log) -> None:
    fill(log)
    for stream in ("thing/0", "thing/1"):
        with pytest.raises(WrongSequence):
            log.append("thing.said", stream=stream, payload={"value": 1}, expect=99)
    log.purge("thing/0", reason="asked to")
    assert [refusal.stream for refusal in log.refusals()] == ["thing/1"]
