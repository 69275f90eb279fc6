"""Events of a stream as text, in the form of Server-Sent Events.

id: 41@01K….9f…          the cursor to continue from
data: {"position":41,…}

event: reset             history changed: forget what was derived from events, continue from the cursor
id: 57@01K….03…
data: {"reason":"purged","next":"57@01K….03…"}

event: bye               the server ends the stream; reconnect with the cursor
id: …
data: {"reason":"shutdown","next":"…"}

: heartbeat              it has no id, so it moves no cursor
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from everlog.core.event import START, Position, Recorded
from everlog.core.query import Cursor, Page, proof_of
from everlog.stores.contract import Identity
from everlog.wire.messages import record_bytes

HEARTBEAT = b": heartbeat\n\n"


class Frame(NamedTuple):
    """One event of the log as text, and what is needed to choose it."""

    recorded: Recorded
    cursor: Cursor
    data: bytes
    start: int  # of the record within the data

    @property
    def record(self) -> bytes:
        return self.data[self.start : -2]


def frames_of(page: Page, knows: Position, identity: Identity) -> Iterator[Frame]:
    """Return the events of a page, each with the cursor of a reader that has read up to it.

    `knows` is the newest purge that the reader has taken into account.
    """
    epoch = page.next_cursor.epoch
    lives = bool(identity.lives)
    for recorded in page.events:
        position = recorded.position
        proof = proof_of(recorded.event.id, identity.life_at(position) if lives else "")
        cursor = Cursor(position, knows if knows > position else START, epoch, proof)
        start = f"id: {cursor}\ndata: ".encode()
        yield Frame(recorded, cursor, start + record_bytes(recorded) + b"\n\n", len(start))


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """The data of a reset, or of a bye."""

    reason: str
    next: str
    problem: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def notice(kind: str, reason: str, cursor: Cursor, *, problem: bytes = b"") -> bytes:
    """Return a reset or a bye as text."""
    data = Notice(reason, str(cursor), msgspec.Raw(problem) if problem else msgspec.UNSET)
    return f"event: {kind}\nid: {cursor}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"
