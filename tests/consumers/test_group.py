"""What a group of consumers promises, one sentence at a time."""

from __future__ import annotations

import time

import pytest
from tests.consumers.world import World, fill, take_one

from everlog.consumers import Group
from everlog.core.query import Query
from everlog.errors import GroupDiffers, InvalidField, LeaseLost, NotFound
from everlog.log.log import Log
from everlog.stores.small_state import read_notes

# ---- on every store


def test_every_event_is_handled_once_when_nothing_fails(any_log: Log) -> None:
    fill(any_log, 30)
    group = Group(any_log, "mailer", partitions=4)
    seen: list[int] = []
    with group.member("a") as first, group.member("b") as second:
        first.run(lambda recorded: seen.append(recorded.position), to_end=True)
        second.run(lambda recorded: seen.append(recorded.position), to_end=True)
        time.sleep(0.6)  # until the first one looks at its group again, and gives back what is too much
        fill(any_log, 20)
        for _ in range(3):
            first.run(lambda recorded: seen.append(recorded.position), to_end=True)
            second.run(lambda recorded: seen.append(recorded.position), to_end=True)
        assert (len(first.partitions), len(second.partitions)) == (2, 2)
    assert sorted(seen) == list(range(1, 51))
    assert [(lag.member, lag.events, lag.positions) for lag in group.lag()] == [("", 0, 0)]


def test_a_group_goes_on_where_it_was(any_log: Log) -> None:
    fill(any_log, 6)
    group = Group(any_log, "mailer", partitions=2)
    with group.member("a") as member:
        take_one(member).ack()
    seen: list[int] = []
    with Group(any_log, "mailer", partitions=2).member("b") as member:
        member.run(lambda recorded: seen.append(recorded.position), to_end=True)
    assert len(seen) == 5


# ---- one definition


def test_a_group_that_is_defined_in_another_way_is_refused(memory_log: Log) -> None:
    with Group(memory_log, "mailer", partitions=4).member("a") as member:
        member.take()
    with pytest.raises(GroupDiffers, match="different partitions"):
        Group(memory_log, "mailer", partitions=8).member("b")
    with pytest.raises(GroupDiffers, match="different key and query"):
        Group(memory_log, "mailer", Query(kind="note"), key="actor", partitions=4).member("b")


def test_a_reset_by_hand_fences_off_what_is_in_flight() -> None:
    world = World(partitions=1)
    for _ in range(3):
        world.append(1)
    world.join("a", 1)
    world.take("a")
    world.settle_one("a", 0)
    world.take("a")
    (held,) = world.out["a"]
    world.group.reset()
    with pytest.raises(LeaseLost):
        held.ack()
    assert take_one(world.members["a"]).position == 1
    with pytest.raises(InvalidField, match="position"):
        world.group.reset(99)


def test_a_forgotten_group_is_gone(memory_log: Log) -> None:
    fill(memory_log, 1)
    group = Group(memory_log, "mailer", partitions=2)
    with group.member("a") as member:
        take_one(member).nack("no")
    group.forget()
    assert dict(read_notes(memory_log._store.small_state, "consumers/")) == {}
    with pytest.raises(NotFound):
        Group.stored(memory_log, "mailer")


def test_a_new_group_may_begin_at_the_head(memory_log: Log) -> None:
    fill(memory_log, 3)
    with Group(memory_log, "mailer", partitions=2, start="head").member("a") as member:
        assert member.take() is None
        fill(memory_log, 1)
        assert take_one(member).position == 4
