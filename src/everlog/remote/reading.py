"""Reading a range of a log page by page, forwards or backwards: which page to fetch next, and what it gives."""

from __future__ import annotations

from collections.abc import Callable

from everlog.core.event import Recorded
from everlog.core.query import Page, Query
from everlog.errors import Damaged
from everlog.remote import calls
from everlog.remote.calls import Call

PAGE = 1000
_WIDTH_MAX = 1_000_000

OnDamage = Callable[[Damaged], None]


class Reading:
    """A range of the log, the oldest event first."""

    def __init__(self, query: Query, *, after: int, upto: int | None, limit: int | None) -> None:
        self._query, self._upto, self._left = query, upto, limit
        self._at = after
        self._done = upto is not None and after >= upto

    def next_call(self) -> Call[Page] | None:
        """Return the request for the next page; None at the end."""
        if self._done:
            return None
        return calls.page_from(self._at, self._query, limit=PAGE if self._left is None else min(PAGE, self._left))

    def take(self, page: Page) -> list[Recorded]:
        """Return the events of a page that belong to the range."""
        found = [one for one in page.events if self._upto is None or one.position <= self._upto]
        if self._left is not None:
            found = found[: self._left]
            self._left -= len(found)
        reached = page.next_cursor.position
        ended = page.at_head or reached <= self._at or len(found) < len(page.events) or self._left == 0
        self._done = ended or (self._upto is not None and reached >= self._upto)
        self._at = reached
        return found

    def skip(self, error: Damaged) -> None:
        """Continue after damage."""
        self._at = max(self._at + 1, int(error.details.get("after", 0)))
        self._done = self._upto is not None and self._at >= self._upto


class ReadingBack:
    """A range of the log, the newest event first.

    The newest events are one request. What is before them is read in pieces of the log, each of them forwards and
    then turned round; the pieces grow while few events match.
    """

    def __init__(self, query: Query, *, after: int, upto: int | None, limit: int | None) -> None:
        self._query, self._after, self._left = query, after, limit
        self._upto = upto
        self._width = PAGE
        self._low = 0
        self._piece: Reading | None = None
        self._collected: list[Recorded] = []
        self._asked = 0
        self._done = upto is not None and after >= upto

    def next_call(self) -> Call[Page] | None:
        if self._done:
            return None
        if self._upto is None:
            self._asked = PAGE if self._left is None else min(self._left, calls.PAGE_MAX)
            return calls.newest(self._query, limit=self._asked)
        if self._piece is None:
            self._low = max(self._after, self._upto - self._width)
            self._piece = Reading(self._query, after=self._low, upto=self._upto, limit=None)
        return self._piece.next_call()

    def take(self, page: Page) -> list[Recorded]:
        if self._piece is None:  # the newest events
            found = [one for one in page.events if one.position > self._after]
            self._upto = page.events[-1].position - 1 if page.events else 0
            self._done = len(found) < self._asked
        else:
            self._collected += self._piece.take(page)
            found = self._turned()
        if self._left is not None:
            found = found[: self._left]
            self._left -= len(found)
        self._done = self._done or self._left == 0 or (self._upto is not None and self._upto <= self._after)
        return found

    def skip(self, error: Damaged) -> None:
        if self._piece is None:
            raise error
        self._piece.skip(error)

    def _turned(self) -> list[Recorded]:
        """Return the events of a piece that has been read to its end, the newest first."""
        if self._piece is None or self._piece.next_call() is not None:
            return []
        found, self._collected, self._piece = self._collected[::-1], [], None
        self._upto = self._low
        if len(found) < self._width // 8:
            self._width = min(4 * self._width, _WIDTH_MAX)
        return found
