from __future__ import annotations

from datetime import UTC, datetime, timedelta

from everlog.demo.week import CLOSES, OPENS, Thread, Week, chance_of

TODAY = datetime(2026, 11, 16, 14, 30, tzinfo=UTC)


def test_the_week_ended_last_midnight_whatever_the_hour_is() -> None:
    for hour in (0, 9, 23):
        week = Week(TODAY.replace(hour=hour))
        assert (week.begin, week.end) == (datetime(2026, 11, 9, tzinfo=UTC), datetime(2026, 11, 16, tzinfo=UTC))


def test_threads_take_turns_in_the_order_of_their_times() -> None:
    week, told = Week(TODAY), []

    def thread(name: str, minutes: int) -> Thread:
        for _ in range(3):
            yield week.after(minutes)
            told.append((name, (week.now - week.begin) // timedelta(minutes=1)))

    week.join(thread("a", 10))
    week.join(thread("b", 15))
    week.play()
    assert told == [("a", 10), ("b", 15), ("a", 20), ("b", 30), ("a", 30), ("b", 45)]


def test_a_week_can_be_played_in_parts_and_nothing_comes_after_its_end() -> None:
    week, told = Week(TODAY), []

    def thread() -> Thread:
        while True:
            yield week.after(24 * 60)
            told.append(week.now)

    week.join(thread())
    week.play(week.on(2, 12))
    assert told == [week.on(1, 0), week.on(2, 0)]
    assert week.now == week.on(2, 12)
    week.play()
    assert told == [week.on(day, 0) for day in range(1, 7)]


def test_people_go_on_in_the_morning() -> None:
    week = Week(TODAY)
    week.now = week.on(1, CLOSES - 1)
    assert week.at_work(30) == week.on(1, CLOSES - 0.5)
    assert week.at_work(90).hour == OPENS
    assert week.at_work(90).date() == week.on(2, 0).date()
    week.now = week.on(1, 3)
    assert week.at_work(10).hour == OPENS
    week.now = week.on(4, CLOSES)
    assert week.at_work(10) == week.end, "not in this week any more"


def test_chance_is_the_same_at_every_run_and_another_for_every_thread() -> None:
    assert chance_of("a", 1).random() == chance_of("a", 1).random()
    assert chance_of("a", 1).random() != chance_of("a", 2).random()
