"""Two answers that are not in the events but read from the log: what it refused, and the state of its views.

answers/refusals    one row per refusal, of the last 90 days
answers/views       one row per view that has been run: lag in positions, and the gap that an audit finds
"""

from __future__ import annotations

import zlib

import msgspec
import pyarrow as pa

from everlog.core.query import Cursor
from everlog.log.log import Log
from everlog.pipeline.engines.engine import Engine
from everlog.pipeline.lake.arrow_files import overwrite
from everlog.pipeline.lake.lake import ANSWERS, Lake
from everlog.pipeline.tables.gold import AS_IT_WAS, REBUILT, ComputedWhole, Done
from everlog.views.builds.overview import NEVER_RUN

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

CHECKSUM = "said"  # the mark keeps the name that lakes have it under


class LogFacts(ComputedWhole):
    """Both tables: only the log itself can fill them."""

    def __init__(self, log: Log) -> None:
        self._log = log

    @property
    def name(self) -> str:
        return f"{ANSWERS}/standing"

    def bring_up_to_date(self, engine: Engine, lake: Lake, *, upto: Cursor) -> Done:
        refusals: list[tuple[object, ...]] = [
            (one.refused_at, one.code, one.operation, one.type, one.actor, one.stream)
            for one in reversed(self._log.refusals(limit=None))
        ]
        changed = [
            _put(lake, "refusals", refusals, _REFUSALS, upto),
            _put(lake, "views", _views(self._log), _VIEWS, upto),
        ]
        return Done(table=self.name, what=REBUILT if any(changed) else AS_IT_WAS, position=upto.position)


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
    """Replace a table if its rows have changed; return True if they have."""
    table = lake.table(f"{ANSWERS}/{name}")
    checksum = zlib.crc32(msgspec.json.encode(rows))
    if table.exists() and table.mark(CHECKSUM) == checksum and table.cursor(cursor.epoch) is not None:
        return False
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in schema]
    overwrite(table, pa.table(columns, schema=schema), cursor=cursor, marks={CHECKSUM: checksum})
    return True
