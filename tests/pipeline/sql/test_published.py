"""`everlog pipeline sql`, and the views of a session: what was published, read and never changed."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as parquet
import pytest
from tests.cli.conftest import Run, everlog, place
from tests.pipeline.sql.test_tables import Shop

from everlog.errors import SqlRefused
from everlog.pipeline.engines.local import LocalEngine
from everlog.pipeline.sql import duck, published
from everlog.pipeline.tables import bronze

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["everlog", "place"]

COUNT = "SELECT stream, count(*) AS n, max(lamport) > 0 AS late FROM events GROUP BY stream"


@pytest.fixture
def lake(everlog: Run, place: Path) -> None:
    everlog("init")
    for number in range(3):
        everlog("append", "note.added", "-s", f"note/{number % 2}", f"text=note, {number}")
    (place / ".everlog" / "tables").mkdir()
    (place / ".everlog" / "tables" / "texts.sql").write_text("SELECT text FROM silver.note_added")
    assert everlog("pipeline", "run").code == 0


@pytest.mark.usefixtures("lake")
def test_a_query_is_answered_in_every_form(everlog: Run, place: Path) -> None:
    assert everlog("pipeline", "sql", COUNT + " ORDER BY stream").rows == [
        ["note/0", "2", "true"],
        ["note/1", "1", "true"],
    ]
    assert everlog("pipeline", "sql", COUNT + " ORDER BY stream", "--json").data == [
        {"stream": "note/0", "n": 2, "late": True},
        {"stream": "note/1", "n": 1, "late": True},
    ]
    assert sorted(everlog("pipeline", "sql", "SELECT text FROM texts").rows) == [[f"note, {n}"] for n in range(3)]
    assert everlog("pipeline", "sql", "SELECT text FROM texts", "--to", "texts.csv").code == 0
    with (place / "texts.csv").open() as file:
        assert sorted(csv.reader(file)) == [["note, 0"], ["note, 1"], ["note, 2"], ["text"]]
    assert everlog("pipeline", "sql", COUNT, "--to", "n.parquet").code == 0
    assert parquet.read_table(place / "n.parquet").num_rows == 2
    again = everlog("pipeline", "sql", COUNT, "--to", "n.parquet")
    assert (again.code, "exists already" in again.err) == (5, True)
    assert everlog("pipeline", "sql", COUNT, "--to", "n.xlsx").code == 3


@pytest.mark.usefixtures("lake")
def test_a_query_that_is_wrong_or_writes_is_refused_without_spark(
    everlog: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(published, "selected", None)  # nothing is given to Spark
    before = {path: path.stat().st_mtime_ns for path in (place / ".everlog" / "lake").rglob("*")}
    for text, reason in (
        ("SELECT * FROM evnts", "did you mean events?"),
        ("DELETE FROM events", "only a SELECT is allowed, not DELETE"),
        ("SELECT 1 AS a; DROP TABLE events", "more than one statement"),
        ("SELECT * FROM parquet.`lake/events`", "there is no table parquet.lake/events"),
        ("SELECT strem FROM events", "did you mean stream?"),
    ):
        found = everlog("pipeline", "sql", text, "--json")
        assert (found.code, found.error["code"]) == (3, "sql_refused")
        assert reason in found.error["message"] + found.error["hint"] + str(found.error)
    assert {path: path.stat().st_mtime_ns for path in (place / ".everlog" / "lake").rglob("*")} == before


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.log.close()


def test_a_query_reads_what_was_published_and_not_what_a_run_has_begun(shop: Shop) -> None:
    shop.say("milk", 1)
    shop.done()
    shop.say("bread", 1)
    with shop.lake.writing():
        from everlog.core.event import START
        from everlog.core.query import Cursor
        from everlog.log.read.resets import proof_at

        head = shop.log.head()
        upto = Cursor(head, START, shop.log.identity.epoch, proof_at(shop.log.stored, head))
        bronze.ingest(
            LocalEngine(), shop.lake, shop.url, upto=upto, prove=lambda position: proof_at(shop.log.stored, position)
        )
    query = published.published_query(shop.lake, "SELECT count(*) AS n FROM events")
    assert duck.look(query, bytes_max=2**20).to_pylist() == [{"n": 1}]
    assert shop.lake.events.rows() == 2
    with pytest.raises(SqlRefused, match="buckets"):
        published.published_query(shop.lake, "SELECT * FROM buckets")


def test_every_table_is_a_view_of_a_session(shop: Shop, spark: SparkSession) -> None:
    shop.define("texts", "SELECT text FROM silver.note_added")
    shop.say("milk", 1)
    shop.done()
    names = shop.lake.register(spark)
    assert {"events", "silver_note_added", "gold_streams", "texts", "flow"} <= set(names)
    try:
        query = "SELECT t.text FROM texts t JOIN silver_note_added s ON s.text = t.text JOIN events USING (position)"
        assert [row["text"] for row in spark.sql(query).collect()] == ["milk"]
    finally:
        for name in names:
            spark.catalog.dropTempView(name)
