"""What one task reads: a range of positions of one log, and the proof that it is still the same log.

The driver looks at the log once and divides it into ranges. A range is sent to a worker, which opens the log for
reading and returns the rows as Arrow batches. A purge or a restore in between would leave an undetected gap; so a
worker compares the identity and the purges of the log before and after it reads, and raises an error (G8).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from everlog.core.event import START, Position
from everlog.core.query import EVERYTHING, Cursor, Query, Reset
from everlog.errors import HistoryChanged, InvalidSettings
from everlog.log.read.resets import find_reset, newest_purge, proof_at
from everlog.pipeline.source.batches import batches_of
from everlog.pipeline.source.rows import COLUMNS
from everlog.store_urls import require_url, shown_url, store_path
from everlog.stores.contract import Store, Stored
from everlog.wiring import open_store, refuse_unfinished

if TYPE_CHECKING:
    import pyarrow as pa

RANGE_EVENTS = 100_000


class Mark(msgspec.Struct, frozen=True):
    """Which log it is, which copy of it, the last purge that the reader knows of, and the proof of a position."""

    log: str
    epoch: str
    purged: Position
    proved: Position = START
    proof: str = ""


class PositionRange(msgspec.Struct, frozen=True):
    """The positions above `after` and not above `upto`."""

    url: str
    mark: Mark
    after: Position
    upto: Position
    query: Query = EVERYTHING


class Look(msgspec.Struct, frozen=True):
    """A log at one moment."""

    mark: Mark
    head: Position


def look(url: str, query: Query = EVERYTHING) -> Look:
    with opened(url) as store:
        return look_at(store, query)


def look_at(store: Stored, query: Query = EVERYTHING) -> Look:
    # The head first: a purge that commits between the two reads is above it, and the next look finds it (F31).
    head = store.head()
    identity = store.identity
    purged = newest_purge(store, query)
    return Look(Mark(identity.log_id, identity.epoch, purged, head, proof_at(store, head)), head)


def cut(url: str, seen: Look, query: Query, after: Position, upto: Position, size: int) -> list[PositionRange]:
    """Return the positions above `after` and not above `upto` (or the head), as ranges of about the same size."""
    upto = min(upto, seen.head)
    count = upto - after
    if count <= 0:
        return []
    # Equal shares: 101 positions in ranges of 100 would keep one core busy and another idle.
    number = -(-count // size)
    ends = [after + count * one // number for one in range(number + 1)]
    return [PositionRange(url, seen.mark, Position(low), Position(high), query) for low, high in pairwise(ends)]


def batches(chosen: PositionRange, columns: Sequence[str] = COLUMNS) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range, in order."""
    with opened(chosen.url) as store:
        require_same(store, chosen)
        yield from batches_of(store, chosen.query, after=chosen.after, upto=chosen.upto, columns=columns)
        require_same(store, chosen)


def require_same(store: Stored, planned: PositionRange) -> None:
    """Refuse a log that has changed since the range was planned: events in it may be missing now."""
    seen = look_at(store, planned.query)
    if seen.mark.log != planned.mark.log:
        raise another_log(planned.url, planned.mark.log, seen.mark.log)
    mark = planned.mark
    cursor = Cursor(planned.upto, mark.purged, mark.epoch)
    proved = Cursor(mark.proved, max(mark.purged, seen.mark.purged), mark.epoch, mark.proof)
    # A known purge is not above `knows`; one above the planned positions is found by a reader that continues.
    reset = find_reset(store, cursor, seen.head, seen.mark.purged) or find_reset(store, proved, seen.head, START)
    if reset is not None:
        raise changed(planned.url, cursor, reset)


def changed(url: str, cursor: Cursor, reset: Reset) -> HistoryChanged:
    what = "was purged" if reset.reason == "purged" else "was replaced by another copy"
    return HistoryChanged(
        f"a part of {shown_url(url)} {what} since position {cursor.position} was read",
        why="what was derived from it before may still hold what is gone, and reading on would hide that",
        hint="everlog pipeline run applies it to the lake; another reader starts again, or continues with knows=…",
        reason=reset.reason,
        cursor=str(cursor),
        reset=str(reset.cursor),
    )


def another_log(url: str, expected: str, found: str) -> HistoryChanged:
    return HistoryChanged(
        f"{shown_url(url)} is another log than the one that was read before",
        why=f"that one was {expected}, this one is {found}",
        hint="name the first one again, or start from the beginning",
        reason="another_log",
        expected=expected,
        found=found,
    )


@contextmanager
def opened(url: str) -> Iterator[Store]:
    """Open the log of a URL for reading; it must exist."""
    if url == "memory:":
        raise InvalidSettings(
            "memory: cannot be read by Spark",
            why="its workers are other processes, and would each see an empty log",
            hint="use a log that is kept in files or in PostgreSQL",
        )
    store = open_store(url, base=Path(), create=False)
    try:
        refuse_unfinished(store, shown_url(url))
        yield store
    finally:
        store.close()


def absolute(url: str, *, base: Path | None = None) -> str:
    """Return the URL in a form that means the same in every process, wherever it was started."""
    require_url(url)
    path = store_path(url, base=base or Path.cwd())
    return url if path is None else f"{url.partition(':')[0]}:{path.absolute()}"


# ---- options, as Spark passes them: names in lower case, values as text

_TEXTS = ("stream", "kind", "scope", "actor", "correlation_id")
_TIMES = ("since", "until")


def options_of(query: Query) -> dict[str, str]:
    """Return a query as options of the source."""
    found = {name: value for name in _TEXTS if (value := getattr(query, name))}
    found |= {name: value.isoformat() for name in _TIMES if (value := getattr(query, name)) is not None}
    return found | ({"types": ",".join(sorted(query.types))} if query.types else {})


def query_of(options: Mapping[str, str]) -> Query:
    """Return the query that the options describe."""
    given: dict[str, object] = {name: options[name] for name in _TEXTS if options.get(name)}
    if options.get("types"):
        given["types"] = frozenset(name.strip() for name in options["types"].split(","))
    for name in _TIMES:
        if options.get(name):
            given[name] = _time(name, options[name])
    return Query(**given)  # type: ignore[arg-type]


def _time(name: str, text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return moment
        why = "it has no time zone"
    except ValueError as error:
        why = str(error)
    raise InvalidSettings(f"the option {name} is {text!r}", why=why, hint="a time is like 2026-11-15T10:30:00Z")


def number_of(options: Mapping[str, str], name: str, default: int, *, least: int = 0) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal() or int(text) < least:
        raise InvalidSettings(
            f"the option {name} is {text!r}",
            why=f"it must be a whole number from {least} on",
            hint=f"{name}={default}",
        )
    return int(text)
