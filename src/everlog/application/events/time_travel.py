"""The state of a stream or of a view's key: now, at an earlier moment, what changed in between, and why.

A name with a slash is a stream. Its state is its row in the view that a program declares for its kind, such as the
board for a work package; without one, the last value of every field. Any other name is a view with a key. With
`within`, only events in that scope exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from everlog.core.differences import Difference, differences
from everlog.core.event import Purge, Recorded
from everlog.core.query import Query, in_scope, narrowed
from everlog.core.text import did_you_mean, parse_path, path_of
from everlog.errors import InvalidField, NotFound
from everlog.log.log import Log
from everlog.views.as_of import Cut as Cut
from everlog.views.as_of import Made as Made
from everlog.views.as_of import Moment as Moment
from everlog.views.as_of import Was, cut, history_of, state_at, why
from everlog.views.builtin import Fields
from everlog.views.registry import live_view, views_of
from everlog.views.view import View

if TYPE_CHECKING:
    from everlog.application.folder.open import AnyLog

SIMILAR_EVENTS_MAX = 1000
"""A similar name is looked for in this many of the newest events."""


class StateThen(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one key at a moment."""

    view: str
    key: str
    at: Cut
    events: int
    state: Any
    incomplete: bool  # an event of this key could not be applied, so the state ends before it


class StateChange(msgspec.Struct, frozen=True, kw_only=True):
    """What changed in one key between two moments, and the events between them."""

    view: str
    key: str
    old: Cut
    new: Cut
    changed: Sequence[Difference]
    events: Sequence[Recorded]
    backwards: bool  # the first moment is the later one


class Reasons(msgspec.Struct, frozen=True, kw_only=True):
    """The events that set a value, newest first, with their causes."""

    view: str
    key: str
    path: str
    at: Cut
    events: Sequence[Made]


def state_then(log: Log, name: str, key: str = "", *, moment: Moment | None = None, within: str = "") -> StateThen:
    """Return the state of a stream, or of a key of a view, at a moment; None is now."""
    view, key = _named(log, name, key, within)
    at = cut(log, moment, stream=key if view.by_stream else "", within=within)
    was = was_then(log, view, key, at)
    row = was.rows.get(key)
    if row is None:
        raise _no_state(log, view, key, at)
    return StateThen(
        view=view.name,
        key=key,
        at=at,
        events=row.count,
        state=row.state,
        incomplete=key in was.parked or bool(was.stopped_at),
    )


def change_between(
    log: Log,
    name: str,
    before: Moment | None,
    after: Moment | None = None,
    *,
    view_name: str = "",
    within: str = "",
) -> StateChange:
    """Return what changed in a stream, or in a key of a view, between two moments."""
    view, key = _named(log, view_name or name, name if view_name else "", within)
    skipped = live_view(log, view).skipped()
    stream = key if view.by_stream else ""
    old, new = (cut(log, moment, stream=stream, within=within) for moment in (before, after))
    was, now = (state_at(log, view, key, at, skipped=skipped).states().get(key) for at in (old, new))
    history = history_of(log, view, key, new)
    if not history and was is None:
        raise _no_state(log, view, key, new)
    earlier = history_of(log, view, key, old)
    between = _without(history, earlier)
    backwards = not between and len(earlier) > len(history)
    if backwards:
        between = _without(earlier, history)
    return StateChange(
        view=view.name,
        key=key,
        old=old,
        new=new,
        changed=list(differences({} if was is None else was, {} if now is None else now)),
        events=between,
        backwards=backwards,
    )


def reasons_for(
    log: Log,
    name: str,
    path: str,
    *,
    moment: Moment | None = None,
    view_name: str = "",
    limit: int | None = None,
    within: str = "",
) -> Reasons:
    """Return the events that made the value at a path what it is at a moment."""
    view, key = _named(log, view_name or name, name if view_name else "", within)
    parts = parse_path(path)
    at = cut(log, moment, stream=key if view.by_stream else "", within=within)
    made = why(log, view, key, parts, at, skipped=live_view(log, view).skipped(), limit=limit)
    if not made:
        raise NotFound(
            f"no event of {key} sets {path_of(parts)}",
            why=describe(at),
            hint=f"everlog state {key if view.by_stream else f'{view.name} {key}'}",
            key=key,
            path=path_of(parts),
        )
    return Reasons(view=view.name, key=key, path=path_of(parts), at=at, events=made)


