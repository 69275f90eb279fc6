"""Where a subscription is, whatever carries its events: a stream, long polls, or a stream after a lost connection.

Every event is given out once and in order: what a server sends again, because a connection was lost before its answer
was read, is at or before the cursor, and is left out. Only a reset moves the cursor back.
"""

from __future__ import annotations

import msgspec

from everlog.core.event import Recorded
from everlog.core.query import Cursor, Page, Reset
from everlog.errors import EverlogError, RejectedMessage, Unavailable
from everlog.log.read.follow import items_of
from everlog.remote.retry import ATTEMPTS, pause_s
from everlog.remote.server_sent import Parser, ServerSent
from everlog.wire.messages import read_record

POLL_WAIT_S = 20.0
SILENCE_S = 45.0
"""A stream has a heartbeat every 15 s: one that is silent for longer than three of them is lost."""

Item = Recorded | Reset


class Following:
    """The cursor of a subscription, and what comes next."""

    def __init__(self, after: Cursor) -> None:
        self.cursor = after
        self.at_end = False  # of pages
        self.ended = False  # of a stream
        self._parser = Parser()
        self._answered = False
        self._failures = 0

    # ---- what arrives

    def take_page(self, page: Page) -> list[Item]:
        """Return what a page has."""
        found = list(items_of(page))
        # A caller that is limited to a scope stays at its last event, below the head: no move is the end, too.
        self.at_end = page.at_head or (not found and page.next_cursor == self.cursor)
        self.cursor = page.next_cursor
        self._has_answered()
        return found

    def begin_stream(self) -> None:
        """Start to read a new connection."""
        self._parser, self.ended = Parser(), False
        self._has_answered()

    def take_piece(self, piece: bytes) -> list[Item]:
        """Return what is complete with a piece of a stream. `ended` is True if the server says that no more comes."""
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
        return found

    def _item(self, sent: ServerSent) -> Item | None:
        if sent.kind == "reset":
            facts = msgspec.json.decode(sent.data) if sent.data else {}
            self.cursor = Cursor.of(sent.id or facts["cursor"])
            return Reset(self.cursor, str(facts.get("reason", "purged")))
        if sent.kind == "bye":
            self._move(sent)
            self.ended = True
        elif sent.kind in ("message", "event"):
            recorded = read_record(msgspec.json.decode(sent.data))
            if recorded.position > self.cursor.position:
                self.cursor = Cursor.of(sent.id)
                return recorded
        return None

    def _move(self, sent: ServerSent) -> None:
        """Continue from the cursor of an answer that has no event, if it is further than ours."""
        if sent.id and Cursor.of(sent.id).position > self.cursor.position:
            self.cursor = Cursor.of(sent.id)

    # ---- what fails

    def _has_answered(self) -> None:
        self._answered, self._failures = True, 0

    def pause_after(self, error: EverlogError | None) -> float:
        """Return how long to wait before the next attempt; raise the error if there is none.

        A subscription that has worked outlasts a restart of the server, however long that takes. One that never
        worked fails as a request does.
        """
        self._failures += 1
        if error is not None and not (isinstance(error, Unavailable) and error.retryable):
            raise error
        if error is not None and not self._answered and self._failures >= ATTEMPTS:
            raise error
        return pause_s(min(self._failures, 6)) if error is not None or self._failures > 1 else 0.0
