"""Whether a key that has no row should have one: a row that is lost has no checksum that could tell."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from everlog.errors import InvalidField
from everlog.stores.shelf import Shelf
from everlog.views.builder import Builder
from everlog.views.checksums import LostRows
from everlog.views.states import require_all, scan_kept

if TYPE_CHECKING:
    from everlog.log.log import Log

LOOKED_AT_MAX = 1000
"""Rows that are checked when a key has none, to see whether it was lost. That takes about 1 ms."""


def require_none(log: Log, shelf: Shelf, builder: Builder, key: str) -> None:
    """LostRows if a key that has no row must have one, or if rows are lost and it may be one of them.

    Where the key is the stream its events are looked up. Elsewhere all rows are checked, if they are few.
    """
    view, build = builder.view, builder.build
    if builder.is_parked(key):
        return
    if not view.by_stream:
        if build.keys <= LOOKED_AT_MAX:
            keys = [kept for kept, _ in scan_kept(shelf, build)]
            if key in keys:  # a scan meets the row, and a search for its key does not: the tree of rows is damaged
                raise LostRows(view.name, len(keys) - 1, build.keys)
            require_all(build, len(keys))
        return
    try:
        query = replace(view.query, stream=key)
    except InvalidField:
        return  # no stream can have this name
    if not query.stream:
        return
    left_out = {letter.position for letter in builder.letters()}
    events = log.store.read(query, upto=builder.cursor.position)
    if any(recorded.position not in left_out for recorded in islice(events, len(left_out) + 1)):
        raise LostRows(view.name, shelf.count(build.rows), build.keys)
