"""How a view stands: what an operator wants to see of it, and what a monitor wants to measure."""

from __future__ import annotations

import msgspec

from everlog.core.event import START, Position
from everlog.stores.shelf import Shelf
from everlog.views.checksums import DamagedRecord
from everlog.views.letters import SKIPPED
from everlog.views.states import builds_of, letters_of, read_build, read_names
from everlog.views.view import View

NEVER_RUN, OK, BEHIND, PARKED, STOPPED, OTHER_CODE = "never run", "ok", "behind", "parked", "stopped", "other code"
DAMAGED = "damaged"  # a record of it cannot be read, or rows are lost; it is derived again when it is run


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """One view. `lag` is in positions; `letters` counts events that wait for somebody."""

    view: str
    state: str
    version: int = 0
    code_version: int = 0  # of the code that is here; 0 if there is none
    build: int = 0
    previous: int = 0
    building: int = 0  # a build that is being made beside, and how far it is
    building_at: Position = START
    position: Position = START
    lag: int = 0
    keys: int = 0
    applied: int = 0
    letters: int = 0
    stopped_at: int = 0
    mended: int = 0  # rows that did not match their checksums and were folded again, since the build was made
    mended_us: int = 0


def overview(shelf: Shelf, name: str, code: View | None, head: Position) -> Overview:
    try:
        return _overview(shelf, name, code, head)
    except DamagedRecord:
        return Overview(view=name, state=DAMAGED, code_version=code.version if code is not None else 0, lag=head)


def _overview(shelf: Shelf, name: str, code: View | None, head: Position) -> Overview:
    names = read_names(shelf, name)
    active = read_build(shelf, name, names.active) if names.active else None
    beside = [build for build in builds_of(shelf, name) if build.number > names.active and not build.complete]
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
    keys = shelf.count(active.rows)
    waiting = [letter for letter in letters_of(shelf, active) if letter.what != SKIPPED]
    lag = max(0, head - active.position)
    if 0 <= active.keys != keys and read_build(shelf, name, active.number) == active:
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
