"""Bronze: every event of the log once, as rows of the stable schema, in one commit for each stretch of positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from everlog.core.event import START, Position
from everlog.core.query import Cursor
from everlog.pipeline.failures import own_errors
from everlog.pipeline.lake import Lake
from everlog.pipeline.source import events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH_EVENTS = 10_000_000
"""Positions that one commit takes: what a run that is killed has to do again at most."""


PLACE_EVENTS_MIN, PLACE_EVENTS_MAX = 50_000, 500_000
"""A task writes one file: of no more events than are worth reading again, and not so few that files are small."""


def place_events(count: int) -> int:
    """How many positions one task takes of so many: enough tasks for some cores, and files of a good size."""
    return max(PLACE_EVENTS_MIN, min(PLACE_EVENTS_MAX, -(-count // 8)))


def ingest(
    spark: SparkSession,
    lake: Lake,
    url: str,
    *,
    upto: Cursor,
    batch_events: int = BATCH_EVENTS,
    committed: Callable[[Position], None] = lambda position: None,
) -> int:
    """Take what is new in the log, up to this cursor; the number of events. Nothing is taken twice."""
    table = lake.events
    taken = 0
    while not table.holds(upto):
        held = table.cursor(upto.epoch)
        after = START if held is None else held.position
        end = Position(min(upto.position, after + batch_events))
        cursor = Cursor(end, max(upto.knows, START if held is None else held.knows), upto.epoch)
        rows = events(spark, url, after=after, upto=end, place_events=place_events(end - after))
        with own_errors("reading the log"):
            added = table.write(rows, cursor=cursor)
        # What is there of another epoch is of a log that has been replaced.
        table.commit(added, cursor=cursor, schema=rows.schema, mode="overwrite" if held is None else "append")
        taken += sum(file.rows for file in added)
        committed(end)
    return taken
