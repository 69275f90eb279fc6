"""What a group of consumers promises, one sentence at a time."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.consumers.world import World

import everlog
from everlog.consumers import Delivery, Group
from everlog.consumers.keys import key_of, partition_of
from everlog.core.query import Query, Reset
from everlog.errors import GroupDiffers, InvalidField, LeaseLost, NotFound
from everlog.log.log import Log
from everlog.testing.builders import event


def fill(log: Log, count: int, keys: int = 5) -> None:
    for number in range(count):
        log.append("note.added", stream=f"note/{number % keys}", payload={"text": str(number)})


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
        _take(member).ack()
    seen: list[int] = []
    with Group(any_log, "mailer", partitions=2).member("b") as member:
        member.run(lambda recorded: seen.append(recorded.position), to_end=True)
    assert len(seen) == 5


def _take(member: Any) -> Delivery:
    delivery: Delivery | None = member.take()
    assert delivery is not None
    return delivery


# ---- keys and partitions


def test_a_partition_is_the_same_in_every_run_of_python() -> None:
    program = (
        "from everlog.consumers.keys import partition_of; print([partition_of(f'note/{n}', 16) for n in range(20)])"
    )
    source = str(Path(everlog.__file__).parents[1])
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": source, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {str([partition_of(f"note/{number}", 16) for number in range(20)])}
    # Written down, because cursors that are on a disk somewhere rely on it.
    assert [partition_of(f"note/{number}", 16) for number in range(6)] == [14, 12, 3, 10, 11, 14]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("stream", "note/7"),
        ("kind", "note"),
        ("type", "note.added"),
        ("actor", "user:ada"),
        ("scope", "acme"),
        ("tag:team", "red"),
        ("tag:none", ""),
        ("payload:text", "hello"),
        ("payload:count", "3"),
    ],
)
def test_a_key_is_told_by_its_name(name: str, expected: str) -> None:
    made = event(stream="note/7", scope="acme", tags={"team": "red"}, payload={"text": "hello", "count": 3})
    assert key_of(name)(made) == expected


def test_a_name_that_is_no_key_is_refused() -> None:
    with pytest.raises(InvalidField, match="is not a key"):
        key_of("colour")


def test_an_event_whose_key_cannot_be_told_becomes_a_dead_letter(memory_log: Log) -> None:
    fill(memory_log, 3)

    def key(event: everlog.Event) -> str:
        if event.payload["text"] == "1":
            raise ValueError("no key")
        return event.stream

    group = Group(memory_log, "mailer", key=key, partitions=2)
    seen: list[int] = []
    with group.member("a") as member:
        member.run(lambda recorded: seen.append(recorded.position), to_end=True)
    assert sorted(seen) == [1, 3]
    (letter,) = group.dead_letters()
    assert (letter.position, letter.reason) == (2, "its key cannot be told: ValueError: no key")


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


# ---- leases


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


def test_the_heartbeat_keeps_a_slow_consumer_seated(memory_log: Log) -> None:
    fill(memory_log, 1)
    group = Group(memory_log, "mailer", partitions=1, lease_s=0.3)
    with group.member("slow") as slow, group.member("other") as other:
        delivery = _take(slow)
        time.sleep(0.8)
        assert other.take() is None
        delivery.ack()


def test_a_consumer_that_hangs_loses_its_lease_despite_the_heartbeat(memory_log: Log) -> None:
    fill(memory_log, 1)
    group = Group(memory_log, "mailer", partitions=1, lease_s=0.3)
    with group.member("hangs", handling_s_max=0.2) as hangs, group.member("other") as other:
        delivery = _take(hangs)
        deadline = time.monotonic() + 5
        while (taken := other.take()) is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert taken is not None
        with pytest.raises(LeaseLost):
            delivery.ack()
        taken.ack()


def test_who_joins_under_a_name_takes_its_seat_and_the_first_is_told() -> None:
    world = World(partitions=2)
    world.append(1)
    first = world.group.member("a", heartbeat=False, ticks=lambda: world.us / 1e6)
    held = _take(first)
    second = world.group.member("a", heartbeat=False, ticks=lambda: world.us / 1e6)
    assert _take(second).position == held.position
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


# ---- failures


def test_a_poison_event_holds_its_key_and_nobody_else() -> None:
    world = World(partitions=1, prefetch=2)
    world.append(1, poison=True)
    for key in (2, 1, 3, 1, 2, 2, 2):
        world.append(key)
    world.join("a", 1)
    for _ in range(40):
        world.take("a")
        world.settle_one("a", 0)
        world.pass_time(0.5)
    assert world.acked == {2, 4, 6, 7, 8}
    letters = [(letter.position, letter.what) for letter in world.group.dead_letters()]
    assert letters == [(1, "failed"), (3, "waiting"), (5, "waiting")]
    assert world.group.lag()[0].dead_letters == 3
    world.poison.clear()
    world.group.retry(1, by="user:ada", reason="mended")
    world.pass_time(1)
    for _ in range(6):
        world.take("a")
        world.settle_one("a", 0)
    assert world.acked == set(range(1, 9))
    assert world.group.dead_letters() == []
    decided = world.group.dead_letters(decided=True)
    assert [(letter.what, letter.decided_by) for letter in decided] == [
        ("done", "user:ada"),
        ("done", ""),
        ("done", ""),
    ]


def test_a_skipped_event_stays_on_record_and_its_key_goes_on() -> None:
    world = World(partitions=1)
    world.append(1, poison=True)
    world.append(1)
    world.join("a", 1)
    for _ in range(10):
        world.take("a")
        world.settle_one("a", 0)
        world.pass_time(1)
    world.group.skip(1, by="user:ada", reason="nobody needs it")
    world.given_up.add(1)
    world.pass_time(1)
    world.take("a")
    world.settle_one("a", 0)
    assert world.acked == {2}
    (skipped, done) = world.group.dead_letters(decided=True)
    assert (skipped.what, skipped.decided_by, skipped.decided_because) == ("skipped", "user:ada", "nobody needs it")
    assert done.what == "done"
    with pytest.raises(NotFound, match="no dead letter at position 1"):
        world.group.skip(1, reason="twice")


def test_attempts_wait_longer_each_time() -> None:
    world = World(partitions=1)
    world.group = Group(world.log, "mailer", Query(kind="note"), partitions=1, attempts_max=4, retry_s=1.0)
    world.append(1, poison=True)
    world.join("a", 1)
    tried: list[float] = []
    begun = world.us
    for _ in range(40):
        world.take("a")
        if world.out["a"]:
            tried.append((world.us - begun) / 1e6)
            world.settle_one("a", 0)
        world.pass_time(0.5)
    assert tried == [0.0, 1.0, 3.0, 7.0]


def test_who_asks_for_the_next_without_a_word_about_the_last_has_failed_it(memory_log: Log) -> None:
    fill(memory_log, 1)
    group = Group(memory_log, "mailer", partitions=1, attempts_max=2, retry_s=0.0)
    with group.member("a") as member:
        for _ in member.deliveries(to_end=True):
            pass
    (letter,) = group.dead_letters()
    assert (letter.reason, letter.attempts) == ("it was neither acknowledged nor refused", 2)


def test_an_exception_that_ends_the_consumer_counts_as_an_attempt(memory_log: Log) -> None:
    fill(memory_log, 1)
    group = Group(memory_log, "mailer", partitions=1, attempts_max=2, retry_s=0.0)
    for _ in range(2):
        with pytest.raises(ValueError), group.member("a") as member:
            for _delivery in member:
                raise ValueError("broken")
    (letter,) = group.dead_letters()
    assert (letter.reason, letter.attempts) == ("ValueError: broken", 2)


def test_a_purge_takes_the_dead_letters_of_its_stream_along() -> None:
    world = World(partitions=1)
    world.append(1, poison=True)
    world.join("a", 1)
    for _ in range(6):
        world.take("a")
        world.settle_one("a", 0)
        world.pass_time(1)
    assert len(world.group.dead_letters()) == 1
    world.purge(1)
    assert world.group.dead_letters(decided=True) == []
    assert "poison" not in str(dict(world.log.store.notes("")))


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
        _take(member).ack()
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
    _take(member).ack()
    world.purge(1)
    assert _take(member).position == 4


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
    assert _take(world.members["a"]).position == 1
    with pytest.raises(InvalidField, match="position"):
        world.group.reset(99)


def test_a_forgotten_group_is_gone(memory_log: Log) -> None:
    fill(memory_log, 1)
    group = Group(memory_log, "mailer", partitions=2)
    with group.member("a") as member:
        _take(member).nack("no")
    group.forget()
    assert dict(memory_log.store.notes("consumers/")) == {}
    with pytest.raises(NotFound):
        Group.stored(memory_log, "mailer")


def test_a_new_group_may_begin_at_the_head(memory_log: Log) -> None:
    fill(memory_log, 3)
    with Group(memory_log, "mailer", partitions=2, start="head").member("a") as member:
        assert member.take() is None
        fill(memory_log, 1)
        assert _take(member).position == 4


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
