"""Foreign history into a new log, read, checked and put in order by Spark.

    files ── pieces ──┬── survey on Spark: counts, problems, clock ──> refused, if anything is wrong
                      └── events on Spark: ids, hashes, positions, sequences ──> staged as Parquet
    staged, in order ──> a draft of the new log ── read again from its bytes, compared ──> its own name

The reading is parallel, the writing is the store's one writer: batches of stored bytes, as a copy makes them. Nothing
of the new log is seen before it is whole. Ids, hashes and order follow from the files alone: the same files give the
same log, wherever and how often they are migrated, and a migration that was stopped goes on.
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
from everlog.cutover.copy import UNFINISHED, Target, compare_with
from everlog.cutover.importing import PROBLEMS_MAX, Options
from everlog.cutover.survey import Summary, Survey, batches
from everlog.errors import BadFile, ClockJump, Conflict
from everlog.pipeline import pieces as reading
from everlog.pipeline.failures import carried, own_errors
from everlog.pipeline.pieces import Piece, Start, Surveyed
from everlog.pipeline.rows import ARROW_SCHEMA, COLUMNS, batch_of, packed_of
from everlog.stores.contract import Store
from everlog.stores.identity import new_identity

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH = 2_000
_ROWS_AT_ONCE = 5_000
_READ_SCHEMA = ARROW_SCHEMA.append(pa.field("piece", pa.int32())).append(pa.field("number", pa.int64()))
READ_SCHEMA = _READ_SCHEMA.append(pa.field("said", pa.binary()))
_SURVEY_SCHEMA = pa.schema([("survey", pa.binary())])


class Migrated(msgspec.Struct, frozen=True, kw_only=True):
    """What a migration found and made. The digest is the one that `verify` prints of the new log."""

    files: int
    events: int
    repeated: int  # lines that stood in another file already
    digest: str
    shapes: dict[str, int]
    types: dict[str, int]
    not_events: dict[str, int]
    resumed_at: int = 0
    dry_run: bool = False


class _Begun(msgspec.Struct, frozen=True):
    """What an unfinished log is made of, and when it was begun."""

    migration: str
    received_us: int


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """Events on their way: staged in order, with their places in the log that is to be written."""

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
    piece_bytes: int = reading.PIECE_BYTES,
    progress: Callable[[int], None] = lambda position: None,
) -> Migrated:
    """Make a new log of files. `staging` is a folder that Spark and this process see; it may be removed after."""
    prepared = prepare(spark, paths, target, staging, options, dry_run=dry_run, piece_bytes=piece_bytes)
    return write(target, prepared, progress=progress)


def prepare(
    spark: SparkSession,
    paths: Sequence[Path],
    target: Target,
    staging: Path,
    options: Options | None = None,
    *,
    dry_run: bool = False,
    piece_bytes: int = reading.PIECE_BYTES,
    now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
) -> Prepared:
    """Spark's part: everything read, checked, put in order and staged. A draft of the log is begun, and is empty."""
    chosen = options or Options()
    with own_errors("reading the files"):
        pieces = reading.pieces_of(paths, csv=chosen.mapping is not None, piece_bytes=piece_bytes)
        surveys = _surveys(spark, pieces, chosen, now_us() // 1000)
        starts = _starts(surveys)
        _refuse_problems(surveys)
        _refuse_jump(starts[-1], surveys, chosen)
        begun = _Begun(_fingerprint(pieces, surveys, chosen), now_us())
        if dry_run:
            events = _deduplicated(_read(spark, pieces, starts[:-1], chosen)).count()
            return Prepared(
                begun=begun, staged=(), events=events, found=_found(pieces, surveys, events, dry_run=True)
            )
        with closing(target.open(new_identity(begun.received_us))) as draft:
            begun = _begin(draft, target, begun)
        staged = _staged(spark, pieces, starts[:-1], chosen, staging / begun.migration[:16], begun.received_us)
        events = sum(pq.read_metadata(path).num_rows for path in staged)
        return Prepared(begun=begun, staged=staged, events=events, found=_found(pieces, surveys, events))


def write(target: Target, prepared: Prepared, *, progress: Callable[[int], None] = lambda position: None) -> Migrated:
    """The store's part: what was staged becomes the log, is read again from its bytes, and gets its name.

    `progress` is told positions out of twice the events: each is written once and read again once.
    """
    if prepared.found.dry_run:
        return prepared.found
    with closing(target.open(new_identity(prepared.begun.received_us))) as draft:
        _begin(draft, target, prepared.begun)
        resumed_at = int(draft.head())
        summary = _write(draft, prepared.staged, progress)
        compare_with(summary, draft, progress)
        with draft.write() as writer:
            writer.note(UNFINISHED, None)
    target.swap()
    return msgspec.structs.replace(prepared.found, digest=summary.digest, resumed_at=resumed_at)


# ---- the survey


def _surveys(spark: SparkSession, pieces: list[Piece], options: Options, now_ms: int) -> list[Surveyed]:
    def look(found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in found:
            with carried():
                told = [
                    msgspec.msgpack.encode(reading.survey(pieces[number], options, now_ms=now_ms))
                    for number in batch.column(0).to_pylist()
                ]
            yield pa.record_batch([pa.array(told, pa.binary())], schema=_SURVEY_SCHEMA)

    rows = _over(spark, pieces).mapInArrow(look, "survey binary").collect()
    found = [msgspec.msgpack.decode(bytes(row[0]), type=Surveyed) for row in rows]
    return sorted(found, key=lambda survey: survey.number)


def _starts(surveys: list[Surveyed]) -> list[Start]:
    """What stands above each piece, and at last above nothing."""
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


def _fingerprint(pieces: list[Piece], surveys: list[Surveyed], options: Options) -> str:
    """What decides every byte of the new log but the time of its arrival."""
    said = [(piece.name, piece.start, survey.digest) for piece, survey in zip(pieces, surveys, strict=True)]
    return hashlib.sha256(msgspec.json.encode((said, options.namespace, repr(options.mapping)))).hexdigest()


# ---- the events


def _over(spark: SparkSession, pieces: list[Piece]) -> DataFrame:
    """One task for each piece."""
    return spark.range(0, len(pieces), 1, len(pieces)).toDF("piece")


def _read(spark: SparkSession, pieces: list[Piece], starts: list[Start], options: Options) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    def events(found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in found:
            with carried():
                for number in batch.column(0).to_pylist():
                    yield from _rows(pieces[number], options, starts[number])

    return _over(spark, pieces).mapInArrow(events, from_arrow_schema(READ_SCHEMA))


def _rows(piece: Piece, options: Options, start: Start) -> Iterator[pa.RecordBatch]:
    number = 0
    for some in batches(reading.items(piece, options, start), _ROWS_AT_ONCE):
        rows = batch_of(Recorded(Position(0), 0, 0, item.sealed.event) for item in some)
        more = [
            pa.array([piece.number] * len(some), pa.int32()),
            pa.array(range(number, number + len(some)), pa.int64()),
            pa.array([item.said for item in some], pa.binary()),
        ]
        number += len(some)
        yield pa.record_batch([*rows.columns, *more], schema=READ_SCHEMA)


def _deduplicated(events: DataFrame) -> DataFrame:
    """Each line once, where it stands first: files that were merged, or overlap, hold the same lines."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    first = Window.partitionBy("said").orderBy("piece", "number")
    return events.withColumn("nth", f.row_number().over(first)).where("nth = 1").drop("nth")


def _staged(
    spark: SparkSession, pieces: list[Piece], starts: list[Start], options: Options, folder: Path, received_us: int
) -> list[Path]:
    """Every event with its place in the new log, as Parquet files in the order of positions."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    read, placed = folder / "read", folder / "placed"
    _read(spark, pieces, starts, options).write.mode("overwrite").parquet(str(read))
    events = _deduplicated(spark.read.parquet(str(read)))
    _refuse_shared_ids(events)
    counts = {row["piece"]: row["count"] for row in events.groupBy("piece").count().collect()}
    bases, base = [], 0
    for piece in pieces:
        bases.append((piece.number, base))
        base += counts.get(piece.number, 0)
    before = f.broadcast(spark.createDataFrame(bases, "piece int, base long"))
    place = f.row_number().over(Window.partitionBy("piece").orderBy("number")) + f.col("base")
    sequence = f.row_number().over(Window.partitionBy("stream").orderBy("position")).cast("long")
    (
        events.join(before, "piece")
        .withColumn("position", place.cast("long"))
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
    """The least position in a file; 0 if it is empty."""
    meta = pq.read_metadata(path)
    return int(meta.row_group(0).column(0).statistics.min) if meta.num_row_groups else 0


def _refuse_shared_ids(events: DataFrame) -> None:
    shared = [row["id"] for row in events.groupBy("id").count().where("count > 1").limit(PROBLEMS_MAX).collect()]
    if shared:
        raise BadFile(
            f"{len(shared):,} ids stand on lines with other content",
            why=f"an id names one event for ever; the first of them is {shared[0]}",
            hint="correct them, or leave them out; nothing was written",
            problems=shared,
        )


# ---- the new log


def _begin(draft: Store, target: Target, begun: _Begun) -> _Begun:
    """Claim an empty draft for these files, or recognise the draft of them."""
    found = draft.noted(UNFINISHED)
    if found is None:
        if draft.head() or next(draft.kept(), None) is not None:
            raise Conflict(
                f"{target.draft} is a log already",
                why="a migration makes a new log, and never writes into one",
                hint="name another place; everlog import adds events to a log that is there",
            )
        with draft.write() as writer:
            writer.note(UNFINISHED, msgspec.json.encode(begun).decode())
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
            with draft.write() as writer:
                writer.place(new)
        progress(seen.head)
    with draft.write() as writer:
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


def _found(pieces: list[Piece], surveys: list[Surveyed], events: int, *, dry_run: bool = False) -> Migrated:
    return Migrated(
        files=len({piece.path for piece in pieces}),
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
