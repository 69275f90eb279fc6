"""Reading by cursor: pages that say how far they looked, and the one signal that history changed under a cursor."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from everlog.core.event import START, Position, Recorded
from everlog.core.query import EVERYTHING, Cursor, Page, Query, Reset, scopes_touch
from everlog.errors import Damaged, HistoryChanged
from everlog.log.read.accounting import Accounting
from everlog.stores.contract import Reader, ReadsPieces, Stored

PAGE_LIMIT = 500
PIECE = 1000


class OpenPage:
    """A page that is read piece by piece: a few events are still in the processor's cache when they are folded, ten
    thousand are not. `next_cursor` is known when it has been read through.

    A page ends before a damaged position. The page that would begin with it raises Damaged.
    """

    def __init__(self, store: Stored, cursor: Cursor, query: Query = EVERYTHING, *, limit: int = PAGE_LIMIT) -> None:
        # The order of these three steps is the promise: the head is taken first, so that a purge which commits
        # between them has a reserved position above this page, and the next page still meets it (F31).
        self.head = store.head()
        self._purged = newest_purge(store, query)
        self._epoch = store.identity.epoch
        self.reset = find_reset(self._epoch, cursor, self.head, self._purged)
        self._cursor = cursor
        self._left = limit
        self._end: Position | None = None  # where damage ends the page
        self.reached = cursor.position  # the last event that was given out
        self.found: Iterator[list[Recorded]] = iter(())
        if self.reset is None and cursor.position < self.head:  # else there is nothing to read
            self.found = _pieces(store, query, cursor.position, self.head, limit)

    def __iter__(self) -> Iterator[list[Recorded]]:
        try:
            for some in self.found:
                if some:
                    self._left -= len(some)
                    self.reached = some[-1].position
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

    @property
    def next_cursor(self) -> Cursor:
        if self.reset is not None:
            return self.reset.cursor
        position = self.reached if self._left <= 0 else max(self.head, self._cursor.position)
        position = position if self._end is None else min(position, self._end)
        knows = self._purged if self._cursor.position == START else self._cursor.knows
        return Cursor(position, knows if knows > position else START, self._epoch)


def page_after(store: Stored, cursor: Cursor, query: Query = EVERYTHING, *, limit: int = PAGE_LIMIT) -> Page:
    page = OpenPage(store, cursor, query, limit=limit)
    events = tuple(recorded for piece in page for recorded in piece)
    return Page(events, page.next_cursor, page.head, page.reset)


def _pieces(store: Stored, query: Query, after: Position, upto: Position, limit: int) -> Iterator[list[Recorded]]:
    if isinstance(store, ReadsPieces):
        pieces = store.read_pieces(query, after=after, upto=upto, limit=limit)
    else:
        pieces = _in_pieces(store.read(query, after=after, upto=upto, limit=limit))
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
