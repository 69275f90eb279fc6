"""Blue and green: a new build is made beside the active one, compared with it, and activated in one change.

Meanwhile no changes are published (`on_change`), and readers continue with the old states. A process that is killed
on the way leaves either the old build or the new one active, never half of one. A rebuild that was stopped continues
where it was: its rows and its cursor are stored.
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
from everlog.log.forgotten import count_forgets
from everlog.stores.contract import InGit, Stored
from everlog.stores.small_state import SmallState, StateChanges
from everlog.views.advance import ENDS, Advance
from everlog.views.builds.build import (
    Build,
    active_build,
    begin_build,
    builds_of,
    drop_build,
    put_build,
    put_names,
    read_build,
    read_names,
)
from everlog.views.builds.content import build_digest
from everlog.views.builds.open_build import BATCH, OpenBuild
from everlog.views.builds.rows import LostRows, begin, kept_state, row_matches
from everlog.views.rebuild.elsewhere import Derive, fill, require_same_here
from everlog.views.view import View

if TYPE_CHECKING:
    from everlog.log.log import Log

DIFFERING_SHOWN = 20
_SEEN = 5
_TRIES = 5


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a rebuild."""

    view: str
    version: int
    build: int
    replaced: int  # the build that answered before, kept for `rollback`; 0 if there was none
    position: Position
    applied: int
    keys: int
    digest: str
    same: bool | None  # the states are those of the build before; None if that cannot be compared
    differing: tuple[str, ...]  # some of the keys whose states are not the same
    resumed_at: Position
    switched: bool
    seconds: float
    handed_over: Position = START  # up to here it was derived elsewhere; 0 if it was not
    checked: int = 0  # keys that were derived here too, and were the same


