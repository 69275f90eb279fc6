"""The demo's week: all programs take part, the rules decide, and the log has it as if they had decided there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

import everlog
from everlog import programs
from everlog.catalog.declared import read_types
from everlog.core.event import Event
from everlog.demo import laptop, truth
from everlog.demo.programs.customers import TYPES
from everlog.demo.story import NOON_OF_THURSDAY, Story
from everlog.log.log import Log

TODAY = datetime(2026, 11, 16, 14, 30, tzinfo=UTC)


def open_log(path: Path) -> Log:
    return everlog.open(f"sqlite:{path / 'log.db'}", catalog=read_types(TYPES), actor="user:ada")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    """A log with the whole week."""
    with open_log(tmp_path_factory.mktemp("week")) as opened:
        story = Story(opened, TODAY)
        story.go_on()
        story.close()
        yield opened


def test_every_program_and_nearly_every_type_takes_part(log: Log) -> None:
    seen = {recorded.event.type for recorded in log.read()}
    for name, types in programs.TYPES.items():
        there = seen & set(types)
        assert len(there) >= len(types) / 2, f"{name}: only {sorted(there)}"
    assert 2_000 < log.head() < 5_000


def test_the_log_has_what_the_rehearsal_had_but_for_salts_and_hashes(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        story = Story(log, TODAY)
        story.go_on(story.week.on(2, 0))

        def said(event: Event) -> tuple[object, ...]:
            return (event.id, event.origin, event.origin_seq, event.lamport, event.type, event.stream, event.payload)

        rehearsed = [said(recorded.event) for recorded in story.rehearsal.read()]
        assert [said(recorded.event) for recorded in log.read()] == rehearsed
        story.close()


def test_the_week_is_the_same_at_every_run_but_for_ids_and_the_calendar(log: Log, tmp_path: Path) -> None:
    with open_log(tmp_path) as other:
        story = Story(other, TODAY.replace(hour=3))
        story.go_on(story.week.on(3, 0))
        story.close()
        assert shape(other) == shape(log)[: other.head()]


def shape(log: Log) -> list[tuple[str, ...]]:
    ids = re.compile(r"[0-7][0-9a-hjkmnp-tv-z]{25}|[0-7][0-9A-HJKMNP-TV-Z]{25}")
    return [
        (event.type, event.actor, event.scope, event.occurred_at.isoformat(), ids.sub("ID", event.stream))
        for event in (recorded.event for recorded in log.read())
    ]


def test_times_grow_and_stay_within_the_week(log: Log) -> None:
    times = [recorded.event.occurred_at for recorded in log.read()]
    assert times == sorted(times)
    assert times[0] >= datetime(2026, 11, 9, tzinfo=UTC)
    assert times[-1] < datetime(2026, 11, 16, tzinfo=UTC)


def test_causes_are_events_of_the_log(log: Log) -> None:
    ids = {str(recorded.event.id) for recorded in log.read()}
    causes = {recorded.event.causation_id for recorded in log.read()} - {""}
    assert len(causes) > 300
    assert causes <= ids


def test_the_views_live_rebuilt_and_as_of_the_head_are_the_same(log: Log) -> None:
    found = truth.truths(log)
    assert {one.view.partition(".")[0] for one in found} == set(programs.TYPES)
    assert [one.view for one in found if not one.one] == []
    empty = {one.view for one in found if not one.rows}
    assert empty == {"issues.claims", "workpackages.claims"}  # nobody claims anything in the story


def test_a_view_that_was_changed_behind_its_back_is_noticed(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    from everlog.views.live import LiveView

    monkeypatch.setattr(LiveView, "digest", lambda self: "another")
    (one,) = truth.truths(log, [next(truth.every_view())])
    assert (one.live, one.one) == ("another", False)


def test_what_a_laptop_did_arrives_late_and_both_say_the_same(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        away = laptop.Laptop()
        story = Story(log, TODAY)
        noon = story.week.begin + NOON_OF_THURSDAY
        story.go_on(story.week.on(3, 0))
        away.announce(story.rehearsal, story.week)
        story.go_on(noon)
        away.fetch(log)
        moved = laptop.work_offline(away, story.week)
        story.go_on()
        late = log.admit(away.own())
        assert len(late) == len(away.own()) > 20
        assert moved
        away.fetch(log)
        chosen = [view for view in truth.every_view() if view.order == "causal"]
        assert len(chosen) > 10
        assert set(laptop.same(log, away.log, chosen)) == {view.name for view in chosen}
        away.log.append("note.added", stream="note/1", payload={"text": "x"}, correlation_id="WP01")
        with pytest.raises(AssertionError):
            laptop.same(log, away.log, chosen)
        story.close()
        away.close()
