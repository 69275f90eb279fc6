"""Declared views in Spark SQL: the same rows as the fold, without a call of Python for every event.

    events -> who won, how many, which ones: one GROUP BY -> a state for each key, rendered in Python

SQL only finds the events that count: for a field of the payload it takes the whole text of the winner, and the value
is read out of that as the fold reads it. So numbers, texts and objects keep their exact form, and the digest is that
of the fold. Where SQL could not tell the difference (an event that has to be upcast first, a set of what is no text)
it is not taken at all: `why_not` says so, and the view is folded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from everlog.catalog.catalog import Catalog
from everlog.core.codec import read_payload
from everlog.pipeline.failures import carried
from everlog.pipeline.fold import matches
from everlog.pipeline.sorted_fold import FOLDED_SCHEMA, ROW
from everlog.views.declared import PAYLOAD, Count, DeclaredView, Distinct, First, Last, moment_text
from everlog.views.rows import SOURCES_MAX
from everlog.views.view import Order, state_bytes

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_json = msgspec.json.Encoder().encode


def why_not(events: DataFrame, view: DeclaredView, catalog: Catalog) -> str:
    """Why these events cannot be left to SQL; empty if they can."""
    from pyspark.sql import functions as sql

    taken = events.where(matches(view.query))
    old = sql.lit(False)
    for event_type, latest, _ in catalog.readings(view.types):
        if latest > 1:
            old |= (sql.col("type") == event_type) & (sql.col("version") < latest)
    texts = sql.lit(True)
    for name in _sets_of_payload(view):
        # The text is canonical: a key with a text behind it has no space between them.
        is_text = sql.contains(sql.col("payload"), sql.lit(f'"{name}":"'))
        texts &= _payload_value(name).isNull() | is_text
    found = taken.where(old | ~texts).select("position", old.alias("old")).limit(1).collect()
    if not found:
        return ""
    what = "is of an old version" if found[0]["old"] else "has something else than a text where a set is asked for"
    return f"event #{found[0]['position']} {what}"


def fold_declared(events: DataFrame, view: DeclaredView) -> DataFrame:
    """The rows of a declared view, as `fold_view` gives them. Ask `why_not` first."""
    from pyspark.sql import functions as sql
    from pyspark.sql.pandas.types import from_arrow_schema

    causal = view.order is Order.CAUSAL
    order = sql.struct("lamport", "id") if causal else sql.col("position")
    taken = events.where(matches(view.query)).withColumn("key", sql.col(view.by)).withColumn("order", order)
    columns = [
        _column(name, reduction) for name, reduction in view.fields.items() if not isinstance(reduction, Count)
    ]
    last = sql.max(sql.struct("lamport", "id")) if causal else sql.lit(None).cast("struct<lamport:long,id:string>")
    found = taken.groupBy("key").agg(
        sql.max("position").alias("position"), sql.count(sql.lit(1)).alias("count"), last.alias("last"), *columns
    )
    found = found.join(_sources(taken), "key") if not view.by_stream else found.withColumn("sources", sql.lit(None))
    return found.mapInArrow(partial(_render, view.fields), from_arrow_schema(FOLDED_SCHEMA))


def _column(name: str, reduction: Any) -> Column:
    """What is taken of the events for one field: the winner's value or whole payload, or the set."""
    from pyspark.sql import functions as sql

    if not reduction.of.startswith(PAYLOAD):
        value, present = sql.col(reduction.of), sql.lit(True)
    elif isinstance(reduction, Distinct):
        value, present = _payload_value(reduction.of.removeprefix(PAYLOAD)), sql.lit(True)
    else:
        value = sql.col("payload")
        present = _payload_value(reduction.of.removeprefix(PAYLOAD)).isNotNull()
    taken = sql.when(present, value)
    match reduction:
        case Last():
            found = sql.max_by(taken, sql.when(present, sql.col("order")))
        case First():
            found = sql.min_by(taken, sql.when(present, sql.col("order")))
        case Distinct():
            found = sql.collect_set(taken)
        case _:
            raise TypeError(reduction)
    return found.alias(f"of {name}")


def _payload_value(name: str) -> Column:
    from pyspark.sql import functions as sql

    return sql.get_json_object(sql.col("payload"), f"$['{name}']")


def _sets_of_payload(view: DeclaredView) -> list[str]:
    return [
        reduction.of.removeprefix(PAYLOAD)
        for reduction in view.fields.values()
        if isinstance(reduction, Distinct) and reduction.of.startswith(PAYLOAD)
    ]


def _sources(taken: DataFrame) -> DataFrame:
    """The streams that fed each key, as long as they are few."""
    from pyspark.sql import functions as sql

    each = taken.select("key", "stream").distinct()
    listed = sql.to_json(sql.sort_array(sql.collect_list("stream")))
    return each.groupBy("key").agg(sql.when(sql.count(sql.lit(1)) <= SOURCES_MAX, listed).alias("sources"))


# ---- in the workers


def _render(fields: Any, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with carried():
        for batch in batches:
            columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
            states = [_state(fields, columns, number) for number in range(batch.num_rows)]
            lasts = [last or {"lamport": 0, "id": ""} for last in columns["last"]]
            given = {
                "what": [ROW] * batch.num_rows,
                "position": columns["position"],
                "lamport": [last["lamport"] for last in lasts],
                "id": [last["id"] for last in lasts],
                "key": columns["key"],
                "count": columns["count"],
                "sources": columns["sources"],
                "state": states,
            }
            arrays = [pa.array(given.get(field.name, [None] * batch.num_rows), field.type) for field in FOLDED_SCHEMA]
            yield pa.RecordBatch.from_arrays(arrays, schema=FOLDED_SCHEMA)


def _state(fields: Any, columns: dict[str, list[Any]], number: int) -> str:
    state: dict[str, Any] = {}
    for name, reduction in fields.items():
        match reduction:
            case Count():
                state[name] = columns["count"][number]
            case Distinct():
                if texts := columns[f"of {name}"][number]:
                    state[name] = sorted(texts)
            case Last(of) | First(of):
                value = columns[f"of {name}"][number]
                if value is not None and of.startswith(PAYLOAD):
                    value = read_payload(value)[of.removeprefix(PAYLOAD)]
                if value is not None:
                    state[name] = moment_text(value.astimezone(UTC)) if isinstance(value, datetime) else value
    return state_bytes(state).decode()
