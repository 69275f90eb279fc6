"""One Spark session for all of these tests in a process; tests/spark_part.py says which process runs which."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from everlog.catalog.catalog import Catalog
from everlog.core.event import Event
from everlog.log.log import Log
from everlog.views.view import CAUSAL, View

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from tests.pipeline.world import World

    from everlog.catalog.catalog import Catalog


ON_FEW_ROWS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}
"""Spark writes and compiles a Java class for each step of a query, plans the rest of it again after each step, and
divides it into eight tasks: on a few rows that takes longer than the query. With --full, and in tests that start a
Spark of their own, it does so, as for users."""


@pytest.fixture(scope="session")
def spark(pytestconfig: pytest.Config) -> Iterator[SparkSession]:
    """The session of the run, on this machine."""
    from pyspark.sql import SparkSession

    from everlog.pipeline.session.session import open_session

    if (of_a_page := SparkSession.getActiveSession()) is not None:
        of_a_page.stop()  # it has other settings: what a page of the documentation has opened stays open
    conf = {} if pytestconfig.getoption("--full") else ON_FEW_ROWS
    # A task that fails is tried once more, as on a cluster.
    session = open_session(master="local[2,2]", app="everlog tests", conf=conf)
    yield session
    session.stop()


@pytest.fixture
def make_world(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Logs with their lakes, each in a folder of this test."""
    from tests.pipeline.shop import SHOP
    from tests.pipeline.world import World

    made: list[World] = []

    def make(catalog: Catalog = SHOP, place: str = "") -> World:
        made.append(World(spark, tmp_path / place, catalog))
        return made[-1]

    yield make
    for world in made:
        world.log.close()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte, in memory; only root can mount one."""
    import os
    import subprocess

    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True)
    if made.returncode:
        pytest.skip(f"no small disk here: {made.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def sorted_batches(
    log: Log, view: View, *, size: int, after: int = 0, upto: int | None = None, stored: Any = None
) -> list[pa.RecordBatch]:
    """The events of a log as Spark brings them to a fold: with keys, sorted, in batches of a size."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from everlog.core.event import Position
    from everlog.pipeline.fold.sorted_fold import SORTED_SCHEMA, with_keys
    from everlog.pipeline.source.rows import batch_of

    end = None if upto is None else Position(upto)
    records = list(log._store.read(view.query, after=Position(after), upto=end))
    keyed = view if not view.by_stream else _ByStream()
    catalog = log.catalog if not view.by_stream else Catalog()
    table = pa.Table.from_batches(list(with_keys(keyed, catalog, [batch_of(records)])))
    if stored is not None:
        names = ("key", "position", "count", "lamport", "id", "sources", "state")
        rows = [
            dict(zip(names, (key, stored.last[key], count, lamport, id, _text(sources), state.decode()), strict=True))
            for key, (count, lamport, id, sources, state) in stored.rows.items()
        ]
        table = pa.concat_tables([pa.Table.from_pylist(rows, schema=SORTED_SCHEMA), table])
    table = table.append_column("event", pc.is_null(table.column("state")))
    order = [("lamport", "ascending"), ("id", "ascending")] if view.order is CAUSAL else [("position", "ascending")]
    places = pc.sort_indices(table, sort_keys=[("key", "ascending"), ("event", "ascending"), *order])
    found = table.take(places).drop_columns(["event"]).combine_chunks()
    batches: list[pa.RecordBatch] = found.to_batches(max_chunksize=size)
    return batches


class _ByStream(View):
    """Gives what a DataFrame of a view by stream has as its key without asking the view."""

    def key(self, event: Event) -> str:
        return event.stream


def _text(sources: list[str] | None) -> str | None:
    return None if sources is None else json.dumps(sources)
