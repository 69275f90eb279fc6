"""A run in this process makes the very tables that Spark makes: on any history, at once, in steps, or in turns."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import CATALOG
from tests.pipeline.logs import add
from tests.pipeline.test_random_histories import VIEWS, fill
from tests.pipeline.world import World
from tests.views.conftest import Causal, Said

from everlog import Draft
from everlog.core.event import Event
from everlog.errors import Damaged, StorageFull
from everlog.pipeline import slabs, small_run
from everlog.pipeline.answers import answers_of
from everlog.pipeline.engine import PROCESS
from everlog.pipeline.gold import AS_IT_WAS, CAUGHT_UP, MADE_ANEW, Done, Gold, gold_of
from everlog.pipeline.lake import Lake
from everlog.pipeline.run import Outcome
from everlog.pipeline.run import run as run_on_spark
from everlog.pipeline.small_run import Begun, joined, run_small
from everlog.pipeline.table import Table
from everlog.testing.builders import event
from everlog.views.view import View, digest_of_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Twins(World):
    """One log with two lakes: `lake` is made by Spark, `here` in this process."""

    def __init__(self, spark: Any, place: Path, *views: type[View], answers: bool = True) -> None:
        super().__init__(spark, place, CATALOG)
        self.views, self.answers = views, answers
        self.here = Lake.open(place / "here", log_id=self.log.identity.log_id, create=True)

    def gold(self, lake: Lake) -> Gold:
        more = answers_of(self.log) if self.answers else []
        return gold_of(lake, [view() for view in self.views], self.log.catalog, more=more)

    def on_spark(self, lake: Lake | None = None) -> Outcome:
        lake = lake or self.lake
        return run_on_spark(self.spark, self.log, self.url, lake, gold=self.gold(lake))

    def begin(self, **options: Any) -> Begun:
        begun = run_small(self.log, self.url, self.here, gold=self.gold(self.here), **options)
        assert begun is not None
        return begun

    def in_process(self) -> Outcome:
        """As the command does it: here, and what is left by Spark."""
        begun = run_small(self.log, self.url, self.here, gold=self.gold(self.here))
        if begun is not None and begun.whole:
            return begun.outcome
        ended = self.on_spark(self.here)
        return ended if begun is None else joined(begun.outcome, ended)

    def both(self) -> tuple[dict[str, Done], dict[str, Done]]:
        """What each did with the tables of views."""
        spark, here = self.on_spark(), self.in_process()
        assert (here.events, here.typed, here.set_aside) == (spark.events, spark.typed, spark.set_aside)
        return {done.table: done for done in spark.views}, {done.table: done for done in here.views}

    def require_equal(self) -> None:
        names = sorted(table.name for table in self.lake.tables())
        assert sorted(table.name for table in self.here.tables()) == names
        for name in names:
            one, other = self.lake.table(name), self.here.table(name)
            assert other.schema() == one.schema(), name
            assert sorted(map(repr, rows_of(other.paths()))) == sorted(map(repr, rows_of(one.paths()))), name
            assert (other.mark("code"), other.mark("stopped_at")) == (one.mark("code"), one.mark("stopped_at")), name
        assert self.here.published().cursor == self.lake.published().cursor


def rows_of(paths: list[Path]) -> list[dict[str, Any]]:
    return [row for path in paths for row in pq.read_table(path, partitioning=None).to_pylist()]


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Callable[..., Twins]]:
    """Without Spark: whoever asks for it fails."""
    made: list[Twins] = []

    def make(*views: type[View], answers: bool = True) -> Twins:
        made.append(Twins(None, tmp_path / str(len(made)), *views, answers=answers))
        return made[-1]

    yield make
    for one in made:
        one.log.close()


@pytest.fixture
def twins(spark: SparkSession, alone: Callable[..., Twins]) -> Callable[..., Twins]:
    def make(*views: type[View], answers: bool = True) -> Twins:
        made = alone(*views, answers=answers)
        made.spark = spark
        return made

    return make


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_any_history_gives_the_tables_that_spark_makes(twins: Callable[..., Twins], seed: int) -> None:
    chance = random.Random(seed)
    world = twins(*VIEWS)
    for _ in range(2 if seed else 1):
        fill(world.log, chance)
        world.both()
        world.require_equal()


@pytest.mark.parametrize("seed", range(10))
def test_any_history_gives_the_views_of_the_live_log(alone: Callable[..., Twins], seed: int) -> None:
    chance = random.Random(seed)
    world = alone(*VIEWS)
    for _ in range(3):
        fill(world.log, chance)
        if world.log.purges():  # to take them out of a lake takes Spark
            for table in world.here.tables():
                world.here.drop(table)
        world.begin()
        for view in VIEWS:
            rows = sorted(rows_of(world.here.gold(view.name).paths()), key=lambda row: row["key"].encode())
            digest = digest_of_bytes((row["key"], row["state"].encode()) for row in rows)
            assert digest == world.log.view(view).digest(), view.name


def test_spark_reads_what_was_written_here_and_goes_on_from_it(twins: Callable[..., Twins]) -> None:
    world = twins(Said, Causal, answers=False)
    add(world.log, 120)
    world.begin()
    for table in world.here.tables():
        assert world.here.read(world.spark, table.name).count() == table.rows(), table.name
    add(world.log, 30, first=120)
    assert {done.what for done in world.on_spark(world.here).views} == {CAUGHT_UP}
    add(world.log, 30, first=150)
    assert world.in_process().events == 30
    world.on_spark()
    world.require_equal()
    world.log.purge("thing/0", reason="a request")
    before = world.here.events.version()
    assert not world.begin().whole
    assert world.here.events.version() == before, "what was purged leaves all tables together"
    assert world.in_process().purged > 0
    world.on_spark()
    world.require_equal()


def test_few_events_take_one_process_and_nothing_new_is_nothing_done(alone: Callable[..., Twins]) -> None:
    world = alone(Said, Causal)
    add(world.log, 40)
    assert run_small(world.log, world.url, world.here, gold=world.gold(world.here), events_max=39) is None
    assert world.here.tables() == []
    whole = world.begin(events_max=40)
    assert (whole.whole, whole.outcome.events, whole.outcome.engine) == (True, 40, PROCESS)
    assert {done.what for done in whole.outcome.views} == {MADE_ANEW}
    before = sorted(world.here.path.rglob("*"))
    nothing = world.begin().outcome
    assert (nothing.changed, {done.what for done in nothing.views}) == (False, {AS_IT_WAS})
    assert sorted(world.here.path.rglob("*")) == before


def test_large_events_are_left_to_spark(alone: Callable[..., Twins], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_run, "FEW_BYTES", 10_000)
    world = alone(Said, answers=False)
    world.say("x" * 10_000)
    assert not world.begin().whole
    assert world.here.tables() == []


def test_events_that_are_large_only_in_memory_are_left_to_spark(
    alone: Callable[..., Twins], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the disk, text that repeats itself takes next to nothing."""
    world = alone(Said, answers=False)
    for _ in range(30):
        world.say("x" * 10_000)
    assert world.begin().whole
    assert sum(file.bytes for file in world.here.events.files()) < 20_000
    monkeypatch.setattr(small_run, "FEW_BYTES", 100_000)
    world.say("y")
    assert not world.begin().whole


