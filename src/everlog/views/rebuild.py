"""Blue and green: a build is made beside the one that answers, compared with it, and put in its place in one change.

Nobody is told of changes meanwhile (`on_change`), readers go on with the old states, and whatever is killed on the
way leaves either the old build or the new one active, never half of one. A rebuild that was stopped goes on where it
was: its rows and its cursor are on the shelf.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from everlog.core.event import START, Position
from everlog.errors import Busy, NotFound
from everlog.stores.contract import InGit, Store
from everlog.stores.shelf import Shelf, ShelfWriter
from everlog.views.builder import BATCH, Builder, Gone, NeedsRebuild
from everlog.views.checking import require_same_here
from everlog.views.checksums import LostRows, begin, row_matches
from everlog.views.filling import Derive, fill
from everlog.views.rows import kept_state
from everlog.views.states import (
    Build,
    active_build,
    begin_build,
    build_digest,
    builds_of,
    drop_build,
    put_build,
    put_names,
    read_build,
    read_names,
)
from everlog.views.view import View

if TYPE_CHECKING:
    from everlog.log.log import Log

DIFFERING_SHOWN = 20
_SEEN = 5
_TRIES = 5


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """What a rebuild did."""

    view: str
    version: int
    build: int
    replaced: int  # the build that answered before, kept for `rollback`; 0 if there was none
    position: Position
    applied: int
    keys: int
    digest: str
    same: bool | None  # as the build before, at the same position; None where that cannot be compared
    differing: tuple[str, ...]  # some of the keys whose states are not the same
    resumed_at: Position
    switched: bool
    seconds: float
    handed_over: Position = START  # up to where it was derived elsewhere; 0 if it was not
    checked: int = 0  # keys of those that were derived here too, and were the same


def rebuild(
    log: Log,
    shelf: Shelf,
    view: View,
    *,
    switch: bool = True,
    fresh: bool = False,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int], None] = lambda position: None,
    catch_up_old: Callable[[int], None] = lambda position: None,
    limit: int = BATCH,
    derive: Derive | None = None,
) -> Rebuilt:
    """Build a view anew beside what answers now, compare, and switch. `fresh` begins again even if one was begun.

    With `derive` everything up to now is derived elsewhere, and only the rest here.
    """
    for _ in range(_TRIES):
        try:
            return _rebuild(log, shelf, view, switch, fresh, stop, progress, catch_up_old, limit, derive)
        except Gone:
            fresh = False  # a purge took the build away, or somebody else who rebuilds
    raise Busy(
        f"the view {view.name} could not be rebuilt in peace",
        why=f"what was built was taken away {_TRIES} times, by purges or by others who rebuild it",
        hint=f"everlog views rebuild {view.name}",
        view=view.name,
    )


def _rebuild(
    log: Log,
    shelf: Shelf,
    view: View,
    switch: bool,
    fresh: bool,
    stop: Callable[[], bool],
    progress: Callable[[int], None],
    catch_up_old: Callable[[int], None],
    limit: int,
    derive: Derive | None,
) -> Rebuilt:
    begun = time.monotonic()
    handed_over = START
    if derive is None:
        builder, resumed_at = _beside(log, shelf, view, fresh=fresh)
    else:
        builder, resumed_at = Builder(log, shelf, view, fill(log, shelf, view, derive), live=False), START
        handed_over = builder.cursor.position
    while True:
        try:
            builder.catch_up(stop=stop, progress=progress, limit=limit)
            break
        except NeedsRebuild:
            # History changed while it was being built: from the beginning then.
            with shelf.change() as change:
                drop_build(change, builder.build)
            builder, _ = _beside(log, shelf, view, fresh=True)
            handed_over = START
    same, differing = (None, list[str]()) if stop() else _compare(shelf, view, builder, catch_up_old)
    checked = 0 if derive is None or not handed_over else require_same_here(log, shelf, builder, differing)
    old = active_build(shelf, view.name)
    switched = switch and not stop() and activate(log, shelf, builder)
    build, keys, digest = _as_it_is(shelf, builder.build)
    return Rebuilt(
        view=view.name,
        version=view.version,
        build=build.number,
        replaced=0 if old is None else old.number,
        position=builder.cursor.position,
        applied=build.applied,
        keys=keys,
        digest=digest,
        same=same,
        differing=tuple(differing),
        resumed_at=resumed_at,
        handed_over=handed_over,
        checked=checked,
        switched=switched,
        seconds=round(time.monotonic() - begun, 3),
    )


def _as_it_is(shelf: Shelf, build: Build) -> tuple[Build, int, str]:
    """A build with the number of its keys and its digest, though another process may move it on meanwhile. Gone if
    that process has put another one in its place, and removed this one."""
    while True:
        try:
            return build, shelf.count(build.rows), build_digest(shelf, build)
        except LostRows:
            current = read_build(shelf, build.name, build.number)
            if current is None:
                raise Gone from None
            if current.revision == build.revision:
                raise
            build = current


def activate(log: Log, shelf: Shelf, builder: Builder) -> bool:
    """Let a build answer from here on; False if the one that answers now is of newer code."""
    with builder.lock:
        builder.save()
        with shelf.change() as change:
            build = read_build(change, builder.view.name, builder.build.number)
            if build is None:
                return False
            names = read_names(change, build.name)
            old = read_build(change, build.name, names.active) if names.active else None
            if old is not None and old.version > build.version:
                put_build(change, replace(build, complete=True, revision=build.revision + 1))
                switched = False
            else:
                _switch(shelf, change, build, old, _other_epochs(log.store))
                switched = True
        builder.reload()
        return switched


def go_back(log: Log, shelf: Shelf, view: View) -> bool:
    """Let the build answer that was made of the events which are checked out again, if there is one."""
    epoch, active = log.identity.epoch, active_build(shelf, view.name)
    if active is None or active.reached.epoch in ("", epoch):
        return False
    kept = [build for build in builds_of(shelf, view.name) if build.complete and build.reached.epoch == epoch]
    kept = [build for build in kept if build.is_of(view)]
    try:
        return bool(kept) and activate(log, shelf, Builder(log, shelf, view, kept[-1], live=False))
    except Gone:  # somebody was quicker
        return False


def _other_epochs(store: Store) -> set[str]:
    return store.other_epochs() if isinstance(store, InGit) else set()


def _switch(shelf: Shelf, change: ShelfWriter, build: Build, old: Build | None, epochs: Collection[str]) -> None:
    names = read_names(change, build.name)
    put_build(change, replace(build, complete=True, revision=build.revision + 1))
    if names.active != build.number:
        previous = 0 if old is None else old.number
        put_names(change, build.name, replace(names, active=build.number, previous=previous))
        others = [other for other in builds_of(shelf, build.name) if other.number not in (build.number, previous)]
        # The newest of each branch of git that is not checked out.
        branches = {other.reached.epoch: other.number for other in others if other.complete}
        for other in others:
            # One way back is kept. What is newer than this one and not complete is somebody's work in progress.
            past = other.number < build.number or (other.complete and other.version == build.version)
            if past and not (other.reached.epoch in epochs and branches.get(other.reached.epoch) == other.number):
                drop_build(change, other)


def roll_back(shelf: Shelf, name: str) -> Build:
    """Let the build before the active one answer again, in one change."""
    with shelf.change() as change:
        names = read_names(change, name)
        previous = read_build(change, name, names.previous) if names.previous else None
        if previous is None:
            raise NotFound(
                f"the view {name} has no earlier build",
                why="it was never rebuilt here, or what it was rebuilt from is gone",
                hint=f"everlog views rebuild {name}",
                view=name,
            )
        put_names(change, name, replace(names, active=previous.number, previous=names.active))
        return previous


def _beside(log: Log, shelf: Shelf, view: View, *, fresh: bool) -> tuple[Builder, Position]:
    """A build that does not answer yet: one that was begun and not finished, or a new one."""
    with shelf.change() as change:
        names = read_names(change, view.name)
        begun = [
            build
            for build in builds_of(shelf, view.name)
            if build.number > names.active and not build.complete and build.version == view.version
        ]
        if fresh:
            for build in begun:
                drop_build(change, build)
            begun = []
        # Half by one code and half by another would be neither. What other code has begun may be going on elsewhere,
        # and goes when a later build takes over.
        mine = [build for build in begun if build.is_of(view)]
        build = mine[-1] if mine else begin_build(change, view)
    return Builder(log, shelf, view, build, live=False), build.position


def _compare(
    shelf: Shelf, view: View, builder: Builder, catch_up_old: Callable[[int], None]
) -> tuple[bool | None, list[str]]:
    """Whether the new build says the same as the one that answers, where both are of the same code and place."""
    for _ in range(_SEEN):
        old = active_build(shelf, view.name)
        if old is None or old.version != view.version or old.number == builder.build.number:
            return None, []
        if old.position < builder.cursor.position:
            catch_up_old(builder.cursor.position)
        elif old.position > builder.cursor.position:
            builder.catch_up(upto=old.position)
        old = active_build(shelf, view.name)
        builder.save()
        if old is not None and old.position == builder.cursor.position:
            differing = list(islice(_differing(shelf, old, builder.build), DIFFERING_SHOWN))
            after = active_build(shelf, view.name)
            if after is not None and after.revision == old.revision:
                return not differing, differing
    return None, []  # it is written to all the time, and moves on between any two looks


def _differing(shelf: Shelf, one: Build, other: Build) -> Iterator[str]:
    """The keys whose states differ, by walking both side by side."""
    sealed = one.sealed and other.sealed
    ours, theirs = shelf.scan(one.rows), shelf.scan(other.rows)
    mine, yours = next(ours, None), next(theirs, None)
    while mine is not None or yours is not None:
        if yours is None or (mine is not None and mine[0] < yours[0]):
            assert mine is not None
            yield mine[0]
            mine = next(ours, None)
        elif mine is None or yours[0] < mine[0]:
            yield yours[0]
            yours = next(theirs, None)
        else:
            if not (sealed and _same_but_checksum(mine[1], yours[1])) and _state(one, *mine) != _state(other, *yours):
                yield mine[0]
            mine, yours = next(ours, None), next(theirs, None)


def _same_but_checksum(one: object, other: object) -> bool:
    return type(one) is bytes and type(other) is bytes and one[:-4] == other[:-4]


def _state(build: Build, key: str, data: bytes) -> bytes | None:
    """The state of a row; None for one that does not match its checksum, and differs from any other."""
    return kept_state(data) if row_matches(begin(build.rows), key, data, sealed=build.sealed) else None
