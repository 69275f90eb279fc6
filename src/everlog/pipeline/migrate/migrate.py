"""Foreign history as a new log: read, checked and ordered by Spark.

    files ── chunks ──┬── survey on Spark: counts, problems, clock ──> refused, if anything is wrong
                      └── events on Spark: ids, hashes, positions, sequences ──> staged as Parquet
    staged, in order ──> a draft of the new log ── read again from its bytes, compared ──> its own name

Reading is parallel; writing is done by the store's one writer, in batches of stored bytes as in a copy. Nothing of
the new log is visible before it is complete. Ids, hashes and order follow from the files alone: the same files
give the same log, wherever and however often they are migrated, and a migration that was stopped can be continued.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from everlog.core.clock import JUMP_MAX
from everlog.core.codec import Packed
from everlog.core.event import Position, Recorded
from everlog.errors import BadFile, ClockJump, Conflict
from everlog.pipeline.migrate import chunks as reading
from everlog.pipeline.migrate.chunks import Chunk, Start, Surveyed
from everlog.pipeline.session.failures import carried, own_errors
from everlog.pipeline.source.rows import ARROW_SCHEMA, COLUMNS, batch_of, packed_of
from everlog.stores.contract import Store
from everlog.stores.identity import new_identity
from everlog.stores.small_state import NOTES, read_note
from everlog.transfer.copy import UNFINISHED, Target, compare_with
from everlog.transfer.import_pass import PROBLEMS_MAX, Options
from everlog.transfer.survey import Summary, Survey, batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH = 2_000
_ROWS_AT_ONCE = 5_000
_READ_SCHEMA = ARROW_SCHEMA.append(pa.field("chunk", pa.int32())).append(pa.field("number", pa.int64()))
READ_SCHEMA = _READ_SCHEMA.append(pa.field("content", pa.binary()))
_SURVEY_SCHEMA = pa.schema([("survey", pa.binary())])


class Migrated(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a migration. The digest is the one that `verify` prints for the new log."""

    files: int
    events: int
    repeated: int  # lines that another file holds too
    digest: str
    shapes: dict[str, int]
    types: dict[str, int]
    not_events: dict[str, int]
    resumed_at: int = 0
    dry_run: bool = False


class _Begun(msgspec.Struct, frozen=True):
    """What an unfinished log is made from, and when it was begun."""

    migration: str
    received_us: int


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """Events that are staged in order, with their positions in the log to be written."""

    begun: _Begun
    staged: Sequence[Path]
    events: int
    found: Migrated


def migrate(
    spark: SparkSession,
    paths: Sequence[Path],
    target: Target,
    staging: Path,
    options: Options | None = None,
    *,
    dry_run: bool = False,
    chunk_bytes: int = reading.CHUNK_BYTES,
    progress: Callable[[int], None] = lambda position: None,
) -> Migrated:
    """Make a new log of files. `staging` is a folder that Spark and this process see; it can be removed later."""
    prepared = prepare(spark, paths, target, staging, options, dry_run=dry_run, chunk_bytes=chunk_bytes)
    return write(target, prepared, progress=progress)


