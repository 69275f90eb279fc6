"""A member: its windows are bounded, threads share it, and closing the log ends it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from tests.consumers.world import World, fill, take_one

import everlog
from everlog.consumers import Delivery, Group
from everlog.errors import LogClosed
from everlog.log.log import Log


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
