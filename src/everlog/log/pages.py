"""Reading by cursor: pages that say how far they looked, and the one signal that history changed under a cursor."""

from __future__ import annotations

from everlog.core.event import START, Position
from everlog.core.query import EVERYTHING, Cursor, Page, Query, Reset, scopes_touch
from everlog.stores.contract import Reader, Store

PAGE_LIMIT = 500


def page_after(store: Store, cursor: Cursor, query: Query = EVERYTHING, *, limit: int = PAGE_LIMIT) -> Page:
    # The order of these three steps is the promise: the head is taken first, so that a purge which commits
    # between them has a reserved position above this page, and the next page still meets it (F31).
    head = store.head()
    purged = newest_purge(store, query)
    reset = find_reset(store.identity.epoch, cursor, head, purged)
    if reset is not None:
        return Page((), reset.cursor, head, reset)
    events = tuple(store.read(query, after=cursor.position, upto=head, limit=limit))
    full = len(events) >= limit
    position = events[-1].position if full else max(head, cursor.position)
    knows = purged if cursor.position == START else cursor.knows
    return Page(events, Cursor(position, knows if knows > position else START, store.identity.epoch), head)


def find_reset(epoch: str, cursor: Cursor, head: Position, purged: Position) -> Reset | None:
    """The reset that a cursor needs, if any: one, for however many purges lie between."""
    if cursor.epoch and cursor.epoch != epoch:
        return Reset(Cursor(head, START, epoch), "restored")
    if cursor.position > head:
        # The log is shorter than what this reader has seen: an older copy took its place (F30).
        return Reset(Cursor(head, START, epoch), "restored")
    if cursor.position != START and purged > max(cursor.position, cursor.knows):
        return Reset(Cursor(purged, START, epoch), "purged")
    return None


def newest_purge(store: Reader, query: Query) -> Position:
    """The greatest reserved position that concerns readers of this query; a purge elsewhere does not."""
    newest = START
    for purge in store.purges():
        if query.stream and purge.stream != query.stream:
            continue
        if query.kind and not purge.stream.startswith(query.kind + "/"):
            continue
        if query.scope and not any(scopes_touch(scope, query.scope) for scope in purge.scopes):
            continue
        newest = max(newest, purge.reserved)
    return newest
