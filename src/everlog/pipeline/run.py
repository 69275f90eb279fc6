"""One run of the pipeline: what is new in the log goes through every table of the lake, and is published at once.

    resets     purged events leave the lake; a restored log replaces what was there
    bronze     new events
    silver     typed, or set aside
    gold       views and answers
    published  the state of the lake is now that of this run
    upkeep     small files are united, old versions removed; after a purge all of them, and every file is searched

A run that is killed anywhere is finished by the next one, which takes nothing twice. A run with nothing new changes
nothing at all. The engine may be either one (`engines/engine.py`); what the local one cannot do is left to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec.structs import replace

from everlog.core.event import START, Position
from everlog.core.query import Cursor
from everlog.core.text import did_you_mean
from everlog.errors import HistoryChanged, NotFound
from everlog.log.log import Log
from everlog.log.read.resets import find_reset, proof_at
from everlog.pipeline.engines.choose import LOCAL, Choice
from everlog.pipeline.engines.engine import Engine, NeedsSpark
from everlog.pipeline.engines.local import LocalEngine
from everlog.pipeline.lake.compact import SMALL_FILES_MAX, small
from everlog.pipeline.lake.erase import Erased, Scrubbed, purges_unknown_to
from everlog.pipeline.lake.lake import GOLD, LETTERS, Lake
from everlog.pipeline.lake.table import Table
from everlog.pipeline.session.failures import own_errors
from everlog.pipeline.session.progress import OnStep, Step, ignore
from everlog.pipeline.sql.tables import require_made
from everlog.pipeline.tables import bronze, silver
from everlog.pipeline.tables.gold import AS_IT_WAS, LEFT, Done, drop_answers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ALL = "all"
_ATTEMPTS = 5


class Gold(Protocol):
    """The tables that are derived from the events (`tables/gold.py`)."""

    def bring_up_to_date(self, engine: Engine, lake: Lake, *, upto: Cursor, on_step: OnStep) -> Any:
        """Apply what is new in the events to every table, each in one commit at the cursor."""
        ...

    def refold(self, going: DataFrame, staying: DataFrame, cursor: Cursor) -> None:
        """Derive again what the events that go have fed, from those that stay, and commit it at the cursor."""
        ...


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True):
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
    engine: str
    views: Any = None
    why: str = ""  # the reason for the engine, if it was chosen
    left: str = ""  # what this engine could not do: then the run is not finished

    @property
    def changed(self) -> bool:
        return bool(self.events or self.types_rebuilt or self.purged or self.restored)


def run(
    engine: Engine,
    log: Log,
    url: str,
    lake: Lake,
    *,
    gold: Gold | None = None,
    rebuild: Collection[str] = (),
    on_step: OnStep = ignore,
) -> RunOutcome:
    """Bring a lake up to the head of its log. `rebuild` names tables to derive from the beginning, or all of them."""
    require_types(log)
    with lake.writing():
        drop_tables(lake, rebuild)  # first: they may be damaged
        return bring_up_to_date(engine, log, url, lake, gold=gold, on_step=on_step)


def require_types(log: Log) -> None:
    """Refuse a run without the types of a program that the settings name."""
    log.catalog.left_out.require_none(
        "the lake", "tables of its types would be derived again, as if nobody had declared them"
    )


def run_chosen(
    choice: Choice,
    log: Log,
    url: str,
    lake: Lake,
    *,
    gold: Gold,
    rebuild: Collection[str] = (),
    start_spark: Callable[[str], AbstractContextManager[tuple[Engine, OnStep]]],
) -> RunOutcome:
    """Run on the engine that was chosen. `start_spark` is called with the reason, if Spark is needed."""
    require_types(log)
    begun = None
    why = choice.why
    if choice.engine == LOCAL:
        begun = run(LocalEngine(), log, url, lake, gold=gold, rebuild=rebuild)
        if not begun.left:
            return replace(begun, why=why)
        why = begun.left
    with start_spark(why) as (engine, on_step):
        ended = run(engine, log, url, lake, gold=gold, rebuild=() if begun else rebuild, on_step=on_step)
    return replace(joined(begun, ended) if begun else ended, why=why)


def joined(begun: RunOutcome, ended: RunOutcome) -> RunOutcome:
    """Return the outcome of two runs, one after the other, as one."""
    before = {done.table: done for done in begun.views or ()}
    views: list[Done] = [
        before.get(done.table, done) if done.what == AS_IT_WAS else done for done in ended.views or ()
    ]
    return replace(
        ended,
        events=begun.events + ended.events,
        typed=begun.typed + ended.typed,
        set_aside=begun.set_aside + ended.set_aside,
        types_rebuilt=tuple(sorted({*begun.types_rebuilt, *ended.types_rebuilt})),
        restored=begun.restored or ended.restored,
        views=views,
    )


def bring_up_to_date(
    engine: Engine,
    log: Log,
    url: str,
    lake: Lake,
    *,
    gold: Gold | None = None,
    on_step: OnStep = ignore,
) -> RunOutcome:
    """Do what a run does, for a caller that is already writing to the lake."""
    require_types(log)
    for attempt in range(_ATTEMPTS):
        try:
            with own_errors("bringing the lake up to the log"):
                return _run(engine, log, url, lake, gold, on_step)
        except HistoryChanged:
            # Something was purged during the read: start again, with what is there now.
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _run(engine: Engine, log: Log, url: str, lake: Lake, gold: Gold | None, on_step: OnStep) -> RunOutcome:
    epoch = log.identity.epoch
    head = log.head()
    upto = Cursor(head, START, epoch, proof_at(log.stored, head))
    done: dict[str, Any] = {"cursor": str(upto), "engine": engine.name, "restored": is_restored(lake, log)}
    if done["restored"] and lake.events.cursor(epoch) is not None:
        # An older copy under the same name: the same positions are other events.
        for table in lake.tables():
            lake.drop(table)
    try:
        erased = _apply_purges(engine, log, lake, gold, on_step)
        done["purged"] = erased.events
        on_step(Step("reading the log", _missing(lake.events, upto)))
        done["events"] = bronze.ingest(
            engine, lake, url, upto=upto, prove=lambda position: proof_at(log.stored, position)
        )
        on_step(Step("typing the events", _missing(lake.quarantine, upto)))
        typed = silver.bring_up_to_date(engine, lake, log.catalog.without_keys(), upto=upto)
        done |= {"typed": typed.rows, "set_aside": typed.set_aside, "types_rebuilt": typed.rebuilt}
        if gold is not None:
            on_step(Step("folding views"))
            done["views"] = gold.bring_up_to_date(engine, lake, upto=upto, on_step=on_step)
            _require_all(done["views"])
        if any(len(small(table)) > SMALL_FILES_MAX for table in lake.tables()):
            on_step(Step("compacting"))
            engine.compact(lake, epoch=epoch, small_files_max=SMALL_FILES_MAX)
        lake.publish(upto)
        scrubbed = _scrub_if_due(engine, log, lake, erased, on_step, upto=head)
        done |= {
            "removed_files": scrubbed.removed,
            "scanned_files": scrubbed.scanned,
            "scanned_bytes": scrubbed.scanned_bytes,
        }
        require_made(done.get("views") or ())
    except NeedsSpark as found:
        done["left"] = found.why
    return RunOutcome(**done)


def _require_all(views: Any) -> None:
    """Refuse to publish as long as a table is left to Spark."""
    if left := [done.table for done in views or () if done.what == LEFT]:
        raise NeedsSpark(f"{', '.join(left)} {'has' if len(left) == 1 else 'have'} to be derived by Spark")


def _missing(table: Table, upto: Cursor) -> int:
    """Return the number of positions that a table is behind."""
    held = table.cursor(upto.epoch)
    return upto.position - (START if held is None else held.position)


def _apply_purges(engine: Engine, log: Log, lake: Lake, gold: Gold | None, on_step: OnStep) -> Erased:
    epoch = log.identity.epoch
    held = lake.events.cursor(epoch)
    unknown = [] if held is None else purges_unknown_to(log.stored.purges(), held)
    if not unknown:
        return Erased()
    on_step(Step("erasing what was purged"))

    def drop_views(going: DataFrame, staying: DataFrame, cursor: Cursor) -> None:
        for table in (*lake.tables(GOLD), *lake.tables(LETTERS)):
            lake.drop(table)
        drop_answers(lake)

    return engine.erase(lake, unknown, epoch=epoch, refold=drop_views if gold is None else gold.refold)


def _scrub_if_due(
    engine: Engine, log: Log, lake: Lake, erased: Erased, on_step: OnStep, *, upto: Position
) -> Scrubbed:
    """After a purge, remove every file that no table names, and search the others.

    A purge that came after this run looked at the log is left to the next run.
    """
    purges = [purge for purge in log.stored.purges() if purge.reserved <= upto]
    if not purges or purges[-1].reserved <= lake.published().scrubbed:
        return Scrubbed(0, 0, 0)
    on_step(Step("looking for what was purged"))
    return engine.scrub(lake, purges, sentinels=erased.sentinels)


def is_restored(lake: Lake, log: Log) -> bool:
    """Return True if the log is another copy than the one that the lake was made from."""
    if not lake.events.exists():
        return False
    held = lake.events.cursor(log.identity.epoch)
    return held is None or find_reset(log.stored, held, log.head(), START) is not None


def require_tables(lake: Lake, names: Collection[str]) -> None:
    """Refuse names that are not tables of the lake. This is cheap, and done before Spark is started."""
    _chosen(lake, names)


def drop_tables(lake: Lake, names: Collection[str]) -> None:
    """Drop tables, so that they are derived again. With the events, all tables are dropped."""
    for table in _chosen(lake, names):
        if table.path.exists() or table.exists():
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
