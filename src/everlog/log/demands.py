"""What a request demands of the log's present state: its expectations, and the transitions that its types allow."""

from __future__ import annotations

from collections.abc import Sequence

from everlog.catalog.catalog import Catalog
from everlog.catalog.transitions import Transitions
from everlog.core.event import Event, imported_order
from everlog.core.query import Query
from everlog.log.drafts import Draft, Prepared
from everlog.log.expect import Expect, require
from everlog.stores.contract import Writer


def has_demands(prepared: Sequence[Prepared], catalog: Catalog) -> bool:
    """False when the request may be recorded whatever the log holds: most may, and need not be walked again."""
    ruled = catalog.ruled
    for item in prepared:  # noqa: SIM110 - any() of a generator would double the cost
        if item.draft.expect is not Expect.ANY or item.draft.type in ruled:
            return True
    return False


def require_demands(writer: Writer, prepared: Sequence[Prepared], catalog: Catalog) -> None:
    """Refuse the request if a demand does not hold. Earlier drafts of the batch count as if they were recorded."""
    staged: dict[str, int] = {}
    states: dict[tuple[str, str], str] = {}
    for item in prepared:
        draft = item.draft
        if draft.expect is not Expect.ANY:
            sequence = writer.sequence(draft.stream) + staged.get(draft.stream, 0)
            require(draft.expect, draft.stream, sequence, writer)
        staged[draft.stream] = staged.get(draft.stream, 0) + 1
        rule = catalog.transition_rule(draft.stream.partition("/")[0], draft.type)
        if rule is not None:
            place = (draft.stream, draft.type)
            current = states[place] if place in states else _current_state(writer, draft, rule, catalog)
            requested = str(item.payload[rule.field])
            rule.check(draft.stream, current, requested)
            states[place] = requested


def _current_state(writer: Writer, draft: Draft, rule: Transitions, catalog: Catalog) -> str:
    query = Query(stream=draft.stream, types=frozenset([draft.type]))
    if not rule.causal:
        for last in writer.read(query, limit=1, newest_first=True):
            return _state_after(last.event, rule, catalog)
        return rule.initial
    every = [recorded.event for recorded in writer.read(query)]
    if every:
        return _state_after(max(every, key=_real_and_late), rule, catalog)
    if rule.also:
        imported = writer.read(Query(stream=draft.stream, types=frozenset(rule.also)))
        last_one = max((recorded.event for recorded in imported), key=imported_order, default=None)
        if last_one is not None:
            return str(last_one.payload.get(rule.also[last_one.type]) or rule.initial)
    return rule.initial


def _real_and_late(event: Event) -> tuple[bool, tuple[int, str]]:
    """What was migrated from elsewhere has made-up clocks: it decides only where nothing else does."""
    return (event.tags.get("migrated") != "true", event.causal_order)


def _state_after(event: Event, rule: Transitions, catalog: Catalog) -> str:
    return str(catalog.upcast(event).payload.get(rule.field) or rule.initial)