def describe(at: Cut) -> str:
    """Return a moment in words: `as of #105`, or of a time also the first event after it."""
    before = "" if at.next is None else f", before the event #{at.next}"
    return f"as of {at.label}{before}" if at.label != f"#{at.upto}" else f"as of {at.label}"


def was_then(log: Log, view: View, key: str, at: Cut) -> Was:
    """Return the row of one key at a moment; for a caller with a limit from its own events only."""
    live = live_view(log, view)
    return state_at(log, view, key, at, skipped=live.skipped()) if at.within else live.was_at(key, at)


def shown_by(log: Log, stream: str, within: str = "") -> View:
    """Return the view that shows a stream: the one that a program declares for its kind, if it applies any event of
    the stream; otherwise the last value of every field."""
    view = views_of(log).showing(stream.partition("/")[0])
    query = None if view is None else narrowed(msgspec.structs.replace(view.query, stream=stream), within)
    applies = query is not None and next(log.stored.read(query, limit=1), None) is not None
    return view if view is not None and applies else Fields()


def _named(log: Log, name: str, key: str, within: str) -> tuple[View, str]:
    if "/" in name and not key:
        return shown_by(log, name, within), name
    live = live_view(log, name)
    live.warn_of_other_code()  # the stored rows may differ from the state that is computed here
    if not key:
        raise InvalidField(
            f"{name} is a view",
            why="a view has one state per key",
            hint=f"everlog state {name} KEY",
            field="key",
        )
    return live.view, key


def _without(records: Sequence[Recorded], others: Sequence[Recorded]) -> list[Recorded]:
    known = {recorded.position for recorded in others}
    return [recorded for recorded in records if recorded.position not in known]


def _no_state(log: Log, view: View, key: str, at: Cut) -> NotFound:
    what, reason = f"{key} has no state", f"it has no event {describe(at)}"
    if not view.by_stream:
        return NotFound(what, why=reason, hint=f"everlog views get {view.name}", key=key)
    purge = next((purge for purge in log.stored.purges() if purge.stream == key and _is_own(purge, at.within)), None)
    if next(log.read(Query(stream=key, scope=at.within), limit=1), None) is not None:
        hint = f"everlog log --stream {key}"
    elif purge is not None:
        reason, hint = f"it was purged ({purge.reason})", "everlog log --purges"
    else:
        hint = _similar(log, key, at.within)
    return NotFound(what, why=reason, hint=hint, key=key)


def _is_own(purge: Purge, within: str) -> bool:
    return not within or all(in_scope(scope, within) for scope in (purge.scopes or ("",)))


def _similar(log: Log, stream: str, within: str) -> str:
    """Return a hint about a stream that never existed: a similar name of the same kind, if there is one."""
    kind = stream.partition("/")[0]
    others = _newest_streams(log, Query(kind=kind, scope=within))
    return f"{near_stream(log, stream, within)} {'everlog log --kind ' + kind if others else 'everlog log'}".strip()


def near_stream(log: AnyLog, stream: str, within: str = "") -> str:
    """Return `did you mean KIND/ID?` for a stream that does not exist, or an empty text."""
    kind, _, name = stream.partition("/")
    if others := _newest_streams(log, Query(kind=kind, scope=within)):
        names = {other.partition("/")[2] for other in others}  # the kind would make all of them similar
        return did_you_mean(name, names).replace("mean ", f"mean {kind}/")
    return did_you_mean(stream, _newest_streams(log, Query(scope=within)))


def _newest_streams(log: AnyLog, query: Query) -> set[str]:
    return {found.event.stream for found in log.read(query, limit=SIMILAR_EVENTS_MAX, newest_first=True)}