def rebuild(
    log: Log,
    small_state: SmallState,
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
    """Rebuild a view beside the build that answers now, compare, and switch.

    `fresh` begins again even if a rebuild was begun. With `derive` everything up to now is derived elsewhere, and
    only the rest here.
    """
    for _ in range(_TRIES):
        done = _rebuild(log, small_state, view, switch, fresh, stop, progress, catch_up_old, limit, derive)
        if done is not None:
            return done
        fresh = False  # the build was removed, by a purge or by another rebuild
    raise Busy(
        f"the view {view.name} could not be rebuilt",
        why=f"the new build was removed {_TRIES} times, by purges or by other rebuilds of the same view",
        hint=f"everlog views rebuild {view.name}",
        view=view.name,
    )


def _rebuild(
    log: Log,
    small_state: SmallState,
    view: View,
    switch: bool,
    fresh: bool,
    stop: Callable[[], bool],
    progress: Callable[[int], None],
    catch_up_old: Callable[[int], None],
    limit: int,
    derive: Derive | None,
) -> Rebuilt | None:
    """Make one attempt; None if the new build was removed meanwhile."""
    begun = time.monotonic()
    handed_over = START
    if derive is None:
        opened, resumed_at = _beside(log, small_state, view, fresh=fresh)
    else:
        opened, resumed_at = (
            OpenBuild(log, small_state, view, fill(log, small_state, view, derive), live=False),
            START,
        )
        handed_over = opened.cursor.position
    while (found := opened.catch_up(stop=stop, progress=progress, limit=limit)) is Advance.REBUILD:
        # History changed while it was being built: it begins again.
        with small_state.change() as change:
            drop_build(change, opened.build)
        opened, _ = _beside(log, small_state, view, fresh=True)
        handed_over = START
    if found is Advance.GONE:
        return None
    compared = _Compared() if stop() else _compare(small_state, view, opened, catch_up_old)
    if compared is None:
        return None
    checked = (
        0 if derive is None or not handed_over else require_same_here(log, small_state, opened, compared.differing)
    )
    old = active_build(small_state, view.name)
    switched = activate(log, small_state, opened) if switch and not stop() else False
    counted = _counted(small_state, opened.build)
    if switched is None or counted is None:
        return None
    build, keys, digest = counted
    return Rebuilt(
        view=view.name,
        version=view.version,
        build=build.number,
        replaced=0 if old is None else old.number,
        position=opened.cursor.position,
        applied=build.applied,
        keys=keys,
        digest=digest,
        same=compared.same,
        differing=tuple(compared.differing),
        resumed_at=resumed_at,
        handed_over=handed_over,
        checked=checked,
        switched=switched,
        seconds=round(time.monotonic() - begun, 3),
    )


def _counted(small_state: SmallState, build: Build) -> tuple[Build, int, str] | None:
    """Return a build with the number of its keys and its digest, though another process may advance it meanwhile.
    None if another process has replaced and removed it."""
    while True:
        try:
            return build, small_state.count(build.rows), build_digest(small_state, build)
        except LostRows:
            current = read_build(small_state, build.name, build.number)
            if current is None:
                return None
            if current.revision == build.revision:
                raise
            build = current


def activate(log: Log, small_state: SmallState, opened: OpenBuild) -> bool | None:
    """Let a build answer from now on. False if the active one is of newer code; None if the build was removed."""
    with opened.lock:
        if opened.save() is Advance.GONE:
            return None
        epochs = _other_epochs(log.stored)
        with small_state.change() as change:
            build = read_build(change, opened.view.name, opened.build.number)
            if build is None:
                return None
            names = read_names(change, build.name)
            old = read_build(change, build.name, names.active) if names.active else None
            if old is not None and old.version > build.version:
                put_build(change, replace(build, complete=True, revision=build.revision + 1))
                switched = False
            else:
                _switch(small_state, change, build, old, epochs)
                switched = True
        if opened.reload() is Advance.GONE:
            return None
        opened.live = True  # now that it is stored: another thread takes it for the build that answers
        return switched


def go_back(log: Log, small_state: SmallState, view: View) -> bool:
    """Activate the build that was made of the events which are checked out again, if there is one."""
    epoch, active = log.identity.epoch, active_build(small_state, view.name)
    if active is None or active.reached.epoch in ("", epoch):
        return False
    kept = [build for build in builds_of(small_state, view.name) if build.complete and build.reached.epoch == epoch]
    kept = [build for build in kept if build.is_of(view)]
    return bool(kept) and bool(activate(log, small_state, OpenBuild(log, small_state, view, kept[-1], live=False)))


def _other_epochs(store: Stored) -> set[str]:
    return store.other_epochs() if isinstance(store, InGit) else set()


def _switch(
    small_state: SmallState, change: StateChanges, build: Build, old: Build | None, epochs: Collection[str]
) -> None:
    names = read_names(change, build.name)
    put_build(change, replace(build, complete=True, revision=build.revision + 1))
    if names.active != build.number:
        previous = 0 if old is None else old.number
        put_names(change, build.name, replace(names, active=build.number, previous=previous))
        others = [
            other for other in builds_of(small_state, build.name) if other.number not in (build.number, previous)
        ]
        # The newest of each branch of git that is not checked out.
        branches = {other.reached.epoch: other.number for other in others if other.complete}
        for other in others:
            # One earlier build is kept for `rollback`. A newer build that is not complete is a rebuild under way.
            past = other.number < build.number or (other.complete and other.version == build.version)
            if past and not (other.reached.epoch in epochs and branches.get(other.reached.epoch) == other.number):
                drop_build(change, other)


def roll_back(small_state: SmallState, name: str) -> Build:
    """Activate the build before the active one again, in one change."""
    with small_state.change() as change:
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


def _beside(log: Log, small_state: SmallState, view: View, *, fresh: bool) -> tuple[OpenBuild, Position]:
    """Return a build that does not answer yet: one that was begun and not finished, or a new one."""
    # Not within the change: an append with a view would wait for it.
    standing, forgets = str(log.verdicts()), count_forgets(log.writer.small_state)
    with small_state.change() as change:
        names = read_names(change, view.name)
        begun = [
            build
            for build in builds_of(small_state, view.name)
            if build.number > names.active and not build.complete and build.version == view.version
        ]
        if fresh:
            for build in begun:
                drop_build(change, build)
            begun = []
        # A build must not be made half by one code and half by another. What other code has begun may continue in
        # another process, and is removed when a later build is activated.
        mine = [build for build in begun if build.is_of(view)]
        build = mine[-1] if mine else begin_build(change, view, standing, forgets)
    return OpenBuild(log, small_state, view, build, live=False), build.position


class _Compared(msgspec.Struct):
    same: bool | None = None
    differing: list[str] = []


def _compare(
    small_state: SmallState, view: View, opened: OpenBuild, catch_up_old: Callable[[int], None]
) -> _Compared | None:
    """Compare the new build with the active one, if both are of the same version and reach the same position. None if
    the new build was removed, or must be rebuilt."""
    for _ in range(_SEEN):
        old = active_build(small_state, view.name)
        if old is None or old.version != view.version or old.number == opened.build.number:
            return _Compared()
        if old.position < opened.cursor.position:
            catch_up_old(opened.cursor.position)
        elif old.position > opened.cursor.position and opened.catch_up(upto=old.position) in ENDS:
            return None
        old = active_build(small_state, view.name)
        if opened.save() in ENDS:
            return None
        if old is not None and old.position == opened.cursor.position:
            differing = list(islice(_differing(small_state, old, opened.build), DIFFERING_SHOWN))
            after = active_build(small_state, view.name)
            if after is not None and after.revision == old.revision:
                return _Compared(not differing, differing)
    return _Compared()  # the log is written to all the time, and the build moves on between any two reads


def _differing(small_state: SmallState, one: Build, other: Build) -> Iterator[str]:
    """Yield the keys whose states differ, by reading both builds side by side."""
    sealed = one.sealed and other.sealed
    ours, theirs = small_state.scan(one.rows), small_state.scan(other.rows)
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
    """Return the state of a row; None if it does not match its checksum, so that it differs from any other."""
    return kept_state(data) if row_matches(begin(build.rows), key, data, sealed=build.sealed) else None
