"""Two answers that are not in the events: what the log refused, and how its views stand. The driver asks the log.

answers/refusals    one row a refusal, of the last 90 days
answers/views       one row a view that has been run: lag in positions, and the gap that an audit finds
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import msgspec

from everlog.core.query import Cursor
from everlog.log.log import Log
from everlog.pipeline.lake import Lake
from everlog.views.overview import NEVER_RUN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REFUSALS = "at timestamp, code string, operation string, type string, actor string, stream string"
_VIEWS = "view string, state string, version int, position long, lag long, keys long, letters long, gap long"


def stand(spark: SparkSession, lake: Lake, log: Log, cursor: Cursor) -> bool:
    """Put both tables in place, if they say something else than before; True if one does."""
    refusals: list[tuple[object, ...]] = [
        (one.refused_at, one.code, one.operation, one.type, one.actor, one.stream)
        for one in reversed(log.refusals(limit=None))
    ]
    told = _put(spark, lake, "refusals", refusals, _REFUSALS, cursor)
    return _put(spark, lake, "views", _views(log), _VIEWS, cursor) or told


def _views(log: Log) -> list[tuple[object, ...]]:
    here = set(log.views.names())
    found: list[tuple[object, ...]] = []
    for one in log.views.overviews():
        if one.state == NEVER_RUN or one.view not in here:
            continue
        gap = log.view(one.view).audit().gap
        found.append((one.view, one.state, one.version, one.position, one.lag, one.keys, one.letters, gap))
    return found


def _put(
    spark: SparkSession, lake: Lake, name: str, rows: list[tuple[object, ...]], schema: str, cursor: Cursor
) -> bool:
    table = lake.table(f"answers/{name}")
    said = zlib.crc32(msgspec.json.encode(rows))
    if table.exists() and table.mark("said") == said and table.cursor(cursor.epoch) is not None:
        return False
    table.overwrite(spark.createDataFrame(rows, schema).coalesce(1), cursor=cursor, marks={"said": said})
    return True
