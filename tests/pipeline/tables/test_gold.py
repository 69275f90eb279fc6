"""The tables of views say what the live views say: at once, caught up in steps, after poison, purges and crashes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import CATALOG
from tests.pipeline.logs import add
from tests.pipeline.world import World
from tests.views.conftest import ByActor, Causal, Everything, Picky, Said

from everlog import Draft
from everlog.core.event import Event
from everlog.pipeline.fold.presorted import fold_buckets
from everlog.pipeline.lake import buckets
from everlog.pipeline.lake.table import Table
from everlog.pipeline.tables.gold import AS_IT_WAS, CAUGHT_UP, REBUILT, Done, Gold, gold_of
from everlog.pipeline.tables.view_table import ViewTable
from everlog.testing.builders import event
from everlog.views.builtin import Streams
from everlog.views.view import View, digest_of_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class GoldWorld(World):
    def __init__(self, spark: SparkSession, place: Path, *views: type[View]) -> None:
        super().__init__(spark, place, CATALOG)
        self.views = [view() for view in views]

    @property
    def gold(self) -> Gold:
        return gold_of(self.lake, self.views, self.log.catalog)

    def fold(self) -> dict[str, Done]:
        found: list[Done] = self.run(gold=self.gold).views
        return {done.table: done for done in found}

    def tell(self, *values: Any, stream: str = "thing/x", actor: str = "user:ada") -> None:
        self.log.append_batch([Draft("thing.said", stream, {"value": value}, actor=actor) for value in values])

    def require_live_digests(self) -> None:
        for view in self.views:
            table = ViewTable(view, self.log.catalog)
            assert table.digest(self.spark, self.lake) == self.log.view(view).digest(), view.name

    def letters(self, view: str) -> list[tuple[int, str]]:
        found = self.lake.table(f"letters/{view}")
        if not found.exists():
            return []
        return sorted((row["position"], row["what"]) for row in found.read(self.spark).collect())

    def live_letters(self, view: View) -> list[tuple[int, str]]:
        self.log.view(view).catch_up()
        return [(letter.position, letter.what) for letter in self.log.view(view).dead_letters()]


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    made: list[GoldWorld] = []

    def make(*views: type[View]) -> GoldWorld:
        made.append(GoldWorld(spark, tmp_path, *views))
        return made[-1]

    yield make
    for one in made:
        one.log.close()


def test_every_view_has_a_table_with_the_digest_of_the_live_one(world: Any) -> None:
    here: GoldWorld = world(Said, ByActor, Causal, Streams)
    add(here.log, 120)
    here.tell(1, "poison", 2, stream="thing/bad", actor="user:eve")
    assert {done.what for done in here.fold().values()} == {REBUILT}
    here.require_live_digests()
    add(here.log, 40, first=120)
    here.tell(3, stream="thing/bad", actor="user:eve")
    here.tell(4, actor="user:new")
    assert {done.what for done in here.fold().values()} == {CAUGHT_UP}
    here.require_live_digests()
    for view in here.views:
        assert here.letters(view.name) == here.live_letters(view), view.name
    assert {done.what for done in here.fold().values()} == {AS_IT_WAS}


def test_a_table_has_the_columns_that_were_promised(world: Any) -> None:
    here: GoldWorld = world(Said)
    here.tell(1, 2)
    done = here.fold()["gold/said"]
    assert (done.rows, done.position) == (1, 2)
    (row,) = here.lake.read(here.spark, "gold/said").collect()
    assert row.asDict() == {
        "key": "thing/x",
        "_position": 2,
        "_count": 2,
        "_lamport": 0,
        "_id": "",
        "_sources": None,
        "_state": '{"count":2,"values":[1,2]}',
    }


def test_a_late_event_makes_its_keys_again(world: Any) -> None:
    here: GoldWorld = world(Causal)
    here.tell(1, 2, 3, "poison", 4)
    here.tell(1, 2, actor="user:bob")
    here.fold()
    peer = "01PEER" + event().id[6:]
    here.log.admit([event("thing.said", payload={"value": "late"}, lamport=2, origin=peer)])
    here.tell("on time", actor="user:new")
    assert here.fold()["gold/causal"].what == CAUGHT_UP
    here.require_live_digests()
    assert here.letters("causal") == here.live_letters(Causal())


def test_a_view_is_stopped_where_the_live_one_is_until_the_event_is_purged(world: Any) -> None:
    here: GoldWorld = world(Picky)
    here.tell({"key": "a"}, {"key": "b"})
    here.tell("no key", stream="thing/bad")
    here.tell({"key": "a"})
    done = here.fold()["gold/picky"]
    assert (done.what, done.position, done.stopped_at) == (REBUILT, 2, 3)
    assert here.letters("picky") == here.live_letters(Picky()) == [(3, "stopped")]
    here.require_live_digests()
    here.tell({"key": "b"})
    done = here.fold()["gold/picky"]
    assert (done.what, done.position, done.stopped_at) == (AS_IT_WAS, 2, 3)
    here.log.purge("thing/bad", reason="a request")
    done = here.fold()["gold/picky"]
    assert (done.what, done.position, done.stopped_at) == (CAUGHT_UP, 6, 0)
    here.require_live_digests()
    assert here.letters("picky") == []


def test_a_purge_takes_its_words_out_of_rows_and_letters(world: Any) -> None:
    here: GoldWorld = world(Said, ByActor)
    here.tell(1, 2, "SENTINEL-OF-A-STATE")
    here.tell("poison", {"SENTINEL": "OF-A-LETTER"}, stream="thing/y", actor="user:eve")
    here.tell(3, stream="thing/y2")
    here.fold()
    here.log.purge("thing/x", reason="a request")
    here.log.purge("thing/y", reason="a request")
    here.fold()
    here.require_live_digests()
    for view in here.views:
        assert here.letters(view.name) == here.live_letters(view) == []
    assert here.letters("said") == []
    for path in here.lake.path.rglob("*"):
        assert not path.is_file() or b"SENTINEL" not in path.read_bytes(), path


def test_rows_of_other_code_are_rebuilt(world: Any) -> None:
    here: GoldWorld = world(Said)
    here.tell(1, 2)
    here.fold()

    class Other(Said):
        def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
            return {"values": [], "count": state["count"] + 2}

    here.views = [Other()]
    assert here.fold()["gold/said"].what == REBUILT
    (row,) = here.lake.read(here.spark, "gold/said").collect()
    assert row["_state"] == '{"count":4,"values":[]}'


def test_a_run_that_is_killed_between_letters_and_rows_is_finished_by_the_next(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    here: GoldWorld = world(Said)
    here.tell(1)
    here.fold()
    here.tell(2, "poison", 3)

    commit = Table.commit

    def killed(self: Table, *arguments: Any, **options: Any) -> None:
        if self.name == "gold/said":
            raise KeyboardInterrupt
        commit(self, *arguments, **options)

    monkeypatch.setattr(Table, "commit", killed)
    with pytest.raises(KeyboardInterrupt):
        here.fold()
    assert here.letters("said") == [(3, "failed"), (4, "waiting")]
    monkeypatch.undo()
    here.fold()
    here.require_live_digests()
    assert here.letters("said") == here.live_letters(Said()) == [(3, "failed"), (4, "waiting")]


# ---- over buckets


def test_a_view_by_stream_is_folded_over_buckets_when_they_pay(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    here: GoldWorld = world(Said, Streams, Everything, ByActor)
    monkeypatch.setattr(buckets, "PAYS_FROM_EVENTS", 100)
    folded: list[str] = []

    def noted(spark: Any, lake: Any, view: View, *arguments: Any, **options: Any) -> Any:
        folded.append(view.name)
        return fold_buckets(spark, lake, view, *arguments, **options)

    monkeypatch.setattr("everlog.pipeline.fold.view_fold.fold_buckets", noted)
    add(here.log, 150)
    here.tell(1, "poison", 2, stream="thing/bad")
    here.fold()
    assert folded == ["said", "streams", "everything"]
    here.require_live_digests()
    assert here.letters("said") == here.live_letters(Said())


def test_buckets_of_several_files_are_folded_in_order(world: Any) -> None:
    here: GoldWorld = world(Said)
    digests = []
    for number in range(3):
        here.tell(number, stream="thing/x")
        here.tell(number, stream=f"thing/{number}")
        here.run()
        cursor = here.lake.events.cursor(here.log.identity.epoch)
        assert cursor is not None
        buckets.bring_up_to_date(here.spark, here.lake, upto=cursor)
        rows = fold_buckets(here.spark, here.lake, Said(), here.log.catalog).where("what = 'row'").collect()
        digests.append(digest_of_bytes(sorted((row["key"], row["state"].encode()) for row in rows)))
        assert digests[-1] == here.log.view(Said).digest()
    assert max(map(len, buckets.files_by_bucket(here.lake).values())) == 3
    assert len(set(digests)) == 3
