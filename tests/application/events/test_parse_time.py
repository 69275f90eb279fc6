"""Moments as people write them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from everlog.application.events.parse_time import is_time_ago, parse_moment, parse_time, parse_time_or_position
from everlog.errors import InvalidField
from everlog.views.as_of import Lamport, Version


@pytest.mark.parametrize(("text", "ago"), [
    ("90s", timedelta(seconds=90)),
    ("10m", timedelta(minutes=10)),
    ("-2h", timedelta(hours=2)),
    ("3d", timedelta(days=3)),
    ("1w", timedelta(weeks=1)),
])  # fmt: skip
def test_a_time_may_be_a_duration_ago(text: str, ago: timedelta) -> None:
    assert abs(datetime.now(UTC) - ago - parse_time(text)) < timedelta(seconds=5)


@pytest.mark.parametrize("text", ["2026-11-01", "2026-11-01T00:00Z", "2026-11-01T02:00+02:00", "20261101T000000"])
def test_a_time_without_a_zone_is_utc(text: str) -> None:
    assert parse_time(text) == datetime(2026, 11, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["", "10", "m", "10x", "#1", "99999999999d", "2026-13-01", "999999999w", "9999-12-31T23:00-10:00"]
)
def test_text_that_is_not_a_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidField):
        parse_time(text)


@pytest.mark.parametrize("parse", [parse_time_or_position, parse_moment])
def test_the_hint_about_a_bare_number_shows_how_a_position_is_written(parse: Callable[[str], object]) -> None:
    with pytest.raises(InvalidField) as refused:
        parse("5")
    assert "the position is written '#5'" in refused.value.hint
    assert parse("20261101") == datetime(2026, 11, 1, tzinfo=UTC)


def test_a_time_or_a_position_may_be_a_position() -> None:
    assert parse_time_or_position("#12") == 12
    assert isinstance(parse_time_or_position("10m"), datetime)
    with pytest.raises(InvalidField):
        parse_time_or_position("12")


def test_a_moment_may_be_a_clock_value_or_the_version_of_a_stream() -> None:
    assert parse_moment("lamport:41") == Lamport(41)
    assert parse_moment("v3") == Version(3)
    assert parse_moment("#12") == 12


@pytest.mark.parametrize(
    ("text", "ago"), [("-10m", True), ("10m", True), ("-n", False), ("--json", False), ("v3", False)]
)
def test_only_a_duration_is_a_time_ago(text: str, ago: bool) -> None:
    assert is_time_ago(text) is ago
