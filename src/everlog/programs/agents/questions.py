"""The questions of the agents program: one command, all commands, the steps of a session, a tree of causes, sources.

A caller that is limited to a scope gets the same answers as if the log held only the events in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from everlog.core.ids import one_spelling
from everlog.core.query import in_scope
from everlog.errors import NoSuchSubject
from everlog.programs.agents.events import KIND
from everlog.programs.agents.views import Causes as CausesView
from everlog.programs.agents.views import Commands, Pending, step_of
from everlog.programs.agents.views import Sources as SourcesView
from everlog.programs.agents.views import Trace as TraceView
from everlog.programs.command import Question
from everlog.programs.scoped import row, rows

if TYPE_CHECKING:
    from everlog.log.log import Log

POSITION_DIGITS_MAX = 16  # an id has more characters

Row = dict[str, Any]
_TREE = ("depth", "at", "actor", "stream", "status", "id", "caused_by")


class List(Question[list[Row]], frozen=True, kw_only=True):
    """Show commands and their status, the oldest first."""

    verb = "list"
    examples = ("list --pending", "list --status failed")
    example: ClassVar[dict[str, Any]] = {"pending": True}
    columns = ("id", "status", "agent_id", "tool_name", "risk", "proposed_at")
    pending: Annotated[bool, Meta(description="Only commands that wait for a decision.")] = False
    status: Annotated[list[str], Meta(description="Only commands with this status; may be repeated.")] = (
        msgspec.field(default_factory=list)
    )

    def answer(self, log: Log, within: str) -> list[Row]:
        found = _pending(log, within) if self.pending else self._all(log, within)
        return sorted(found, key=lambda one: (one["proposed_at"], one["id"]))

    def _all(self, log: Log, within: str) -> list[Row]:
        found = [{"id": key.partition("/")[2], **state} for key, state in rows(log, Commands, within)]
        return [one for one in found if not self.status or one["status"] in self.status]


def _pending(log: Log, within: str) -> list[Row]:
    """It costs what waits, not what was ever proposed."""
    return [{"id": name, **one} for _, waiting in rows(log, Pending, within) for name, one in waiting.items()]


class Show(Question[Row], frozen=True, kw_only=True):
    """Show one command in full."""

    verb = "show"
    examples = ("show c1",)
    example: ClassVar[dict[str, Any]] = {"id": "c1"}
    id: Annotated[str, Meta(description="The command's id.")]

    def answer(self, log: Log, within: str) -> Row:
        state = row(log, Commands, f"{KIND}/{self.id}", within)
        if state is None:
            raise NoSuchSubject(
                f"there is no command {self.id}", why="nothing was proposed under this id", hint="everlog agent list"
            )
        return {"id": self.id, **state}


class Trace(Question[list[Row]], frozen=True, kw_only=True):
    """Show what happened in a session (a correlation id) on all streams, as a tree of causes."""

    verb = "trace"
    examples = ("trace session-7",)
    example: ClassVar[dict[str, Any]] = {"session": "session-7"}
    columns = _TREE
    session: Annotated[str, Meta(description="The correlation id that the steps share.")]

    def answer(self, log: Log, within: str) -> list[Row]:
        state = row(log, TraceView, self.session, "")
        steps = [] if state is None else _visible(log, state["steps"], within)
        if not steps:
            raise NoSuchSubject(
                f"there is no session {self.session}",
                why="no step has this correlation id",
                hint="everlog agent list --json shows the session of each command",
            )
        here = {step["id"] for step in steps}
        effects: dict[str, list[Row]] = {}
        for step in steps:
            cause = one_spelling(step["caused_by"])
            effects.setdefault(cause if cause in here else "", []).append(step)
        return list(_tree(effects.get("", []), lambda step: effects.get(step["id"], [])))


class Causes(Question[list[Row]], frozen=True, kw_only=True):
    """Show the tree of causes that an event belongs to, on all streams: its first cause and all effects."""

    verb = "causes"
    examples = ("causes '#1'",)
    example: ClassVar[dict[str, Any]] = {"event": "#1"}
    columns = _TREE
    event: Annotated[str, Meta(description="The event's id, or its position as #12 or 12.")]

    def answer(self, log: Log, within: str) -> list[Row]:
        from everlog.log.read.causes import causes_of

        number = self.event.removeprefix("#")
        at = number.isdecimal() and len(number) <= POSITION_DIGITS_MAX
        asked = log.get(int(number)) if at else log.get(self.event)
        if asked is None or not in_scope(asked.event.scope, within):
            raise NoSuchSubject(
                f"there is no event {self.event}",
                why="the log has none at this position",
                hint="everlog log shows what there is",
            )
        above, _ = causes_of(log.get, asked)
        *_, root = takewhile(lambda one: in_scope(one.event.scope, within), (asked, *above))
        first = {**step_of(root.event), "asked": root.event.id == asked.event.id}

        def effects(step: Row) -> list[Row]:
            state = row(log, CausesView, step["id"], "", fresh=step is first)
            found = [] if state is None else _visible(log, state["effects"], within)
            return [{**effect, "asked": effect["id"] == asked.event.id} for effect in found]

        return list(_tree([first], effects))


class Sources(Question[list[Row]], frozen=True, kw_only=True):
    """Show the actors that take part, and how much each has done."""

    verb = "sources"
    examples = ("sources",)
    example: ClassVar[dict[str, Any]] = {}
    columns = ("source", "sequence", "did", "last_at")

    def answer(self, log: Log, within: str) -> list[Row]:
        return [{"source": key, **state} for key, state in rows(log, SourcesView, within)]


QUESTIONS = (List, Show, Trace, Causes, Sources)


def _visible(log: Log, steps: list[Row], within: str) -> list[Row]:
    """Return the steps whose events are in the scope. A step says nothing of other events, so the stored row can be
    filtered: it costs what the row has, not what the scope has."""
    if not within:
        return steps
    found = ((step, log.get(step["id"])) for step in steps)
    return [step for step, one in found if one is not None and in_scope(one.event.scope, within)]


def _tree(roots: list[Row], below: Callable[[Row], list[Row]]) -> Iterator[Row]:
    """Yield steps with their depth, each before its effects. A step that names itself as its cause appears once."""
    seen = set()
    waiting = [(step, 0) for step in reversed(roots)]
    while waiting:
        step, depth = waiting.pop()
        if step["id"] in seen:
            continue
        seen.add(step["id"])
        yield {**step, "depth": depth}
        waiting += [(effect, depth + 1) for effect in reversed(below(step))]
