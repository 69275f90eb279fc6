"""Ranges of positions, and queries as options."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

import everlog
from everlog.core.event import START, Position
from everlog.core.query import Query
from everlog.errors import HistoryChanged
from everlog.pipeline.source import ranges


def test_the_parts_of_a_log_are_of_about_the_same_size() -> None:
    seen = ranges.Look(ranges.Mark("log", "epoch", START), Position(101))
    cut = ranges.cut("sqlite:x", seen, Query(), START, Position(1000), 100)
    assert [(place.after, place.upto) for place in cut] == [(0, 50), (50, 101)]
    assert ranges.cut("sqlite:x", seen, Query(), Position(101), Position(1000), 100) == []


def test_times_of_a_query_are_options() -> None:
    moment = datetime.fromisoformat("2026-01-02T03:04:05.000006+00:00")
    query = Query(since=moment, until=moment + timedelta(days=1), types=frozenset(("a.b", "c.d")), scope="x/y")
    assert ranges.query_of(ranges.options_of(query)) == query


def test_a_worker_refuses_a_log_that_was_put_back_since_its_range_was_planned(tmp_path: Path) -> None:
    """The log has the same identity, and is long enough: only the proof of the planned head shows it."""
    url = f"sqlite:{tmp_path}/log.db"
    with everlog.open(url) as log:
        for text in ("one", "two", "three"):
            log.append("note.added", stream="note/1", payload={"text": text})
        seen = ranges.look(url)
        (planned,) = ranges.cut(url, seen, Query(), START, Position(2), 100)

        ranges.require_same(log.stored, planned)
        with pytest.raises(HistoryChanged) as caught:
            ranges.require_same(log.stored, replace(planned, mark=replace(planned.mark, proof="0" * 12)))

    assert caught.value.details["reason"] == "restored"
