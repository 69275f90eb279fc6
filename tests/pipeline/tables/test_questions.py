"""The questions of history, on a small history whose answers can be counted by hand."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.world import World

import everlog
from everlog.catalog.catalog import Catalog
from everlog.core.query import Query
from everlog.errors import EverlogError
from everlog.log.log import Log
from everlog.pipeline.lake.lake import ANSWERS
from everlog.pipeline.report.report import report
from everlog.pipeline.tables.answers import answers_of
from everlog.pipeline.tables.gold import gold_of
from everlog.programs.command import By
from everlog.programs.controlplane.commands import (
    CreateApp,
    CreateEnvironment,
    CreateOrg,
    FailDeploy,
    RequestDeploy,
    StartDeploy,
    SucceedDeploy,
)
from everlog.programs.perform import perform
from everlog.programs.workpackages.commands import Create, Move

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MONDAY = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)


SETUP = By(actor="user:ada", at=MONDAY)


def at(hours: float, actor: str = "user:ada") -> By:
    return By(actor=actor, at=MONDAY + timedelta(hours=hours))


def moved(log: Log, package: str, lane: str, hours: float, actor: str = "user:ada", reason: str = "") -> None:
    perform(log, Move(scope="acme/shop", id=package, to=lane, reason=reason), at(hours, actor))


@pytest.fixture(scope="module")
def answered(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two packages done, one sent back on its way, one in progress; a conflict; three deploys; a refusal."""
    place = tmp_path_factory.mktemp("questions")
    world = World(spark, place, Catalog())
    log = world.log
    for number, hours in ((1, 0), (2, 1), (3, 2)):
        perform(log, Create(scope="acme/shop", id=f"WP{number}", title=f"Part {number}"), at(hours))
    moved(log, "WP1", "doing", 10)
    moved(log, "WP1", "for_review", 14)
    moved(log, "WP1", "doing", 15, reason="a case is missing")
    moved(log, "WP1", "for_review", 16)
    moved(log, "WP1", "done", 24)
    moved(log, "WP2", "doing", 25)
    moved(log, "WP2", "for_review", 30)
    moved(log, "WP2", "done", 49)
    with pytest.raises(EverlogError):
        moved(log, "WP3", "done", 50, actor="agent:builder")
    # A clone that saw WP3 as planned, and moved it while the log here did too.
    with everlog.open(f"sqlite:{place / 'clone.db'}", actor="user:bob") as clone:
        clone.admit([recorded.event for recorded in log.read(Query(stream="workpackage/WP3"))])
        moved(log, "WP3", "doing", 50)
        moved(clone, "WP3", "doing", 51, actor="user:bob")
        log.admit([recorded.event for recorded in clone.read() if recorded.event.actor == "user:bob"])
    perform(log, CreateOrg(org="acme"), SETUP)
    perform(log, CreateApp(app="acme/shop"), SETUP)
    perform(log, CreateEnvironment(environment="acme/shop/prod"), SETUP)
    for name, hours, end in (("d1", 1, "ok"), ("d2", 2, "bad"), ("d3", 3, "")):
        by = By(actor="service:deployer", at=MONDAY + timedelta(hours=hours))
        later = By(actor="service:deployer", at=MONDAY + timedelta(hours=hours, minutes=30))
        perform(log, RequestDeploy(environment="acme/shop/prod", artifact="registry/shop:1.0", id=name), by)
        perform(log, StartDeploy(deploy=name), by)
        if end == "ok":
            perform(log, SucceedDeploy(deploy=name, seconds=1800.0), later)
        elif end:
            perform(log, FailDeploy(deploy=name, error="it did not start"), later)
    log.view("streams").catch_up()
    ran(world)
    return world


def ran(world: World) -> None:
    world.run(gold=gold_of(world.lake, [], world.log.catalog, more=answers_of(world.log, world.lake)))


def rows(world: World, name: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in world.lake.read(world.spark, f"{ANSWERS}/{name}").collect()]


