"""Lines that this process has written and flushed, and that the index does not have yet.

They are all in one file, behind what the index has of it: anyone else who writes records them first. Until then the
next write of this process needs nothing of them but what is here and what the store remembers.
"""

from __future__ import annotations

import sqlite3
from base64 import b64decode
from collections.abc import Collection, Sequence
from zlib import crc32

from everlog.core.event import Position
from everlog.files import Stamp
from everlog.stores.contract import Claim
from everlog.stores.jsonl.index.rows import DISTRUSTED, Rows, put_file
from everlog.stores.jsonl.index.schema import STREAM, Index
from everlog.stores.jsonl.lines import EventLine, Line

PENDING_MAX = 1_000
PENDING_BYTES_MAX = 4 * 1024 * 1024

WrittenLine = tuple[bytes, Line, bytes]
"""The bytes of a line with its newline, its content, and the hash of its event."""


class Pending:
    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.name = ""
        self._stamp = Stamp(0, 0, 0)
        self._lines: list[tuple[int, WrittenLine]] = []
        self._bytes = 0
        self._ids: set[str] = set()
        self.claims: dict[bytes, Claim] = {}

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def are_many(self) -> bool:
        """Whether it is time to record them."""
        return len(self._lines) >= PENDING_MAX or self._bytes >= PENDING_BYTES_MAX

    def knows(self, line_id: str) -> bool:
        return line_id in self._ids

    def add(self, name: str, at: int, stamp: Stamp, first: Position, lines: Sequence[WrittenLine]) -> None:
        """Add the lines of a write that begins at `at` and has the positions from `first` on."""
        self.name, self._stamp = name, stamp
        for position, written in enumerate(lines, first):
            data, line, _ = written
            self._lines.append((at, written))
            self._ids.add(line.id)
            if isinstance(line, EventLine):
                for text, count in line.claims.items():
                    self.claims[b64decode(text)] = Claim(Position(position), count)
            at += len(data)
            self._bytes += len(data)

    def record(self, index: Index, connection: sqlite3.Connection, *, own: Collection[str]) -> bool:
        """Add to the index what it lacks of these lines, within a change of it. Return False if it does not have what
        is before them: then the files must be compared with it."""
        known = connection.execute("SELECT size, inode, checksum FROM files WHERE name = ?", (self.name,)).fetchone()
        size, inode, crc = known or (0, self._stamp.inode, 0)
        if inode != self._stamp.inode:
            return False
        rest = [(at, written) for at, written in self._lines if at >= size]  # another process may have recorded some
        if not rest:
            return bool(size >= self._stamp.size)
        if rest[0][0] != size:
            return False
        data = b"".join([written[0] for _, written in rest])
        file = put_file(connection, self.name, self._stamp, crc32(data, crc))
        rows = Rows(index, connection, own=own)
        for at, (text, line, digest) in rest:
            rows.add(file, at, len(text) - 1, line, digest=digest)
        rows.end()
        return True

    def record_as_missing(self, index: Index, connection: sqlite3.Connection) -> None:
        """Record what the index does not know at all: acknowledged lines that may be in no file any more. Those that
        are get their places when the file is read again; the others are damage, unless git removed them."""
        position = index.head()
        for at, (_, line, _) in self._lines:
            if isinstance(line, EventLine) and not index.knows(line.id):
                position = Position(position + 1)
                stream = index.name_id(STREAM, line.stream)
                lost = (position, stream, index.sequence_of(stream) + 1, line.id, self.name, at)
                connection.execute("INSERT INTO missing VALUES (?, ?, ?, ?, ?, ?)", lost)
        connection.execute("UPDATE files SET changed_ns = ? WHERE name = ?", (DISTRUSTED, self.name))
