"""Making some keys again from their history: after a late event, a purge or a repaired dead letter.

A row remembers the streams that fed it, as long as they are few. So a key is made again by reading these streams, not
the whole log.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from everlog.core.event import Position, Recorded
from everlog.stores.shelf import Shelf
from everlog.views.checksums import DamagedRows
from everlog.views.fold import in_causal_order
from everlog.views.rows import Row
from everlog.views.states import Build, load_rows, scan_rows
from everlog.views.view import Order, View

if TYPE_CHECKING:
    from everlog.log.log import Log


def keys_fed_by(shelf: Shelf, build: Build, streams: Collection[str]) -> set[str] | None:
    """The keys that events of these streams went into; None if that is not remembered for every key."""
    if build.by_stream:
        return set(streams)
    affected = set()
    try:
        for key, row in scan_rows(shelf, build):
            if row.sources is None:
                return None
            if not row.sources.isdisjoint(streams):
                affected.add(key)
    except DamagedRows:
        return None
    return affected


def sources_of(
    shelf: Shelf, build: Build, keys: Collection[str], rows: Mapping[str, Row], also: Iterable[str]
) -> set[str] | None:
    """The streams that hold the history of some keys; None for the whole log."""
    if build.by_stream:
        return set(keys)
    try:
        known = {**load_rows(shelf, build, [key for key in keys if key not in rows]), **rows}
    except DamagedRows:
        return None
    streams = set(also)
    for key in keys:
        row = known.get(key)
        if row is not None:
            if row.sources is None:
                return None
            streams |= row.sources
    return streams


def history(
    log: Log,
    view: View,
    keys: Collection[str],
    streams: Collection[str] | None,
    *,
    upto: Position,
    skipped: Container[int] = (),
) -> list[Recorded]:
    """The events of some keys up to a position, in the order in which the view takes them."""
    queries = [view.query] if streams is None else [replace(view.query, stream=stream) for stream in sorted(streams)]
    found = [
        recorded
        for query in queries
        for recorded in log.store.read(query, upto=upto)
        if recorded.position not in skipped and _key(log, view, recorded) in keys
    ]
    if view.order is Order.CAUSAL:
        return in_causal_order(found)
    return sorted(found, key=lambda recorded: recorded.position)


def _key(log: Log, view: View, recorded: Recorded) -> str | None:
    # What cannot be read here was either skipped by somebody or has its stream as its key: a build does not get past
    # it otherwise.
    return recorded.event.stream if view.by_stream else view.key(log.catalog.upcast(recorded.event))
