"""Consumers that end without a word: what they had in hand is counted, so that no event can end them for ever."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.consumers.world import LEASE_S, World

import everlog
from everlog.consumers import Group
from everlog.consumers.group_state import Progress, read_progress
from everlog.consumers.settings import WATCHED_EVENTS
from everlog.consumers.window import Window
from everlog.core.query import Query
from everlog.log.dead_letters import FAILED, WAITING
from everlog.log.log import Log

DEADLY = Path(__file__).with_name("deadly.py")


def progress(world: World, number: int = 0) -> Progress:
    found = read_progress(world.log.writer.small_state, "mailer", number)
    assert found is not None
    return found


def taken_and_killed(world: World, name: str) -> int:
    """A new consumer takes an event and ends with it; at which attempt that was."""
    world.join(name, 1)
    world.take(name)
    attempt = world.out[name][0].attempt
    world.crash(name)
    world.pass_time(LEASE_S + 1)
    return attempt


def test_the_first_end_is_not_counted_and_every_later_one_is() -> None:
    world = World(partitions=1)
    world.append(1)
    world.append(1)
    world.append(2)
    assert [taken_and_killed(world, name) for name in "abc"] == [1, 1, 2]
    world.join("d", 1)
    for _ in range(3):
        world.take("d")
        world.settle_one("d", 0)
    assert world.acked == {3}, "those of its key wait, the others go on"
    failed, waiting = world.group.dead_letters()
    assert (failed.position, failed.what, failed.attempts) == (1, FAILED, 2)
    assert failed.reason == "2 attempts failed, the last of them with the end of its consumer"
    assert (waiting.position, waiting.what) == (2, WAITING)


def test_an_event_that_was_handled_meanwhile_is_no_suspect() -> None:
    """The event that was out is known exactly: its neighbours are not blamed."""
    world = World(partitions=1)
    for _ in range(4):
        world.append(1)
    taken_and_killed(world, "a")
    world.join("b", 1)
    for _ in range(2):
        world.take("b")
        world.settle_one("b", 0)
    assert world.acked == {1, 2}
    world.take("b")
    world.crash("b")
    world.pass_time(LEASE_S + 1)
    world.join("c", 1)
    world.take("c")
    assert [(one.position, one.attempt) for one in world.out["c"]] == [(3, 2)]
    world.settle_one("c", 0)
    world.take("c")
    assert [(one.position, one.attempt) for one in world.out["c"]] == [(4, 1)]


def test_several_in_hand_are_all_counted() -> None:
    world = World(partitions=1)
    for key in (1, 2, 3):
        world.append(key)
    taken_and_killed(world, "a")
    world.join("b", 3)
    for _ in range(2):
        world.take("b")
    assert progress(world).begun == (1, 2)
    world.crash("b")
    world.pass_time(LEASE_S + 1)
    world.join("c", 3)
    for _ in range(3):
        world.take("c")
    assert [(one.position, one.attempt) for one in world.out["c"]] == [(1, 2), (2, 2), (3, 1)]


def test_a_letter_that_ends_its_consumer_is_a_dead_letter_again() -> None:
    world = World(partitions=1)
    world.append(1)
    for name in "abc":
        taken_and_killed(world, name)
    world.join("d", 1)
    world.take("d")
    assert [letter.what for letter in world.group.dead_letters()] == [FAILED]
    world.group.retry(1)
    world.pass_time(1)
    world.take("d")
    assert [one.attempt for one in world.out["d"]] == [1]
    world.crash("d")
    world.pass_time(LEASE_S + 1)
    assert taken_and_killed(world, "e") == 2
    world.join("f", 1)
    world.take("f")
    assert world.out["f"] == []
    (letter,) = world.group.dead_letters()
    assert (letter.what, letter.attempts) == (FAILED, 2)


def test_nobody_is_watched_unless_an_owner_vanished() -> None:
    world = World(partitions=1)
    for _ in range(4):
        world.append(1)
    world.join("a", 1)
    for _ in range(2):
        world.take("a")
        world.settle_one("a", 0)
    world.leave("a")
    world.join("b", 1)
    world.take("b")
    assert (progress(world).watched, progress(world).begun) == (0, ())
    world.crash("b")
    world.pass_time(LEASE_S + 1)
    world.join("c", 1)
    world.take("c")
    assert (progress(world).watched, progress(world).begun) == (WATCHED_EVENTS - 1, (3,))
    world.settle_one("c", 0)
    assert progress(world).begun == ()


def test_a_consumer_that_joins_again_under_its_name_has_vanished_before(memory_log: Log) -> None:
    """A supervisor starts it again at once, long before the lease ends."""
    memory_log.append("note.added", stream="note/1", payload={"text": "x"})
    group = Group(memory_log, "mailer", partitions=1, attempts_max=2, retry_s=0.0)
    attempts = []
    for _ in range(3):
        member = group.member("a", heartbeat=False)
        delivery = member.take()
        assert delivery is not None
        attempts.append(delivery.attempt)
    assert attempts == [1, 1, 2]
    assert group.member("a", heartbeat=False).take() is None
    assert [letter.what for letter in group.dead_letters()] == [FAILED]


def test_without_the_record_it_would_go_on_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Window, "begin", lambda self, entry: False)
    world = World(partitions=1)
    world.append(1)
    assert [taken_and_killed(world, name) for name in "abcdefg"] == [1] * 7


def test_an_event_that_kills_its_process_becomes_a_dead_letter(shared_url: str, tmp_path: Path) -> None:
    with everlog.open(shared_url) as log:
        for text in ("good", "deadly", "behind it"):
            log.append("note.added", stream="note/1", payload={"text": text})
        log.append("note.added", stream="note/2", payload={"text": "of another key"})
    ends: list[int] = []
    while not ends or ends[-1]:
        ends.append(subprocess.run([sys.executable, str(DEADLY), shared_url], check=False, timeout=60).returncode)
        assert len(ends) < 10, "it is tried for ever"
    assert ends == [-signal.SIGKILL] * 3 + [0], "two attempts, and the one that nobody could count"
    with everlog.open(shared_url) as log:
        group = Group(log, "deadly", Query(kind="note"), partitions=2, attempts_max=2)
        assert [(one.position, one.what) for one in group.dead_letters()] == [(2, FAILED), (3, WAITING)]
        assert [lag.events for lag in group.lag()] in ([0], [0, 0])
