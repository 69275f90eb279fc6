"""Reading by cursor: pages that say how far they looked, or that history changed under the cursor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain, islice

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.core.event import START, Position, Recorded
from everlog.core.query import EVERYTHING, POSITION_MAX, Cursor, Page, Query, proof_of
from everlog.errors import Damaged, HistoryChanged, SchemaBroken
from everlog.log.read.accounting import Accounting
from everlog.log.read.resets import find_reset, newest_purge, proof_at
from everlog.log.read.upcast import count_readable, upcast_all
from everlog.stores.contract import ReadsPieces, Stored, offers

PAGE_LIMIT = 500
PIECE = 1000


class OpenPage:
    """A page that is read piece by piece: a few events are still in the processor's cache when they are folded, ten
    thousand are not. `next_cursor` is known when it has been read through.

    A page ends before a damaged position. The page that would begin with it raises Damaged. A reader that is only
    `looking` holds nothing that was derived from earlier events: it gets no reset, and purged positions are holes.
    """

    def __init__(
        self,
        store: Stored,
        cursor: Cursor,
        query: Query = EVERYTHING,
        *,
        limit: int = PAGE_LIMIT,
        looking: bool = False,
        earlier: Iterable[Cursor] = (),
    ) -> None:
        # The order of these three steps is the promise: the head is taken first, so that a purge which commits
        # between them has a reserved position above this page, and the next page still meets it (F31).
        self.head = store.head()
        self._purged = newest_purge(store, query)
        at_cursor, pieces = None, None
        if cursor.proof and cursor.position < self.head and not looking:
            at_cursor, pieces = _read_with_cursor(store, query, cursor.position, self.head, limit)
        identity = store.identity
        self._epoch = identity.epoch
        self.reset = None
        if not looking:
            life = identity.life_at(cursor.position)
            found = None if at_cursor is None else proof_of(at_cursor.event.id, life)
            self.reset = find_reset(store, cursor, self.head, self._purged, earlier=earlier, found=found)
        self._store = store
        self._cursor = cursor
        self._last: Recorded | None = None
        self._left = limit
        self._end: Position | None = None  # where damage ends the page
        self.reached = cursor.position  # the last event that was given out
        self.found: Iterator[list[Recorded]] = iter(())
        if self.reset is None and cursor.position < self.head:  # else there is nothing to read
            if pieces is None:
                pieces = _read(store, query, cursor.position, self.head, limit)
            self.found = _accounted(store, query, pieces, cursor.position, self.head, limit)

    def __iter__(self) -> Iterator[list[Recorded]]:
        try:
            for some in self.found:
                if some:
                    self._left -= len(some)
                    self._last = some[-1]
                    self.reached = self._last.position
                    yield some
        except Damaged as error:
            end = Position(error.details.get("position", self.reached + 1) - 1)
            if end <= self._cursor.position or end < self.reached:
                raise
            self._end = end
        except HistoryChanged:
            self.end_here()  # the next page gets the reset

    def end_here(self) -> None:
        """Let the page end with the piece that was given out last."""
        self._left = 0

    @cached_property
    def next_cursor(self) -> Cursor:
        if self.reset is not None:
            return self.reset.cursor
        position = self.reached if self._left <= 0 else max(self.head, self._cursor.position)
        position = position if self._end is None else min(position, self._end)
        return self._cursor_at(position, self._proof_at(position))

    def cursor_after(self, position: Position, event_id: str) -> Cursor:
        """Return the cursor of a reader that has read the page up to an event."""
        return self._cursor_at(position, proof_of(event_id, self._store.identity.life_at(position)))

    def _cursor_at(self, position: Position, proof: str) -> Cursor:
        knows = self._purged if self._cursor.position == START else self._cursor.knows
        return Cursor(position, knows if knows > position else START, self._epoch, proof)

    def _proof_at(self, position: Position) -> str:
        if self._last is not None and position == self._last.position:
            return proof_of(self._last.event.id, self._store.identity.life_at(position))
        if position == self._cursor.position and self._cursor.proof:
            return self._cursor.proof  # it was checked when the page was opened
        return proof_at(self._store, position)


def page_after(
    store: Stored,
    cursor: Cursor,
    query: Query = EVERYTHING,
    *,
    limit: int = PAGE_LIMIT,
    looking: bool = False,
    earlier: Iterable[Cursor] = (),
) -> Page:
    page = OpenPage(store, cursor, query, limit=limit, looking=looking, earlier=earlier)
    events = tuple(recorded for piece in page for recorded in piece)
    return Page(events, page.next_cursor, page.head, page.reset)


def upcast_page(
    store: Stored,
    catalog: Catalog,
    cursor: Cursor,
    query: Query,
    *,
    limit: int,
    looking: bool = False,
    earlier: Iterable[Cursor] = (),
) -> Page:
    """Return a page as readers get it: see `Log.page_after`."""
    page = page_after(store, cursor, query, limit=limit, looking=looking, earlier=earlier)
    events: list[Recorded] = []
    try:
        events.extend(upcast_all(catalog, page.events))
    except SchemaBroken:
        # The events before it are still good: a shorter page has them, and the next one begins with the reason.
        readable = count_readable(catalog, page.events)
        if not readable:
            raise
        return upcast_page(store, catalog, cursor, query, limit=readable, looking=looking, earlier=earlier)
    return msgspec.structs.replace(page, events=tuple(events))


def _read_with_cursor(
    store: Stored, query: Query, position: Position, upto: Position, limit: int
) -> tuple[Recorded | None, Iterator[list[Recorded]] | None]:
    """Begin the read of a page with the event at its cursor, and return that event and the page itself.

    The check of a cursor then costs one more event of the same read; a separate read would cost up to half a page.
    (None, None) if the first event is another one: purged, damaged, or not in this query. Then both are read apart.
    """
    if limit >= POSITION_MAX:
        return None, None
    pieces = _read(store, query, Position(position - 1), upto, limit + 1)
    try:
        some = next(filter(None, pieces), None)
    except (Damaged, HistoryChanged):
        return None, None
    if some is None or some[0].position != position:
        return None, None
    return some[0], filter(None, chain((some[1:],), pieces))


def _read(store: Stored, query: Query, after: Position, upto: Position, limit: int) -> Iterator[list[Recorded]]:
    if offers(store, ReadsPieces):  # type: ignore[type-abstract]
        return store.read_pieces(query, after=after, upto=upto, limit=limit)
    return _in_pieces(store.read(query, after=after, upto=upto, limit=limit))


def _accounted(
    store: Stored, query: Query, pieces: Iterator[list[Recorded]], after: Position, upto: Position, limit: int
) -> Iterator[list[Recorded]]:
    if query != EVERYTHING:
        yield from pieces
        return
    accounting, left = Accounting(store, after), limit
    for some in pieces:
        try:
            accounting.take(some[-1].position, len(some))
        except Damaged as error:
            before = [recorded for recorded in some if recorded.position < error.details["position"]]
            if before:
                yield before
            raise
        left -= len(some)
        yield some
    if left > 0:
        accounting.end(upto)


def _in_pieces(records: Iterator[Recorded]) -> Iterator[list[Recorded]]:
    while True:
        some: list[Recorded] = []
        try:
            some.extend(islice(records, PIECE))  # what it got before an error stays in the list
        except Damaged:
            if some:
                yield some
            raise
        if not some:
            return
        yield some
