"""What is purged leaves the lake, down to the last byte; what is not stays."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline.world import World

from everlog.errors import Damaged
from everlog.pipeline import run as running
from everlog.pipeline.lake import buckets
from everlog.pipeline.lake.erase import PurgedStreams, erase
from everlog.pipeline.lake.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from everlog.core.query import Cursor
    from everlog.pipeline.lake.lake import Lake
    from everlog.pipeline.session.progress import OnStep

SENTINEL = "the-secret-of-ada-lovelace"
STREAM = "customer/42"


class TextsByStream:
    """A stand-in for the views: one table that repeats what streams said last."""

    def __init__(self, lake: Lake) -> None:
        self.table = lake.gold("texts")
        self.refolded = 0

    def bring_up_to_date(self, engine: Any, lake: Lake, *, upto: Cursor, on_step: OnStep) -> None:
        if not self.table.holds(upto):
            self.table.overwrite(self._folded(lake.events.read(engine.spark)), cursor=upto)

    def refold(self, going: DataFrame, staying: DataFrame, cursor: Cursor) -> None:
        self.refolded += going.count()
        self.table.overwrite(self._folded(staying), cursor=cursor)

    def _folded(self, rows: DataFrame) -> DataFrame:
        return rows.groupBy("stream").agg({"payload": "max"}).toDF("key", "state")


def secret_in(folder: Path, word: str = SENTINEL) -> list[str]:
    """The files that hold the word, by a look that shares no code with the program's."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            if data[:4] == b"PAR1":
                with suppress(pa.ArrowException, OSError):  # half a file: its bytes are all that there is
                    data += repr(pq.read_table(path).to_pylist()).encode()
            if word.encode() in data:
                found.append(str(path.relative_to(folder)))
    return found


