"""The status of a view, for operators and monitoring."""

from __future__ import annotations

import msgspec

from everlog.core.event import START, Position
from everlog.log.dead_letters import SKIPPED
from everlog.stores.small_state import SmallState
from everlog.views.builds.build import DamagedRecord, builds_of, read_build, read_names
from everlog.views.builds.content import dead_letters_of
from everlog.views.view import View

NEVER_RUN, OK, BEHIND, PARKED, STOPPED, OTHER_CODE = "never run", "ok", "behind", "parked", "stopped", "other code"
DAMAGED = "damaged"  # a record cannot be read, or rows are lost; it is derived again when it runs


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The status of one view. `lag` is in positions; `letters` counts events that wait for a decision."""

    view: str
    state: str
    version: int = 0
    code_version: int = 0  # of the code in this process; 0 if there is none
    build: int = 0
    previous: int = 0
    building: int = 0  # a build that is being made beside it, and how far it is
    building_at: Position = START
    position: Position = START
    lag: int = 0
    keys: int = 0
    applied: int = 0
    letters: int = 0
    stopped_at: int = 0
    mended: int = 0  # rows that did not match their checksums and were folded again, since the build was made
    mended_us: int = 0


def overview(small_state: SmallState, name: str, code: View | None, head: Position) -> Overview:
    try:
        return _overview(small_state, name, code, head)
    except DamagedRecord:
        return Overview(view=name, state=DAMAGED, code_version=code.version if code is not None else 0, lag=head)


def _overview(small_state: SmallState, name: str, code: View | None, head: Position) -> Overview:
    names = read_names(small_state, name)
    active = read_build(small_state, name, names.active) if names.active else None
    beside = [build for build in builds_of(small_state, name) if build.number > names.active and not build.complete]
    code_version = code.version if code is not None else 0
    if active is None:
        return Overview(
            view=name,
            state=NEVER_RUN,
            code_version=code_version,
            building=beside[-1].number if beside else 0,
            building_at=beside[-1].position if beside else START,
            lag=head,
        )
    keys = small_state.count(active.rows)
    waiting = [letter for letter in dead_letters_of(small_state, active) if letter.what != SKIPPED]
    lag = max(0, head - active.position)
    if 0 <= active.keys != keys and read_build(small_state, name, active.number) == active:
        state = DAMAGED
    elif active.stopped_at:
        state = STOPPED
    elif code is not None and not active.is_of(code):
        state = OTHER_CODE
    elif waiting:
        state = PARKED
    else:
        state = BEHIND if lag else OK
    return Overview(
        view=name,
        state=state,
        version=active.version,
        code_version=code_version,
        build=active.number,
        previous=names.previous,
        building=beside[-1].number if beside else 0,
        building_at=beside[-1].position if beside else START,
        position=active.position,
        lag=lag,
        keys=keys,
        applied=active.applied,
        letters=len(waiting),
        stopped_at=active.stopped_at,
        mended=active.mended,
        mended_us=active.mended_us,
    )
