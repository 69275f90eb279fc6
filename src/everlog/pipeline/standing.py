"""Two answers that are not in the events: what the log refused, and how its views stand. The driver asks the log.

answers/refusals    one row a refusal, of the last 90 days
answers/views       one row a view that has been run: lag in positions, and the gap that an audit finds
"""

from __future__ import annotations

import zlib

import msgspec
import pyarrow as pa

from everlog.core.query import Cursor
from everlog.log.log import Log
from everlog.pipeline.few import overwrite
from everlog.pipeline.lake import Lake
from everlog.views.overview import NEVER_RUN

_REFUSALS = pa.schema(
    [
        ("at", pa.timestamp("us", tz="UTC")),
        *((name, pa.string()) for name in ("code", "operation", "type", "actor", "stream")),
    ]
)
_VIEWS = pa.schema(
    [
        ("view", pa.string()),
        ("state", pa.string()),
        ("version", pa.int32()),
        *((name, pa.int64()) for name in ("position", "lag", "keys", "letters", "gap")),
    ]
)


def stand(lake: Lake, log: Log, cursor: Cursor) -> bool:
    """Put both tables in place, if they say something else than before; True if one does."""
    refusals: list[tuple[object, ...]] = [
        (one.refused_at, one.code, one.operation, one.type, one.actor, one.stream)
        for one in reversed(log.refusals(limit=None))
    ]
    told = _put(lake, "refusals", refusals, _REFUSALS, cursor)
    return _put(lake, "views", _views(log), _VIEWS, cursor) or told


def _views(log: Log) -> list[tuple[object, ...]]:
    here = set(log.views.names())
    found: list[tuple[object, ...]] = []
    for one in log.views.overviews():
        if one.state == NEVER_RUN or one.view not in here:
            continue
        gap = log.view(one.view).audit().gap
        found.append((one.view, one.state, one.version, one.position, one.lag, one.keys, one.letters, gap))
    return found


def _put(lake: Lake, name: str, rows: list[tuple[object, ...]], schema: pa.Schema, cursor: Cursor) -> bool:
    table = lake.table(f"answers/{name}")
    said = zlib.crc32(msgspec.json.encode(rows))
    if table.exists() and table.mark("said") == said and table.cursor(cursor.epoch) is not None:
        return False
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in schema]
    overwrite(table, pa.table(columns, schema=schema), cursor=cursor, marks={"said": said})
    return True
