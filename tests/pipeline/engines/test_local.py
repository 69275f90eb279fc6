"""A run in this process makes the very tables that Spark makes: on any history, at once, in steps, or in turns."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import CATALOG
from tests.pipeline.logs import add
from tests.pipeline.shop import Moved
from tests.pipeline.test_random_histories import VIEWS, fill
from tests.pipeline.world import World
from tests.views.conftest import Causal, Said

from everlog import Draft
from everlog.catalog.catalog import Catalog
from everlog.core.event import Event
from everlog.errors import Damaged, StorageFull
from everlog.pipeline.engines.choose import LOCAL
from everlog.pipeline.engines.local import LocalEngine
from everlog.pipeline.engines.spark import SparkEngine
from everlog.pipeline.lake.lake import Lake
from everlog.pipeline.lake.table import Table
from everlog.pipeline.run import RunOutcome, joined, run
from everlog.pipeline.source import batches
from everlog.pipeline.tables.answers import answers_of
from everlog.pipeline.tables.gold import AS_IT_WAS, CAUGHT_UP, REBUILT, Done, Gold, gold_of
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
        more = answers_of(self.log, lake) if self.answers else []
        return gold_of(lake, [view() for view in self.views], self.log.catalog, more=more)

    def on_spark(self, lake: Lake | None = None) -> RunOutcome:
        lake = lake or self.lake
        return run(SparkEngine(self.spark), self.log, self.url, lake, gold=self.gold(lake))

    def begin(self, engine: LocalEngine | None = None, **options: Any) -> RunOutcome:
        return run(engine or LocalEngine(), self.log, self.url, self.here, gold=self.gold(self.here), **options)

    def in_process(self) -> RunOutcome:
        """As the command does it: here, and what is left by Spark."""
        begun = self.begin()
        return joined(begun, self.on_spark(self.here)) if begun.left else begun

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
    """Without Spark: a test that uses it fails."""
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


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 10))])
def test_any_history_gives_the_views_of_the_live_log(alone: Callable[..., Twins], seed: int) -> None:
    chance = random.Random(seed)
    world = alone(*VIEWS)
    for _ in range(3):
        fill(world.log, chance)
        if world.log.stored.purges():  # to take them out of a lake takes Spark
            for table in world.here.tables():
                world.here.drop(table)
        world.begin()
        for view in VIEWS:
            rows = sorted(rows_of(world.here.gold(view.name).paths()), key=lambda row: row["key"].encode())
            digest = digest_of_bytes((row["key"], row["_state"].encode()) for row in rows)
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
    assert world.begin().left == "purged events have to be erased from the tables"
    assert world.here.events.version() == before, "what was purged leaves all tables together"
    assert world.in_process().purged > 0
    world.on_spark()
    world.require_equal()


def test_few_events_take_one_process_and_nothing_new_is_nothing_done(alone: Callable[..., Twins]) -> None:
    world = alone(Said, Causal)
    add(world.log, 40)
    whole = world.begin()
    assert (whole.left, whole.events, whole.engine) == ("", 40, LOCAL)
    assert {done.what for done in whole.views} == {REBUILT}
    before = sorted(world.here.path.rglob("*"))
    nothing = world.begin()
    assert (nothing.changed, {done.what for done in nothing.views}) == (False, {AS_IT_WAS})
    assert sorted(world.here.path.rglob("*")) == before


def test_large_events_are_left_to_spark(alone: Callable[..., Twins]) -> None:
    world = alone(Said, answers=False)
    world.say("x" * 10_000)
    assert "of memory" in world.begin(LocalEngine(bytes_max=10_000)).left
    assert world.here.tables() == []


def test_events_that_are_large_only_in_memory_are_left_to_spark(alone: Callable[..., Twins]) -> None:
    """On the disk, text that repeats itself takes next to nothing."""
    world = alone(Said, answers=False)
    for _ in range(30):
        world.say("x" * 10_000)
    assert not world.begin().left
    assert sum(file.bytes for file in world.here.events.files()) < 20_000
    world.say("y")
    assert "of memory" in world.begin(LocalEngine(bytes_max=100_000)).left


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


def test_tables_are_rebuilt_when_a_user_asks(alone: Callable[..., Twins]) -> None:
    world = alone(Said)
    add(world.log, 20)
    world.begin()
    begun = world.begin(rebuild=["all"])
    assert (begun.left, begun.events) == ("", 20)
    assert world.here.events.version() == 0
    (file,) = world.here.events.paths()
    file.write_bytes(b"x" * file.stat().st_size)
    add(world.log, 1, first=20)
    with pytest.raises(Damaged) as raised:
        world.begin()
    assert raised.value.hint == "everlog pipeline verify --heal"


def test_a_full_disk_is_reported_and_leaves_nothing_behind(
    alone: Callable[..., Twins], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = alone(Said)
    add(world.log, 5)

    def full(rows: pa.Table, path: Path, **options: Any) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("everlog.pipeline.lake.arrow_files.pq.write_table", full)
        with pytest.raises(StorageFull):
            world.begin()
    assert not list(world.here.path.rglob("*.parquet"))
    assert not world.begin().left


def test_a_purge_while_the_log_is_read_is_noticed_and_the_log_read_again(
    alone: Callable[..., Twins], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = alone(Said)
    add(world.log, 20)
    really = batches.batches_of

    def meanwhile(*args: Any, **options: Any) -> list[pa.RecordBatch]:
        found = list(really(*args, **options))
        if not world.log.stored.purges():
            world.log.purge("thing/0", reason="a request")
        return found

    with monkeypatch.context() as busy:
        busy.setattr("everlog.pipeline.source.ranges.batches_of", meanwhile)
        begun = world.begin()
    assert begun.left == "the files of the lake have to be searched for what was purged"
    streams = {row["stream"] for row in rows_of(world.here.events.paths())}
    assert "thing/0" not in streams
    assert begun.events == sum(1 for _ in world.log.read())


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
    assert not world.begin().left
    again = Lake.open(world.place / "again", log_id=world.log.identity.log_id, create=True)
    run(LocalEngine(), world.log, world.url, again, gold=world.gold(again))
    for table in again.tables():
        held = world.here.table(table.name)
        assert sorted(map(repr, rows_of(held.paths()))) == sorted(map(repr, rows_of(table.paths()))), table.name


def test_a_type_that_is_read_differently_is_typed_again_in_this_process(alone: Callable[..., Twins]) -> None:
    world = alone(answers=False)
    known = Catalog()
    known.include(CATALOG)
    known.event("order.lost")(Moved)
    world.reopen(known)
    world.log.append("order.lost", stream="order/1", payload={"went_to": "nowhere"})
    add(world.log, 3)
    assert not world.begin().left
    typed = world.here.silver("order.lost")
    assert [row["went_to"] for row in rows_of(typed.paths())] == ["nowhere"]

    asking = Catalog()
    asking.include(CATALOG)
    asking.contracts["*"] = "ask"
    world.reopen(asking)
    forgotten = world.begin()
    assert (forgotten.types_rebuilt, forgotten.left, typed.exists()) == (("order.lost",), "", False)
    assert [row["code"] for row in rows_of(world.here.quarantine.paths())] == ["unknown_type"]

    world.reopen(known)
    assert world.begin().types_rebuilt == ("order.lost",)
    assert [row["went_to"] for row in rows_of(typed.paths())] == ["nowhere"]
    assert rows_of(world.here.quarantine.paths()) == []
    assert world.begin().changed is False


def test_a_restored_log_replaces_every_table_in_this_process(alone: Callable[..., Twins]) -> None:
    world = alone(Said, Causal)
    add(world.log, 10)
    world.log.close()
    shutil.copy(world.place / "log.db", world.place / "copy.db")
    world.reopen(CATALOG)
    add(world.log, 10, first=10)
    assert world.begin().events == 20
    world.log.close()
    for path in world.place.glob("log.db*"):
        path.unlink()
    shutil.copy(world.place / "copy.db", world.place / "log.db")
    world.reopen(CATALOG)

    restored = world.begin()
    assert (restored.restored, restored.events, restored.left) == (True, 10, "")
    assert world.here.events.rows() == 10
    for view in (Said, Causal):
        rows = sorted(rows_of(world.here.gold(view.name).paths()), key=lambda row: row["key"].encode())
        assert digest_of_bytes((row["key"], row["_state"].encode()) for row in rows) == world.log.view(view).digest()
