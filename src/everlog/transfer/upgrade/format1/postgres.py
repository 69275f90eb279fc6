"""Read a PostgreSQL schema in format 1, in one snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from typing import Any

import psycopg
from psycopg import sql

from everlog.core.codec import Packed
from everlog.core.event import Position, Purge
from everlog.core.ids import parse_id
from everlog.errors import Damaged
from everlog.stores.contract import Claim, Identity
from everlog.stores.small_state import Row, claim_row, note_row
from everlog.transfer.upgrade.format1.model import Bad, Slot, stub

_EVENTS = (
    "SELECT position, sequence, received_us, convert_to(header, 'UTF8'), convert_to(payload, 'UTF8'), salt,"
    " signature, path FROM events ORDER BY position"
)
_HASH_BYTES = 32
_PAGE = 5_000


class PostgresLog:
    """A log in a schema. The connection is the caller's, in a transaction of repeatable reads."""

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        self._connection = connection
        self._schema = schema
        connection.execute(sql.SQL("SET LOCAL search_path TO {}, pg_temp").format(sql.Identifier(schema)))
        row = connection.execute("SELECT log_id, origin, epoch, created_us FROM identity").fetchone()
        if row is None:
            raise Damaged(f"the schema {schema} is damaged", why="it has lost its identity", hint="restore a backup")
        self.identity = Identity(*row)
        state = connection.execute("SELECT clock FROM state").fetchone()
        self.clock: int = state[0] if state else 0
        last = connection.execute("SELECT coalesce(max(position), 0) FROM events").fetchone()
        self.size: int = last[0] if last else 0

    def purges(self) -> list[Purge]:
        rows = self._rows(
            "purges",
            "SELECT reserved, stream, scopes, actor, reason, purged_us, sequence, count FROM purges"
            " ORDER BY reserved",
        )
        return [Purge(row[0], row[1], tuple(row[2]), *row[3:]) for row in rows]

    def slots(self) -> Iterator[Slot | Bad]:
        purged: Iterator[tuple[int, Slot]] = (
            (row[0], stub(row[0], row[1], parse_id(str(row[2])), *row[3:]))
            for row in self._rows(
                "purged",
                "SELECT position, sequence, id, origin, origin_seq, hash, previous, reserved FROM purged"
                " ORDER BY position",
            )
        )
        purges: Iterator[tuple[int, Slot]] = ((purge.reserved, purge) for purge in self.purges())
        events: Iterator[tuple[int, Slot]] = ((row[0], _event(row)) for row in self._rows("events", _EVENTS))
        for _, slot in merge(events, purged, purges, key=lambda found: found[0]):
            yield slot

    def rows(self) -> Iterator[Row | Bad]:
        for name, first, count in self._rows("claims", "SELECT name, first, count FROM claims ORDER BY name"):
            yield claim_row(name.bytes, Claim(Position(first), count))
        for key, value, expires_us in self._rows("notes", "SELECT key, value, expires_us FROM notes ORDER BY key"):
            yield note_row(key, bytes(value).decode(), expires_us)

    def close(self) -> None:
        """Do nothing: the connection is the caller's."""

    def _rows(self, name: str, query: str) -> Iterator[tuple[Any, ...]]:
        """Return the rows of a query through a cursor on the server, so that a long log needs little memory."""
        with self._connection.cursor(name=f"old_{name}", binary=True) as cursor:
            cursor.itersize = _PAGE
            cursor.execute(query)
            yield from cursor


def _event(row: tuple[Any, ...]) -> Packed:
    position, sequence, received_us, header, payload, salt, signature, path = row
    hashes = tuple(path[start : start + _HASH_BYTES] for start in range(0, len(path), _HASH_BYTES))
    return Packed(Position(position), sequence, received_us, header, payload, salt, signature, hashes)
