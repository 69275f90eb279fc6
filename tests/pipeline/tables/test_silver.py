"""Typed tables: what is set aside, what is typed again, and what a failure leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.pipeline.shop import SHOP, Moved, asking, name_the_lane
from tests.pipeline.world import World

from everlog.catalog.catalog import Catalog
from everlog.errors import NewerFormat, StorageFull
from everlog.pipeline.tables.typed import typing_task


class OldMoved(msgspec.Struct):
    lane: str


def not_for_poison(old: dict[str, Any]) -> dict[str, Any]:
    if old["lane"] == "poison":
        raise ValueError("this is poison")
    return name_the_lane(old)


def test_what_cannot_be_typed_is_set_aside_with_position_and_reason(world: World, make_world: Any) -> None:
    extra = Catalog()
    extra.include(SHOP)
    extra.event("order.lost")(Moved)
    world.reopen(extra)
    world.say("one")
    world.log.append("order.lost", stream="order/1", payload={"went_to": "nowhere"})
    world.reopen(asking())

    assert world.run().set_aside == 1
    (row,) = world.rows("quarantine")
    assert (row["position"], row["type"], row["code"]) == (2, "order.lost", "unknown_type")
    assert world.same_as_the_log(), "it is an event all the same"

    # The catalog comes to know the type: it gets another chance.
    world.reopen(extra)
    assert world.run().types_rebuilt == ("order.lost",)
    assert world.rows("quarantine") == []
    assert [row["went_to"] for row in world.rows("silver/order.lost")] == ["nowhere"]


def test_a_type_of_a_new_version_is_typed_again(make_world: Callable[..., World]) -> None:
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


def test_typing_that_fails_leaves_no_files(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.say("one")
    world.run()
    world.say("two")
    real = typing_task

    def failing(*args: Any) -> Any:
        task = real(*args)

        def run(batches: Any) -> Any:
            yield from task(batches)
            raise OSError(28, "No space left on device")

        return run

    with monkeypatch.context() as patch:
        patch.setattr("everlog.pipeline.engines.spark.typing_task", failing)
        with pytest.raises(StorageFull, match="while typing the events"):
            world.run()
    assert world.lake.silver("note.added").unnamed() == []
    assert world.texts() == ["one"]
    world.run()
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
