"""`log.state`, `log.diff` and `log.why`: a stream as it is or was, what changed in it, and which events did that."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from everlog.application.events.time_travel import change_between, reasons_for, state_then
from everlog.application.operations.fields import AsOf, CutObject, Limit, Record, StreamName, moment_of, record_of
from everlog.log.log import Log
from everlog.programs.command import Question

Shown = Annotated[
    str,
    Meta(
        description="The view to use: the stream is a key of it. By default the view that a program declares for the"
        " kind of the stream, otherwise `fields`: the last value of every field.",
        max_length=100,
    ),
]
_PROBLEMS = ("damaged", "schema_broken", "other_code")


class StateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a stream at a moment."""

    view: str
    key: str
    at: CutObject
    events: int
    state: Any
    incomplete: bool  # an event of this key could not be applied, so the state ends before it


class State(Question[StateAnswer], frozen=True, kw_only=True):
    """Return the state of a stream, now or as it was."""

    verb = "state"
    problems = _PROBLEMS
    example: ClassVar[dict[str, Any]] = {"stream": "note/1"}

    stream: StreamName
    as_of: AsOf = ""
    view: Shown = ""

    def answer(self, log: Log, within: str) -> StateAnswer:
        name, key = (self.view, self.stream) if self.view else (self.stream, "")
        found = state_then(log, name, key, moment=moment_of(self.as_of), within=within)
        return StateAnswer(
            view=found.view,
            key=found.key,
            at=CutObject.of(found.at),
            events=found.events,
            state=found.state,
            incomplete=found.incomplete,
        )


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A value that changed. Without `was` it is new; without `now` it was removed."""

    path: str
    was: Any = msgspec.UNSET
    now: Any = msgspec.UNSET


class DiffAnswer(msgspec.Struct, frozen=True, kw_only=True, rename={"old": "from", "new": "to"}):
    """What changed in a stream between two moments, and the events between them."""

    view: str
    key: str
    old: CutObject
    new: CutObject
    changes: list[Change]
    events: list[Record]
    backwards: bool  # the first moment is the later one


class Diff(Question[DiffAnswer], frozen=True, kw_only=True):
    """Return what changed in a stream between two moments, and the events between them."""

    verb = "diff"
    problems = _PROBLEMS
    example: ClassVar[dict[str, Any]] = {"stream": "note/1", "since": "v1"}

    stream: StreamName
    since: AsOf
    as_of: AsOf = ""
    view: Shown = ""

    def answer(self, log: Log, within: str) -> DiffAnswer:
        found = change_between(
            log,
            self.stream,
            moment_of(self.since, "since"),
            moment_of(self.as_of),
            view_name=self.view,
            within=within,
        )
        return DiffAnswer(
            view=found.view,
            key=found.key,
            old=CutObject.of(found.old),
            new=CutObject.of(found.new),
            changes=[Change(path=one.path, was=one.was, now=one.now) for one in found.changed],
            events=list(map(record_of, found.events)),
            backwards=found.backwards,
        )


class Reason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event that changed a value, and what caused it."""

    event: Record
    causes: list[Record]
    unknown_cause: str = ""
    was: Any = msgspec.UNSET
    now: Any = msgspec.UNSET


class WhyAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The events that set a value, newest first."""

    view: str
    key: str
    path: str
    at: CutObject
    events: list[Reason]


class Why(Question[WhyAnswer], frozen=True, kw_only=True):
    """Return which events set a value of a stream, newest first, with their causes."""

    verb = "why"
    problems = _PROBLEMS
    example: ClassVar[dict[str, Any]] = {"stream": "note/1", "path": "text"}

    stream: StreamName
    path: Annotated[str, Meta(description="The value, such as owner.name.", min_length=1, max_length=500)]
    as_of: AsOf = ""
    view: Shown = ""
    limit: Limit = 50

    def answer(self, log: Log, within: str) -> WhyAnswer:
        found = reasons_for(
            log,
            self.stream,
            self.path,
            moment=moment_of(self.as_of),
            view_name=self.view,
            limit=self.limit,
            within=within,
        )
        return WhyAnswer(
            view=found.view,
            key=found.key,
            path=found.path,
            at=CutObject.of(found.at),
            events=[
                Reason(
                    event=record_of(one.recorded),
                    causes=list(map(record_of, one.causes)),
                    unknown_cause=one.unknown,
                    was=one.was,
                    now=one.now,
                )
                for one in found.events
            ],
        )
