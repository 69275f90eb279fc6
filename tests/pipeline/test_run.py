"""A run takes each event once, types it, and counts all at once; a rerun changes nothing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.pipeline.shop import SHOP, Moved, name_the_lane
from tests.pipeline.world import World

import everlog
from everlog import Draft
from everlog.catalog.catalog import Catalog
from everlog.errors import Busy, Damaged, NewerFormat, NotFound, StorageFull
from everlog.pipeline import bronze, silver
from everlog.pipeline.lake import Lake

# ---- the whole way


def test_what_is_in_the_log_is_in_the_lake_once_and_typed(world: World) -> None:
    world.say("one", "two")
    world.log.append("deploy.done", stream="deploy/1", payload={"outcome": "ok", "minutes": 3}, scope="acme/shop")

    first = world.run()
    assert (first.events, first.typed, first.set_aside) == (3, 3, 0)
    assert world.same_as_the_log()
    assert world.texts() == ["one", "two"]
    (deploy,) = world.rows("silver/deploy.done")
    assert (deploy["outcome"], deploy["minutes"], deploy["scope"], deploy["position"]) == ("ok", 3, "acme/shop", 3)

    world.say("three")
    second = world.run()
    assert (second.events, second.typed) == (1, 1)
    assert world.same_as_the_log()
    assert world.texts() == ["one", "two", "three"]


def test_a_rerun_changes_nothing(world: World) -> None:
    world.say("one", "two")
    world.run()
    before = world.files()

    again = world.run()
    assert (again.events, again.typed, again.changed) == (0, 0, False)
    assert world.files() == before


def test_an_empty_log_makes_an_empty_lake(world: World) -> None:
    assert world.run().events == 0
    assert world.rows("events") == []
    assert world.run().changed is False


def test_a_large_log_is_taken_in_several_commits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.say(*map(str, range(10)))
    real = bronze.ingest
    monkeypatch.setattr(bronze, "ingest", lambda *a, **k: real(*a, **k, batch_events=4))

    assert world.run().events == 10
    assert world.lake.events.version() == 2
    assert world.same_as_the_log()


def test_what_cannot_be_typed_is_set_aside_with_position_and_reason(world: World, make_world: Any) -> None:
    extra = Catalog()
    extra.include(SHOP)
    extra.event("order.lost")(Moved)
    world.reopen(extra)
    world.say("one")
    world.log.append("order.lost", stream="order/1", payload={"went_to": "nowhere"})
    world.reopen(SHOP)

    assert world.run().set_aside == 1
    (row,) = world.rows("quarantine")
    assert (row["position"], row["type"], row["code"]) == (2, "order.lost", "unknown_type")
    assert world.same_as_the_log(), "it is an event all the same"

    # The catalog comes to know the type: it gets another chance.
    world.reopen(extra)
    assert world.run().types_rebuilt == ("order.lost",)
    assert world.rows("quarantine") == []
    assert [row["went_to"] for row in world.rows("silver/order.lost")] == ["nowhere"]


def test_a_type_of_a_new_version_is_typed_anew(make_world: Callable[..., World]) -> None:
    old = Catalog()
    old.event("parcel.moved", version=1)(OldMoved)
    world = make_world(old)
    world.log.append("parcel.moved", stream="parcel/1", payload={"lane": "doing"})
    world.run()
    assert [row["lane"] for row in world.rows("silver/parcel.moved")] == ["doing"]

    world.reopen(SHOP)
    world.log.append("parcel.moved", stream="parcel/1", payload={"went_to": "done"})
    assert world.run().types_rebuilt == ("parcel.moved",)
    assert [(row["version"], row["went_to"]) for row in world.rows("silver/parcel.moved")] == [
        (1, "doing"),
        (2, "done"),
    ]
    assert world.run().changed is False


def test_a_poisoned_upcaster_costs_its_events_and_no_others(make_world: Callable[..., World]) -> None:
    old = Catalog()
    old.event("parcel.moved", version=1)(OldMoved)
    world = make_world(old)
    for lane in ("doing", "poison"):
        world.log.append("parcel.moved", stream="parcel/1", payload={"lane": lane})
    poisoned = Catalog()
    poisoned.event("parcel.moved", version=2)(Moved)
    poisoned.upcaster("parcel.moved", from_version=1)(not_for_poison)
    world.reopen(poisoned)

    outcome = world.run()
    assert (outcome.typed, outcome.set_aside) == (1, 1)
    (row,) = world.rows("quarantine")
    assert (row["position"], row["code"]) == (2, "schema_broken")
    assert "poison" in row["reason"]


class OldMoved(msgspec.Struct):
    lane: str


def not_for_poison(old: dict[str, Any]) -> dict[str, Any]:
    if old["lane"] == "poison":
        raise ValueError("this is poison")
    return name_the_lane(old)


# ---- crashes


class Killed(Exception):
    pass


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "commits", [0, pytest.param(1, marks=SLOW), 2, pytest.param(3, marks=SLOW), pytest.param(4, marks=SLOW), 5, 6]
)
def test_a_run_that_ends_at_any_commit_is_finished_by_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    world.say("one")
    world.log.append("deploy.done", stream="deploy/1", payload={"outcome": "ok"})
    if commits >= 4:
        world.run()
        world.say("two")
        world.log.append("deploy.done", stream="deploy/1", payload={"outcome": "failed"})
    left = commits % 4
    from everlog.pipeline.table import Table

    real = Table.commit

    def commit(self: Table, *args: Any, **options: Any) -> None:
        nonlocal left
        if left == 0:
            raise Killed
        left -= 1
        real(self, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Table, "commit", commit)
        with pytest.raises(Killed):
            world.run()
    if commits < 4:
        with pytest.raises(NotFound):
            world.rows("events")
    else:
        assert len(world.rows("events")) == 2, "readers still see the run before"
    world.say("last")

    world.run()
    assert world.same_as_the_log()
    typed = len(world.rows("silver/note.added")) + len(world.rows("silver/deploy.done"))
    assert typed == world.log.head()
    assert [row["position"] for row in world.rows("silver/note.added")] == [
        recorded.position for recorded in world.log.read() if recorded.event.type == "note.added"
    ]


def test_typing_that_fails_leaves_no_files(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.say("one")
    world.run()
    world.say("two")
    real = silver.typing_task

    def failing(*args: Any) -> Any:
        task = real(*args)

        def run(batches: Any) -> Any:
            yield from task(batches)
            raise OSError(28, "No space left on device")

        return run

    with monkeypatch.context() as patch:
        patch.setattr(silver, "typing_task", failing)
        with pytest.raises(StorageFull, match="while typing the events"):
            world.run()
    assert world.lake.silver("note.added").unnamed() == []
    assert world.texts() == ["one"]
    world.run()
    assert world.texts() == ["one", "two"]


# ---- restores


def test_a_restored_log_takes_the_place_of_what_was_there(make_world: Callable[..., World], tmp_path: Path) -> None:
    world = make_world()
    world.say("one", "two", "three")
    world.log.close()
    copy = (tmp_path / "log.db").read_bytes()
    world.log = everlog.open(world.url, catalog=SHOP)
    world.say("four")
    world.run()
    world.log.close()
    for path in tmp_path.glob("log.db*"):
        if path.is_file():
            path.unlink()
    (tmp_path / "log.db").write_bytes(copy)
    world.log = everlog.open(world.url, catalog=SHOP)

    outcome = world.run()
    assert outcome.restored
    assert world.same_as_the_log()
    assert world.texts() == ["one", "two", "three"]


# ---- bad input


def test_a_second_pipeline_is_told_who_writes(world: World) -> None:
    with world.lake.writing(), pytest.raises(Busy):
        world.run()


def test_a_damaged_table_stands_as_it_is_until_it_is_made_anew(world: World) -> None:
    world.say("one")
    world.run()
    path = world.lake.events.paths()[0]
    path.write_bytes(b"PAR1" + bytes(path.stat().st_size - 8) + b"PAR1")
    world.say("two")

    with pytest.raises(Damaged, match="cannot be read") as unreadable:
        world.run(rebuild=["silver/note.added"])
    assert unreadable.value.hint == "everlog pipeline run --rebuild events"
    path.unlink()
    with pytest.raises(Damaged, match="is not there") as told:
        world.run()
    assert told.value.hint == "everlog pipeline run --rebuild events"
    assert world.run(rebuild=["events"]).events == 2
    assert world.same_as_the_log()
    assert world.texts() == ["one", "two"]


def test_a_table_of_a_newer_program_is_not_written_over(make_world: Callable[..., World]) -> None:
    world = make_world(SHOP)
    world.log.append("parcel.moved", stream="parcel/1", payload={"went_to": "done"})
    world.run()
    old = Catalog()
    old.event("parcel.moved", version=1)(OldMoved)
    world.reopen(old)
    before = world.lake.silver("parcel.moved").version()

    with pytest.raises(NewerFormat, match="version 2"):
        world.run()
    assert world.lake.silver("parcel.moved").version() == before


def test_a_full_disk_leaves_the_last_good_version_of_every_table(world: World, small_disk: Path) -> None:
    world.lake = Lake.open(small_disk / "lake", log_id=world.log.identity.log_id, create=True)
    world.say("one")
    world.run()
    world.log.append_batch(
        [Draft("note.added", f"note/{number}", {"text": os.urandom(500).hex()}) for number in range(3_000)]
    )

    with pytest.raises(StorageFull) as told:
        world.run()
    assert told.value.hint
    assert world.texts() == ["one"]
    assert world.lake.events.unnamed() == [], "what was half written is gone"
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    assert world.run().events == 3_000
    assert world.same_as_the_log()


def test_a_table_that_is_not_there_cannot_be_made_anew(world: World) -> None:
    with pytest.raises(NotFound, match="no table gold/none"):
        world.run(rebuild=["gold/none"])
