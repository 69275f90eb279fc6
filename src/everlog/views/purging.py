"""What a purge must take out of views at once, because states may hold words of what was purged.

A view that is run follows a purge by itself: its cursor is reset. But nobody may run it for a long time, and the
build before the last is kept for a way back. So whoever purges also looks at every build on the shelf.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from everlog.core.query import Cursor
from everlog.errors import EverlogError
from everlog.stores.shelf import Shelf
from everlog.views.builder import Builder, Gone, NeedsRebuild
from everlog.views.refold import keys_fed_by
from everlog.views.states import (
    Build,
    builds_of,
    drop_build,
    every_name,
    letters_of,
    put_build,
    put_names,
    read_build,
    read_names,
)
from everlog.views.view import View

if TYPE_CHECKING:
    from everlog.log.log import Log

_logger = logging.getLogger("everlog")


def forget_purged(log: Log, shelf: Shelf, stream: str, code_of: Callable[[str], View | None]) -> None:
    """Take a purged stream out of every build. What cannot be done now is done when the view is next run."""
    for name in every_name(shelf):
        active = read_names(shelf, name).active
        for build in builds_of(shelf, name):
            try:
                if _holds(shelf, build, stream):
                    _forget(log, shelf, build, code_of(name), active=build.number == active)
            except (EverlogError, Gone) as error:  # the purge stands
                _logger.warning("the view %s may still hold words of %s until it is run: %s", name, stream, error)


def _holds(shelf: Shelf, build: Build, stream: str) -> bool:
    if any(letter.stream == stream for letter in letters_of(shelf, build)):
        return True
    affected = keys_fed_by(shelf, build, [stream])
    return affected is None or any(shelf.get(build.rows, key) is not None for key in affected)


def _forget(log: Log, shelf: Shelf, build: Build, code: View | None, *, active: bool) -> None:
    if active and code is not None and code.version == build.version:
        try:
            Builder(log, shelf, code, build, live=False).step(limit=1)
            return
        except NeedsRebuild:
            pass  # it is not known which keys hold something of it: all of them go, and are derived again
    with shelf.change() as change:
        change.scrub = True
        current = read_build(change, build.name, build.number)
        if current is None:
            return
        drop_build(change, current)
        if active:
            empty = replace(current, cursor=str(Cursor()), revision=current.revision + 1, applied=0, stopped_at=0)
            put_build(change, empty)
        else:
            names = read_names(change, build.name)
            if names.previous == build.number:
                put_names(change, build.name, replace(names, previous=0))
