"""A run over few events, in this process: the tables that Spark would make, without the time that it takes to start.

What takes Spark all the same (a purge to be erased, a type that is read in another way, a question about work
packages) is left to a run of it, which goes on from here: every table says how far it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa
from msgspec.structs import replace

from everlog.core.event import START, Position
from everlog.core.query import EVERYTHING, Cursor
from everlog.errors import HistoryChanged
from everlog.log.log import Log
from everlog.pipeline import few, silver
from everlog.pipeline.compacting import SMALL_FILES_MAX, small
from everlog.pipeline.engine import PROCESS
from everlog.pipeline.erasing import purges_unknown_to
from everlog.pipeline.failures import told
from everlog.pipeline.few import FewEvents
from everlog.pipeline.gold import AS_IT_WAS, Done, Gold
from everlog.pipeline.lake import Lake
from everlog.pipeline.places import Place, look_at, require_same
from everlog.pipeline.rows import ARROW_SCHEMA, EVENT_SCHEMA
from everlog.pipeline.run import Outcome, drop_tables, is_restored
from everlog.pipeline.slabs import batches_of

FEW_EVENTS = 20_000
FEW_BYTES = 64 * 1024 * 1024
"""A log with no more positions than this is taken by one process (docs/pipeline.md has the figures), as long as its
events, of which some may be large, take no more memory than this."""


class Begun(NamedTuple):
    """What was done here; `whole` says that nothing is left for Spark."""

    outcome: Outcome
    whole: bool


def run_small(
    log: Log,
    url: str,
    lake: Lake,
    *,
    gold: Gold,
    rebuild: Collection[str] = (),
    events_max: int = FEW_EVENTS,
) -> Begun | None:
    """Bring a lake up to the head of its log, as far as it goes without Spark. None if there are more events."""
    with lake.writing(), _full_disk_told():
        if log.head() > events_max:
            return None
        drop_tables(lake, rebuild)  # first: they may be damaged
        seen = look_at(log.store)
        upto = Cursor(seen.head, START, seen.mark.epoch)
        if _is_sparks(log, lake, upto):
            return Begun(Outcome(cursor=str(upto)), False)
        try:
            events = _ingest(log, Place(url, seen.mark, START, seen.head), lake, upto)
        except HistoryChanged:
            events = None  # somebody purged while it was read
        if events is None:
            return Begun(Outcome(cursor=str(upto)), False)
        typed = silver.bring_up_to_date_here(lake, log.catalog, upto=upto)
        if typed is None:
            return Begun(Outcome(cursor=str(upto), events=events), False)
        views = gold.bring_few_up_to_date(lake, FewEvents(lake, upto))
        outcome = Outcome(
            cursor=str(upto),
            events=events,
            typed=typed.rows,
            set_aside=typed.set_aside,
            engine=PROCESS,
            views=[done for done in views if done is not None],
        )
        whole = None not in views and not _is_left(log, lake, seen.head)
        if whole:
            lake.publish(upto)
        return Begun(outcome, whole)


def joined(begun: Outcome, ended: Outcome) -> Outcome:
    """What two runs did together, one after the other."""
    before = {done.table: done for done in begun.views or ()}
    views: list[Done] = [
        before.get(done.table, done) if done.what == AS_IT_WAS else done for done in ended.views or ()
    ]
    return replace(
        ended,
        events=begun.events + ended.events,
        typed=begun.typed + ended.typed,
        set_aside=begun.set_aside + ended.set_aside,
        views=views,
    )


def _ingest(log: Log, place: Place, lake: Lake, upto: Cursor) -> int | None:
    """Take what is new in the log, in one commit; the number of events. None if they are too large for that."""
    table = lake.events
    if table.holds(upto):
        return 0
    held = table.cursor(upto.epoch)
    after, knows = (START, START) if held is None else (held.position, held.knows)
    batches, held_bytes = list[pa.RecordBatch](), 0
    for batch in batches_of(log.store, EVERYTHING, after=after, upto=upto.position):
        batches.append(batch)
        held_bytes += batch.nbytes
        if held_bytes > FEW_BYTES:
            return None
    rows = pa.Table.from_batches(batches, ARROW_SCHEMA)
    require_same(log.store, place)
    cursor = replace(upto, knows=max(upto.knows, knows))
    added = few.write(table, rows, cursor=cursor)
    table.commit(added, cursor=cursor, schema=EVENT_SCHEMA, mode="overwrite" if held is None else "append")
    return sum(file.rows for file in added)


def _is_sparks(log: Log, lake: Lake, upto: Cursor) -> bool:
    """True when history changed under the lake, or when its events are few but large."""
    held = lake.events.cursor(upto.epoch)
    changed = is_restored(lake, upto.epoch, upto.position) or (held and purges_unknown_to(log.purges(), held))
    return bool(changed) or few.takes_more_than(lake.events, FEW_BYTES)


def _is_left(log: Log, lake: Lake, head: Position) -> bool:
    """True when purged events are to be looked for on the disk, or small files to be united."""
    purged = max((purge.reserved for purge in log.purges() if purge.reserved <= head), default=0)
    return purged > lake.published().scrubbed or any(len(small(table)) > SMALL_FILES_MAX for table in lake.tables())


@contextmanager
def _full_disk_told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if "No space left" not in str(error):
            raise
        raise told(error, "the lake was brought up to the log") from error
