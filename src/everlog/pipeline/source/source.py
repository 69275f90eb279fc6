"""The source `everlog` of Spark: a log by its URL, as a table or as a stream.

    spark.read.format("everlog").option("url", "sqlite:/data/log.db").load()

Options: `url`; `after` and `upto`, positions or a cursor; what a `Query` has (`types`, `stream`, `kind`, `scope`,
`actor`, `correlation_id`, `since`, `until`); `placeEvents`, how many positions one task reads; for streams also
`maxEventsPerTrigger` and `knows`. A schema that is given must be some of the columns, and then only those travel.

Filters in a WHERE are applied by Spark and not pushed down: Spark 4.3 mixes up the filters of two queries over one
table (docs/decisions/0019). To read less, use the options, or `events(spark, url, query)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from everlog.core.event import Position
from everlog.core.query import EVERYTHING, Cursor, Query
from everlog.errors import InvalidSettings
from everlog.pipeline.session.failures import carried
from everlog.pipeline.source import ranges
from everlog.pipeline.source.ranges import PositionRange
from everlog.pipeline.source.rows import EVENT_SCHEMA

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from everlog.pipeline.source.stream import EverlogStream

NAME = "everlog"
_END = 2**62


def events(
    spark: SparkSession,
    url: str,
    query: Query = EVERYTHING,
    *,
    after: int = 0,
    upto: int | None = None,
    columns: Sequence[str] = (),
    range_events: int = ranges.RANGE_EVENTS,
) -> DataFrame:
    """Return the events of a log as a table. A log that is being written is read up to its head at the first read."""
    reader = spark.read.format(NAME).options(url=ranges.absolute(url), **ranges.options_of(query))
    reader = reader.option("after", after).option("placeEvents", range_events)
    if upto is not None:
        reader = reader.option("upto", upto)
    return (reader.schema(schema_of(columns)) if columns else reader).load()


def schema_of(columns: Sequence[str]) -> StructType:
    """Return the schema of some of the columns."""
    return StructType([EVENT_SCHEMA[name] for name in columns])


class SourceOptions:
    """What the options say: the same for a table and for a stream."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        url = options.get("url", "")
        if not url:
            raise InvalidSettings(
                "the source everlog needs the option url",
                why="it says which log to read",
                hint='spark.read.format("everlog").option("url", "sqlite:/data/log.db").load()',
            )
        self.url = ranges.absolute(url)
        self.query = ranges.query_of(options)
        self.after = Cursor.of(options.get("after", "0"))
        self.upto = Position(ranges.number_of(options, "upto", _END))
        self.size = ranges.number_of(options, "placeEvents", ranges.RANGE_EVENTS, least=1)
        self.columns = _known_columns(schema)

    def cut(self, seen: ranges.Look, after: Position, upto: Position) -> list[InputPartition]:
        found = ranges.cut(self.url, seen, self.query, after, upto, self.size)
        return [EverlogPartition(one) for one in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with carried():
            # If there is nothing to read, Spark passes one partition that is not ours.
            if isinstance(partition, EverlogPartition):
                yield from ranges.batches(partition.range, self.columns)


class EverlogPartition(InputPartition):
    def __init__(self, range: PositionRange) -> None:
        self.range = range


class EverlogSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return EVENT_SCHEMA

    def reader(self, schema: StructType) -> EverlogReader:
        with carried():
            return EverlogReader(SourceOptions(self.options, schema))

    def streamReader(self, schema: StructType) -> EverlogStream:  # noqa: N802 - Spark's name
        from everlog.pipeline.source.stream import EverlogStream

        with carried():
            return EverlogStream(SourceOptions(self.options, schema), self.options)


class EverlogReader(DataSourceReader):
    def __init__(self, reading: SourceOptions) -> None:
        self._reading = reading

    def partitions(self) -> list[InputPartition]:
        reading = self._reading
        with carried():
            return reading.cut(ranges.look(reading.url, reading.query), reading.after.position, reading.upto)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._reading.read(partition)


def _known_columns(schema: StructType) -> tuple[str, ...]:
    """Return the columns of a schema; their types must be those of the source, because nothing is converted."""
    for field in schema.fields:
        if field.name not in EVENT_SCHEMA.names:
            raise InvalidSettings(
                f"there is no column {field.name}",
                why="the columns are " + ", ".join(EVENT_SCHEMA.names),
                hint="leave the schema out to get them all",
            )
        expected = EVENT_SCHEMA[field.name].dataType
        if field.dataType != expected:
            raise InvalidSettings(
                f"the column {field.name} is {expected.simpleString()}, not {field.dataType.simpleString()}",
                why="the source gives its columns as they are",
                hint="cast it afterwards",
            )
    return tuple(schema.names)
