"""When a snapshot is due, and which snapshots thinning keeps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from everlog.views.snapshots.policy import Due, Thinning, superfluous

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


class Made(msgspec.Struct, frozen=True):
    id: str
    created_us: int
    view: str = "board"
    base: str = ""


def at(hours: float, *, base: str = "", view: str = "board") -> Made:
    return Made(f"{view}-{hours:g}", us(NOW - timedelta(hours=hours)), view, base)


def us(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)


def gone(*found: Made, protected: frozenset[str] = frozenset()) -> list[str]:
    return superfluous(found, now_us=us(NOW), protected=protected)


def test_everything_of_the_last_day_stays() -> None:
    assert gone(*[at(hours) for hours in range(25)]) == []


def test_of_a_day_of_the_last_month_the_newest_stays() -> None:
    same_day = [at(48), at(49), at(50)]
    assert gone(at(0), *same_day) == ["board-50", "board-49"]


def test_of_a_week_of_the_last_year_the_newest_stays() -> None:
    day = 24.0
    monday = 40 * day + 12 - 24 * 0  # NOW is a Monday noon
    weeks = [at(monday + day * number) for number in range(14)]
    left = {one.id for one in weeks} - set(gone(at(0), *weeks))
    assert len(left) in (2, 3)
    kept_weeks = {
        datetime.fromtimestamp(one.created_us / 1e6, UTC).isocalendar()[:2] for one in weeks if one.id in left
    }
    assert len(kept_weeks) == len(left)


def test_after_a_year_nothing_stays_but_the_newest() -> None:
    assert gone(at(24 * 400), at(24 * 401)) == [f"board-{24 * 401}"]


def test_what_is_protected_or_a_base_stays() -> None:
    base, other = at(24 * 500), at(24 * 501)
    assert gone(at(0, base=base.id), base, other) == [other.id]
    assert gone(at(0), base, other, protected=frozenset([other.id])) == [base.id]


def test_views_are_thinned_apart() -> None:
    assert gone(at(48), at(48.5, view="other")) == []


@given(st.lists(st.tuples(st.integers(0, 24 * 800), st.booleans()), max_size=40))
def test_thinning_twice_is_thinning_once(ages: list[tuple[int, bool]]) -> None:
    found = [msgspec.structs.replace(at(hours), id=f"{place}") for place, (hours, _) in enumerate(ages)]
    protected = frozenset(one.id for one, (_, kept) in zip(found, ages, strict=True) if kept)
    first = set(gone(*found, protected=protected))
    assert not first & protected
    left = [one for one in found if one.id not in first]
    assert gone(*left, protected=protected) == []
    assert not found or left
    assert len({one.id for one in left if us(NOW) - one.created_us > 365 * 86_400_000_000} - protected) <= 1


def test_the_first_trigger_that_fires_wins() -> None:
    due = Due()
    hour, mb = 3_600_000_000, 1024 * 1024
    assert due.reason(age_us=7 * hour, events=0, log_bytes=600 * mb) == ""
    assert due.reason(age_us=0, events=9_999, log_bytes=0) == ""
    assert due.reason(age_us=0, events=10_000, log_bytes=0) == "events"
    assert due.reason(age_us=0, events=1, log_bytes=500 * mb) == "size"
    assert due.reason(age_us=6 * hour, events=1, log_bytes=0) == "time"
    assert Due(hours=0, events=0, log_mb=0).reason(age_us=9 * hour, events=10**9, log_bytes=10**12) == ""


def test_the_rule_of_thinning_can_be_another() -> None:
    rule = Thinning(all_hours=1, daily_days=0, weekly_days=0)
    assert superfluous([at(0), at(0.5), at(2)], now_us=us(NOW), rule=rule) == ["board-2"]
