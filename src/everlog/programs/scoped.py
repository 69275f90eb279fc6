"""Rows of a view for a caller that is limited to a scope: those that the events in that scope alone would give.

Without a limit, the answer comes from the stored rows of the view. With one, the events in the scope are folded for
the question: events of other scopes about the same key are not in the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from everlog.core.query import Query, in_scope
from everlog.views.view import CAUSAL, View, state_bytes

if TYPE_CHECKING:
    from everlog.log.log import Log


def rows(log: Log, view: type[View], within: str) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a view, in order of their keys."""
    if not within:
        yield from log.view(view).items()
        return
    yield from sorted(_folded(log, view, within, None).items())


def row(log: Log, view: type[View], key: str, within: str, *, fresh: bool = True) -> Any | None:
    """Return the row of one key; None if there is none."""
    if within:
        return _folded(log, view, within, key).get(key)
    answer = log.view(view).get(key, fresh=fresh)
    return answer.state if answer.found else None


def _folded(log: Log, view: type[View], within: str, wanted: str | None) -> dict[str, Any]:
    fold = view()
    query = msgspec.structs.replace(fold.query, scope=within)
    if fold.by_stream and wanted is not None:
        query = Query(stream=wanted, types=query.types, kind=query.kind, scope=within)
    events = [one.event for one in log.read(query) if in_scope(one.event.scope, fold.scope)]
    if fold.order is CAUSAL:
        events.sort(key=lambda event: event.causal_order)
    states: dict[str, Any] = {}
    for event in events:
        key = fold.key(event)
        if key is not None and wanted in (None, key):
            states[key] = fold.apply(states[key] if key in states else fold.initial(), event)
    return {key: msgspec.json.decode(state_bytes(state)) for key, state in states.items()}
