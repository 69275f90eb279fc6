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
from everlog.stores.shelf import Shelf
from everlog.views.builder import Builder, Gone, NeedsRebuild
from everlog.views.checksums import DamagedRecord
from everlog.views.own import told
from everlog.views.refold import keys_fed_by
from everlog.views.states import (
    Build,
    builds_of,
    drop_build,
    every_name,
    forget_view,
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


Code = Callable[[str], View | None]
"""The view of a name, if its code is here."""


def forget_purged(log: Log, shelf: Shelf, stream: str, code_of: Code) -> None:
    """Take a purged stream out of every build, whoever derived it and whether its code is here."""
    _forget_all(log, shelf, [(build, {stream}) for build in _every_build(shelf)], code_of)


def forget_missed(log: Log, shelf: Shelf, code_of: Code) -> None:
    """The same for every purge that a build has not followed: whoever purged was stopped, or could not write."""
    purges = log.store.purges()
    missed = []
    for build in _every_build(shelf):
        since = max(build.position, build.reached.knows)
        missed.append((build, {purge.stream for purge in purges if purge.reserved > since}))
    _forget_all(log, shelf, missed, code_of)


def _every_build(shelf: Shelf) -> list[Build]:
    found = []
    for name in every_name(shelf):
        try:
            read_names(shelf, name)
            found += builds_of(shelf, name)
        except DamagedRecord as damaged:
            _forget_damaged(shelf, name, damaged)
    return found


def _forget_damaged(shelf: Shelf, name: str, damaged: DamagedRecord) -> None:
    """Remove all that a view keeps: nobody knows what is in it."""
    _logger.warning("%s; all that the view keeps is removed, because it may hold what was purged", damaged)
    forget_view(shelf, name)


def _forget_all(log: Log, shelf: Shelf, concerned: list[tuple[Build, set[str]]], code_of: Code) -> None:
    left: dict[str, str] = {}  # view -> why
    of: set[str] = set()
    for build, streams in concerned:
        try:
            if streams and _holds(shelf, build, streams):
                _forget(log, shelf, build, code_of)
        except DamagedRecord as damaged:
            _forget_damaged(shelf, build.name, damaged)
        except Exception as error:  # the purge stands, and the other builds must follow it
            left[build.name] = told(error)
            of |= streams
    if left:
        _logger.warning(
            "the purge of %s stands; but the states of %s may still hold words of it: %s; when that is mended, type:"
            " everlog views run --to-end",
            ", ".join(sorted(of)),
            ", ".join(sorted(left)),
            "; ".join(sorted(set(left.values()))),
        )


def _holds(shelf: Shelf, build: Build, streams: set[str]) -> bool:
    if any(letter.stream in streams for letter in letters_of(shelf, build)):
        return True
    affected = keys_fed_by(shelf, build, streams)
    return affected is None or bool(shelf.get_many(build.rows, affected))


def _forget(log: Log, shelf: Shelf, build: Build, code_of: Code) -> None:
    active = read_names(shelf, build.name).active == build.number
    code = code_of(build.name) if active else None
    if code is not None and code.version == build.version:
        try:
            Builder(log, shelf, code, build, live=False).step(limit=1)
            return
        except Gone:
            return  # and its words with it
        except NeedsRebuild:
            pass  # it is not known which keys hold something of it: all of them go, and are derived again
        except Exception as error:  # its code may be broken; what it keeps can be emptied all the same
            _logger.warning("the view %s cannot follow a purge, and is derived anew: %s", build.name, told(error))
    with shelf.change() as change:
        change.scrub = True
        current = read_build(change, build.name, build.number)
        if current is None:
            return
        drop_build(change, current)
        if active:
            empty = replace(current, cursor=str(Cursor()), revision=current.revision + 1, applied=0, stopped_at=0)
            empty = replace(empty, sealed=True, keys=0)
            put_build(change, empty)
        else:
            names = read_names(change, build.name)
            if names.previous == build.number:
                put_names(change, build.name, replace(names, previous=0))
