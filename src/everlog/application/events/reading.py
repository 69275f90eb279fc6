"""What one caller reads of a log: pages, resets and the head, the same for polling, waiting, streaming and exports.

A caller that is limited to a scope reads a log in which nothing else exists. Its head and its cursors are positions
of events that it may see, or of purges of these. How far the search has got in the whole log (`searched`) stays in
the server.
"""

from __future__ import annotations

import msgspec

from everlog.application.events.purged_ranges import purged_ranges
from everlog.application.events.texts import Texts
from everlog.core.event import START, Position, Purge, Recorded
from everlog.core.query import EVERYTHING, Cursor, Page, Query, narrowed
from everlog.log.log import Log
from everlog.log.read.own_events import OwnEvents
from everlog.log.read.pages import OpenPage, upcast_page
from everlog.log.read.resets import newest_purge
from everlog.stores.contract import Stored
from everlog.wire.messages import Hole

HOLES_MAX = 10_000


class Read(msgspec.Struct, frozen=True):
    """A page, and what its reader need not be shown."""

    page: Page
    searched: Position  # up to here, the whole log has nothing else for the reader
    knows: Position = START  # the newest purge that the reader has taken into account

    @property
    def at_end(self) -> bool:
        return self.page.reset is None and self.page.at_head


class Reading:
    """Reads what matches a query and may be seen within a scope."""

    def __init__(self, log: Log, query: Query, within: str) -> None:
        self._log = log
        self.within = within
        self.query = narrowed(query, within)
        self._stored: Stored = OwnEvents(log.stored, within) if within else log.stored

    @property
    def epoch(self) -> str:
        return self._stored.identity.epoch

    def head(self) -> Position:
        return self._stored.head()

    def matches(self, recorded: Recorded) -> bool:
        return self.query is not None and self.query.matches(recorded)

    def after(self, cursor: Cursor, *, limit: int, looking: bool = False) -> Read:
        """Return the events after a cursor, or a reset; see `Log.page_after`."""
        whole = self._log.head() if self.within else START  # before the page: what comes later was not searched
        if self.query is None:
            return Read(Page((), cursor, self.head()), whole)
        # Before the page, too: what is purged meanwhile is a reset for a reader that stops within the page.
        knows = newest_purge(self._stored, self.query) if cursor.position == START else cursor.knows
        page = upcast_page(self._stored, self._log.catalog, cursor, self.query, limit=limit, looking=looking)
        searched = page.next_cursor.position
        return Read(page, max(searched, whole) if page.at_head else searched, knows)

    def rendered(
        self, cursor: Cursor, texts: Texts, *, limit: int, looking: bool = False
    ) -> tuple[Read, list[bytes]]:
        """Return what `after` returns, without its events, and the events as JSON."""
        if self.query == EVERYTHING and not self.within:
            page = OpenPage(self._stored, cursor, limit=limit, looking=looking)
            if page.reset is None and cursor.position < page.head:
                found = texts.of_groups(self._stored, cursor.position, page.head, limit, self.epoch)
                if found:
                    position = Position(cursor.position + len(found))
                    following = page.cursor_after(position, _id_of(found[-1]))
                    return Read(Page((), following, page.head), position), found
        read = self.after(cursor, limit=limit, looking=looking)
        return read, texts.of(read.page.events, self.epoch)

    def before(self, position: int | None, *, limit: int) -> tuple[list[Recorded], int]:
        """Return the events at or below a position, the newest first, and the position to continue with; 0: none."""
        if self.query is None or position == 0:
            return [], 0
        found = list(self._log.read(self.query, upto=position, limit=limit, newest_first=True))
        return found, found[-1].position - 1 if len(found) == limit else 0

    def holes(self, first: int, last: int) -> tuple[Hole, ...]:
        """Return what purges left of the positions from `first` to `last`."""
        if self.query is None or last < first or not self._stored.purges():
            return ()
        found = []
        for one in purged_ranges(self._log, self.query, after=first - 1, upto=last)[:HOLES_MAX]:
            if isinstance(one, Purge):
                found.append(Hole(first=one.reserved, last=one.reserved, purge=one.reserved))
            else:
                found.append(Hole(first=one.first, last=one.last, purge=one.reserved))
        return tuple(found)


class _Named(msgspec.Struct):
    id: str


def _id_of(text: bytes) -> str:
    return msgspec.json.decode(text, type=_Named).id
