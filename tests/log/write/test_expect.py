"""Expectations of an append, checked in its own transaction (G4)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.at_once import at_once

from everlog.core.event import Position
from everlog.core.query import Query
from everlog.errors import InvalidField, QueryMatched, WrongSequence
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.log.write.expect import Expect, NoMatch


def draft(stream: str = "thing/1", **fields: Any) -> Draft:
    return Draft(type="thing.said", stream=stream, **fields)


def test_any_holds_always(log: Log) -> None:
    for _ in range(3):
        log.append_batch([draft(expect=Expect.ANY)])
    assert log.head() == 3


def test_none_holds_only_for_a_stream_that_never_had_an_event(log: Log) -> None:
    log.append_batch([draft(expect=Expect.NONE)])
    with pytest.raises(WrongSequence) as refusal:
        log.append_batch([draft(expect=Expect.NONE)])
    assert (refusal.value.expected, refusal.value.actual) == ("none yet", 1)
    log.purge("thing/1", reason="test")
    with pytest.raises(WrongSequence):  # one that was purged had some
        log.append_batch([draft(expect=Expect.NONE)])
    log.append_batch([draft("thing/2", expect=Expect.NONE)])


def test_exists_holds_only_for_a_stream_that_has_one(log: Log) -> None:
    with pytest.raises(WrongSequence) as refusal:
        log.append_batch([draft(expect=Expect.EXISTS)])
    assert refusal.value.actual == 0
    log.append_batch([draft()])
    log.append_batch([draft(expect=Expect.EXISTS)])


def test_a_number_holds_only_exactly(log: Log) -> None:
    """F28: one above the head is refused as well, and so is one below."""
    log.append_batch([draft(expect=0)])
    log.append_batch([draft(expect=1)])
    for wrong in (0, 1, 3, 4, 100):
        with pytest.raises(WrongSequence) as refusal:
            log.append_batch([draft(expect=wrong)])
        assert refusal.value.details == {"stream": "thing/1", "expected": str(wrong), "actual": 2}
    log.append_batch([draft(expect=2)])
    assert log.head() == 3


@pytest.mark.parametrize("expectation", [-1, None, "none", "any", 1.0, True, [1], object()])
def test_a_demand_that_is_not_understood_is_refused_and_does_not_count_as_met(log: Log, expectation: Any) -> None:
    log.append_batch([draft()])
    with pytest.raises(InvalidField) as refusal:
        log.append_batch([draft(expect=expectation)])
    assert refusal.value.details["field"] == "expect"
    assert log.head() == 1


def test_earlier_drafts_of_the_batch_are_counted(log: Log) -> None:
    log.append_batch([draft(expect=Expect.NONE), draft(expect=1), draft(expect=Expect.EXISTS), draft(expect=3)])
    with pytest.raises(WrongSequence) as refusal:
        log.append_batch([draft("thing/2", expect=0), draft("thing/2", expect=0)])
    assert refusal.value.actual == 1
    with pytest.raises(WrongSequence):
        log.append_batch([draft(expect=4), draft("thing/2"), draft(expect=4)])
    assert [recorded.sequence for recorded in log.read()] == [1, 2, 3, 4]


def test_no_match_holds_until_such_an_event_is_recorded(log: Log) -> None:
    query = Query(types=frozenset(["note.added"]), scope="acme")
    log.append_batch([draft(expect=NoMatch(query))])
    log.append("note.added", stream="note/1", payload={"text": "elsewhere"}, scope="other")
    log.append_batch([draft(expect=NoMatch(query))])
    seen = log.append("note.added", stream="note/1", payload={"text": "here"}, scope="acme/shop")
    with pytest.raises(QueryMatched) as refusal:
        log.append_batch([draft(expect=NoMatch(query))])
    assert refusal.value.details == {"position": seen.position, "id": seen.event.id}
    log.append_batch([draft(expect=NoMatch(query, after=seen.position))])
    with pytest.raises(QueryMatched):
        log.append_batch([draft(expect=NoMatch(query, after=Position(seen.position - 1)))])


@pytest.mark.parametrize(
    "query",
    [
        Query(types=frozenset(["thing.said"])),
        Query(stream="thing/1"),
        Query(kind="thing", scope="acme"),
        Query(actor="user:ada", correlation_id="c"),
        Query(since=datetime(2020, 1, 1, tzinfo=UTC)),
    ],
)
def test_no_match_counts_earlier_drafts_of_the_batch_as_recorded(log: Log, query: Query) -> None:
    seen = log.append("note.added", stream="note/1", payload={"text": "before"}).position
    first = draft(scope="acme/shop", actor="user:ada", correlation_id="c")
    for none in (NoMatch(query, after=seen), NoMatch(Query(stream="x/1"), after=seen, also=(query,))):
        with pytest.raises(QueryMatched, match="an earlier draft of the batch"):
            log.append_batch([first, draft("thing/2", expect=Expect.NONE), draft("thing/3", expect=none)])
        assert log.head() == seen
    log.append_batch([msgspec.structs.replace(first, expect=none), draft("thing/2")])  # its own does not count


def test_drafts_of_a_batch_may_share_an_expectation_that_none_of_them_breaks(log: Log) -> None:
    none = NoMatch(Query(types=frozenset(["note.added"])), also=(Query(stream="thing/1", scope="acme"),))
    log.append_batch([draft("thing/1", expect=none), draft("thing/2", expect=none), draft("thing/1", expect=none)])
    note = Draft("note.added", "note/1", {"text": "x"}, expect=none)
    with pytest.raises(QueryMatched):
        log.append_batch([draft("thing/1", expect=none), note, draft("thing/2", expect=none)])
    assert log.head() == 3


def test_no_match_may_speak_of_several_queries(log: Log) -> None:
    mine, also = Query(stream="note/1"), (Query(stream="note/2"), Query(stream="note/3"))
    log.append("note.added", stream="note/4", payload={"text": "elsewhere"})
    log.append_batch([draft(expect=NoMatch(mine, also=also))])
    log.append("note.added", stream="note/3", payload={"text": "here"})
    with pytest.raises(QueryMatched):
        log.append_batch([draft(expect=NoMatch(mine, also=also))])
    log.append_batch([draft(expect=NoMatch(mine, after=log.head(), also=also))])


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_no_match_is_refused_after_a_purge_of_what_was_read(
    kind: str, make_log: Callable[..., Log], tmp_path: Path
) -> None:
    log, other = make_log(kind, tmp_path / "log"), make_log(kind, tmp_path / "log")
    for stream in ("note/1", "note/2"):
        log.append("note.added", stream=stream, payload={"text": "a"}, scope="acme/shop")
    read = log.head()
    purge = other.purge("note/1", reason="test")
    for query in (Query(stream="note/1"), Query(kind="note"), Query(scope="acme"), Query()):
        with pytest.raises(QueryMatched, match="purge") as refusal:
            log.append_batch([draft(expect=NoMatch(query, after=read))])
        assert refusal.value.details == {"position": purge.reserved}
    with pytest.raises(QueryMatched):
        log.append_batch([draft(expect=NoMatch(Query(stream="x/1"), after=read, also=(Query(stream="note/1"),)))])
    for query in (Query(stream="note/2"), Query(kind="other"), Query(scope="other")):
        log.append_batch([draft(expect=NoMatch(query, after=read))])
    log.append_batch([draft(expect=NoMatch(Query(stream="note/1"), after=log.head()))])
    log.append_batch([draft(expect=NoMatch(Query(stream="note/1")))])  # nothing was read, so nothing is gone


def test_no_match_of_another_epoch_is_refused(log: Log) -> None:
    log.append_batch([draft()])
    query = Query(stream="note/1")
    log.append_batch([draft(expect=NoMatch(query, after=log.head(), epoch=log.identity.epoch))])
    with pytest.raises(QueryMatched, match="another history"):
        log.append_batch([draft(expect=NoMatch(query, after=log.head(), epoch="another"))])
    with pytest.raises(QueryMatched, match="another history"):
        log.append_batch([draft(expect=NoMatch(query, after=Position(9), epoch=log.identity.epoch))])
    with pytest.raises(InvalidField):
        log.append_batch([draft(expect=NoMatch(query, after=Position(9)))])


def test_of_many_who_expect_the_same_exactly_one_succeeds(kind: str, make_log: Callable[..., Log]) -> None:
    with make_log(kind) as log:
        outcomes: list[str] = []
        start = threading.Barrier(8)

        def attempt() -> None:
            start.wait()
            for sequence in range(10):
                try:
                    log.append_batch([draft(expect=sequence)])
                    outcomes.append("won")
                except WrongSequence:
                    outcomes.append("lost")

        at_once(*[attempt] * 8)
        assert outcomes.count("won") == log.head()
        assert [recorded.sequence for recorded in log.read()] == list(range(1, log.head() + 1))
        assert len(outcomes) == 80
        assert len(log.refusals(limit=None, code="wrong_sequence")) == outcomes.count("lost")