@pytest.fixture(scope="module")
def with_secrets(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log and a lake with a secret in every kind of table, in old versions and in what a killed run left."""
    world = World(spark, tmp_path_factory.mktemp("secrets"))
    world.say("public", "public too")
    world.say(SENTINEL, f"{SENTINEL} again", stream=STREAM)
    world.run(gold=TextsByStream(world.lake))
    world.log.append("deploy.done", stream="deploy/1", payload={"outcome": "ok"})
    world.say(f"{SENTINEL} once more", stream=STREAM)
    world.run(gold=TextsByStream(world.lake))
    buckets.bring_up_to_date(world.spark, world.lake, upto=_cursor(world))
    left = world.lake.events.write(world.lake.events.read(world.spark), cursor=_cursor(world))
    assert left, "what a killed run leaves behind"
    world.log.close()
    return world.place


@pytest.fixture
def filled(spark: SparkSession, with_secrets: Path, tmp_path: Path) -> Iterator[World]:
    """Both in a copy of their own: a log and a lake are folders."""
    world = World(spark, shutil.copytree(with_secrets, tmp_path / "filled"))
    yield world
    world.log.close()


def _cursor(world: World) -> Cursor:
    held = world.lake.events.cursor(world.log.identity.epoch)
    assert held is not None
    return held


def test_a_purge_leaves_no_byte_of_it_in_the_lake(filled: World) -> None:
    assert len(secret_in(filled.lake.path)) >= 8, "events, typed, buckets, a view, old versions and leftovers"
    filled.log.purge(STREAM, reason="erasure request 17")
    filled.say("still here")

    outcome = filled.run(gold=TextsByStream(filled.lake))

    assert outcome.purged == 3
    assert secret_in(filled.lake.path) == []
    assert outcome.scanned_files > 0
    assert outcome.scanned_bytes > 0
    assert filled.same_as_the_log()
    assert filled.texts() == ["public", "public too", "still here"]
    states = filled.lake.read(filled.spark, "gold/texts").collect()
    assert sorted(row["key"] for row in states) == ["deploy/1", "note/1"]
    assert positions(filled.lake.buckets, filled) == [1, 2, 5]


def test_what_was_purged_is_looked_for_once(filled: World) -> None:
    filled.log.purge(STREAM, reason="erasure request 17")
    filled.run(gold=TextsByStream(filled.lake))
    before = filled.files()

    again = filled.run(gold=TextsByStream(filled.lake))
    assert (again.purged, again.scanned_files) == (0, 0)
    assert filled.files() == before


def test_a_purged_stream_may_go_on(filled: World) -> None:
    filled.log.purge(STREAM, reason="erasure request 17")
    filled.say("a new beginning", stream=STREAM)
    filled.run()

    assert filled.texts() == ["public", "public too", "a new beginning"]
    filled.log.purge(STREAM, reason="again")
    filled.run()
    assert filled.texts() == ["public", "public too"]
    assert secret_in(filled.lake.path, "a new beginning") == []


def test_a_purge_takes_what_was_set_aside_too(world: World) -> None:
    from tests.pipeline.shop import SHOP, Moved, asking

    from everlog.catalog.catalog import Catalog

    extra = Catalog()
    extra.include(SHOP)
    extra.event("order.lost")(Moved)
    world.reopen(extra)
    world.log.append("order.lost", stream=STREAM, payload={"went_to": SENTINEL})
    world.reopen(asking())
    world.say("public")
    world.run()
    assert len(world.rows("quarantine")) == 1
    world.log.purge(STREAM, reason="erasure request 17")

    world.run()
    assert world.rows("quarantine") == []
    assert secret_in(world.lake.path) == []


def test_what_a_killed_run_left_goes_even_if_no_table_ever_held_it(world: World) -> None:
    world.say(SENTINEL, stream=STREAM)
    from everlog.pipeline.source.source import events

    world.lake.events.write(events(world.spark, world.url), cursor=_at(world))
    world.log.purge(STREAM, reason="erasure request 17")

    world.run()
    assert secret_in(world.lake.path) == []


def _at(world: World) -> Cursor:
    from everlog.core.query import Cursor

    return Cursor(world.log.head(), world.log.head(), world.log.identity.epoch)


class Killed(Exception):
    pass


@pytest.mark.parametrize("commits", [pytest.param(number, marks=pytest.mark.slow) for number in (0, 2, 3)] + [1, 4])
def test_a_purge_that_is_killed_at_any_commit_is_finished_by_the_next_run(
    filled: World, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    filled.log.purge(STREAM, reason="erasure request 17")
    real, left = Table.commit, commits

    def commit(self: Table, *args: Any, **options: Any) -> None:
        nonlocal left
        if left == 0:
            raise Killed
        left -= 1
        real(self, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Table, "commit", commit)
        with pytest.raises(Killed):
            filled.run(gold=TextsByStream(filled.lake))

    filled.run(gold=TextsByStream(filled.lake))
    assert secret_in(filled.lake.path) == []
    assert filled.same_as_the_log()
    assert positions(filled.lake.buckets, filled) == [1, 2, 5]


def test_a_run_that_is_killed_before_the_disk_is_clean_is_finished_by_the_next(
    filled: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.log.purge(STREAM, reason="erasure request 17")

    def killed(*args: Any, **options: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("everlog.pipeline.engines.spark.scrub", killed)
        with pytest.raises(Killed):
            filled.run()
    assert secret_in(filled.lake.path) != []

    filled.run()
    assert secret_in(filled.lake.path) == []


def test_what_a_killed_spark_left_on_the_way_goes_too(world: World) -> None:
    world.say("public")
    world.say(SENTINEL, stream=STREAM)
    world.run()
    with world.lake.scratch() as mine:
        (mine / "shuffle_1").write_text(SENTINEL)
    assert not mine.exists()
    left = world.lake.path / "scratch" / "12345-of-a-killed-one"
    left.mkdir(parents=True)
    (left / "shuffle_0").write_text(SENTINEL)
    world.log.purge(STREAM, reason="erasure request 17")

    world.run()
    assert not left.exists()
    assert secret_in(world.lake.path) == []


def test_a_purge_in_the_middle_of_a_run_is_left_to_the_next_run(
    filled: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = running.silver.bring_up_to_date  # type: ignore[attr-defined]

    def purge_meanwhile(*args: Any, **options: Any) -> Any:
        if not filled.log.stored.purges():
            filled.log.purge(STREAM, reason="erasure request 17")
        return real(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr("everlog.pipeline.tables.silver.bring_up_to_date", purge_meanwhile)
        assert filled.run().purged == 0
    assert filled.run().purged == 3
    assert secret_in(filled.lake.path) == []


def test_something_that_is_left_is_not_called_gone(filled: World) -> None:
    strange = filled.lake.path / "notes.txt"
    first = next(filled.log.read(stream=STREAM)).event.id
    strange.write_text(f"remember {first}")
    filled.log.purge(STREAM, reason="erasure request 17")

    with pytest.raises(Damaged, match="still in the lake") as found:
        filled.run()
    assert "notes.txt" in found.value.why
    assert filled.lake.published().scrubbed == 0
    strange.unlink()
    filled.run()
    assert filled.lake.published().scrubbed == filled.log.stored.purges()[-1].reserved


def test_a_text_that_another_event_holds_too_proves_nothing(world: World) -> None:
    words = "words that anybody may say, long enough to be looked for"
    world.say(words, stream=STREAM)
    gone = next(world.log.read(stream=STREAM)).event.id
    world.say(words)
    world.log.append("note.added", stream="note/2", payload={"text": "because"}, causation_id=gone)
    world.run()
    world.log.purge(STREAM, reason="erasure request 17")

    assert (world.run().purged, world.lake.published().scrubbed) == (1, world.log.stored.purges()[-1].reserved)
    assert world.texts() == [words, "because"]


def test_another_erasure_takes_the_same_way(filled: World) -> None:
    """A later command forgets one person: the events stay, what they said goes."""
    from pyspark.sql import functions as sql

    class Forgotten(PurgedStreams):
        def rewritten(self, rows: DataFrame) -> DataFrame:
            said = [name for name in ("payload", "text") if name in rows.columns]
            theirs = sql.col("stream") == STREAM
            return rows.withColumns({name: sql.when(~theirs, sql.col(name)) for name in said})

    purge = _pretended_purge(filled)
    gold = TextsByStream(filled.lake)
    held = _cursor(filled)
    done = erase(
        filled.spark,
        filled.lake,
        Forgotten(filled.spark, [purge]),
        knows=held.position,
        epoch=held.epoch,
        refold=gold.refold,
    )
    filled.lake.publish(held)
    for table in filled.lake.tables():
        table.sweep()

    assert done.events == 3
    assert gold.refolded == 3
    assert secret_in(filled.lake.path) == []
    assert len(filled.rows("events")) == 6
    assert [row["text"] for row in filled.rows("silver/note.added")] == ["public", "public too", None, None, None]


def _pretended_purge(world: World) -> Any:
    from everlog.core.event import Position, Purge

    return Purge(Position(world.log.head() + 1), STREAM, (), "user:ada", "forget", 0, 0, 3)


def positions(table: Table, world: World) -> list[int]:
    return sorted(row["position"] for row in table.read(world.spark).collect())
