"""Whether history changed under a cursor: the one check that pages, subscriptions, consumers, views, snapshots and
the Spark source share.

History changes in two ways. A purge removes events that the reader may have used. A restore puts another history
under the same name: then the cursor is of another epoch, or above the head, or its proof does not match what is
stored at its position.
"""

from __future__ import annotations

from collections.abc import Iterable

from everlog.core.event import START, Position, Purge, Purged
from everlog.core.query import EVERYTHING, Cursor, Query, Reset, proof_of, proof_of_purge, scopes_touch
from everlog.errors import Damaged
from everlog.log.read.own_events import OwnEvents
from everlog.stores.contract import Reader, Stored


def find_reset(
    store: Stored,
    cursor: Cursor,
    head: Position,
    purged: Position,
    *,
    earlier: Iterable[Cursor] = (),
    found: str | None = None,
) -> Reset | None:
    """Return the reset that a cursor needs, if any: one, for however many purges lie between.

    After a restore the reader starts again: after the greatest of its `earlier` cursors that this log shares, else at
    the start. `head` and `purged` (see `newest_purge`) are what the reader has looked at, in this order. `found` is
    the proof of the cursor's position, if the reader has read it already.
    """
    epoch = store.identity.epoch
    if not is_shared(store, cursor, head, epoch, found=found):
        shared = [one for one in earlier if one.proof and is_shared(store, one, head, epoch)]
        return Reset(max(shared, key=lambda one: one.position, default=Cursor(epoch=epoch)), "restored")
    if cursor.position != START and purged > max(cursor.position, cursor.knows):
        return Reset(Cursor(purged, START, epoch, proof_at(store, purged)), "purged")
    return None


def is_shared(store: Stored, cursor: Cursor, head: Position, epoch: str, *, found: str | None = None) -> bool:
    """Return whether the history up to a cursor is the history of this log, as far as the cursor can prove it."""
    if (cursor.epoch and cursor.epoch != epoch) or cursor.position > head:
        return False
    if found is None:
        found = proof_at(store, cursor.position) if cursor.proof else ""
    if not found and cursor.proof and isinstance(store, OwnEvents):
        # The proof was given with an event that the reader may see. Somebody else's event is there now.
        return not proof_at(store.whole, cursor.position)
    return not found or found == cursor.proof


def proof_at(store: Stored, position: Position) -> str:
    """Return the proof of a position: a short hash of what is stored there.

    It is empty at the start, at a damaged position, and where this reader may not look, such as at an event of
    another tenant: then nothing is proved, and nothing is refused.
    """
    if position == START:
        return ""
    before = Position(position - 1)
    try:
        for recorded in store.read(EVERYTHING, after=before, upto=position, limit=1):
            return proof_of(recorded.event.id, store.identity.life_at(position))
        for purge in store.purges(after=before):
            if purge.reserved == position:
                return proof_of_purge(purge)
        place = next(store.slots(after=before), None)
    except Damaged:
        return ""
    if isinstance(place, Purged) and place.position == position:
        return proof_of(place.id, store.identity.life_at(position))
    return ""


def newest_purge(store: Reader, query: Query) -> Position:
    """Return the greatest reserved position that concerns readers of this query; a purge elsewhere does not."""
    newest = START
    for purge in store.purges():
        if concerns(purge, query):
            newest = max(newest, purge.reserved)
    return newest


def concerns(purge: Purge, query: Query) -> bool:
    """Return whether a purge may have removed events that match a query."""
    if query.stream and purge.stream != query.stream:
        return False
    if query.kind and not purge.stream.startswith(query.kind + "/"):
        return False
    return not query.scope or any(scopes_touch(scope, query.scope) for scope in purge.scopes)
