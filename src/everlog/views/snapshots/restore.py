"""Use a snapshot: let it answer in place of the stored states, or begin there when an earlier state is computed."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from everlog.core.event import Position
from everlog.errors import Busy
from everlog.views.advance import ENDS
from everlog.views.as_of import Cut, Was, events_to, fold_to, of_key, state_at
from everlog.views.builds.build import drop_build
from everlog.views.builds.content import build_digest
from everlog.views.builds.open_build import OpenBuild
from everlog.views.rebuild.blue_green import activate
from everlog.views.snapshots.body import put, rows_of
from everlog.views.snapshots.folder import SnapshotEntry
from everlog.views.snapshots.snapshots import Snapshots
from everlog.views.view import Order, View


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a restore."""

    view: str
    snapshot: str
    covered: Position  # up to where the snapshot was
    position: Position  # up to where the view is now
    keys: int
    digest: str


def restore(
    snapshots: Snapshots, view: View, entry: SnapshotEntry | None = None, *, stop: Callable[[], bool] = lambda: False
) -> Restored:
    """Let a snapshot and the events after it answer: the given one, or the newest that can be used."""
    log, small_state = snapshots.log, snapshots.small_state
    loaded = snapshots.to_restore(view, entry)
    with small_state.change() as change:
        build = put(change, view, loaded.header, loaded.body)
    opened = OpenBuild(log, small_state, view, build, live=False)
    found = opened.catch_up(stop=stop)
    if found in ENDS or activate(log, small_state, opened) is None:
        with small_state.change() as change:
            drop_build(change, build)
        raise Busy(
            f"the snapshot {loaded.header.id} was not restored",
            why="the log's history, or the builds of the view, changed meanwhile",
            hint="try once more",
            view=view.name,
        )
    return Restored(
        view=view.name,
        snapshot=loaded.header.id,
        covered=loaded.header.position,
        position=opened.cursor.position,
        keys=small_state.count(opened.build.rows),
        digest=build_digest(small_state, opened.build),
    )


def was_at(snapshots: Snapshots, view: View, key: str, at: Cut, *, skipped: Collection[int]) -> Was:
    """Return the row of one key, as of a moment. If its history may be anywhere in the log, a snapshot saves reading
    all of it."""
    log = snapshots.log
    if view.by_stream or view.order is not Order.POSITION or at.lamport is not None:
        return state_at(log, view, key, at, skipped=skipped)
    loaded = snapshots.newest(view, upto=at.upto)
    if loaded is None or loaded.body["letters"] or any(place <= loaded.header.position for place in skipped):
        return state_at(log, view, key, at, skipped=skipped)
    tail = events_to(log, view.query, at=at, after=loaded.header.position)
    mine = of_key(log, view, key, tail)
    return fold_to(log, view, mine, skipped=skipped, start=Was(rows=rows_of(loaded.body, [key])))
