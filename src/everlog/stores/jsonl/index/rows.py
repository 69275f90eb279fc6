"""Add lines to the index: assign positions and sequences, and update what a write starts from."""

from __future__ import annotations

import json
import sqlite3
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Collection, Iterator
from typing import Any

from everlog.core.chain import Chain, Run
from everlog.core.event import Position, microseconds
from everlog.files import Stamp
from everlog.stores.contract import CLAIM_BYTES
from everlog.stores.copied import Runs
from everlog.stores.jsonl.index.schema import SCOPE, STREAM, TYPE, Index, key_of, put_chain
from everlog.stores.jsonl.lines import EventLine, Line, PurgedLine, PurgeLine, SignedGroup, writer_of

DISTRUSTED = -1
"""The time of a file of which a line was not as in the index: all of it is read again."""
HIDDEN = 1 << 32
"""No line has this checksum."""

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
        self._chains: dict[str, Chain] = {}
        self._runs = Runs(self._chain, self._join)
        self._events: list[tuple[Any, ...]] = []
        self._ids: list[tuple[bytes | str, int]] = []
        self._filed: dict[tuple[str, str, str], tuple[int, int, int | None]] = {}
        self._claimed: dict[bytes, str] = {}  # in this change: by which origin
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
                self._see(line, line.hash)
                self._add_claims(line)
            case PurgeLine():
                self._add_purge(line)

    def put_back(self, file: int, at: int, size: int, line: EventLine, *, position: int, sequence: int) -> None:
        """Give a line that was missing the position and the sequence that it had."""
        before, self.position = self.position, Position(position)
        self._clock = max(self._clock, line.lamport)
        self._add_event(file, at, size, line, b"", sequence=sequence)
        self.position = before

    def skip(self) -> None:
        """Give the next position to a line that cannot be read."""
        self.position = Position(self.position + 1)

    def end(self) -> None:
        """Write the remaining rows."""
        self._insert_events()
        self._runs.end()
        connection = self._connection
        if self._clock != self._clock_before:
            connection.execute("UPDATE about SET clock = ?", (self._clock,))
        for origin, chain in self._chains.items():
            put_chain(connection, origin, chain)

    def _add_event(self, file: int, at: int, size: int, line: EventLine, digest: bytes, *, sequence: int = 0) -> None:
        """`sequence`: the one that the event had, if it was here before."""
        filed = (line.stream, line.type, line.scope)
        names = self._filed.get(filed)
        if names is None:
            names = self._file_under(filed)
        stream, type_of_event, scope = names
        moment = line.arrived_at
        if moment is not self._moment[0]:
            self._moment = (moment, microseconds(moment))
        self._events.append(
            (
                self.position,
                file,
                at,
                size,
                stream,
                sequence or self._next_sequence(stream),
                type_of_event,
                scope,
                self._moment[1],
                line.checksum,
            )
        )
        self._ids.append((key_of(line.id), self.position))
        self._see(line, digest or line.hash(), again=bool(sequence))
        if line.claims:
            self._add_claims(line)
        if line.group is not None:
            add_group(self._connection, line.origin, line.group, self.position)
        if len(self._events) >= _ROWS_AT_ONCE:
            self._insert_events()

    def _file_under(self, filed: tuple[str, str, str]) -> tuple[int, int, int | None]:
        """Return the numbers of a stream, a type and a scope. They are cached, because they repeat."""
        stream, type_of_event, scope = filed
        name_id = self._index.name_id
        if len(self._filed) >= _FILED_REMEMBERED_MAX:
            self._filed.clear()
        found = self._filed[filed] = (
            name_id(STREAM, stream),
            name_id(TYPE, type_of_event),
            name_id(SCOPE, scope) if scope else None,
        )
        return found

    def _add_claims(self, line: EventLine | PurgedLine) -> None:
        """Add the claims of lines that this copy wrote, also with an earlier origin: the events of a request are
        adjacent only in the log that recorded it.

        Two branches may have answered one request each. The answer that was given here stays: the one that the index
        has, else that of the origin in use, else the first line."""
        writer = writer_of(line)
        if writer not in self._own:
            return
        in_use = writer == next(iter(self._own))
        for name, count in _names_of(line.claims):
            # A key is free again after a day, so a later line of the same origin counts.
            how = "REPLACE" if in_use or self._claimed.get(name) == writer else "IGNORE"
            values = (name, self.position, count)
            if self._connection.execute(f"INSERT OR {how} INTO claims VALUES (?, ?, ?)", values).rowcount:
                self._claimed[name] = writer

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

    def _see(self, line: EventLine | PurgedLine, digest: bytes, *, again: bool = False) -> None:
        """Add an event to the chain of its origin."""
        if again:
            self._runs.end()
            if self._chain(line.origin).has(line.origin_seq):
                return
        self._runs.add(line.origin, line.origin_seq, line.previous, digest, self.position)

    def _chain(self, origin: str) -> Chain:
        known = self._chains.get(origin)
        return self._index.chain(origin) if known is None else known

    def _join(self, origin: str, run: Run) -> None:
        self._chains[origin] = self._chain(origin).joined(run)

    def _next_sequence(self, stream: int) -> int:
        sequence = self._sequences[stream] = self._sequence(stream) + 1
        return sequence

    def _sequence(self, stream: int) -> int:
        known = self._sequences.get(stream)
        return self._index.sequence_of(stream) if known is None else known

    def _insert_events(self) -> None:
        self._connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", self._events)
        self._connection.executemany("INSERT INTO ids VALUES (?, ?)", self._ids)
        self._events.clear()
        self._ids.clear()


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
    if line.group is not None:
        add_group(connection, line.origin, line.group, position)


