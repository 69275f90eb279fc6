"""Foreign history as a new log: read, checked and ordered by Spark.

    files ── chunks ──┬── survey on Spark: counts, problems, clock ──> refused or set aside, if anything is wrong
                      ├── ids that are replaced
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
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from everlog.catalog.builtin import BUILT_IN
from everlog.catalog.catalog import Catalog
from everlog.core.clock import JUMP_MAX
from everlog.core.codec import Packed
from everlog.core.event import Position, Recorded
from everlog.core.ids import EventId
from everlog.errors import BadFile, ClockJump, Conflict
from everlog.files import DiskFiles
from everlog.pipeline.fold.fold import partitions_for
from everlog.pipeline.migrate import chunks as reading
from everlog.pipeline.migrate.chunks import Chunk, Start, Surveyed
from everlog.pipeline.session.failures import carried, own_errors
from everlog.pipeline.source.rows import ARROW_SCHEMA, COLUMNS, batch_of, packed_of
from everlog.stores.contract import Store
from everlog.stores.identity import new_identity
from everlog.stores.small_state import NOTES, read_note
from everlog.transfer.copy import UNFINISHED, Target, compare_with
from everlog.transfer.import_pass import STANDS_ABOVE, Options, ReadEvent, Seen
from everlog.transfer.importing import SetAside, refuse, refuse_unmatched
from everlog.transfer.problems import PROBLEMS_MAX, Problems
from everlog.transfer.survey import Summary, Survey, batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH = 2_000
_ROWS_AT_ONCE = 5_000
_READ_SCHEMA = ARROW_SCHEMA.append(pa.field("chunk", pa.int32())).append(pa.field("number", pa.int64()))
READ_SCHEMA = _READ_SCHEMA.append(pa.field("content", pa.binary()))
_SURVEY_SCHEMA = pa.schema([("survey", pa.binary())])
_LEARNT_SCHEMA = pa.schema([("chunk", pa.int32()), ("old", pa.string()), ("new", pa.string())])


class Migrated(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a migration. The digest is the one that `verify` prints for the new log."""

    files: int
    events: int
    repeated: int  # lines that occurred before
    digest: str
    shapes: dict[str, int]
    types: dict[str, int]
    not_events: dict[str, int]
    new_ids: int = 0
    set_aside: int = 0  # lines
    problems: list[str] = []  # what is wrong with the first hundred of them
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
    progress: Callable[[int], None] = lambda position: None,
    **more: Any,
) -> Migrated:
    """Make a new log of files. `staging` is a folder that Spark and this process see; it can be removed later."""
    return write(target, prepare(spark, paths, target, staging, options, **more), progress=progress)


def prepare(
    spark: SparkSession,
    paths: Sequence[Path],
    target: Target,
    staging: Path,
    options: Options | None = None,
    *,
    catalog: Catalog | None = None,
    set_aside: SetAside | None = None,
    dry_run: bool = False,
    chunk_bytes: int = reading.CHUNK_BYTES,
    now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
) -> Prepared:
    """Do Spark's part: read, check, order and stage everything. A draft of the log is begun, and is empty.

    With `set_aside`, a line that is wrong does not keep the others from being migrated.
    """
    chosen = options or Options()
    with own_errors("reading the files"):
        received_us = now_us()
        files = _Files(
            spark,
            reading.chunks_of(paths, mapped=chosen.mapping is not None, chunk_bytes=chunk_bytes),
            chosen,
            staging,
            received_us // 1000,
            aside=staging / "aside" if set_aside is not None else None,
        )
        files.survey(catalog or BUILT_IN)
        problems = files.problems()
        refuse_unmatched(chosen, sum(one.events + one.repeated for one in files.surveys), problems)
        if set_aside is None:
            refuse(problems, ", ".join(path.name for path in paths))
        _refuse_jump(files.starts[-1], files.surveys, chosen)
        if chosen.new_ids and any(survey.new_ids for survey in files.surveys):
            files.learn()
        begun = _Begun(files.fingerprint(), received_us)
        events = files.deduplicated(staging / begun.migration[:16] / "read")
        clashes = _clashes(events)
        if set_aside is None:
            _refuse_shared_ids(clashes)
        events = events.join(clashes, ["chunk", "number"], "left_anti").drop("content")
        if dry_run:
            return Prepared(
                begun=begun,
                staged=(),
                events=events.count(),
                found=files.found(events.count(), clashes.count(), problems, dry_run=True),
            )
        with closing(target.open(new_identity(begun.received_us))) as draft:
            begun = _begin(draft, target, begun)
        staged = _staged(spark, events, staging / begun.migration[:16] / "placed", begun.received_us)
        count = sum(pq.read_metadata(path).num_rows for path in staged)
        found = files.found(count, clashes.count(), problems)
        if set_aside is not None and found.set_aside:
            set_aside(chain(files.lines_aside(), files.lines_of(clashes)))
        return Prepared(begun=begun, staged=staged, events=count, found=found)


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


