"""A lake kept fresh from a live log: each event once, through restarts, purges and compactions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.pipeline.lake.test_erase import SENTINEL, STREAM, secret_in
from tests.pipeline.world import World

from everlog.core.query import Cursor
from everlog.errors import Busy, EverlogError, InvalidSettings
from everlog.pipeline.lake.table import Table
from everlog.pipeline.stream_run import CHECKPOINT, Commit, Followed, Follower

PATIENCE_S = 120.0


class Running:
    """A follower in a thread, as a command would run it in its main one."""

    def __init__(self, world: World, **options: Any) -> None:
        self.commits: list[Commit] = []
        self.refreshed: list[Cursor] = []
        self.done: Followed | None = None
        self.error: BaseException | None = None
        self.stop = threading.Event()
        self.follower = Follower(
            world.spark,
            world.log,
            world.url,
            world.lake,
            committed=self.commits.append,
            refreshed=self.refreshed.append,
            **{"refresh_s": 0.5, **options},
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.done = self.follower.run(self.stop)
        except BaseException as error:
            self.error = error

    def until(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not true():
            if self.error is not None:
                raise self.error
            assert time.monotonic() < deadline, "it takes too long"
            time.sleep(0.05)

    def end(self) -> Followed:
        self.stop.set()
        self._thread.join(PATIENCE_S)
        if self.error is not None:
            raise self.error
        assert self.done is not None
        return self.done


@contextmanager
def following(world: World, **options: Any) -> Iterator[Running]:
    running = Running(world, **options)
    try:
        yield running
    finally:
        running.stop.set()
        running._thread.join(PATIENCE_S)


def committed(world: World) -> int:
    held = world.lake.events.cursor(world.log.identity.epoch)
    return 0 if held is None else held.position


def test_what_is_appended_is_in_the_lake_a_moment_later(world: World) -> None:
    world.say("before")
    with following(world) as running:
        running.until(lambda: committed(world) == 1)
        for number in range(3):
            world.say(f"live {number}")
            running.until(lambda: committed(world) == world.log.head())
        running.until(lambda: bool(running.refreshed) and running.refreshed[-1].position == 4)
        assert world.texts() == ["before", "live 0", "live 1", "live 2"], "typed while it runs"
        done = running.end()

    assert (done.events, done.position) == (4, 4)
    assert done.commits == len(running.commits) >= 1
    assert all(commit.lag_s > 0 for commit in running.commits)
    assert world.same_as_the_log()


def test_a_restart_goes_on_and_takes_nothing_twice(world: World) -> None:
    for number in range(2):
        world.say(f"while it was down {number}")
        with following(world) as running:
            running.until(lambda: committed(world) == world.log.head())
            world.say(f"while it was up {number}")
            running.until(lambda: committed(world) == world.log.head())
            running.end()
        assert world.same_as_the_log()
    world.run()
    assert world.same_as_the_log()
    assert len(world.texts()) == 4


def test_a_lost_checkpoint_costs_nothing(world: World) -> None:
    from everlog.files import DiskFiles
    from everlog.pipeline.lake.folders import remove_tree

    world.say("one")
    with following(world) as running:
        world.say("two")
        running.until(lambda: committed(world) == 2)
        running.end()
    remove_tree(DiskFiles(), world.lake.path / CHECKPOINT)
    world.say("three")
    with following(world) as running:
        world.say("four")
        running.until(lambda: committed(world) == 4)
        running.end()
    assert world.same_as_the_log()


def test_a_purge_while_it_runs_reaches_the_lake(world: World) -> None:
    world.say("public")
    world.say(SENTINEL, stream=STREAM)
    with following(world) as running:
        running.until(lambda: committed(world) == 2)
        world.log.purge(STREAM, reason="erasure request 17")
        running.until(lambda: world.lake.published().scrubbed > 0)
        assert secret_in(world.lake.path) == []
        world.say("after")
        running.until(lambda: committed(world) == world.log.head())
        done = running.end()

    assert done.resets == 1
    assert world.texts() == ["public", "after"]
    assert world.same_as_the_log()


def test_small_files_are_united_while_it_runs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everlog.pipeline.stream_run.SMALL_FILES_MAX", 3)
    world.say("zero")
    with following(world) as running:
        running.until(lambda: committed(world) == 1)
        for number in range(6):
            world.say(f"live {number}")
            running.until(lambda: committed(world) == world.log.head())
        running.end()
    assert len(world.lake.events.files()) <= 4
    assert world.same_as_the_log()


def test_late_events_of_another_node_come_in_as_they_arrive(world: World) -> None:
    from everlog.testing.builders import Chain

    peer = Chain()
    old = [peer.next(stream="note/far", payload={"text": f"old {number}", "topic": ""}).event for number in range(3)]
    world.say("ours")
    with following(world) as running:
        running.until(lambda: committed(world) == 1)
        world.log.admit(old[:2])
        world.say("ours again")
        world.log.admit(old[2:])
        running.until(lambda: committed(world) == 5)
        running.end()
    assert world.same_as_the_log()
    rows = {row["position"]: row for row in world.rows("events")}
    assert [rows[position]["lamport"] for position in (2, 3, 5)] == [1, 2, 3]


def test_a_failing_sink_is_raised_unchanged(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.say("one")
    with following(world) as running:
        running.until(lambda: committed(world) == 1)

        def full(self: Table, *args: Any, **options: Any) -> None:
            from everlog.errors import StorageFull

            raise StorageFull("the disk is full", why="it has no room", hint="free some")

        with monkeypatch.context() as patch:
            patch.setattr(Table, "commit", full)
            world.say("two")
            deadline = time.monotonic() + PATIENCE_S
            while running.error is None and time.monotonic() < deadline:
                time.sleep(0.05)
    assert isinstance(running.error, EverlogError)
    assert running.error.code == "storage_full"
    assert committed(world) == 1
    world.run()
    assert world.same_as_the_log()


def test_no_other_pipeline_writes_while_it_runs(world: World) -> None:
    world.say("one")
    with following(world) as running:
        running.until(lambda: committed(world) == 1)
        with pytest.raises(Busy):
            world.run()


def test_it_does_not_run_over_connect(world: World) -> None:
    class Connected:
        pass

    with pytest.raises(InvalidSettings, match="Spark Connect"):
        Follower(Connected(), world.log, world.url, world.lake)  # type: ignore[arg-type]
