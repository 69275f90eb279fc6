"""The source `everlog` of Spark: a log by its URL, as a table or as a stream.

    spark.read.format("everlog").option("url", "sqlite:/data/log.db").load()

Options: `url`; `after` and `upto`, positions or a cursor; what a `Query` has (`types`, `stream`, `kind`, `scope`,
`actor`, `correlation_id`, `since`, `until`); `placeEvents`, how many positions one task reads; for streams also
`maxEventsPerTrigger` and `knows`. A schema that is given must be some of the columns, and then only those travel.

Filters in a WHERE are judged by Spark, and not pushed down: Spark 4.3 mixes up the filters of two queries over one
table (docs/decisions/0019). What should not even be read is said in the options, or with `events(spark, url, query)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from everlog.core.event import Position
from everlog.core.query import EVERYTHING, Cursor, Query
from everlog.errors import InvalidSettings
from everlog.pipeline import places
from everlog.pipeline.failures import carried
from everlog.pipeline.places import Place
from everlog.pipeline.rows import EVENT_SCHEMA

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from everlog.pipeline.stream import EverlogStream

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
    place_events: int = places.PLACE_EVENTS,
) -> DataFrame:
    """The events of a log as a table. Of a log that is being written: up to its head when it is first read."""
    reader = spark.read.format(NAME).options(url=places.absolute(url), **places.options_of(query))
    reader = reader.option("after", after).option("placeEvents", place_events)
    if upto is not None:
        reader = reader.option("upto", upto)
    return (reader.schema(schema_of(columns)) if columns else reader).load()


def schema_of(columns: Sequence[str]) -> StructType:
    """The schema of some of the columns."""
    return StructType([EVENT_SCHEMA[name] for name in columns])


class Reading:
    """What the options ask for: the same for a table and for a stream."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        url = options.get("url", "")
        if not url:
            raise InvalidSettings(
                "the source everlog needs the option url",
                why="it says which log to read",
                hint='spark.read.format("everlog").option("url", "sqlite:/data/log.db").load()',
            )
        self.url = places.absolute(url)
        self.query = places.query_of(options)
        self.after = Cursor.of(options.get("after", "0"))
        self.upto = Position(places.number_of(options, "upto", _END))
        self.size = places.number_of(options, "placeEvents", places.PLACE_EVENTS, least=1)
        self.columns = _known_columns(schema)

    def cut(self, seen: places.Look, after: Position, upto: Position) -> list[InputPartition]:
        found = places.cut(self.url, seen, self.query, after, upto, self.size)
        return [EverlogPartition(place) for place in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with carried():
            # Without anything to read Spark asks for one partition of nothing.
            if isinstance(partition, EverlogPartition):
                yield from places.batches(partition.place, self.columns)


class EverlogPartition(InputPartition):
    def __init__(self, place: Place) -> None:
        self.place = place


class EverlogSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return EVENT_SCHEMA

    def reader(self, schema: StructType) -> EverlogReader:
        with carried():
            return EverlogReader(Reading(self.options, schema))

    def streamReader(self, schema: StructType) -> EverlogStream:  # noqa: N802 - Spark's name
        from everlog.pipeline.stream import EverlogStream

        with carried():
            return EverlogStream(Reading(self.options, schema), self.options)


class EverlogReader(DataSourceReader):
    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def partitions(self) -> list[InputPartition]:
        reading = self._reading
        with carried():
            return reading.cut(places.look(reading.url, reading.query), reading.after.position, reading.upto)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._reading.read(partition)


def _known_columns(schema: StructType) -> tuple[str, ...]:
    """The columns that a schema asks for; types must be ours, because nothing is converted."""
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
