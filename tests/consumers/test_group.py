"""What a group of consumers promises, one sentence at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.consumers.world import World, fill, take_one

import everlog
from everlog.consumers import Delivery, Group
from everlog.core.query import Query, Reset
from everlog.errors import GroupDiffers, InvalidField, LeaseLost, LogClosed, NotFound
from everlog.log.log import Log

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


# ---- settings


def test_a_group_that_is_defined_in_another_way_is_refused(memory_log: Log) -> None:
    with Group(memory_log, "mailer", partitions=4).member("a") as member:
        member.take()
    with pytest.raises(GroupDiffers, match="another partitions"):
        Group(memory_log, "mailer", partitions=8).member("b")
    with pytest.raises(GroupDiffers, match="another key and query"):
        Group(memory_log, "mailer", Query(kind="note"), key="actor", partitions=4).member("b")


@pytest.mark.parametrize(
    "wrong",
    [
        {"partitions": 0},
        {"partitions": 5000},
        {"lease_s": 0},
        {"prefetch": 0},
        {"attempts_max": 0},
        {"on_poison": "ignore"},
        {"name": "a/b"},
    ],
)
def test_settings_that_cannot_be_are_refused(memory_log: Log, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidField):
        Group(memory_log, **{"name": "mailer", **wrong})


# ---- cursors


def test_a_partition_without_a_matching_event_moves_its_cursor_too() -> None:
    world = World()
    world.join("a", 1)
    world.append_other()
    world.append_other()
    world.take("a")
    world.pass_time(6)
    world.take("a")
    assert [(lag.cursor, lag.positions) for lag in world.group.lag()] == [(2, 0)]


def test_a_window_is_bounded_however_many_events_wait(memory_log: Log) -> None:
    fill(memory_log, 500, keys=40)
    group = Group(memory_log, "mailer", partitions=4, prefetch=10)
    with group.member("a", in_flight=100) as member:
        held = [delivery for delivery in (member.take() for _ in range(100)) if delivery is not None]
        assert len(held) <= 40
        assert all(len(window._entries) <= 10 for window in member._windows.values())
        assert len({delivery.key for delivery in held}) == len(held)


def test_one_slow_key_neither_stops_the_others_nor_is_passed() -> None:
    world = World(partitions=1, prefetch=100)
    for key in (1, 2, 2, 3, 1, 2):
        world.append(key)
    world.join("a", 3)
    world.take("a")
    slow = world.out["a"].pop()
    assert slow.position == 1
    for _ in range(8):
        world.take("a")
        world.settle_one("a", 0)
        world.check()
    assert world.acked == {2, 3, 4, 6}
    assert world.group.lag()[0].cursor == 0
    world.settle(slow)
    world.take("a")
    world.settle_one("a", 0)
    assert world.acked == {1, 2, 3, 4, 5, 6}


def test_acknowledgements_can_share_a_write_and_a_crash_repeats_them() -> None:
    world = World(partitions=1, prefetch=100)
    for _ in range(5):
        world.append(1)
    member = world.group.member("a", ack_batch=3, heartbeat=False, ticks=lambda: world.us / 1e6)
    for _ in range(5):
        take_one(member).ack()
    assert [lag.events for lag in world.group.lag()] == [2]
    assert member.take() is None  # nothing more to do: what is finished is stored
    assert [lag.events for lag in world.group.lag()] == [0]


# ---- history changed


def test_a_purge_reaches_every_member_once_and_skips_nothing() -> None:
    world = World(partitions=2)
    for key in (1, 2, 1, 3):
        world.append(key)
    world.join("a", 1)
    world.take("a")
    world.settle_one("a", 0)
    world.purge(1)
    world.purge(2) if 2 not in world.effects else None
    world.finish()
    assert world.resets >= 1


def test_another_copy_of_the_log_is_handled_from_its_beginning(tmp_path: Path) -> None:
    with everlog.open(f"jsonl:{tmp_path}/log") as log:
        fill(log, 4)
        group = Group(log, "mailer", partitions=2)
        told: list[Reset] = []

        class Handler:
            def __init__(self) -> None:
                self.seen: list[int] = []

            def __call__(self, recorded: everlog.Recorded) -> None:
                self.seen.append(recorded.position)

            def on_reset(self, reset: Reset) -> None:
                told.append(reset)

        handler = Handler()
        with group.member("a") as member:
            member.run(handler, to_end=True)
        store: Any = log.store
        store.rebuild_index()  # positions follow the lines from now on: another epoch
        with group.member("a") as member:
            member.run(handler, to_end=True)
    assert sorted(handler.seen) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert [reset.reason for reset in told] == ["restored"]


def test_a_consumer_may_say_where_to_go_on_after_a_reset() -> None:
    world = World(partitions=1)
    for key in (1, 2, 3, 2):
        world.append(key)
    member = world.group.member("a", heartbeat=False, ticks=lambda: world.us / 1e6, on_reset=lambda reset: 3)
    take_one(member).ack()
    world.purge(1)
    assert take_one(member).position == 4


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
    assert dict(memory_log.store.notes("consumers/")) == {}
    with pytest.raises(NotFound):
        Group.stored(memory_log, "mailer")


def test_a_new_group_may_begin_at_the_head(memory_log: Log) -> None:
    fill(memory_log, 3)
    with Group(memory_log, "mailer", partitions=2, start="head").member("a") as member:
        assert member.take() is None
        fill(memory_log, 1)
        assert take_one(member).position == 4


# ---- threads


def test_threads_of_one_member_share_it(memory_log: Log) -> None:
    fill(memory_log, 120, keys=12)
    group = Group(memory_log, "mailer", partitions=4)
    lock = threading.Lock()
    seen: list[tuple[str, int]] = []
    busy: set[str] = set()
    errors: list[BaseException] = []

    def work(take: Callable[[], Delivery | None]) -> None:
        try:
            while len(seen) < 120:
                delivery = take()
                if delivery is None:
                    time.sleep(0.001)
                    continue
                with lock:
                    assert delivery.key not in busy
                    busy.add(delivery.key)
                time.sleep(0.0005)
                with lock:
                    busy.discard(delivery.key)
                    seen.append((delivery.key, delivery.position))
                delivery.ack()
        except BaseException as error:
            errors.append(error)

    with group.member("a", in_flight=4) as member:
        threads = [threading.Thread(target=work, args=(member.take,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert errors == []
    assert sorted(position for _, position in seen) == list(range(1, 121))
    for key in {key for key, _ in seen}:
        own = [position for other, position in seen if other == key]
        assert own == sorted(own)


def test_closing_the_log_lets_its_consumers_go() -> None:
    log = everlog.open("memory:")
    member = Group(log, "mailer", partitions=2).member("a")
    ended = threading.Event()

    def follow() -> None:
        for delivery in member:
            delivery.ack()
        ended.set()

    thread = threading.Thread(target=follow)
    thread.start()
    time.sleep(0.1)
    log.close()
    assert ended.wait(5)
    thread.join(5)


def test_closing_the_log_does_not_pass_for_its_end() -> None:
    log = everlog.open("memory:")
    for number in range(3):
        log.append("note.added", stream=f"note/{number}", payload={"text": "x"})
    deliveries = Group(log, "mailer").member("a").deliveries(to_end=True)
    next(deliveries).ack()
    log.close()
    with pytest.raises(LogClosed):
        list(deliveries)
