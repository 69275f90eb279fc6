"""Answers from one open build: a key, a page of rows, the number of rows; and whether a missing row was lost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from everlog.core.event import Position
from everlog.errors import InvalidField
from everlog.log.derived import Answer
from everlog.stores.small_state import SmallState
from everlog.views.builds.build import Build
from everlog.views.builds.content import require_all, scan_kept
from everlog.views.builds.open_build import OpenBuild
from everlog.views.builds.rows import LostRows, Row
from everlog.views.view import State, View

if TYPE_CHECKING:
    from everlog.log.log import Log

CHECKED_MAX = 1000
"""Rows that are checked when a key has none, to find out whether it was lost. That takes about 1 ms."""


def answer(
    log: Log, view: View, key: str, row: Row | None, position: Position, *, parked: bool, stopped_at: int
) -> Answer:
    return Answer(
        view=view.name,
        key=key,
        state=None if row is None else row.state,
        position=position,
        lag=max(0, log.head() - position),
        parked=parked,
        stopped_at=stopped_at,
    )


def answer_now(log: Log, small_state: SmallState, opened: OpenBuild, key: str) -> Answer:
    """Return the state of a key. LostRows if the key has no row and must have one."""
    row = opened.rows((key,)).get(key)
    if row is None:
        _require_none(log, small_state, opened, key)
    position, parked = opened.cursor.position, opened.is_parked(key)
    return answer(log, opened.view, key, row, position, parked=parked, stopped_at=opened.stopped_at)


def page_of(opened: OpenBuild, after: str, size: int) -> tuple[list[tuple[str, bytes]], Build]:
    """Return some rows as they are stored, in order of their keys, and the build that they are from."""
    rows = opened.page(after, size)
    if not after and len(rows) < size:
        require_all(opened.build, len(rows))
    return rows, opened.build


def states_of(opened: OpenBuild, keys: Sequence[str]) -> list[tuple[str, State]]:
    """Return the states of those of the keys that have one, in the given order."""
    rows = opened.rows(keys)
    return [(key, rows[key].state) for key in keys if key in rows]


def count_of(small_state: SmallState, build: Build) -> int:
    found = small_state.count(build.rows)
    require_all(build, found)
    return found


def _require_none(log: Log, small_state: SmallState, opened: OpenBuild, key: str) -> None:
    """Raise LostRows if a key that has no row must have one, or if rows are lost and it may be one of them. A lost
    row has no checksum that could show it.

    If the key is the stream, its events are looked up. Otherwise all rows are checked, if they are few.
    """
    view, build = opened.view, opened.build
    if opened.is_parked(key):
        return
    if not view.by_stream:
        if build.keys <= CHECKED_MAX:
            keys = [kept for kept, _ in scan_kept(small_state, build)]
            if key in keys:  # a scan finds the row, and a search for its key does not: the tree of rows is damaged
                raise LostRows(view.name, len(keys) - 1, build.keys)
            require_all(build, len(keys))
        return
    try:
        query = replace(view.query, stream=key)
    except InvalidField:
        return  # no stream can have this name
    if not query.stream:
        return
    left_out = {letter.position for letter in opened.dead_letters()}
    events = log.counted(log.stored.read(query, upto=opened.cursor.position))
    if any(recorded.position not in left_out for recorded in islice(events, len(left_out) + 1)):
        raise LostRows(view.name, small_state.count(build.rows), build.keys)
