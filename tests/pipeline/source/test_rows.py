"""A record becomes a row and comes back, with the same bytes and the same hash."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from everlog.core.codec import pack
from everlog.core.event import Recorded
from everlog.log.log import Log
from everlog.pipeline.source.rows import (
    ARROW_SCHEMA,
    COLUMNS,
    EVENT_SCHEMA,
    batch_of,
    packed_of,
    record_of,
    records_of,
    row_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES = [None, "plain", "ünï ☃ 𝄞", 1.5, -0.0, 2**53 - 1, {"b": [1, {"a": None}], "a": True}, ""]


@pytest.fixture
def records(make_log: Callable[..., Log]) -> list[Recorded]:
    with make_log("memory") as log:
        for number, value in enumerate(VALUES):
            log.append(
                "thing.said",
                stream=f"thing/{number % 3}",
                payload={"value": value},
                scope="acme/shop" if number % 2 else "",
                tags={"b": "2", "a": "ü"} if number % 3 == 0 else None,
                correlation_id=str(number),
                occurred_at=datetime(2001, 2, 3, 4, 5, 6, number, tzinfo=timezone(timedelta(hours=number % 3))),
            )
        found = list(log.read())
    signed = [_changed(one, signature=b"s" * 64, path=(b"1" * 32, b"2" * 32)) for one in found[:2]]
    erased = [_changed(one, payload={}, salt=b"") for one in found[2:3]]
    return [*found, *signed, *erased]


def _changed(recorded: Recorded, **changes: Any) -> Recorded:
    return replace(recorded, event=replace(recorded.event, **changes))


def test_the_two_schemas_name_the_same_columns() -> None:
    assert tuple(EVENT_SCHEMA.names) == tuple(ARROW_SCHEMA.names) == COLUMNS
    assert len(COLUMNS) == 24


def test_a_record_comes_back_from_its_row(records: list[Recorded]) -> None:
    for recorded in records:
        assert record_of(row_of(recorded)) == recorded
        assert packed_of(row_of(recorded)) == pack(recorded)


def test_records_come_back_from_an_arrow_batch(records: list[Recorded]) -> None:
    batch = batch_of(records)
    assert batch.schema == ARROW_SCHEMA
    assert list(records_of(batch)) == records
    assert batch_of([]).num_rows == 0


def test_records_come_back_from_spark(spark: SparkSession, records: list[Recorded]) -> None:
    import pyarrow as pa

    frame = spark.createDataFrame(pa.Table.from_batches([batch_of(records)]))
    assert frame.schema == EVENT_SCHEMA
    assert [record_of(row) for row in frame.collect()] == records
    table = frame.toArrow()
    assert [one for batch in table.to_batches() for one in records_of(batch)] == records


def test_a_moment_without_a_zone_is_one_of_this_machine(records: list[Recorded]) -> None:
    row = list(row_of(records[0]))
    row[10] = datetime.fromtimestamp(row[10].timestamp())
    assert record_of(row).event.occurred_at == records[0].event.occurred_at.astimezone(UTC)


def test_a_column_that_says_the_same_in_most_rows_says_something_else_in_some(records: list[Recorded]) -> None:
    """What is said once for a whole batch is what every row says, and a null is not what the others say."""
    batch = batch_of([records[0]] * 3)
    for name in ("type", "scope", "correlation_id", "tags"):
        column = batch.column(name).to_pylist()
        other = batch.set_column(
            COLUMNS.index(name), ARROW_SCHEMA.field(name), pa.array([column[0], None, column[0]])
        )
        found = [getattr(recorded.event, name) for recorded in records_of(other)]
        first = getattr(records[0].event, name)
        assert found == [first, {} if name == "tags" else "", first]
