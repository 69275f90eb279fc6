"""Reading a range of a log page by page, forwards or backwards: which page to fetch next, and what it gives."""

from __future__ import annotations

from collections.abc import Callable

from everlog.core.event import Recorded
from everlog.core.query import Page, Query
from everlog.errors import Damaged
from everlog.remote import calls
from everlog.remote.calls import Call

PAGE = 1000

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
    """A range of the log, the newest event first."""

    def __init__(self, query: Query, *, after: int, upto: int | None, limit: int | None) -> None:
        self._query, self._after, self._left = query, after, limit
        self._at = upto
        self._done = upto is not None and after >= upto

    def next_call(self) -> Call[Page] | None:
        if self._done:
            return None
        return calls.newest(self._query, upto=self._at, limit=PAGE if self._left is None else min(PAGE, self._left))

    def take(self, page: Page) -> list[Recorded]:
        found = [one for one in page.events if one.position > self._after]
        if self._left is not None:
            self._left -= len(found)
        self._continue_at(page.next_cursor.position)
        self._done = self._done or len(found) < len(page.events) or self._left == 0
        return found

    def skip(self, error: Damaged) -> None:
        self._continue_at(int(error.details.get("position", 0)) - 1)

    def _continue_at(self, position: int) -> None:
        self._at, self._done = position, position <= self._after