# ---- the files


class _Files:
    """Chunks of files, read by tasks that each take some of them."""

    def __init__(
        self,
        spark: SparkSession,
        chunks: list[Chunk],
        options: Options,
        staging: Path,
        now_ms: int,
        *,
        aside: Path | None,
    ) -> None:
        self._spark, self._chunks, self._options = spark, chunks, options
        self._staging, self._now_ms, self._aside = staging, now_ms, aside
        self._shares = reading.packed(chunks, tasks=partitions_for(spark))
        self._learnt = ""
        self.surveys: list[Surveyed] = []
        self.starts: list[Start] = []
        for folder in (staging, *([aside] if aside else [])):
            DiskFiles().make_dir(folder)

    def survey(self, catalog: Catalog) -> None:
        options, aside, now_ms = self._options, self._aside, self._now_ms

        def look(chunk: Chunk) -> Iterator[pa.RecordBatch]:
            found = msgspec.msgpack.encode(reading.survey(chunk, options, catalog, aside, now_ms=now_ms))
            yield pa.record_batch([pa.array([found], pa.binary())], schema=_SURVEY_SCHEMA)

        rows = self._each(look, _SURVEY_SCHEMA).collect()
        found = [msgspec.msgpack.decode(bytes(row[0]), type=Surveyed) for row in rows]
        self.surveys = sorted(found, key=lambda survey: survey.number)
        self.starts = [Start()]  # of each chunk, and last the end of all
        for survey in self.surveys:
            self.starts.append(survey.end(self.starts[-1]))

    def learn(self) -> None:
        """Find out which ids are replaced, for the lines of any chunk that refer to them."""
        options, starts, now_ms = self._options, self.starts, self._now_ms

        def pairs(chunk: Chunk) -> Iterator[pa.RecordBatch]:
            for some in batches(reading.learn(chunk, options, starts[chunk.number], now_ms=now_ms), _ROWS_AT_ONCE):
                rows = [(chunk.number, old, new) for old, new in some]
                yield pa.RecordBatch.from_pylist(
                    [dict(zip(_LEARNT_SCHEMA.names, row, strict=True)) for row in rows], schema=_LEARNT_SCHEMA
                )

        path, files = self._staging / "learnt.db", DiskFiles()
        if files.exists(path):
            files.unlink(path)
        with closing(Seen(str(path))) as learnt:
            for _, old, new in self._each(pairs, _LEARNT_SCHEMA).orderBy("chunk").toLocalIterator():
                learnt.replace(old, EventId(new))
        self._learnt = str(path)

    def deduplicated(self, folder: Path) -> DataFrame:
        """Return each line once, at its first occurrence: files that were merged, or overlap, hold the same lines."""
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        items = self._items

        def events(chunk: Chunk) -> Iterator[pa.RecordBatch]:
            for some in batches(items(chunk), _ROWS_AT_ONCE):
                rows = batch_of(Recorded(Position(0), 0, 0, item.sealed.event) for item in some)
                more = [
                    pa.array([chunk.number] * len(some), pa.int32()),
                    pa.array([item.at.number for item in some], pa.int64()),
                    pa.array([item.stable for item in some], pa.binary()),
                ]
                yield pa.record_batch([*rows.columns, *more], schema=READ_SCHEMA)

        self._each(events, READ_SCHEMA).write.mode("overwrite").parquet(str(folder))
        first = Window.partitionBy("content").orderBy("chunk", "number")
        read = self._spark.read.parquet(str(folder))
        return read.withColumn("nth", f.row_number().over(first)).where("nth = 1").drop("nth")

    @property
    def _items(self) -> Callable[[Chunk], Iterator[ReadEvent]]:
        options, starts, now_ms, learnt, aside = self._options, self.starts, self._now_ms, self._learnt, self._aside
        return lambda chunk: reading.items(
            chunk, options, starts[chunk.number], now_ms=now_ms, learnt=learnt, aside=aside
        )

    def _each(self, task: Callable[[Chunk], Iterator[pa.RecordBatch]], schema: pa.Schema) -> DataFrame:
        """Run a function over every chunk."""
        from pyspark.sql.pandas.types import from_arrow_schema

        shares = self._shares

        def run(found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in found:
                with carried():
                    for number in batch.column(0).to_pylist():
                        for chunk in shares[number]:
                            yield from task(chunk)

        return self._spark.range(0, len(shares), 1, len(shares)).mapInArrow(run, from_arrow_schema(schema))

    def problems(self) -> Problems:
        found = Problems()
        for survey in self.surveys:
            found.extend(survey.problems, survey.bad)
        return found

    def lines_aside(self) -> Iterator[bytes]:
        """Yield the lines that the survey set aside."""
        assert self._aside is not None
        for survey in self.surveys:
            if survey.bad:
                yield DiskFiles().read_all(reading.aside_of(self._aside, survey.number))

    def lines_of(self, clashes: DataFrame) -> Iterator[bytes]:
        """Yield the lines whose id stands above with other content."""
        rows = clashes.orderBy("chunk", "number").toLocalIterator()
        for number, some in groupby(rows, key=lambda row: row["chunk"]):
            wrong = {row["number"]: row["id"] for row in some}
            for item in self._items(self._chunks[number]):
                if item.at.number in wrong:
                    yield item.at.set_aside(f"the id {wrong[item.at.number]} {STANDS_ABOVE}", "bad_line")

    def fingerprint(self) -> str:
        """Return a hash of everything that decides the bytes of the new log, except the time of arrival."""
        files = [
            (chunk.name, chunk.start, survey.digest, survey.bad)
            for chunk, survey in zip(self._chunks, self.surveys, strict=True)
        ]
        how = (self._options.namespace, repr(self._options.mapping), self._options.new_ids)
        return hashlib.sha256(msgspec.json.encode((files, how))).hexdigest()

    def found(self, events: int, clashes: int, problems: Problems, *, dry_run: bool = False) -> Migrated:
        surveys = self.surveys
        return Migrated(
            files=len({chunk.path for chunk in self._chunks}),
            events=events,
            repeated=sum(survey.events + survey.repeated for survey in surveys) - events - clashes,
            digest="",
            shapes=_sum(survey.shapes for survey in surveys),
            types=_sum(survey.types for survey in surveys),
            not_events=_sum(survey.not_events for survey in surveys),
            new_ids=sum(survey.new_ids for survey in surveys),
            set_aside=problems.lines + clashes,
            problems=problems.texts(),
            dry_run=dry_run,
        )


def _refuse_jump(end: Start, surveys: list[Surveyed], options: Options) -> None:
    if end.lamport - sum(survey.events for survey in surveys) > JUMP_MAX and not options.trust_clock:
        raise ClockJump(
            f"the events have clock values up to {end.lamport}",
            why=f"that is more than {JUMP_MAX} above their number, and would use up the clock of the new log",
            hint="correct them, or accept them with --trust-clock",
            lamport=end.lamport,
        )


# ---- the events


def _staged(spark: SparkSession, events: DataFrame, folder: Path, received_us: int) -> list[Path]:
    """Write every event with its position in the new log, as Parquet files in the order of positions."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    bases, base = [], 0
    for row in sorted(events.groupBy("chunk").count().collect(), key=lambda row: row["chunk"]):
        bases.append((row["chunk"], base))
        base += row["count"]
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
        .parquet(str(folder))
    )
    return sorted((path for path in folder.glob("*.parquet") if _first(path)), key=_first)


def _first(path: Path) -> int:
    """Return the least position in a file; 0 if it is empty."""
    meta = pq.read_metadata(path)
    return int(meta.row_group(0).column(0).statistics.min) if meta.num_row_groups else 0


def _clashes(events: DataFrame) -> DataFrame:
    """Return the lines whose id another line has above them, with other content."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    above = Window.partitionBy("id").orderBy("chunk", "number")
    return (
        events.select("id", "chunk", "number")
        .withColumn("above", f.row_number().over(above))
        .where("above > 1")
        .drop("above")
    )


def _refuse_shared_ids(clashes: DataFrame) -> None:
    shared = [row["id"] for row in clashes.select("id").distinct().limit(PROBLEMS_MAX).collect()]
    if shared:
        raise BadFile(
            f"{len(shared):,} ids occur on lines with different content",
            why=f"an id names one event forever; the first of them is {shared[0]}",
            hint="correct them, or migrate the others with --set-aside FILE; nothing was written",
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


def _sum(counts: Iterable[Any]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for some in counts:
        total.update(some)
    return dict(sorted(total.items()))
