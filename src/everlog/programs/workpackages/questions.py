"""The questions of the workpackages program: one package, the board, the features, and the history of a package.

A caller that is limited to a scope gets the same answers as if the log held only the events in it.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Meta

from everlog.core.query import Query, in_scope
from everlog.errors import NoSuchSubject, ViewStopped
from everlog.programs.command import Question
from everlog.programs.leases import Lease, now
from everlog.programs.scoped import row, rows
from everlog.programs.workpackages import rules
from everlog.programs.workpackages.claiming import unready
from everlog.programs.workpackages.events import CLAIMS
from everlog.programs.workpackages.package import State, lane_of, story, stream_of
from everlog.programs.workpackages.views import Board as BoardView
from everlog.programs.workpackages.views import Claims
from everlog.programs.workpackages.views import Specs as SpecsView

if TYPE_CHECKING:
    from everlog.log.log import Log

Row = dict[str, Any]
REFUSALS_READ = 100
"""Among how many of the newest refusals those about one package are looked for."""


class Status(Question[Row], frozen=True, kw_only=True):
    """Show one work package: its lane, the lanes that it may move to, and what prevents a move."""

    verb = "status"
    examples = ("status WP03",)
    example: ClassVar[dict[str, Any]] = {"id": "WP03"}
    id: Annotated[str, Meta(description="The work package, such as WP03.")]

    def answer(self, log: Log, within: str) -> Row:
        state = _state(log, self.id, within)
        if state is None:
            raise no_such_package(self.id)
        lanes = {one: lane_of(_state(log, one, within)) for one in state["dependencies"]}
        return {
            **_shown(self.id, state),
            "depends_on": [{"id": one, "lane": lanes[one]} for one in state["dependencies"]],
            "waits_for": rules.waits_for(state, lanes),
            "valid_transitions": list(rules.next_lanes(state)),
            "refused": _refused_lately(log, self.id, within),
        }


class Board(Question[list[Row]], frozen=True, kw_only=True):
    """Show the board: a column for each lane, by feature."""

    verb = "board"
    examples = ("board --feature 025-event-log",)
    example: ClassVar[dict[str, Any]] = {"feature": "025-event-log"}
    columns = ("feature", "lane", "id", "title", "marks")
    feature: Annotated[str | None, Meta(description="Only packages of this feature.")] = None
    everything: Annotated[bool, Meta(description="Show all packages that are done, not only the newest.")] = False

    def answer(self, log: Log, within: str) -> list[Row]:
        found = {_name(key): state for key, state in rows(log, BoardView, within)}
        lanes = {package: state["lane"] for package, state in found.items()}
        return [
            {**_shown(package, state), "waits_for": rules.waits_for(state, lanes)}
            for package, state in sorted(found.items(), key=_by_feature)
            if self.feature is None or state["feature"] == self.feature
        ]


class Next(Question[list[Row]], frozen=True, kw_only=True):
    """Show the work packages that can be claimed, in the order of the board.

    These are the planned ones whose dependencies are done, and those in doing whose claim has expired.
    """

    verb = "next"
    examples = ("next --limit 1",)
    example: ClassVar[dict[str, Any]] = {}
    columns = ("id", "lane", "feature", "title")
    feature: Annotated[str | None, Meta(description="Only packages of this feature.")] = None
    limit: Annotated[int, Meta(ge=1, le=1_000_000, description="The maximum number of packages.")] = 100

    def answer(self, log: Log, within: str) -> list[Row]:
        at = now()
        leases = {_name(key): Lease(**lease) for key, lease in rows(log, Claims, within)}
        found = {_name(key): state for key, state in rows(log, BoardView, within)}
        lanes = {package: state["lane"] for package, state in found.items()}
        free = (
            {**_shown(package, state), "waits_for": []}
            for package, state in sorted(found.items(), key=_by_feature)
            if self.feature is None or state["feature"] == self.feature
            if not (lease := leases.get(package, Lease())).is_live(at)
            if not unready(state, lanes, lapsed=bool(lease.holder))
        )
        return list(islice(free, self.limit))


class Specs(Question[dict[str, Row]], frozen=True, kw_only=True):
    """Return the features, by their slug."""

    verb = "specs"
    example: ClassVar[dict[str, Any]] = {}

    def answer(self, log: Log, within: str) -> dict[str, Row]:
        return {_name(key): state for key, state in rows(log, SpecsView, within)}


class PackageHistory(Question[list[Row]], frozen=True, kw_only=True):
    """Show what happened to a work package, in an order that is the same in every clone.

    Two moves that were made without knowledge of each other are marked as a conflict; the later one counts.
    """

    verb = "history"
    examples = ("history WP03",)
    example: ClassVar[dict[str, Any]] = {"id": "WP03"}
    columns = ("at", "actor", "what", "reason", "marks", "id")
    id: Annotated[str, Meta(description="The work package, such as WP03.")]

    def answer(self, log: Log, within: str) -> list[Row]:
        query = Query(stream=stream_of(self.id), types=frozenset((*BoardView.types, *CLAIMS.types)))
        found = [one.event for one in log.read(query) if in_scope(one.event.scope, within)]
        if not found:
            raise no_such_package(self.id)
        return story(found)


QUESTIONS = (Status, Board, Next, Specs, PackageHistory)


def no_such_package(package: str) -> NoSuchSubject:
    return NoSuchSubject(
        f"there is no work package {package}",
        why="nothing was recorded under this id",
        hint=f'everlog wp board, or everlog wp create {package} "TITLE"',
    )


def _state(log: Log, package: str, within: str) -> State | None:
    """Return a package without storing anything: from the stored row of the board if its stream has not grown since,
    else from the stream alone. So the answer is quick in a long log, and with a long stream too."""
    if within:
        found: State | None = row(log, BoardView, stream_of(package), within)
        return found
    view, stream = log.view(BoardView), stream_of(package)
    build = view.build()
    if build is not None and build.complete and build.version == BoardView.version and not build.stopped_at:
        since = log.page_after(build.reached, Query(stream=stream), limit=1)
        if since.reset is None and not since.events:
            return _found(view.get(stream, fresh=False))
    return _found(view.get(stream, as_of=log.head()))


def _found(answer: Any) -> State | None:
    if answer.parked:
        raise ViewStopped(
            f"{answer.key} goes no further than an event that cannot be read",
            why="what came after it is not in the answer",
            hint=f"everlog views dead-letters {BoardView.name}",
            view=BoardView.name,
        )
    state: State | None = answer.state
    return state


def _shown(package: str, state: State) -> Row:
    """Return a state without what only the fold needs."""
    heads = [{name: head[name] for name in ("id", "lane", "from", "by", "at")} for head in state["heads"]]
    shown = {name: value for name, value in state.items() if name not in ("heads", "start", "real")}
    return {
        "id": package,
        **shown,
        "conflict": heads if len(heads) > 1 else None,
        "migrated": bool(state["heads"]) and bool(state["heads"][-1].get("migrated")),
        "closed_gates": rules.closed_gates(state),
    }


def _refused_lately(log: Log, package: str, within: str) -> list[Row]:
    """Return what was tried with a package and refused, each mistake once, the latest first."""
    found: dict[tuple[str, str, str], Row] = {}
    for one in log.refusals(limit=REFUSALS_READ, within=within):
        if one.stream == stream_of(package):
            first = {
                "actor": one.actor,
                "operation": one.operation,
                "reason": one.reason,
                "hint": one.hint,
                "last_at": one.refused_at.isoformat(timespec="seconds").replace("+00:00", "Z"),
                "times": 0,
            }
            found.setdefault((one.actor, one.operation, one.reason), first)["times"] += 1
    return list(found.values())


def _by_feature(item: tuple[str, State]) -> tuple[bool, str, str]:
    """Return the order on the board: packages of no feature come last."""
    return (not item[1]["feature"], item[1]["feature"], item[0])


def _name(stream: str) -> str:
    return stream.partition("/")[2]
