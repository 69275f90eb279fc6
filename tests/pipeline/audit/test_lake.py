"""A lake proves itself: what changes on the disk is reported before it is an answer, and healed from the log."""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import CATALOG
from tests.pipeline.logs import add
from tests.pipeline.world import World
from tests.views.conftest import Causal, Picky, Said

from everlog.errors import Conflict, Damaged
from everlog.pipeline.audit.lake import Proof, prove_lake
from everlog.pipeline.engines.engine import Engine
from everlog.pipeline.engines.local import LocalEngine
from everlog.pipeline.engines.spark import SparkEngine
from everlog.pipeline.lake import arrow_files
from everlog.pipeline.lake.data_file import DataFile, opened
from everlog.pipeline.lake.table import Table
from everlog.pipeline.run import run
from everlog.pipeline.source.rows import ARROW_SCHEMA
from everlog.pipeline.tables.gold import gold_of
from everlog.pipeline.tables.readings import Readings
from everlog.pipeline.tables.typed import NEEDED
from everlog.pipeline.tables.view_table import ViewTable
from everlog.views.builtin import Streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEWS = (Streams, Causal, Said, Picky)


class Proven(World):
    def __init__(self, spark: Any, place: Path) -> None:
        super().__init__(spark, place, CATALOG)
        self.views = [ViewTable(view(), self.log.catalog.without_keys()) for view in VIEWS]

    def engine(self) -> Engine:
        return LocalEngine() if self.spark is None else SparkEngine(self.spark)

    def bring(self, count: int, first: int = 0) -> None:
        add(self.log, count, first=first)
        self.again()

    def again(self) -> None:
        gold = gold_of(self.lake, [view.view for view in self.views], self.log.catalog)
        run(self.engine(), self.log, self.url, self.lake, gold=gold)

    def prove(self, **how: bool) -> Proof:
        return prove_lake(self.engine(), self.log, self.url, self.lake, self.views, **how)

    def heal(self) -> Proof:
        proof = self.prove(everything=True, heal=True)
        self.again()
        return proof

    def digests(self) -> dict[str, str]:
        """One digest per table, of its rows, in whatever files they are."""
        found = {}
        for table in self.lake.tables():
            rows = [row for path in table.paths() for row in opened(path).read().to_pylist()]
            found[table.name] = hashlib.sha256("\n".join(sorted(map(repr, rows))).encode()).hexdigest()
        return found

    def data_files(self) -> list[tuple[Table, DataFile]]:
        return [(table, file) for table in self.lake.tables() for file in table.files()]


def proven(place: Path, spark: SparkSession | None = None) -> Proven:
    world = Proven(spark, place)
    world.bring(60)
    world.bring(40, first=60)
    return world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Proven]:
    made = proven(tmp_path)
    yield made
    made.log.close()


def flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    bit = chance.randrange(8 * len(content))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def test_a_sound_lake_is_proved(world: Proven) -> None:
    proof = world.prove(everything=True)
    assert proof.damages == ()
    assert (proof.events, proof.typed) == (100, 100)
    assert proof.states == sum(file.rows for table, file in world.data_files() if table.name.startswith("gold/"))
    assert world.prove().damages == ()


def flipped(world: Proven, times: int, seed: int) -> None:
    chance = random.Random(seed)
    before = world.digests()
    for _ in range(times):
        table, file = chance.choice(world.data_files())
        flip(table.path / file.path, chance)
        with pytest.raises(Damaged, match="not those that were committed"):
            world.digests()
        (damage,) = world.prove().damages
        assert (damage.table, damage.path) == (table.name, file.path)
        others = {path: path.stat().st_mtime_ns for path in others_than(world, table, file)}
        assert world.heal().damages[0] == damage
        assert world.digests() == before
        assert all(path.stat().st_mtime_ns == changed for path, changed in others.items()), "only that file is new"
        assert world.prove(everything=True).damages == ()


def others_than(world: Proven, table: Table, file: DataFile) -> list[Path]:
    letters = table.name.startswith("letters/")  # then the view is derived again
    return [
        one.path / other.path
        for one, other in world.data_files()
        if (one.name, other.path) != (table.name, file.path) and not (letters and one.path.name == table.path.name)
    ]


