"""Ranges of positions, and queries as options."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from everlog.core.event import START, Position
from everlog.core.query import Query
from everlog.pipeline.source import ranges

if TYPE_CHECKING:
    pass


def test_the_parts_of_a_log_are_of_about_the_same_size() -> None:
    seen = ranges.Look(ranges.Mark("log", "epoch", START), Position(101))
    cut = ranges.cut("sqlite:x", seen, Query(), START, Position(1000), 100)
    assert [(place.after, place.upto) for place in cut] == [(0, 50), (50, 101)]
    assert ranges.cut("sqlite:x", seen, Query(), Position(101), Position(1000), 100) == []


def test_times_of_a_query_are_options() -> None:
    moment = datetime.fromisoformat("2026-01-02T03:04:05.000006+00:00")
    query = Query(since=moment, until=moment + timedelta(days=1), types=frozenset(("a.b", "c.d")), scope="x/y")
    assert ranges.query_of(ranges.options_of(query)) == query
