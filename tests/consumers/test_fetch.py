"""What a member does when history changed under its cursors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.consumers.world import World, fill, take_one

import everlog
from everlog.consumers import Group
from everlog.core.query import Reset


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
        store: Any = log._store
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
