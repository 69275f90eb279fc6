"""Bronze: every event of the log once, as rows of the stable schema, in one commit for each range of positions."""

from __future__ import annotations

from collections.abc import Callable

from everlog.core.event import START, Position
from everlog.core.query import Cursor
from everlog.pipeline.engines.engine import Engine
from everlog.pipeline.lake.lake import Lake
from everlog.pipeline.source.rows import EVENT_SCHEMA

BATCH_EVENTS = 10_000_000
"""Positions per commit: what a run that is killed has to do again at most."""


def ingest(
    engine: Engine,
    lake: Lake,
    url: str,
    *,
    upto: Cursor,
    prove: Callable[[Position], str],
    batch_events: int = BATCH_EVENTS,
    committed: Callable[[Position], None] = lambda position: None,
) -> int:
    """Add what is new in the log, up to this cursor, and return the number of events. Nothing is added twice.

    `prove` returns the proof of a position, so that a run on a restored log notices it.
    """
    table = lake.events
    taken = 0
    while not table.holds(upto):
        held = table.cursor(upto.epoch)
        after = START if held is None else held.position
        end = Position(min(upto.position, after + batch_events))
        cursor = Cursor(end, max(upto.knows, START if held is None else held.knows), upto.epoch, prove(end))
        added = engine.write_events(lake, url, after=after, cursor=cursor)
        # Rows of another epoch are of a log that has been replaced.
        mode = "overwrite" if held is None else "append"
        table.commit(added, cursor=cursor, schema=EVENT_SCHEMA, mode=mode)
        taken += sum(file.rows for file in added)
        committed(end)
    return taken