def add_group(connection: sqlite3.Connection, origin: str, group: SignedGroup, position: int) -> None:
    values = (origin, group.first, group.count, group.signature, position)
    connection.execute("INSERT OR REPLACE INTO groups VALUES (?, ?, ?, ?, ?)", values)


def remove_event(connection: sqlite3.Connection, line_id: str) -> tuple[int, int, int] | None:
    """Remove an event from the index; return its position, sequence and stream."""
    found = connection.execute("DELETE FROM ids WHERE id = ? RETURNING position", (key_of(line_id),)).fetchall()
    removed = "DELETE FROM events WHERE position = ? RETURNING position, sequence, stream"
    rows = [row for place in found for row in connection.execute(removed, place).fetchall()]
    return rows[0] if rows else None


def remove_purged(connection: sqlite3.Connection, purged: Collection[PurgedLine]) -> None:
    """Replace events by their purged lines, if the purge is committed. This must be in the same change as the purge
    itself: a reader that finds the purge must not find its events any more."""
    for line in purged:
        if connection.execute("SELECT 1 FROM purges WHERE purge = ?", (line.purge,)).fetchone():
            place = remove_event(connection, line.id)
            if place is not None:
                add_purged(connection, *place, line)


def hide_erased(connection: sqlite3.Connection, erased: Collection[str]) -> None:
    """Make sure that nobody reads a payload that is being erased: its line is no more as the index has it. This must
    be in the same change as the lines of the write."""
    keys = [(HIDDEN, key_of(event_id)) for event_id in erased]
    connection.executemany("UPDATE events SET crc = ? WHERE position = (SELECT position FROM ids WHERE id = ?)", keys)


def show_erased(connection: sqlite3.Connection, erased: Collection[str]) -> None:
    """Have the files read again in which payloads were erased."""
    keys = [(DISTRUSTED, key_of(event_id)) for event_id in erased]
    files = "SELECT file FROM events JOIN ids USING (position) WHERE id = ?"
    connection.executemany(f"UPDATE files SET changed_ns = ? WHERE file = ({files})", keys)


def _names_of(claims: dict[str, int]) -> Iterator[tuple[bytes, int]]:
    for text, count in claims.items():
        try:
            name = b64decode(text, validate=True)
        except NotBase64:
            continue  # not a valid name
        if len(name) == CLAIM_BYTES:
            yield name, count
