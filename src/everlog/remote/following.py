"""Where a subscription is, whatever carries its events: a stream, long polls, or a stream after a lost connection.

Every event is given out once and in order: what a server sends again, because a connection was lost before its answer
was read, is at or before the cursor, and is left out. Only a reset moves the cursor back.
"""

from __future__ import annotations

import msgspec

from everlog.core.event import Recorded
from everlog.core.query import Cursor, Page, Reset
from everlog.errors import EverlogError, RejectedMessage, Unavailable
from everlog.log.read.follow import POLL_S, items_of
from everlog.remote.retry import ATTEMPTS_AT_FIRST, pause_s
from everlog.remote.server_sent import Parser, ServerSent
from everlog.wire.messages import read_record
from everlog.wire.problems import Problem, error_of

POLL_WAIT_S = 20.0
SILENCE_S = 45.0
"""A stream has a heartbeat every 15 s: one that is silent for longer than three of them is lost."""

Item = Recorded | Reset


class Notice(msgspec.Struct, frozen=True):
    """The data of a reset, or of the end of a stream."""

    reason: str
    problem: Problem | None = None


class Following:
    """The cursor of a subscription, and what comes next."""

    def __init__(self, after: Cursor) -> None:
        self.cursor = after
        self.at_end = False  # of pages
        self.ended = False  # of a stream
        self.failed: EverlogError | None = None  # why it ended
        self._parser = Parser()
        self._answered = False
        self._failures = 0
        self._nothing_new = False

    # ---- what arrives

    def take_page(self, page: Page) -> list[Item]:
        """Return what a page has."""
        found = list(items_of(page))
        # A caller that is limited to a scope stays at its last event, below the head: no move is the end, too.
        self.at_end = page.at_head or (not found and page.next_cursor == self.cursor)
        self.cursor = page.next_cursor
        self._answered, self._failures = True, 0
        self._nothing_new = not found
        return found

    def begin_stream(self) -> None:
        """Start to read a new connection."""
        self._parser, self.ended, self.failed = Parser(), False, None
        self._answered = True

    def take_piece(self, piece: bytes) -> list[Item]:
        """Return what is complete with a piece of a stream. Then `ended` says whether the server ends it."""
        found: list[Item] = []
        try:
            for sent in self._parser.feed(piece):
                item = self._item(sent)
                if item is not None:
                    found.append(item)
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, KeyError, TypeError) as error:
            raise RejectedMessage(
                "the stream of the server cannot be read", why=str(error)[:200], hint="check the URL"
            ) from error
        if found:
            self._failures = 0
        return found

    def _item(self, sent: ServerSent) -> Item | None:
        if sent.kind == "reset":
            self.cursor = Cursor.of(sent.id)
            return Reset(self.cursor, msgspec.json.decode(sent.data, type=Notice).reason)
        if sent.kind == "bye":
            notice = msgspec.json.decode(sent.data, type=Notice)
            self._move(sent)
            self.ended, self.failed = True, None if notice.problem is None else error_of(notice.problem)
        elif sent.kind in ("message", "event"):
            recorded = read_record(sent.data)
            if recorded.position > self.cursor.position:
                self.cursor = Cursor.of(sent.id)
                return recorded
        return None

    def _move(self, sent: ServerSent) -> None:
        """Continue from the cursor of an answer that has no event, if it is further than ours."""
        if sent.id and Cursor.of(sent.id).position > self.cursor.position:
            self.cursor = Cursor.of(sent.id)

    # ---- what fails

    def pause_after(self, error: EverlogError | None) -> float:
        """Return how long to wait before the next attempt; raise the error if there is none.

        A subscription that has worked outlasts a restart of the server, however long that takes. One that never
        worked fails as a request does.
        """
        self._failures += 1
        error = error or self.failed
        if error is not None and not (isinstance(error, Unavailable) and error.retryable):
            raise error
        if error is not None and not self._answered and self._failures >= ATTEMPTS_AT_FIRST:
            raise error
        if error is not None or self._failures > 1:  # a stream that ended without an event counts as a failure, too
            return pause_s(min(self._failures, 6))
        return POLL_S if self._nothing_new else 0.0  # a server that does not wait must not be asked without a pause
