"""A run takes each event once, types it, and counts all at once; a rerun changes nothing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.shop import SHOP
from tests.pipeline.world import World

import everlog
from everlog import Draft
from everlog.errors import Busy, Damaged, NotFound, StorageFull
from everlog.pipeline.lake.lake import Lake
from everlog.pipeline.tables import bronze

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
    from everlog.pipeline.lake.table import Table

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


# ---- restores


def test_a_restored_log_replaces_what_was_there(make_world: Callable[..., World], tmp_path: Path) -> None:
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


def test_a_second_pipeline_is_refused_and_the_writer_named(world: World) -> None:
    with world.lake.writing(), pytest.raises(Busy):
        world.run()


def test_a_damaged_table_stays_until_it_is_rebuilt(world: World) -> None:
    world.say("one")
    world.run()
    path = world.lake.events.paths()[0]
    path.write_bytes(b"PAR1" + bytes(path.stat().st_size - 8) + b"PAR1")
    world.say("two")

    with pytest.raises(Damaged, match="not those that were committed") as unreadable:
        world.run(rebuild=["silver/note.added"])
    assert unreadable.value.hint == "everlog pipeline verify --heal"
    path.unlink()
    with pytest.raises(Damaged, match="is missing") as raised:
        world.run()
    assert raised.value.hint == "everlog pipeline verify --heal"
    assert world.run(rebuild=["events"]).events == 2
    assert world.same_as_the_log()
    assert world.texts() == ["one", "two"]


def test_a_full_disk_leaves_the_last_good_version_of_every_table(world: World, small_disk: Path) -> None:
    world.lake = Lake.open(small_disk / "lake", log_id=world.log.identity.log_id, create=True)
    world.say("one")
    world.run()
    world.log.append_batch(
        [Draft("note.added", f"note/{number}", {"text": os.urandom(500).hex()}) for number in range(3_000)]
    )

    with pytest.raises(StorageFull) as raised:
        world.run()
    assert raised.value.hint
    assert world.texts() == ["one"]
    assert world.lake.events.unnamed() == [], "what was half written is gone"
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    assert world.run().events == 3_000
    assert world.same_as_the_log()


def test_a_table_that_is_not_there_cannot_be_rebuilt(world: World) -> None:
    with pytest.raises(NotFound, match="no table gold/none"):
        world.run(rebuild=["gold/none"])
