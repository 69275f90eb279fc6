"""Remove a purged stream from every build at once, because states may contain text of its events.

A view that runs follows a purge by itself: its cursor is reset. But it may not run for a long time, and an earlier
build is kept for `rollback`. So a purge also goes through every stored build.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from everlog.core.query import Cursor
from everlog.log.forgotten import count_forgets, forgets_in, streams_of
from everlog.stores.small_state import SmallState
from everlog.views.advance import Advance
from everlog.views.builds.build import (
    Build,
    DamagedRecord,
    builds_of,
    drop_build,
    every_name,
    forget_view,
    put_build,
    put_names,
    read_build,
    read_names,
)
from everlog.views.builds.content import dead_letters_of
from everlog.views.builds.open_build import OpenBuild
from everlog.views.rebuild.keys import keys_fed_by
from everlog.views.user_views import describe
from everlog.views.view import View

if TYPE_CHECKING:
    from everlog.log.log import Log

_logger = logging.getLogger("everlog")


Code = Callable[[str], View | None]
"""Returns the view with a name, if its code is present."""


def forget_purged(log: Log, small_state: SmallState, stream: str, code_of: Code) -> None:
    """Remove a purged stream from every build, whether the code of the view is present or not."""
    _forget_all(log, small_state, [(build, {stream}) for build in _every_build(small_state)], code_of)


def forget_missed(log: Log, small_state: SmallState, code_of: Code) -> None:
    """Do the same for every purge that a build has not followed, because the purging process was stopped or could not
    write, and for everybody who was forgotten."""
    purges = log.stored.purges()
    missed = []
    for build in _every_build(small_state):
        since = max(build.position, build.reached.knows)
        purged = {purge.stream for purge in purges if purge.reserved > since}
        missed.append((build, purged | streams_of(forgets_in(log.writer.small_state, build.forgets))))
    _forget_all(log, small_state, missed, code_of)


def _every_build(small_state: SmallState) -> list[Build]:
    found = []
    for name in every_name(small_state):
        try:
            read_names(small_state, name)
            found += builds_of(small_state, name)
        except DamagedRecord as damaged:
            _forget_damaged(small_state, name, damaged)
    return found


def _forget_damaged(small_state: SmallState, name: str, damaged: DamagedRecord) -> None:
    """Remove everything that is stored for a view, because it cannot be read."""
    _logger.warning("%s; everything stored for the view is removed, because it may contain purged text", damaged)
    forget_view(small_state, name)


def _forget_all(log: Log, small_state: SmallState, concerned: list[tuple[Build, set[str]]], code_of: Code) -> None:
    left: dict[str, str] = {}  # view -> why
    of: set[str] = set()
    for build, streams in concerned:
        try:
            if streams and _holds(small_state, build, streams):
                _forget(log, small_state, build, code_of)
        except DamagedRecord as damaged:
            _forget_damaged(small_state, build.name, damaged)
        except Exception as error:  # the purge is recorded, and the other builds must follow it
            left[build.name] = describe(error)
            of |= streams
    if left:
        _logger.warning(
            "the purge of %s is recorded, but the states of %s may still contain text of it: %s; when that is"
            " repaired, type: everlog views run --to-end",
            ", ".join(sorted(of)),
            ", ".join(sorted(left)),
            "; ".join(sorted(set(left.values()))),
        )


def _holds(small_state: SmallState, build: Build, streams: set[str]) -> bool:
    if any(letter.stream in streams for letter in dead_letters_of(small_state, build)):
        return True
    affected = keys_fed_by(small_state, build, streams)
    return affected is None or bool(small_state.rows(build.rows, affected))


def _forget(log: Log, small_state: SmallState, build: Build, code_of: Code) -> None:
    active = read_names(small_state, build.name).active == build.number
    code = code_of(build.name) if active else None
    if code is not None and code.version == build.version:
        try:
            if OpenBuild(log, small_state, code, build, live=False).advance(limit=1) is not Advance.REBUILD:
                return
            # It is not known which keys contain something of the stream: all rows are removed and derived again.
        except Exception as error:  # its code may be broken; what it stored can be emptied all the same
            _logger.warning("the view %s cannot follow a purge, and is rebuilt: %s", build.name, describe(error))
    forgets = count_forgets(log.writer.small_state)  # not within the change: a write of the log would wait for it
    with small_state.change() as change:
        change.scrub = True
        current = read_build(change, build.name, build.number)
        if current is None:
            return
        drop_build(change, current)
        if active:
            empty = replace(current, cursor=str(Cursor()), revision=current.revision + 1, applied=0, stopped_at=0)
            empty = replace(empty, sealed=True, keys=0, forgets=forgets)
            put_build(change, empty)
        else:
            names = read_names(change, build.name)
            if names.previous == build.number:
                put_names(change, build.name, replace(names, previous=0))