class Halting(Said):
    """Cannot even tell the key of some events."""

    name = "halting"

    def key(self, event: Event) -> str:
        if event.payload["value"] == "halt":
            raise ValueError("no key for this")
        return event.stream


def test_what_a_view_cannot_take_is_the_same_and_stops_it_at_the_same_event(twins: Callable[..., Twins]) -> None:
    world = twins(Said, Causal, Halting, answers=False)

    def tell(*values: Any, stream: str = "thing/x") -> None:
        world.log.append_batch([Draft("thing.said", stream, {"value": value}, actor="user:ada") for value in values])

    tell(1, "poison", 2)
    spark, here = world.both()
    assert here == spark
    assert here["gold/said"].letters == 2
    world.require_equal()
    tell(3, "halt", 4, "halt")
    peer = "01PEER" + event().id[6:]
    world.log.admit([event("thing.said", payload={"value": "late"}, lamport=1, origin=peer)])
    spark, here = world.both()
    assert here["gold/halting"] == spark["gold/halting"]
    assert here["gold/halting"].stopped_at == 5
    world.require_equal()
    tell(5, stream="thing/y")
    world.both()
    world.require_equal()


def test_tables_are_made_anew_when_somebody_says_so(alone: Callable[..., Twins]) -> None:
    world = alone(Said)
    add(world.log, 20)
    world.begin()
    begun = world.begin(rebuild=["all"])
    assert (begun.whole, begun.outcome.events) == (True, 20)
    assert world.here.events.version() == 0
    (file,) = world.here.events.paths()
    file.write_bytes(b"x" * file.stat().st_size)
    add(world.log, 1, first=20)
    with pytest.raises(Damaged) as told:
        world.begin()
    assert told.value.hint == "everlog pipeline run --rebuild events"


def test_a_full_disk_is_told_and_leaves_nothing_behind(
    alone: Callable[..., Twins], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = alone(Said)
    add(world.log, 5)

    def full(rows: pa.Table, path: Path, **options: Any) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("everlog.pipeline.few.pq.write_table", full)
        with pytest.raises(StorageFull):
            world.begin()
    assert not list(world.here.path.rglob("*.parquet"))
    assert world.begin().whole


def test_a_purge_while_the_log_is_read_is_left_to_spark(
    alone: Callable[..., Twins], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = alone(Said)
    add(world.log, 20)
    really = slabs.batches_of

    def meanwhile(*args: Any, **options: Any) -> list[pa.RecordBatch]:
        found = list(really(*args, **options))
        world.log.purge("thing/0", reason="a request")
        return found

    with monkeypatch.context() as busy:
        busy.setattr(small_run, "batches_of", meanwhile)
        begun = world.begin()
    assert (begun.whole, begun.outcome.events, world.here.events.exists()) == (False, 0, False)


@pytest.mark.parametrize("commits", range(8))
def test_a_run_that_is_stopped_after_any_commit_is_finished_by_the_next(
    alone: Callable[..., Twins], monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    world = alone(Said, Causal, answers=False)
    add(world.log, 20)
    world.begin()
    add(world.log, 20, first=20)
    world.log.append("thing.said", stream="thing/0", payload={"value": "poison"})
    really, left = Table.commit, [commits]

    def stopped(self: Table, *args: Any, **options: Any) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        really(self, *args, **options)

    with monkeypatch.context() as broken:
        broken.setattr(Table, "commit", stopped)
        with suppress(KeyboardInterrupt):
            world.begin()
    assert world.begin().whole
    again = Lake.open(world.place / "again", log_id=world.log.identity.log_id, create=True)
    run_small(world.log, world.url, again, gold=world.gold(again))
    for table in again.tables():
        held = world.here.table(table.name)
        assert sorted(map(repr, rows_of(held.paths()))) == sorted(map(repr, rows_of(table.paths()))), table.name
