"""One run of the pipeline: what is new in the log goes through every table of the lake, and then counts all at once.

    resets     a purge since the last run leaves the lake; a restored log takes the place of what was there
    bronze     new events
    silver     typed, or set aside
    gold       views
    published  the state of the lake is now that of this run
    tidied     small files united, old versions removed; after a purge all of them, and every byte looked at

A run that is killed anywhere is finished by the next one, which takes nothing twice. A run with nothing new changes
nothing at all.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from everlog.catalog.nearest import did_you_mean
from everlog.core.event import START, Position
from everlog.core.query import Cursor
from everlog.errors import HistoryChanged, NotFound
from everlog.log.log import Log
from everlog.log.pages import find_reset
from everlog.pipeline import bronze, silver
from everlog.pipeline.compacting import KEPT_HOURS, SMALL_FILES_MAX, compact, small
from everlog.pipeline.engine import SPARK
from everlog.pipeline.erasing import Erased, PurgedStreams, Scrubbed, erase, purges_unknown_to, scrub
from everlog.pipeline.gold import drop_answers
from everlog.pipeline.lake import GOLD, LETTERS, Lake
from everlog.pipeline.progress import Step, Told, nobody
from everlog.pipeline.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ALL = "all"
_ATTEMPTS = 5


class Gold(Protocol):
    """Who keeps the tables of views."""

    def bring_up_to_date(self, spark: SparkSession, lake: Lake, *, upto: Cursor) -> Any:
        """Fold what is new in the events into every table, each in one commit at the cursor."""
        ...

    def refold(self, going: DataFrame, staying: DataFrame, cursor: Cursor) -> None:
        """Fold again what some events fed that go, from those that stay, and commit it at the cursor."""
        ...


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did."""

    cursor: str
    events: int = 0
    typed: int = 0
    set_aside: int = 0
    types_rebuilt: tuple[str, ...] = ()
    purged: int = 0
    removed_files: int = 0
    scanned_files: int = 0
    scanned_bytes: int = 0
    restored: bool = False
    engine: str = SPARK  # or that it took one process, and Spark was not started
    views: Any = None

    @property
    def changed(self) -> bool:
        return bool(self.events or self.types_rebuilt or self.purged or self.restored)


def run(
    spark: SparkSession,
    log: Log,
    url: str,
    lake: Lake,
    *,
    gold: Gold | None = None,
    rebuild: Collection[str] = (),
    told: Told = nobody,
) -> Outcome:
    """Bring a lake up to the head of its log. `rebuild` names tables that are made anew, or all of them."""
    with lake.writing():
        drop_tables(lake, rebuild)
        return bring_up_to_date(spark, log, url, lake, gold=gold, told=told)


def bring_up_to_date(
    spark: SparkSession,
    log: Log,
    url: str,
    lake: Lake,
    *,
    gold: Gold | None = None,
    told: Told = nobody,
) -> Outcome:
    """What a run does, for who holds the lake already."""
    for attempt in range(_ATTEMPTS):
        try:
            return _run(spark, log, url, lake, gold, told)
        except HistoryChanged:
            # Somebody purged while we read: begin again, with what is there now.
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _run(spark: SparkSession, log: Log, url: str, lake: Lake, gold: Gold | None, told: Told) -> Outcome:
    epoch = log.identity.epoch
    head = log.head()
    upto = Cursor(head, START, epoch)
    restored = is_restored(lake, epoch, head)
    if restored and lake.events.cursor(epoch) is not None:
        # An older copy under the same name: positions here and there are not the same events.
        for table in lake.tables():
            lake.drop(table)
    erased = _apply_purges(spark, log, lake, gold, told)
    told(Step("reading the log", _missing(lake.events, upto)))
    events = bronze.ingest(spark, lake, url, upto=upto)
    told(Step("typing the events", _missing(lake.quarantine, upto)))
    typed = silver.bring_up_to_date(spark, lake, log.catalog, upto=upto)
    views = None
    if gold is not None:
        told(Step("folding views"))
        views = gold.bring_up_to_date(spark, lake, upto=upto)
    if any(len(small(table)) > SMALL_FILES_MAX for table in lake.tables()):
        told(Step("compacting"))
        compact(spark, lake, epoch=epoch, small_files_max=SMALL_FILES_MAX, kept_hours=KEPT_HOURS)
    lake.publish(upto)
    scrubbed = scrub_if_due(spark, log, lake, erased, told, upto=head)
    return Outcome(
        cursor=str(upto),
        events=events,
        typed=typed.rows,
        set_aside=typed.set_aside,
        types_rebuilt=typed.rebuilt,
        purged=erased.events,
        removed_files=scrubbed.removed,
        scanned_files=scrubbed.scanned,
        scanned_bytes=scrubbed.scanned_bytes,
        restored=restored,
        views=views,
    )


