"""A log as a stream of Spark: offsets are cursors, so that a query continues where it was, exactly once.

    {"log": "01K…", "epoch": "k3f9…", "position": 1200, "knows": 0, "proof": "5c0f…"}

Spark keeps the offsets of a query in its checkpoint, and requests the same range again if it does not know whether it
was written. If history has changed before an offset (a purge, a restore), the query fails with `history_changed`, and
its details say where to continue: correct what was derived, then start the query again with the option `knows`, or
with a new checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from everlog.core.event import START, Position
from everlog.core.query import Cursor
from everlog.log.read.resets import find_reset, proof_at
from everlog.pipeline.session.failures import carried
from everlog.pipeline.source import ranges
from everlog.pipeline.source.ranges import Look, Mark
from everlog.pipeline.source.source import SourceOptions

Offset = dict[str, Any]


class EverlogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, reading: SourceOptions, options: Mapping[str, str]) -> None:
        self._reading = reading
        self._events_max = ranges.number_of(options, "maxEventsPerTrigger", 0)
        self._knows = Position(ranges.number_of(options, "knows", 0))
        self._target: Position | None = None  # the end of a query that reads only what is there now

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's names, from here on
        with carried():
            seen = self._look()
            start = self._reading.after
            # A query that starts at the beginning holds nothing that an old purge could concern.
            knows = seen.mark.purged if start.position == START else start.knows
            self._require_unchanged(Cursor(start.position, knows, start.epoch, start.proof))
            return self._offset(seen.mark, start.position, knows)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        with carried():
            seen = self._look()
            cursor = _cursor(start)
            if start["log"] != seen.mark.log:
                raise ranges.another_log(self._reading.url, start["log"], seen.mark.log)
            self._require_unchanged(cursor)
            end = min(seen.head, self._reading.upto, self._target if self._target is not None else seen.head)
            if isinstance(limit, ReadMaxRows):
                end = Position(min(end, cursor.position + limit.max_rows))
            if end <= cursor.position:
                return start
            return self._offset(seen.mark, end, max(cursor.knows, self._knows))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._events_max) if self._events_max else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with carried():
            self._target = self._look().head

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        with carried():
            seen = self._look()
            return self._offset(seen.mark, min(seen.head, self._reading.upto), START)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        with carried():
            # Every purge up to the end was known when the end was planned; a worker detects those that came later.
            known = max(end["position"], end["knows"], self._knows)
            mark = Mark(end["log"], end["epoch"], Position(known), Position(end["position"]), end.get("proof", ""))
            seen = Look(mark, Position(end["position"]))
            return self._reading.cut(seen, Position(start["position"]), Position(end["position"]))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._reading.read(partition)

    def _look(self) -> Look:
        return ranges.look(self._reading.url, self._reading.query)

    def _require_unchanged(self, cursor: Cursor) -> None:
        with ranges.opened(self._reading.url) as store:
            seen = ranges.look_at(store, self._reading.query)
            held = msgspec.structs.replace(cursor, knows=max(cursor.knows, self._knows))
            reset = find_reset(store, held, seen.head, seen.mark.purged)
        if reset is not None:
            raise ranges.changed(self._reading.url, cursor, reset)

    def _offset(self, mark: Mark, position: Position, knows: Position) -> Offset:
        proof = mark.proof
        if position != mark.proved:
            with ranges.opened(self._reading.url) as store:
                proof = proof_at(store, position)
        return {
            "log": mark.log,
            "epoch": mark.epoch,
            "position": position,
            "knows": knows if knows > position else START,
            "proof": proof,
        }


def _cursor(offset: Offset) -> Cursor:
    return Cursor(Position(offset["position"]), Position(offset["knows"]), offset["epoch"], offset.get("proof", ""))
