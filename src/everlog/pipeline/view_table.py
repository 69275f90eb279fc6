"""The table of one view: a row a key, from the same `View` class as live, caught up by folding onto its own rows.

    key  position  count  lamport  id  sources  state

`state` is canonical JSON and `position` the last one that the key has applied; the others are what the next fold must
know. So the table is the snapshot that a catch-up starts from: its rows and the events that came after its cursor go
through one fold, and the whole view is written in one commit. The commit says which code derived it; rows of other
code are not caught up but made anew.

What the view cannot take lies in `letters/VIEW`. It is written before the rows: after a crash in between, letters
beyond the cursor of the rows count as not written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from everlog.catalog.catalog import Catalog
from everlog.core.event import Position
from everlog.core.query import Cursor
from everlog.pipeline import few
from everlog.pipeline.collecting import batches_of
from everlog.pipeline.declared import fold_declared, why_not
from everlog.pipeline.failures import own_errors
from everlog.pipeline.few import FewEvents
from everlog.pipeline.fold import STORED, fold_keyed, fold_view, keyed, partitions_for
from everlog.pipeline.gold import AS_IT_WAS, CAUGHT_UP, MADE_ANEW, Done
from everlog.pipeline.lake import Lake
from everlog.pipeline.presorted import fold_buckets, is_presorted
from everlog.pipeline.shipping import ship
from everlog.pipeline.sorted_fold import LATE, LETTER, ROW, STOP
from everlog.pipeline.table import DataFile, Table
from everlog.views.declared import DeclaredView
from everlog.views.fingerprint import catalog_fingerprint, code_fingerprint
from everlog.views.fold import NOBODY
from everlog.views.letters import STOPPED, Letter
from everlog.views.rows import CausalOrder
from everlog.views.view import View, digest_of_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LETTERS = "letters"
CODE, STOPPED_AT = "code", "stopped_at"

_LETTER = (
    "position long, what string, key string, type string, stream string, lamport long, id string,"
    " reason string, trace string"
)


_LETTER_SCHEMA = pa.schema(
    [
        pa.field(name, pa.int64() if name in ("position", "lamport") else pa.string())
        for name in ("position", "what", "key", "type", "stream", "lamport", "id", "reason", "trace")
    ]
)
_letter_of = msgspec.json.Decoder(Letter).decode


class ViewTable:
    """Keeps the tables `gold/VIEW` and `letters/VIEW` of a lake."""

    def __init__(self, view: View, catalog: Catalog) -> None:
        self.view = view
        self.catalog = catalog

    @property
    def name(self) -> str:
        return self.view.name

    def digest(self, spark: SparkSession, lake: Lake) -> str:
        """The digest of all states, as a live view has it."""
        rows = lake.gold(self.name).read(spark).select("key", "state").orderBy("key")
        return digest_of_bytes(
            (key, state.encode())
            for batch in batches_of(rows, doing=f"reading the view {self.name}")
            for key, state in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
        )

    # ---- bringing up to date

    def bring_up_to_date(self, spark: SparkSession, lake: Lake, *, upto: Cursor) -> Done:
        table = lake.gold(self.name)
        held = table.cursor(upto.epoch) if table.mark(CODE) == self._code() else None
        stopped_at = 0 if held is None else table.mark(STOPPED_AT) or 0
        if held is not None and (stopped_at or table.holds(upto)):
            # A view that was stopped would be stopped again: its code is the same, and so is the event.
            return self._as_it_was(table, held, stopped_at)
        with own_errors(f"folding the view {self.name}"):
            return self._advance(spark, lake, held, upto)

    def _advance(
        self, spark: SparkSession, lake: Lake, held: Cursor | None, upto: Cursor, stop: DataFrame | None = None
    ) -> Done:
        """Fold what came after a cursor onto the rows that are there. `stop` is the letter of who ends it here."""
        table = lake.gold(self.name)
        start = 0 if held is None else held.position
        stored = None if held is None else table.read(spark).select(*STORED)
        folded = None if stored is not None else self._folded_otherwise(spark, lake, upto)
        if folded is None:
            folded = fold_view(
                _events(spark, lake, start, upto.position),
                self.view,
                self.catalog,
                stored=stored,
                parked=NOBODY if held is None else self._parked(spark, lake, start),
                partitions=partitions_for(spark, upto.position - start + (0 if stored is None else table.rows())),
                with_places=False,
            )
        files, seen = _written(table, folded, upto)
        if seen.stop:
            # Everything before that event counts, and nothing else: what was written is swept with other dead files.
            letter = _letters(folded, STOP).where(f"position = {seen.stop}")
            return self._advance(spark, lake, held, replace(upto, position=Position(seen.stop - 1)), letter)
        letters = _letters(folded, LETTER) if seen.letters else None
        if seen.late:
            keys = [(row[0],) for row in folded.where(f"what = '{LATE}'").select("key").collect()]
            late = spark.createDataFrame(keys, "key string")
            again = self._again(_events(spark, lake, 0, upto.position), late)
            more, seen_again = _written(table, again, upto)
            files = [*files, *more]
            if seen_again.letters:
                letters = _letters(again, LETTER) if letters is None else letters.union(_letters(again, LETTER))
            self._put_letters(spark, lake, start, upto, letters, stop, without=late)
        else:
            self._put_letters(spark, lake, start, upto, letters, stop)
        marks = {CODE: self._code(), STOPPED_AT: 0 if stop is None else upto.position + 1}
        table.commit(files, cursor=upto, marks=marks, schema=_rows(folded).schema, mode="overwrite")
        return Done(
            table=table.name,
            what=MADE_ANEW if held is None else CAUGHT_UP,
            rows=sum(file.rows for file in files),
            position=upto.position,
            letters=seen.letters,
            stopped_at=marks[STOPPED_AT],
        )

    def bring_few_up_to_date(self, lake: Lake, events: FewEvents) -> Done:
        """All events folded anew: of so few, that is less than to go on from rows that are there."""
        table, upto = lake.gold(self.name), events.upto
        held = table.cursor(upto.epoch) if table.mark(CODE) == self._code() else None
        stopped_at = 0 if held is None else table.mark(STOPPED_AT) or 0
        if held is not None and (stopped_at or table.holds(upto)):
            return self._as_it_was(table, held, stopped_at)
        folded = few.fold(events.rows, self.view, self.catalog)
        stops = _of(folded, STOP)
        stop = pc.min(stops.column("position")).as_py()
        letters = _letters_here(_of(folded, LETTER))
        if stop is not None:
            upto = replace(upto, position=Position(stop - 1))
            before = events.rows.filter(pc.less(events.rows.column("position"), stop))
            folded = few.fold(before, self.view, self.catalog)
            stopper = stops.filter(pc.equal(stops.column("position"), stop)).slice(0, 1)
            letters = pa.concat_tables([_letters_here(_of(folded, LETTER)), _letters_here(stopper)])
        box = lake.table(f"{LETTERS}/{self.name}")
        if letters.num_rows or box.rows():
            few.overwrite(box, letters, cursor=upto)
        rows = _of(folded, ROW).select(STORED)
        few.overwrite(table, rows, cursor=upto, marks={CODE: self._code(), STOPPED_AT: stop or 0})
        start = 0 if held is None else held.position
        new = pc.and_(pc.greater(letters.column("position"), start), pc.not_equal(letters.column("what"), STOPPED))
        return Done(
            table=table.name,
            what=MADE_ANEW if held is None else CAUGHT_UP,
            rows=rows.num_rows,
            position=upto.position,
            letters=letters.filter(new).num_rows,
            stopped_at=stop or 0,
        )

    def _as_it_was(self, table: Table, held: Cursor, stopped_at: int) -> Done:
        return Done(
            table=table.name, what=AS_IT_WAS, rows=table.rows(), position=held.position, stopped_at=stopped_at
        )

    def wants_buckets(self, lake: Lake, epoch: str) -> bool:
        """True when all events are folded next, in the order that buckets have."""
        table = lake.gold(self.name)
        whole = table.cursor(epoch) is None or table.mark(CODE) != self._code()
        return whole and is_presorted(self.view) and not isinstance(self.view, DeclaredView)

    def _folded_otherwise(self, spark: SparkSession, lake: Lake, upto: Cursor) -> DataFrame | None:
        """All events, folded in a faster way than by a shuffle, where there is one."""
        if isinstance(self.view, DeclaredView):
            events = _events(spark, lake, 0, upto.position)
            if not why_not(events, self.view, self.catalog):
                return fold_declared(spark, lake.events, self.view, files=lake.events.files(), upto=upto.position)
        held = lake.buckets.cursor(upto.epoch)
        if is_presorted(self.view) and held is not None and held.position == upto.position:
            return fold_buckets(spark, lake, self.view, self.catalog, with_places=False)
        return None

    def _again(self, events: DataFrame, keys: DataFrame) -> DataFrame:
        """Some keys, folded from their beginning."""
        mine = keyed(events, self.view, ship(self.view, self.catalog)).join(keys, "key", "left_semi")
        return fold_keyed(mine, self.view, self.catalog, with_places=False)

    def _code(self) -> int:
        """A number for the code that derives the rows: the view's own, and how its events are read."""
        both = int(code_fingerprint(self.view), 16) ^ int(catalog_fingerprint(self.catalog, self.view), 16)
        return both % 2**62

    # ---- letters

    def _parked(self, spark: SparkSession, lake: Lake, upto: int) -> dict[str, CausalOrder]:
        """The keys whose events wait, and the place of what they wait behind."""
        from pyspark.sql.functions import min, struct

        table = lake.table(f"{LETTERS}/{self.name}")
        if not table.exists():
            return {}
        found = table.read(spark).where(f"position <= {upto} AND key <> ''")
        first = found.groupBy("key").agg(min(struct("lamport", "id")).alias("order")).collect()
        return {row["key"]: (row["order"]["lamport"], row["order"]["id"]) for row in first}

    def _put_letters(
        self,
        spark: SparkSession,
        lake: Lake,
        start: int,
        upto: Cursor,
        new: DataFrame | None,
        stop: DataFrame | None,
        *,
        without: DataFrame | None = None,
    ) -> None:
        """Letters up to a position stay, but for those of some keys; what a killed run left beyond it goes."""
        table = lake.table(f"{LETTERS}/{self.name}")
        there = table.exists()
        if not (new or stop or (there and without) or (there and any(file.last > start for file in table.files()))):
            return
        kept = table.read(spark).where(f"position <= {start}") if there else spark.createDataFrame([], _LETTER)
        if without is not None:
            kept = kept.join(without, "key", "left_anti").select(*kept.columns)
        for more in (new, stop):
            kept = kept if more is None else kept.union(more)
        table.overwrite(kept.coalesce(1), cursor=upto)

    # ---- after a purge

    def refold(self, lake: Lake, going: DataFrame, staying: DataFrame, cursor: Cursor) -> None:
        table, letters = lake.gold(self.name), lake.table(f"{LETTERS}/{self.name}")
        spark = going.sparkSession
        held = table.cursor(cursor.epoch)
        if held is None or table.mark(CODE) != self._code():
            for derived in (table, letters):  # made anew by the run that follows
                if derived.exists():
                    lake.drop(derived)
            return
        upto = replace(cursor, position=held.position)
        stopped_at = table.mark(STOPPED_AT) or 0
        keys = keyed(going.where(f"position <= {held.position}"), self.view, ship(self.view, self.catalog))
        keys = keys.where("key IS NOT NULL").select("key").distinct().cache()
        try:
            again = self._again(staying.where(f"position <= {held.position}"), keys)
            files, seen = _written(table, again, upto)
            if letters.exists() or seen.letters:
                kept = letters.read(spark) if letters.exists() else spark.createDataFrame([], _LETTER)
                here = kept.join(going.select("position"), "position", "left_anti").join(keys, "key", "left_anti")
                letters.overwrite(here.select(*kept.columns).union(_letters(again, LETTER)).coalesce(1), cursor=upto)
                if stopped_at and not letters.read(spark).where(f"position = {stopped_at}").count():
                    stopped_at = 0  # who stopped it is gone
            files += table.write(table.read(spark).join(keys, "key", "left_anti").select(*STORED), cursor=upto)
            marks = {CODE: self._code(), STOPPED_AT: stopped_at}
            table.commit(files, cursor=upto, marks=marks, schema=_rows(again).schema, mode="overwrite")
        finally:
            keys.unpersist()


