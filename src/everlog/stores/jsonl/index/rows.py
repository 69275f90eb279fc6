"""Add lines to the index: assign positions and sequences, and update what a write starts from."""

from __future__ import annotations

import json
import sqlite3
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Collection
from typing import Any

from everlog.core.codec import header_bytes, header_hash
from everlog.core.event import Position, microseconds
from everlog.files import Stamp
from everlog.stores.contract import CLAIM_BYTES
from everlog.stores.jsonl.index.schema import KIND, SCOPE, STREAM, TYPE, Index
from everlog.stores.jsonl.lines import EventLine, Line, PurgedLine, PurgeLine, writer_of

_ROWS_AT_ONCE = 10_000
_FILED_REMEMBERED_MAX = 200_000


class Rows:
    """Adds lines in the order of their positions, within one change of the index."""

    def __init__(self, index: Index, connection: sqlite3.Connection, *, own: Collection[str]) -> None:
        self._index = index
        self._connection = connection
        self._own = own
        self.position = index.head()
        self._clock = self._clock_before = index.clock()
        self._sequences: dict[int, int] = {}
        self._ends: dict[str, tuple[int, EventLine | bytes]] = {}
        self._events: list[tuple[Any, ...]] = []
        self._filed: dict[tuple[str, str, str], tuple[int, int, int, int]] = {}
        self._moment: tuple[Any, int] = (None, 0)

    def add(self, file: int, at: int, size: int, line: Line, *, digest: bytes = b"") -> None:
        """Give the line the next position. `digest` is the event's hash, if it is known already."""
        self.position = Position(self.position + 1)
        if line.lamport > self._clock:  # also of what is left of a purged event: its clock value is not used again
            self._clock = line.lamport
        match line:
            case EventLine():
                self._add_event(file, at, size, line, digest)
            case PurgedLine():
                stream = self._index.name_id(STREAM, line.stream) if line.stream else 0
                sequence = self._next_sequence(stream) if stream else line.sequence
                add_purged(self._connection, self.position, sequence, stream, line)
                self._see(line.origin, line.origin_seq, line.hash)
                self._add_claims(line)
            case PurgeLine():
                self._add_purge(line)

    def skip(self) -> None:
        """Give the next position to a line that cannot be read."""
        self.position = Position(self.position + 1)

    def end(self) -> None:
        """Write the remaining rows."""
        self._insert_events()
        connection = self._connection
        if self._clock != self._clock_before:
            connection.execute("INSERT OR REPLACE INTO state VALUES ('clock', ?, x'')", (self._clock,))
        for origin, (number, end) in self._ends.items():
            digest = end if isinstance(end, bytes) else header_hash(header_bytes(end.event()))
            connection.execute(
                "INSERT INTO state VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET number = excluded.number,"
                " hash = excluded.hash WHERE excluded.number > number",
                ("origin " + origin, number, digest),
            )

    def _add_event(self, file: int, at: int, size: int, line: EventLine, digest: bytes) -> None:
        filed = (line.stream, line.type, line.scope)
        names = self._filed.get(filed)
        if names is None:
            names = self._file_under(filed)
        stream, kind_of_event, scope, kind = names
        if line.received_at is not self._moment[0]:
            self._moment = (line.received_at, microseconds(line.received_at))
        self._events.append(
            (
                self.position,
                file,
                at,
                size,
                stream,
                self._next_sequence(stream),
                kind_of_event,
                scope,
                kind,
                self._moment[1],
                line.id,
                int(line.xsum or "0", 16),
            )
        )
        self._see(line.origin, line.origin_seq, digest or line)
        if line.claims:
            self._add_claims(line)
        if len(self._events) >= _ROWS_AT_ONCE:
            self._insert_events()

    def _file_under(self, filed: tuple[str, str, str]) -> tuple[int, int, int, int]:
        """Return the numbers of a stream, a type, a scope and a kind. They are cached, because they repeat."""
        stream, type_of_event, scope = filed
        name_id = self._index.name_id
        if len(self._filed) >= _FILED_REMEMBERED_MAX:
            self._filed.clear()
        found = self._filed[filed] = (
            name_id(STREAM, stream),
            name_id(TYPE, type_of_event),
            name_id(SCOPE, scope),
            name_id(KIND, stream.partition("/")[0]),
        )
        return found

    def _add_claims(self, line: EventLine | PurgedLine) -> None:
        """Add the claims of lines that this copy wrote, also with an earlier origin: the events of a request are
        adjacent only in the log that recorded it."""
        if writer_of(line) in self._own:
            add_claims(self._connection, line.claims, self.position)

    def _add_purge(self, line: PurgeLine) -> None:
        stream = self._index.name_id(STREAM, line.stream)
        sequence = self._sequences[stream] = max(self._sequence(stream), line.sequence)
        self._connection.execute("UPDATE purged SET stream = ? WHERE purge = ? AND stream = 0", (stream, line.id))
        self._connection.execute(
            "INSERT OR IGNORE INTO purges VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                self.position,
                line.id,
                line.stream,
                json.dumps(line.scopes),
                line.actor,
                line.reason,
                microseconds(line.purged_at),
                sequence,
            ),
        )

    def _see(self, origin: str, number: int, end: EventLine | bytes) -> None:
        known = self._ends.get(origin)
        if known is None or number > known[0]:
            self._ends[origin] = (number, end)

    def _next_sequence(self, stream: int) -> int:
        sequence = self._sequences[stream] = self._sequence(stream) + 1
        return sequence

    def _sequence(self, stream: int) -> int:
        known = self._sequences.get(stream)
        return self._index.sequence_of(stream) if known is None else known

    def _insert_events(self) -> None:
        self._connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", self._events)
        self._events.clear()


def put_file(connection: sqlite3.Connection, name: str, stamp: Stamp, crc: int) -> int:
    """Record how far a file was read, and return its number."""
    (file,) = connection.execute(
        "INSERT INTO files (name, size, changed_ns, inode, checksum) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (name) DO UPDATE SET size = excluded.size, changed_ns = excluded.changed_ns,"
        " inode = excluded.inode, checksum = excluded.checksum RETURNING file",
        (name, *stamp, crc),
    ).fetchone()
    return int(file)


def add_purged(connection: sqlite3.Connection, position: int, sequence: int, stream: int, line: PurgedLine) -> None:
    connection.execute(
        "INSERT INTO purged VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            position,
            sequence,
            line.id,
            line.origin,
            line.origin_seq,
            line.hash,
            line.previous,
            line.lamport,
            line.hash_format,
            line.purge,
            stream,
        ),
    )


def remove_purged(connection: sqlite3.Connection, purged: Collection[PurgedLine]) -> None:
    """Replace events by their purged lines, if the purge is committed. This must be in the same change as the purge
    itself: a reader that finds the purge must not find its events any more."""
    for line in purged:
        if connection.execute("SELECT 1 FROM purges WHERE purge = ?", (line.purge,)).fetchone():
            sql = "DELETE FROM events WHERE id = ? RETURNING position, sequence, stream"
            for position, sequence, stream in connection.execute(sql, (line.id,)).fetchall():
                add_purged(connection, position, sequence, stream, line)


def add_claims(connection: sqlite3.Connection, claims: dict[str, int], first: Position) -> None:
    for text, count in claims.items():
        try:
            name = b64decode(text, validate=True)
        except NotBase64:
            continue  # not a valid name
        if len(name) == CLAIM_BYTES:
            connection.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?)", (name, first, count))
