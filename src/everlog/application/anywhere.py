"""Questions about a log that is here or behind a server, with the same answers.

A log that is here is read by this process. A server answers for its own log, as one of its operations; what this
process would check in stored bytes is checked there, by `everlog verify`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from everlog.application.checks.doctor import FAIL, OK, Check, checks
from everlog.application.events import find, time_travel
from everlog.application.events.find import FoundEvent
from everlog.application.events.time_travel import Cut, Made, Moment, Reasons, StateChange, StateThen
from everlog.application.views import states
from everlog.core.differences import Difference
from everlog.core.event import Position
from everlog.core.text import parse_path
from everlog.errors import EverlogError
from everlog.log.log import Log
from everlog.remote.log_calls import moment_text
from everlog.views.builds.overview import Overview
from everlog.wire.messages import record_of_object

if TYPE_CHECKING:
    from everlog.application.folder.open import AnyLog, Location

Object = dict[str, Any]


class _Cut(msgspec.Struct, frozen=True):
    as_of: str
    position: int
    lamport: int | None = None
    next: int | None = None

    def cut(self) -> Cut:
        following = None if self.next is None else Position(self.next)
        return Cut(upto=Position(self.position), lamport=self.lamport, label=self.as_of, next=following)


# ---- one event


class _Causes(msgspec.Struct, frozen=True):
    event: Object
    causes: list[Object]


def find_event(log: AnyLog, name: str) -> FoundEvent:
    """Return the event that has this id, a part of this id, or this position (`#12` or `12`)."""
    if isinstance(log, Log):
        return find.find_event(log, name)
    found: _Causes = log.ask_operation("log.causes", {"event": name}, _Causes)
    return FoundEvent(
        recorded=record_of_object(found.event), causes=[*map(record_of_object, found.causes)], problems=()
    )


# ---- states


class _State(msgspec.Struct, frozen=True):
    view: str
    key: str
    at: _Cut
    events: int
    state: Any
    incomplete: bool


def state_then(log: AnyLog, name: str, key: str = "", *, moment: Moment | None = None) -> StateThen:
    """Return the state of a stream, or of a key of a view, at a moment; None is now."""
    if isinstance(log, Log):
        return time_travel.state_then(log, name, key, moment=moment)
    fields = {"stream": key or name, "view": name if key else "", "as_of": moment_text(moment)}
    found: _State = log.ask_operation("log.state", fields, _State)
    return StateThen(
        view=found.view,
        key=found.key,
        at=found.at.cut(),
        events=found.events,
        state=found.state,
        incomplete=found.incomplete,
    )


class _Change(msgspec.Struct, frozen=True):
    path: str = ""
    was: Any = msgspec.UNSET
    now: Any = msgspec.UNSET


class _Diff(msgspec.Struct, frozen=True, rename={"old": "from", "new": "to"}):
    view: str
    key: str
    old: _Cut
    new: _Cut
    changes: list[_Change]
    events: list[Object]
    backwards: bool


def change_between(
    log: AnyLog, name: str, before: Moment | None, after: Moment | None = None, *, view_name: str = ""
) -> StateChange:
    """Return what changed in a stream, or in a key of a view, between two moments."""
    if isinstance(log, Log):
        return time_travel.change_between(log, name, before, after, view_name=view_name)
    fields = {"stream": name, "since": moment_text(before), "as_of": moment_text(after), "view": view_name}
    found: _Diff = log.ask_operation("log.diff", fields, _Diff)
    return StateChange(
        view=found.view,
        key=found.key,
        old=found.old.cut(),
        new=found.new.cut(),
        changed=[Difference(parse_path(one.path), one.was, one.now) for one in found.changes],
        events=[*map(record_of_object, found.events)],
        backwards=found.backwards,
    )


class _Reason(_Change, frozen=True, kw_only=True):
    event: Object
    causes: list[Object]
    unknown_cause: str = ""


class _Why(msgspec.Struct, frozen=True):
    view: str
    key: str
    path: str
    at: _Cut
    events: list[_Reason]


def reasons_for(
    log: AnyLog, name: str, path: str, *, moment: Moment | None = None, view_name: str = "", limit: int | None = None
) -> Reasons:
    """Return the events that made the value at a path what it is at a moment."""
    if isinstance(log, Log):
        return time_travel.reasons_for(log, name, path, moment=moment, view_name=view_name, limit=limit)
    fields = {"stream": name, "path": path, "as_of": moment_text(moment), "view": view_name, "limit": limit}
    found: _Why = log.ask_operation("log.why", fields, _Why)
    made = [
        Made(
            record_of_object(one.event),
            one.was,
            one.now,
            causes=tuple(map(record_of_object, one.causes)),
            unknown=one.unknown_cause,
        )
        for one in found.events
    ]
    return Reasons(view=found.view, key=found.key, path=found.path, at=found.at.cut(), events=made)


# ---- views and checks


def overviews(log: AnyLog) -> list[Overview]:
    """Return the status of every view. No view is run."""
    if isinstance(log, Log):
        return states.overviews(log)
    found: list[Overview] = log.ask_operation("view.list", {}, list[Overview])
    return found


def check_log(location: Location, open_log: Any) -> Iterator[Check]:
    """Yield the result of every check of the log at a location, or of those that a server makes of its log."""
    if not location.server:
        yield from checks(location, open_log)
        return
    try:
        log = location.connect()
    except EverlogError as error:
        yield Check("server", FAIL, str(error), error.hint)
        return
    with log:
        try:
            found: list[Check] = log.ask_operation("log.doctor", {}, list[Check])
        except EverlogError as error:
            yield Check("server", FAIL, str(error), error.hint)
            return
    yield Check("server", OK, f"{log.url} answers; its checks of its log follow")
    yield from found
