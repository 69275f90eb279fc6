"""Dead letters as rows of the table `letters/VIEW`, from what a fold reports as JSON text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from everlog.pipeline.lake.arrow_files import spark_schema
from everlog.pipeline.lake.lake import LETTERS, Lake
from everlog.pipeline.lake.table import Table
from everlog.views.dead_letters import ViewLetter
from everlog.views.view import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LETTER_SCHEMA = pa.schema(
    [
        pa.field(name, pa.int64() if name in ("position", "lamport") else pa.string())
        for name in ("position", "what", "key", "type", "stream", "lamport", "id", "reason", "trace")
    ]
)
letter_of = msgspec.json.Decoder(ViewLetter).decode


def letters_table(lake: Lake, view: View) -> Table:
    return lake.table(f"{LETTERS}/{view.name}")


def letter_rows(letters: Iterable[ViewLetter]) -> pa.Table:
    """Return letters as rows that this process holds."""
    rows = [{name: getattr(one, name) for name in LETTER_SCHEMA.names} for one in letters]
    return pa.Table.from_pylist(rows, schema=LETTER_SCHEMA)


def letter_frame(spark: SparkSession, letters: Iterable[ViewLetter] = ()) -> DataFrame:
    """Return letters as rows of Spark."""
    rows = [tuple(getattr(one, name) for name in LETTER_SCHEMA.names) for one in letters]
    return spark.createDataFrame(rows, spark_schema(LETTER_SCHEMA))


def letters_in(folded: DataFrame, what: str) -> DataFrame:
    """Return the letters of one kind among the rows of a fold on Spark."""
    from pyspark.sql.functions import coalesce, col, from_json, lit

    schema = spark_schema(LETTER_SCHEMA)
    found = folded.where(f"what = '{what}'").select(from_json("letter", schema).alias("letter")).select("letter.*")
    # A letter is written without the fields that have their default.
    empty = {"position": lit(0), "lamport": lit(0)}
    return found.select(*(coalesce(col(name), empty.get(name, lit(""))).alias(name) for name in found.columns))
