"""The history of some keys, to fold them again after a late event, a purge, damage or a retry.

A row names the streams that its events came from, as long as they are few. So a key is folded again by reading these
streams, not the whole log.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from everlog.core.event import Position, Recorded
from everlog.stores.small_state import SmallState
from everlog.trust.verdicts import verdicts_of
from everlog.views.builds.build import Build
from everlog.views.builds.content import load_rows, scan_rows
from everlog.views.builds.rows import DamagedRows, Row
from everlog.views.fold import in_causal_order
from everlog.views.view import Order, View

if TYPE_CHECKING:
    from everlog.log.log import Log


def keys_fed_by(small_state: SmallState, build: Build, streams: Collection[str]) -> set[str] | None:
    """Return the keys that events of these streams changed; None if some row does not name its streams."""
    if build.by_stream:
        return set(streams)
    affected = set()
    try:
        for key, row in scan_rows(small_state, build):
            if row.sources is None:
                return None
            if not row.sources.isdisjoint(streams):
                affected.add(key)
    except DamagedRows:
        return None
    return affected


def sources_of(
    small_state: SmallState, build: Build, keys: Collection[str], rows: Mapping[str, Row], also: Iterable[str]
) -> set[str] | None:
    """Return the streams with the history of some keys; None for the whole log."""
    if build.by_stream:
        return set(keys)
    try:
        known = {**load_rows(small_state, build, [key for key in keys if key not in rows]), **rows}
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
    standing: str,
    skipped: Container[int] = (),
) -> list[Recorded]:
    """Return the events of some keys up to a position, in the order in which the view applies them.

    `standing` are the verdicts that the states of its build follow.
    """
    verdicts = verdicts_of(standing)
    queries = [view.query] if streams is None else [replace(view.query, stream=stream) for stream in sorted(streams)]
    found = [
        recorded
        for query in queries
        for recorded in verdicts.counted(log.stored.read(query, upto=upto))
        if recorded.position not in skipped and _key(log, view, recorded) in keys
    ]
    if view.order is Order.CAUSAL:
        return in_causal_order(found)
    return sorted(found, key=lambda recorded: recorded.position)


def keys_in(log: Log, view: View, streams: Collection[str], *, upto: Position) -> set[str]:
    """Return the keys that the events of some streams have now."""
    if view.by_stream:
        return set()
    queries = [replace(view.query, stream=stream) for stream in sorted(streams)]
    found = (_key(log, view, recorded) for query in queries for recorded in log.stored.read(query, upto=upto))
    return {key for key in found if key is not None}


def _key(log: Log, view: View, recorded: Recorded) -> str | None:
    # An event that cannot be upcast was skipped, or its key is its stream: otherwise the build is stopped before it.
    return recorded.event.stream if view.by_stream else view.key(log.catalog.upcast(recorded.event))
