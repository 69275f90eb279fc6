"""Why a value is what it is: the events that made it so, newest first, each with what caused it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import msgspec

from everlog.core.canonical import canonical
from everlog.core.event import Recorded
from everlog.core.paths import Parts
from everlog.log.causes import causes_of
from everlog.views.as_of import Cut, Was, fold_to, history_of
from everlog.views.differences import value_at
from everlog.views.view import View

if TYPE_CHECKING:
    from everlog.log.log import Log


class Made(msgspec.Struct, frozen=True):
    """An event that changed a value: from what, to what, and what caused the event."""

    recorded: Recorded
    was: Any  # UNSET: there was none
    now: Any  # UNSET: it was taken away
    causes: tuple[Recorded, ...] = ()  # its cause, the cause of that, and so on
    unknown: str = ""  # an id at the end of that chain that is not in this log


def why(
    log: Log, view: View, key: str, parts: Parts, at: Cut, *, skipped: Collection[int] = (), limit: int | None = None
) -> list[Made]:
    """The events that changed the value at a path of a key's state, newest first."""
    changed = []
    before: Any = msgspec.UNSET
    was = Was(rows={})
    for recorded in history_of(log, view, key, at):
        fold_to(log, view, [recorded], skipped=skipped, start=was)
        if key in was.parked or was.stopped_at:
            break
        row = was.rows.get(key)
        now = msgspec.UNSET if row is None else _copied(value_at(row.state, parts))
        if _text(now) != _text(before):
            changed.append((recorded, before, now))
        before = now
    newest = changed[::-1][:limit]
    return [Made(recorded, was, now, *causes_of(log, recorded)) for recorded, was, now in newest]


def _copied(value: Any) -> Any:
    """A copy: a view may change its state in place."""
    return value if value is msgspec.UNSET else msgspec.json.decode(canonical(value))


def _text(value: Any) -> bytes | None:
    return None if value is msgspec.UNSET else canonical(value)