def _missing(table: Table, upto: Cursor) -> int:
    """How many positions a table is behind."""
    held = table.cursor(upto.epoch)
    return upto.position - (START if held is None else held.position)


def _apply_purges(spark: SparkSession, log: Log, lake: Lake, gold: Gold | None, told: Told) -> Erased:
    epoch = log.identity.epoch
    held = lake.events.cursor(epoch)
    unknown = [] if held is None else purges_unknown_to(log.purges(), held)
    if not unknown:
        return Erased()
    told(Step("erasing what was purged"))

    def drop_views(going: DataFrame, staying: DataFrame, cursor: Cursor) -> None:
        for table in (*lake.tables(GOLD), *lake.tables(LETTERS)):
            lake.drop(table)
        drop_answers(lake)

    return erase(
        spark,
        lake,
        PurgedStreams(spark, unknown),
        knows=unknown[-1].reserved,
        epoch=epoch,
        refold=drop_views if gold is None else gold.refold,
    )


def scrub_if_due(
    spark: SparkSession, log: Log, lake: Lake, erased: Erased, told: Told, *, upto: Position
) -> Scrubbed:
    """After a purge, remove every file that no table names, whoever left it, and look into the others.

    A purge that came since this run looked at the log is the next one's business.
    """
    purges = [purge for purge in log.purges() if purge.reserved <= upto]
    newest = purges[-1].reserved if purges else Position(0)
    if newest <= lake.published().scrubbed:
        return Scrubbed(0, 0, 0)
    told(Step("looking for what was purged"))
    gone = PurgedStreams(spark, purges).streams
    return scrub(spark, lake, knows=newest, gone=gone, sentinels=erased.sentinels)


def is_restored(lake: Lake, epoch: str, head: Position) -> bool:
    """True when the log is another copy than the one that the lake was made from."""
    if not lake.events.exists():
        return False
    held = lake.events.cursor(epoch)
    return held is None or find_reset(epoch, held, head, START) is not None


def require_tables(lake: Lake, names: Collection[str]) -> None:
    """Refuse names that are none of its tables: cheap, and before Spark is started for nothing."""
    _chosen(lake, names)


def drop_tables(lake: Lake, names: Collection[str]) -> None:
    """Drop tables, so that they are made anew. What is made from the events goes with them."""
    for table in _chosen(lake, names):
        if table.path.exists():
            lake.drop(table)


def _chosen(lake: Lake, names: Collection[str]) -> list[Table]:
    there = {table.name: table for table in lake.tables()}
    chosen: dict[str, Table] = {}
    for name in names:
        if name != ALL and name not in there:
            meant = next((other for other in there if other.partition("/")[2] == name), "")
            raise NotFound(
                f"the lake has no table {name}",
                why="it has " + (", ".join(sorted(there)) or "none yet"),
                hint=(f"did you mean {meant}?" if meant else did_you_mean(name, there))
                or ("name one of these, or all" if there else "everlog pipeline run"),
            )
        if name in (ALL, "events"):
            chosen |= there
        elif name.startswith("silver/") or name == "quarantine":
            # They are filled in one pass, and the quarantine says how far it is.
            chosen |= {
                other: table for other, table in there.items() if other.startswith("silver/") or other == "quarantine"
            }
        else:
            chosen[name] = there[name]
    return list(chosen.values())