class _Seen(NamedTuple):
    """What a fold gave beside rows."""

    letters: int
    late: int
    stop: int  # the first event that stops it, or 0


def _written(table: Table, folded: DataFrame, cursor: Cursor) -> tuple[list[DataFile], _Seen]:
    """Write the rows of a fold, and count the rest on the way: it is folded once."""
    from pyspark.sql import Observation
    from pyspark.sql.functions import col, count_if, lit, min, when

    seen = Observation()
    watched = folded.observe(
        seen,
        count_if(col("what") == LETTER).alias("letters"),
        count_if(col("what") == LATE).alias("late"),
        min(when(col("what") == STOP, col("position")).otherwise(lit(None))).alias("stop"),
    )
    files = table.write(_rows(watched), cursor=cursor)
    found = seen.get
    return files, _Seen(found["letters"], found["late"], found["stop"] or 0)


def _rows(folded: DataFrame) -> DataFrame:
    return folded.where(f"what = '{ROW}'").select(*STORED)


def _letters(folded: DataFrame, what: str) -> DataFrame:
    """Dead letters as rows with names."""
    from pyspark.sql.functions import coalesce, col, from_json, lit

    found = folded.where(f"what = '{what}'").select(from_json("letter", _LETTER).alias("letter")).select("letter.*")
    empty = {"position": lit(0), "lamport": lit(0)}
    return found.select(*(coalesce(col(name), empty.get(name, lit(""))).alias(name) for name in found.columns))


def _of(folded: pa.Table, what: str) -> pa.Table:
    return folded.filter(pc.equal(folded.column("what"), what))


def _letters_here(folded: pa.Table) -> pa.Table:
    """The same of rows that this process holds."""
    found = [_letter_of(text) for text in folded.column("letter").to_pylist()]
    return pa.Table.from_pylist(
        [{name: getattr(one, name) for name in _LETTER_SCHEMA.names} for one in found], schema=_LETTER_SCHEMA
    )


def _events(spark: SparkSession, lake: Lake, after: int, upto: int) -> DataFrame:
    """The events above a position and not above another."""
    files = [file for file in lake.events.files() if file.last > after]
    return lake.events.read(spark, files=files).where(f"position > {after} AND position <= {upto}")