def prepare(
    spark: SparkSession,
    paths: Sequence[Path],
    target: Target,
    staging: Path,
    options: Options | None = None,
    *,
    dry_run: bool = False,
    chunk_bytes: int = reading.CHUNK_BYTES,
    now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
) -> Prepared:
    """Do Spark's part: read, check, order and stage everything. A draft of the log is begun, and is empty."""
    chosen = options or Options()
    with own_errors("reading the files"):
        chunks = reading.chunks_of(paths, csv=chosen.mapping is not None, chunk_bytes=chunk_bytes)
        surveys = _surveys(spark, chunks, chosen, now_us() // 1000)
        starts = _starts(surveys)
        _refuse_problems(surveys)
        _refuse_jump(starts[-1], surveys, chosen)
        begun = _Begun(_fingerprint(chunks, surveys, chosen), now_us())
        if dry_run:
            events = _deduplicated(_read(spark, chunks, starts[:-1], chosen)).count()
            return Prepared(
                begun=begun, staged=(), events=events, found=_found(chunks, surveys, events, dry_run=True)
            )
        with closing(target.open(new_identity(begun.received_us))) as draft:
            begun = _begin(draft, target, begun)
        staged = _staged(spark, chunks, starts[:-1], chosen, staging / begun.migration[:16], begun.received_us)
        events = sum(pq.read_metadata(path).num_rows for path in staged)
        return Prepared(begun=begun, staged=staged, events=events, found=_found(chunks, surveys, events))


def write(target: Target, prepared: Prepared, *, progress: Callable[[int], None] = lambda position: None) -> Migrated:
    """Do the store's part: write the log, read it again from its bytes, and give it its name.

    `progress` is called with positions, up to twice the events: each is written once and read again once.
    """
    if prepared.found.dry_run:
        return prepared.found
    with closing(target.open(new_identity(prepared.begun.received_us))) as draft:
        _begin(draft, target, prepared.begun)
        resumed_at = int(draft.head())
        summary = _write(draft, prepared.staged, progress)
        compare_with(summary, draft, progress)
        with draft.open_write() as writer:
            writer.put(NOTES, {UNFINISHED: None})
    target.swap()
    return msgspec.structs.replace(prepared.found, digest=summary.digest, resumed_at=resumed_at)


# ---- the survey


def _surveys(spark: SparkSession, chunks: list[Chunk], options: Options, now_ms: int) -> list[Surveyed]:
    def look(found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in found:
            with carried():
                surveys = [
                    msgspec.msgpack.encode(reading.survey(chunks[number], options, now_ms=now_ms))
                    for number in batch.column(0).to_pylist()
                ]
            yield pa.record_batch([pa.array(surveys, pa.binary())], schema=_SURVEY_SCHEMA)

    rows = _over(spark, chunks).mapInArrow(look, "survey binary").collect()
    found = [msgspec.msgpack.decode(bytes(row[0]), type=Surveyed) for row in rows]
    return sorted(found, key=lambda survey: survey.number)


def _starts(surveys: list[Surveyed]) -> list[Start]:
    """Return the start of each chunk, and last the end of all."""
    starts = [Start()]
    for survey in surveys:
        starts.append(survey.end(starts[-1]))
    return starts


def _refuse_problems(surveys: list[Surveyed]) -> None:
    problems = [problem for survey in surveys for problem in survey.problems]
    if problems:
        raise BadFile(
            f"{len(problems):,} lines cannot be migrated",
            why=problems[0],
            hint="correct them, or leave them out; nothing was written",
            problems=problems[:PROBLEMS_MAX],
        )


def _refuse_jump(end: Start, surveys: list[Surveyed], options: Options) -> None:
    if end.lamport - sum(survey.events for survey in surveys) > JUMP_MAX and not options.trust_clock:
        raise ClockJump(
            f"the events have clock values up to {end.lamport}",
            why=f"that is more than {JUMP_MAX} above their number, and would use up the clock of the new log",
            hint="correct them, or accept them with --trust-clock",
            lamport=end.lamport,
        )


def _fingerprint(chunks: list[Chunk], surveys: list[Surveyed], options: Options) -> str:
    """Return a hash of everything that decides the bytes of the new log, except the time of arrival."""
    files = [(chunk.name, chunk.start, survey.digest) for chunk, survey in zip(chunks, surveys, strict=True)]
    return hashlib.sha256(msgspec.json.encode((files, options.namespace, repr(options.mapping)))).hexdigest()


# ---- the events


def _over(spark: SparkSession, chunks: list[Chunk]) -> DataFrame:
    """One task per chunk."""
    return spark.range(0, len(chunks), 1, len(chunks)).toDF("chunk")


def _read(spark: SparkSession, chunks: list[Chunk], starts: list[Start], options: Options) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    def events(found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in found:
            with carried():
                for number in batch.column(0).to_pylist():
                    yield from _rows(chunks[number], options, starts[number])

    return _over(spark, chunks).mapInArrow(events, from_arrow_schema(READ_SCHEMA))


def _rows(chunk: Chunk, options: Options, start: Start) -> Iterator[pa.RecordBatch]:
    number = 0
    for some in batches(reading.items(chunk, options, start), _ROWS_AT_ONCE):
        rows = batch_of(Recorded(Position(0), 0, 0, item.sealed.event) for item in some)
        more = [
            pa.array([chunk.number] * len(some), pa.int32()),
            pa.array(range(number, number + len(some)), pa.int64()),
            pa.array([item.stable for item in some], pa.binary()),
        ]
        number += len(some)
        yield pa.record_batch([*rows.columns, *more], schema=READ_SCHEMA)


def _deduplicated(events: DataFrame) -> DataFrame:
    """Keep each line once, at its first occurrence: files that were merged, or overlap, hold the same lines."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    first = Window.partitionBy("content").orderBy("chunk", "number")
    return events.withColumn("nth", f.row_number().over(first)).where("nth = 1").drop("nth")


def _staged(
    spark: SparkSession, chunks: list[Chunk], starts: list[Start], options: Options, folder: Path, received_us: int
) -> list[Path]:
    """Write every event with its position in the new log, as Parquet files in the order of positions."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    read, placed = folder / "read", folder / "placed"
    _read(spark, chunks, starts, options).write.mode("overwrite").parquet(str(read))
    events = _deduplicated(spark.read.parquet(str(read)))
    _refuse_shared_ids(events)
    counts = {row["chunk"]: row["count"] for row in events.groupBy("chunk").count().collect()}
    bases, base = [], 0
    for chunk in chunks:
        bases.append((chunk.number, base))
        base += counts.get(chunk.number, 0)
    before = f.broadcast(spark.createDataFrame(bases, "chunk int, base long"))
    position = f.row_number().over(Window.partitionBy("chunk").orderBy("number")) + f.col("base")
    sequence = f.row_number().over(Window.partitionBy("stream").orderBy("position")).cast("long")
    (
        events.join(before, "chunk")
        .withColumn("position", position.cast("long"))
        .withColumn("sequence", sequence)
        .withColumn("received_at", f.timestamp_micros(f.lit(received_us)))
        .select(*COLUMNS)
        .repartitionByRange("position")
        .sortWithinPartitions("position")
        .write.mode("overwrite")
        .parquet(str(placed))
    )
    return sorted((path for path in placed.glob("*.parquet") if _first(path)), key=_first)


def _first(path: Path) -> int:
    """Return the least position in a file; 0 if it is empty."""
    meta = pq.read_metadata(path)
    return int(meta.row_group(0).column(0).statistics.min) if meta.num_row_groups else 0


def _refuse_shared_ids(events: DataFrame) -> None:
    shared = [row["id"] for row in events.groupBy("id").count().where("count > 1").limit(PROBLEMS_MAX).collect()]
    if shared:
        raise BadFile(
            f"{len(shared):,} ids occur on lines with different content",
            why=f"an id names one event forever; the first of them is {shared[0]}",
            hint="correct them, or leave them out; nothing was written",
            problems=shared,
        )


# ---- the new log


def _begin(draft: Store, target: Target, begun: _Begun) -> _Begun:
    """Claim an empty draft for these files, or recognise the draft of them."""
    found = read_note(draft.small_state, UNFINISHED)
    if found is None:
        if draft.head() or next(draft.small_state.every_row(), None) is not None:
            raise Conflict(
                f"{target.draft} is already a log",
                why="a migration makes a new log, and never writes into one",
                hint="name another URL; everlog import adds events to a log that is there",
            )
        with draft.open_write() as writer:
            writer.put(NOTES, {UNFINISHED: msgspec.json.encode(begun)})
        return begun
    try:
        there = msgspec.json.decode(found, type=_Begun)
    except msgspec.ValidationError:
        there = _Begun("a copy", 0)
    if there.migration != begun.migration:
        raise Conflict(
            f"{target.draft} is an unfinished log of something else",
            why="a migration can only be continued from the files that it was begun from",
            hint=f"continue that one, or remove {target.draft} and begin again",
        )
    return there


def _write(draft: Store, staged: Sequence[Path], progress: Callable[[int], None]) -> Summary:
    seen, clock, there = Survey(draft.identity.origin, []), 0, draft.head()
    for some in batches(_packed(staged), BATCH):
        for place, lamport in some:
            seen.take(place)
            clock = max(clock, lamport)
        new = [place for place, _ in some if place.position > there]
        if new:
            with draft.open_write() as writer:
                writer.copy_in(new)
        progress(seen.head)
    with draft.open_write() as writer:
        if writer.clock < clock:
            writer.tick(seen=clock - 1)
    return seen.end()


def _packed(staged: Iterable[Path]) -> Iterator[tuple[Packed, int]]:
    lamport = COLUMNS.index("lamport")
    for path in staged:
        for batch in pq.ParquetFile(path).iter_batches(batch_size=BATCH):
            columns: list[list[Any]] = [column.to_pylist() for column in batch.columns]
            for row in zip(*columns, strict=True):
                yield packed_of(row), row[lamport]


def _found(chunks: list[Chunk], surveys: list[Surveyed], events: int, *, dry_run: bool = False) -> Migrated:
    return Migrated(
        files=len({chunk.path for chunk in chunks}),
        events=events,
        repeated=sum(survey.events for survey in surveys) - events,
        digest="",
        shapes=_sum(survey.shapes for survey in surveys),
        types=_sum(survey.types for survey in surveys),
        not_events=_sum(survey.not_events for survey in surveys),
        dry_run=dry_run,
    )


def _sum(counts: Iterable[Any]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for some in counts:
        total.update(some)
    return dict(sorted(total.items()))