def test_flow_has_lead_cycle_and_lane_times_of_every_work_package(answered: World) -> None:
    one, two, three = rows(answered, "flow")
    assert (one["work_package"], one["lane"], one["lead_hours"], one["cycle_hours"]) == ("WP1", "done", 24.0, 14.0)
    assert (one["planned_hours"], one["doing_hours"], one["for_review_hours"]) == (10.0, 5.0, 9.0)
    assert (one["sent_back"], two["sent_back"]) == (1, 0)
    assert (two["lead_hours"], two["cycle_hours"]) == (48.0, 24.0)
    assert (three["lane"], three["done_at"], three["lead_hours"]) == ("doing", None, None)


def test_flow_by_day_counts_every_day_and_what_is_in_progress(answered: World) -> None:
    days = [
        (row["day"], row["planned"], row["begun"], row["done"], row["in_progress"])
        for row in rows(answered, "flow_daily")
    ]
    assert days == [
        (date(2026, 11, 2), 3, 1, 0, 1),
        (date(2026, 11, 3), 0, 1, 1, 1),
        (date(2026, 11, 4), 0, 1, 1, 1),
    ]


def test_flow_by_week_has_percentiles(answered: World) -> None:
    (week,) = rows(answered, "flow_weekly")
    assert (week["week"], week["done"], week["lead_p50"], week["cycle_p50"]) == (date(2026, 11, 2), 2, 36.0, 19.0)


def test_a_conflict_names_who_won_and_who_lost(answered: World) -> None:
    (found,) = rows(answered, "conflicts")
    assert found["work_package"] == "WP3"
    assert {found["won_by"], found["lost_by"]} == {"user:ada", "user:bob"}
    last = max(answered.log.read(Query(stream="workpackage/WP3")), key=lambda r: (r.event.lamport, r.event.id))
    assert (found["won_id"], found["won_by"]) == (last.event.id, last.event.actor)


def test_deploys_have_an_outcome_and_how_long_it_took(answered: World) -> None:
    found = {row["deploy"]: (row["outcome"], row["minutes"]) for row in rows(answered, "deploys")}
    assert found == {"d1": ("succeeded", 30.0), "d2": ("failed", 30.0), "d3": ("started", None)}


def test_activity_and_growth_count_every_event_once(answered: World) -> None:
    events = sum(1 for _ in answered.log.read())
    assert sum(row["events"] for row in rows(answered, "activity")) == events
    assert sum(row["events"] for row in rows(answered, "growth")) == events


def test_refusals_and_views_are_asked_of_the_log(answered: World) -> None:
    (refusal,) = rows(answered, "refusals")
    assert (refusal["actor"], refusal["code"], refusal["operation"]) == (
        "agent:builder",
        "transition_refused",
        "wp move",
    )
    assert {(row["view"], row["lag"], row["gap"]) for row in rows(answered, "views")} >= {("streams", 0, 0)}


def test_an_answer_is_computed_again_only_when_the_log_has_grown(answered: World) -> None:
    before = answered.files()
    ran(answered)
    assert answered.files() == before


def test_the_report_has_a_section_for_everything_that_happened(answered: World) -> None:
    page = report(answered.lake, now=MONDAY + timedelta(days=3))
    assert page.count("<h2>") == 8
    for title in ("Work packages day by day", "How long it takes", "Conflicts", "Deploys", "What was refused"):
        assert title in page


def test_a_log_without_programs_gets_a_report_of_what_it_has(
    world: World, spark: SparkSession, tmp_path: Path
) -> None:
    world.log.append("note.added", stream="note/1", payload={"text": "hello"})
    ran(world)
    page = report(world.lake)
    assert "Who did what" in page
    assert "Work packages" not in page


def test_after_a_purge_no_answer_shows_what_is_gone(world: World) -> None:
    world.log.append("note.added", stream="note/1", payload={"text": "stays"}, actor="user:ada")
    world.log.append("note.added", stream="note/2", payload={"text": "goes"}, actor="user:sentinel-of-the-purged")
    ran(world)
    world.log.purge("note/2", reason="a test")
    ran(world)
    assert [row["actor"] for row in rows(world, "activity")] == ["user:ada"]
    held = [path for path in (world.lake.path / ANSWERS).rglob("*") if path.is_file()]
    assert [path for path in held if b"sentinel-of-the-purged" in path.read_bytes()] == []
