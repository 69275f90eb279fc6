"""The answers that few events give without Spark: those that count all events, and those that have nothing to say.

    growth, activity     counted here, by Arrow
    any other            an empty table, if the log has no event of a type that it asks for; else it takes Spark

`questions.py` is what an answer is: the schemas and the two counts here must say the same, and a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import pyarrow as pa
import pyarrow.compute as pc

_TEXT, _COUNT, _DAY, _HOURS = pa.string(), pa.int64(), pa.date32(), pa.float64()
_MOMENT = pa.timestamp("us", tz="UTC")

SCHEMAS: Mapping[str, pa.Schema] = {
    "flow": pa.schema(
        [
            ("scope", _TEXT),
            ("lane", _TEXT),
            ("planned_at", _MOMENT),
            ("begun_at", _MOMENT),
            ("done_at", _MOMENT),
            ("sent_back", _COUNT),
            ("planned_hours", _HOURS),
            ("doing_hours", _HOURS),
            ("for_review_hours", _HOURS),
            ("lead_hours", _HOURS),
            ("cycle_hours", _HOURS),
            ("work_package", _TEXT),
        ]
    ),
    "flow_daily": pa.schema(
        [("day", _DAY), *((name, _COUNT) for name in ("planned", "begun", "done", "in_progress"))]
    ),
    "flow_weekly": pa.schema(
        [
            ("week", _DAY),
            ("done", _COUNT),
            *((f"{what}_p{part}", _HOURS) for what in ("lead", "cycle") for part in (50, 85, 95)),
        ]
    ),
    "conflicts": pa.schema(
        [
            ("work_package", _TEXT),
            ("at", _MOMENT),
            *((name, _TEXT) for name in ("won_lane", "won_by", "won_id", "lost_lane", "lost_by", "lost_id")),
        ]
    ),
    "deploys": pa.schema(
        [
            ("scope", _TEXT),
            ("requested_by", _TEXT),
            ("requested_at", _MOMENT),
            ("ended_at", _MOMENT),
            ("outcome", _TEXT),
            ("minutes", _HOURS),
            ("deploy", _TEXT),
        ]
    ),
    "activity": pa.schema(
        [("day", _DAY), ("actor", _TEXT), ("scope", _TEXT), ("events", _COUNT), ("streams", _COUNT)]
    ),
    "talk": pa.schema([("day", _DAY), ("scope", _TEXT), ("type", _TEXT), ("events", _COUNT), ("people", _COUNT)]),
    "growth": pa.schema([("day", _DAY), ("type", _TEXT), ("events", _COUNT), ("bytes", _COUNT), ("total", _COUNT)]),
}

_ASKED_FOR: Mapping[str, str | tuple[str, ...]] = {
    "flow": "WP",
    "flow_daily": "WP",
    "flow_weekly": "WP",
    "conflicts": "WP",
    "deploys": "control.deploy.",
    "talk": ("chat.", "market."),
}
"""How the types begin that a question is about: without any such event its answer is empty."""


def few_answer(name: str, events: pa.Table, types: Collection[str]) -> pa.Table | None:
    """The answer to a question over all events; None if it takes Spark."""
    if (count := _COUNTED.get(name)) is not None:
        return count(events)
    if any(event_type.startswith(_ASKED_FOR[name]) for event_type in types):
        return None
    return SCHEMAS[name].empty_table()


def _activity(events: pa.Table) -> pa.Table:
    rows = events.select(["actor", "scope", "stream"]).append_column("day", _day(events.column("occurred_at")))
    found = rows.group_by(["day", "actor", "scope"]).aggregate([("stream", "count"), ("stream", "count_distinct")])
    named = found.rename_columns({"stream_count": "events", "stream_count_distinct": "streams"})
    order = [(name, "ascending") for name in ("day", "actor", "scope")]
    return named.select(SCHEMAS["activity"].names).cast(SCHEMAS["activity"]).sort_by(order)


def _growth(events: pa.Table) -> pa.Table:
    payload_bytes = pc.fill_null(pc.binary_length(events.column("payload")), 0).cast(_COUNT)
    rows = events.select(["type"]).append_column("day", _day(events.column("received_at")))
    found = (
        rows.append_column("bytes", payload_bytes)
        .group_by(["day", "type"])
        .aggregate([("bytes", "count"), ("bytes", "sum")])
        .rename_columns({"bytes_count": "events", "bytes_sum": "bytes"})
        .sort_by([("day", "ascending"), ("type", "ascending")])
    )
    so_far: dict[str, int] = {}
    totals = []
    for event_type, count in zip(found.column("type").to_pylist(), found.column("events").to_pylist(), strict=True):
        so_far[event_type] = so_far.get(event_type, 0) + count
        totals.append(so_far[event_type])
    whole = found.append_column("total", pa.array(totals, _COUNT))
    return whole.select(SCHEMAS["growth"].names).cast(SCHEMAS["growth"])


def _day(moments: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.floor_temporal(moments, unit="day").cast(_DAY)


_COUNTED: Mapping[str, Callable[[pa.Table], pa.Table]] = {"activity": _activity, "growth": _growth}