def test_no_flipped_bit_becomes_an_answer_and_each_is_healed(world: Proven) -> None:
    flipped(world, 6, seed=20)


@pytest.mark.slow
def test_no_flipped_bit_of_two_hundred_becomes_an_answer(world: Proven) -> None:
    flipped(world, 200, seed=21)


def test_flipped_bits_are_healed_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    world = proven(tmp_path, spark)
    flipped(world, 1, seed=22)
    table = world.lake.gold("said")
    path = table.paths()[0]
    flip(path, random.Random(1))
    with pytest.raises(Damaged):
        table.read(spark)
    assert [damage.table for damage in world.heal().damages] == ["gold/said"]
    world.log.close()


def test_lost_swapped_and_foreign_files_are_named_and_healed(world: Proven) -> None:
    before = world.digests()
    one, other = world.lake.events.paths()
    one.unlink()
    (lost,) = world.prove().damages
    assert (lost.why, lost.first, lost.last) == ("it is missing", 1, 60)
    world.heal()
    assert world.digests() == before

    one, other = world.lake.events.paths()
    one_bytes, other_bytes = one.read_bytes(), other.read_bytes()
    one.write_bytes(other_bytes)
    other.write_bytes(one_bytes)
    assert {damage.table for damage in world.prove().damages} == {"events"}
    assert len(world.heal().damages) == 2
    assert world.digests() == before

    shutil.copy(world.lake.gold("streams").paths()[0], world.lake.silver("note.added").paths()[0])
    (foreign,) = world.heal().damages
    assert foreign.table == "silver/note.added"
    assert world.digests() == before


def committed_again(table: Table, change: Any) -> DataFile:
    """Somebody who knows the format changes rows, and commits them with the right digests."""
    file = table.files()[-1]
    rows = change(opened(table.path / file.path).read())
    cursor = table.cursor(next(iter(_epochs(table))))
    assert cursor is not None
    table.commit(arrow_files.write(table, rows, cursor=cursor), remove=[file], same_rows=True)
    return table.files()[-1]


def _epochs(table: Table) -> Iterator[str]:
    for version in (table.path / "_delta_log").glob("*.json"):
        for word in version.read_text().split('"'):
            if word.startswith("everlog:") and word.count(":") == 2:
                yield word.rpartition(":")[2]


def put(column: str, value: Any) -> Any:
    def change(rows: pa.Table) -> pa.Table:
        values = rows.column(column).to_pylist()
        values[3] = value
        return rows.set_column(rows.schema.get_field_index(column), rows.schema.field(column), pa.array(values))

    return change


def test_a_row_that_was_changed_with_its_digest_is_found_and_healed(world: Proven) -> None:
    before = world.digests()
    position = arrow_files.read(world.lake.events, ARROW_SCHEMA).column("position")[63].as_py()
    committed_again(world.lake.events, put("payload", '{"text":"forged"}'))
    batch = arrow_files.read(world.lake.events, ARROW_SCHEMA.empty_table().select(list(NEEDED)).schema)
    with pytest.raises(Damaged, match=f"event #{position} in the lake is not the one that it commits to"):
        list(LocalEngine().type_events(world.lake, Readings(CATALOG, {}), "data/x", after=0, upto=100, held={}))
    assert batch.num_rows == 100
    (found,) = [one for one in world.prove().damages if one.table == "events"]
    assert found.positions == (position,)

    world.heal()
    committed_again(world.lake.silver("note.added"), put("text", "forged"))
    committed_again(world.lake.gold("said"), put("_state", "{}"))
    wrong = {damage.table: damage for damage in world.heal().damages}
    assert set(wrong) == {"silver/note.added", "gold/said"}
    assert len(wrong["silver/note.added"].positions) == len(wrong["gold/said"].keys) == 1
    assert world.digests() == before


def test_a_lake_that_is_behind_a_purge_is_not_compared(world: Proven) -> None:
    world.log.purge("note/1", reason="request")
    with pytest.raises(Conflict, match="purged in it"):
        world.prove()


def test_pages_have_checksums(world: Proven) -> None:
    for table, file in world.data_files():
        pq.ParquetFile(table.path / file.path, page_checksum_verification=True).read()
