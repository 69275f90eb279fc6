"""Leases: who has lost one can change nothing any more, and partitions move only when they are finished."""

from __future__ import annotations

import time

import pytest
from tests.consumers.world import World, fill, take_one

from everlog.consumers import Group
from everlog.errors import LeaseLost
from everlog.log.log import Log


def test_a_member_that_lost_its_lease_can_neither_ack_nor_move_the_cursor() -> None:
    world = World(partitions=1)
    world.append(1)
    world.join("a", 1)
    world.take("a")
    (held,) = world.out["a"]
    world.pass_time(11)
    with pytest.raises(LeaseLost):
        held.ack()
    assert [lag.events for lag in world.group.lag()] == [1]
    world.join("b", 1)
    world.take("b")
    (again,) = world.out["b"]
    assert again.position == held.position
    assert again.token > held.token
    with pytest.raises(LeaseLost):
        held.nack("late")
    again.ack()
    assert [lag.events for lag in world.group.lag()] == [0]


def test_a_lease_is_renewed_by_acknowledging() -> None:
    world = World(partitions=1)
    for _ in range(4):
        world.append(1)
    world.join("a", 1)
    for _ in range(4):
        world.take("a")
        world.pass_time(6)
        world.settle_one("a", 0)
    assert len(world.acked) == 4


def test_the_heartbeat_keeps_the_lease_of_a_slow_consumer(memory_log: Log) -> None:
    fill(memory_log, 1)
    group = Group(memory_log, "mailer", partitions=1, lease_s=0.3)
    with group.member("slow") as slow, group.member("other") as other:
        delivery = take_one(slow)
        time.sleep(0.8)
        assert other.take() is None
        delivery.ack()


def test_a_consumer_that_hangs_loses_its_lease_despite_the_heartbeat(memory_log: Log) -> None:
    fill(memory_log, 1)
    group = Group(memory_log, "mailer", partitions=1, lease_s=0.3)
    with group.member("hangs", handling_s_max=0.2) as hangs, group.member("other") as other:
        delivery = take_one(hangs)
        deadline = time.monotonic() + 5
        while (taken := other.take()) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert taken is not None
        with pytest.raises(LeaseLost):
            delivery.ack()
        taken.ack()


def test_a_consumer_that_joins_under_a_name_replaces_the_first_which_gets_an_error() -> None:
    world = World(partitions=2)
    world.append(1)
    first = world.group.member("a", heartbeat=False, ticks=lambda: world.us / 1e6)
    held = take_one(first)
    second = world.group.member("a", heartbeat=False, ticks=lambda: world.us / 1e6)
    assert take_one(second).position == held.position
    with pytest.raises(LeaseLost):
        held.ack()
    with pytest.raises(LeaseLost, match="another consumer joined"):
        first.take()
    with pytest.raises(LeaseLost):
        first.take()  # and it does not come back by itself, or the two would take turns for ever


def test_a_partition_moves_only_when_its_owner_has_finished_what_it_has() -> None:
    world = World(partitions=2)
    for key in range(4):
        world.append(key)
    world.join("a", 4)
    for _ in range(4):
        world.take("a")
    assert {delivery.partition for delivery in world.out["a"]} == {0, 1}
    world.join("b", 1)
    world.take("b")
    world.pass_time(0.6)
    world.take("a")
    world.pass_time(0.6)
    world.take("b")
    assert world.out["b"] == []
    while world.out["a"]:
        world.settle_one("a", 0)
    world.take("a")
    world.pass_time(0.6)
    world.take("b")
    assert (len(world.members["a"].partitions), len(world.members["b"].partitions)) == (1, 1)
    assert len(world.acked) == 4


def test_a_partition_moves_also_from_a_member_that_is_never_idle() -> None:
    world = World(partitions=2, prefetch=50)
    for number in range(200):
        world.append(number % 20)
    world.join("a", 8)
    for _ in range(8):
        world.take("a")
    world.join("b", 1)
    for _ in range(60):
        world.take("b")
        world.take("a")
        world.settle_one("a", 0)  # as soon as one is finished the next one is out
        world.pass_time(0.1)
        if world.members["b"].partitions:
            break
    assert world.members["b"].partitions
    assert len(world.out["a"]) > 1, "it was idle after all"
