"""Requests about the log itself: its identity, views, purges, refusals and verification."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from everlog.core.event import Position, Purge, Recorded, microseconds
from everlog.core.query import require_limit
from everlog.errors import InvalidField, NotFound
from everlog.log.derived import Answer, ViewName
from everlog.log.verify.verify import Report
from everlog.log.write.refusal_rows import Refusal
from everlog.remote import calls
from everlog.remote.calls import Call
from everlog.stores.contract import Identity
from everlog.wire.problems import Problem, error_of

WAIT_S_MAX = 30.0
"""The longest that a server waits for a view in one request."""

ROWS = 1000
REFUSALS_MAX = 10_000


class Head(msgspec.Struct, frozen=True):
    """The identity of the log of a server."""

    log_id: str
    origin: str
    epoch: str
    created_at: datetime


def identity() -> Call[Head]:
    return calls.ask_named("log.head", {}, Head)


def identity_of(found: Head) -> Identity:
    return Identity(found.log_id, found.origin, found.epoch, microseconds(found.created_at))


# ---- views


class ViewState(msgspec.Struct, frozen=True):
    """The state of one key, as a server answers."""

    view: str
    key: str
    state: Any
    position: int
    lag: int
    stale: bool = False
    parked: bool = False
    stopped_at: int = 0


class _Row(msgspec.Struct, frozen=True):
    key: str
    state: Any


class ViewRows(msgspec.Struct, frozen=True):
    """Some states of a view, in order of their keys."""

    view: str
    position: int
    lag: int
    rows: tuple[_Row, ...]
    next: str
    stale: bool = False

    @property
    def items(self) -> list[tuple[str, Any]]:
        return [(one.key, one.state) for one in self.rows]


def view_name(given: ViewName) -> str:
    """Return the name of a view, its class or an instance of it."""
    return given if isinstance(given, str) else given.name


def view_get(view: str, key: str, *, as_of: Any = None, at_least: int = 0, timeout_s: float = 5.0) -> Call[ViewState]:
    fields = {"view": view, "key": key, "as_of": moment_text(as_of), **_waiting(at_least, timeout_s)}
    return calls.ask_named("view.get", fields, ViewState, wait_s=timeout_s if at_least else 0.0)


def view_rows(
    view: str,
    *,
    after: str = "",
    limit: int = ROWS,
    as_of: Any = None,
    at_least: int = 0,
    timeout_s: float = 5.0,
) -> Call[ViewRows]:
    require_limit(limit)
    fields = {"view": view, "after": after, "limit": min(limit, ROWS), "as_of": moment_text(as_of)}
    waiting = _waiting(at_least, timeout_s)
    return calls.ask_named("view.rows", fields | waiting, ViewRows, wait_s=timeout_s if at_least else 0.0)


def _waiting(at_least: int, timeout_s: float) -> dict[str, Any]:
    return {"at_least": int(at_least), "timeout": min(timeout_s, WAIT_S_MAX)} if at_least else {}


def moment_text(as_of: Any) -> str:
    """Return a moment as a server reads it: a position, a time, or a text such as v3 or lamport:41."""
    match as_of:
        case None:
            return ""
        case bool():
            pass
        case int():
            return f"#{as_of}"
        case datetime() if as_of.tzinfo is not None:
            return as_of.isoformat()
        case str():
            return as_of
        case _ if hasattr(as_of, "value"):  # everlog.views.as_of.Lamport
            return f"lamport:{as_of.value}"
        case _ if hasattr(as_of, "number"):  # everlog.views.as_of.Version
            return f"v{as_of.number}"
    raise InvalidField(
        f"{as_of!r:.60} is not a moment",
        why="a moment is a position, a time with a zone, or a text such as v3 or lamport:41",
        hint="as_of=105",
        field="as_of",
    )


def answer_of(found: ViewState) -> Answer:
    return Answer(
        view=found.view,
        key=found.key,
        state=found.state,
        position=Position(found.position),
        lag=found.lag,
        parked=found.parked,
        stopped_at=found.stopped_at,
    )


def is_about_key(error: NotFound, key: str) -> bool:
    """Return whether a view has nothing under a key: that is an answer, and no error."""
    return error.details.get("key") == key


def nothing_at(view: str, key: str, rows: ViewRows) -> Answer:
    return Answer(view=view, key=key, state=None, position=Position(rows.position), lag=rows.lag)


def wanted_position(position: int | Recorded) -> int:
    return position.position if isinstance(position, Recorded) else int(position)


# ---- purges, refusals, verification


class Removed(msgspec.Struct, frozen=True):
    """What a purge removed."""

    stream: str
    events: int
    reserved: int
    reason: str
    actor: str
    scopes: tuple[str, ...] = ()
    sequence: int = 0
    purged_at: datetime | None = None


def purge(stream: str, *, reason: str) -> Call[Removed]:
    """Remove the events of a stream for good."""
    body = {"stream": stream, "reason": reason, "confirm": f"purge {stream}"}
    return calls.do_named("log.purge", body, Removed, repeatable=True, key=calls.own_key(""))


def purge_of(found: Removed) -> Purge:
    return Purge(
        reserved=Position(found.reserved),
        stream=found.stream,
        scopes=found.scopes,
        actor=found.actor,
        reason=found.reason,
        purged_us=0 if found.purged_at is None else microseconds(found.purged_at),
        sequence=found.sequence,
        count=found.events,
    )


class Job(msgspec.Struct, frozen=True):
    """A long operation of a server."""

    id: str
    status: str
    progress: int = 0
    result: Any = None
    problem: Problem | None = None

    @property
    def ended(self) -> bool:
        return self.status in ("done", "failed")


class _Verified(msgspec.Struct, frozen=True):
    report: Report


def verify() -> Call[Job]:
    """Have the log verified from its bytes. Started twice, it is done twice, and nothing else."""
    return calls.do_named("log.verify", {}, Job, repeatable=True)


def job(name: str) -> Call[Job]:
    """Ask how far a long operation is."""
    return Call(method="GET", path=f"/v1/jobs/{name}", parse=lambda reply: msgspec.json.decode(reply.body, type=Job))


def report_of(ended: Job) -> Report:
    """Return what a verification found, or raise why it failed."""
    if ended.problem is not None:
        raise error_of(ended.problem)
    return msgspec.convert(ended.result, _Verified).report


def pause_s(asked: int) -> float:
    """Return how long to wait before a job is asked for again."""
    return float(min(1.0, 0.02 * 2.0 ** min(asked, 10)))


def refusals(
    *, limit: int | None = 50, code: str = "", stream: str = "", actor: str = "", operation: str = ""
) -> Call[list[Refusal]]:
    asked = REFUSALS_MAX if limit is None else min(limit, REFUSALS_MAX)
    fields = {"code": code, "stream": stream, "actor": actor, "operation": operation, "limit": asked}
    return calls.ask_named("log.refusals", fields, list[Refusal])
