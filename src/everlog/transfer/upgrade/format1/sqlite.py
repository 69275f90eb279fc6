"""Read an SQLite database in format 1: one row per event."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from heapq import merge
from pathlib import Path
from typing import Any
from urllib.parse import quote

from everlog.core.codec import Packed
from everlog.core.event import Position, Purge
from everlog.errors import Damaged
from everlog.stores.contract import CLAIM_BYTES, Claim, Identity
from everlog.stores.small_state import Row, claim_row, note_row
from everlog.transfer.upgrade.format1.model import Bad, Slot, stub

_EVENTS = (
    "SELECT position, sequence, received_us, CAST(header AS BLOB), CAST(payload AS BLOB), salt,"
    " (SELECT signature FROM proofs WHERE proofs.position = events.position),"
    " (SELECT path FROM proofs WHERE proofs.position = events.position) FROM events"
)
_CLAIM_RECORD_BYTES = 28  # name, first position (8), count (4)
_HASH_BYTES = 32


class SqliteLog:
    def __init__(self, path: Path) -> None:
        self._path = path
        beside = path.with_name(path.name + "-wal")
        mode = "ro" if beside.exists() else "ro&immutable=1"
        self._connection = sqlite3.connect(f"file:{quote(str(path))}?mode={mode}", uri=True, isolation_level=None)
        try:
            self._connection.execute("BEGIN")  # one moment for everything that is read
            self.identity = Identity(*self._row("SELECT log_id, origin, epoch, created_us FROM identity"))
            self.clock, self._head = self._row("SELECT number, position FROM state WHERE name = 'clock'", (0, 0))
        except BaseException:
            self._connection.close()
            raise

    @property
    def size(self) -> int:
        return int(self._head)

    def purges(self) -> list[Purge]:
        try:
            return list(self._purges())
        except (sqlite3.Error, ValueError, TypeError):
            return []  # `slots` reports it

    def slots(self) -> Iterator[Slot | Bad]:
        purged = (
            stub(*row)
            for row in self._connection.execute(
                "SELECT position, sequence, id, origin, origin_seq, hash, previous, reserved FROM purged"
                " ORDER BY position"
            )
        )
        purges = self._purges()
        try:
            for _, slot in merge(
                self._events(),
                ((gone.position, gone) for gone in purged),
                ((purge.reserved, purge) for purge in purges),
                key=lambda found: found[0],
            ):
                yield slot
        except (sqlite3.Error, ValueError, TypeError) as error:
            yield Bad(f"{self._path.name}, the tables of purges", str(error))

    def rows(self) -> Iterator[Row | Bad]:
        try:
            for name, claim in self._claims().items():
                yield claim_row(name, claim)
            for row in self._connection.execute("SELECT key, value, expires_us FROM notes ORDER BY key"):
                yield note_row(*row)
        except (sqlite3.Error, ValueError, TypeError) as error:
            yield Bad(f"{self._path.name}, the tables of claims and notes", str(error))

    def close(self) -> None:
        self._connection.close()

    def _row(self, sql: str, otherwise: tuple[Any, ...] | None = None) -> tuple[Any, ...]:
        found = self._connection.execute(sql).fetchone() or otherwise
        if found is None:
            raise Damaged(f"{self._path} is damaged", why="it has lost its identity", hint="restore a backup")
        return tuple(found)

    def _purges(self) -> Iterator[Purge]:
        for row in self._connection.execute(
            "SELECT reserved, stream, scopes, actor, reason, purged_us, sequence, count FROM purges ORDER BY reserved"
        ):
            yield Purge(row[0], row[1], tuple(json.loads(row[2])), *row[3:])

    def _events(self) -> Iterator[tuple[int, Slot | Bad]]:
        after = 0
        while True:
            try:
                for row in self._connection.execute(_EVENTS + " WHERE position > ? ORDER BY position", (after,)):
                    after = row[0]
                    yield after, self._event(row)
                return
            except (sqlite3.Error, UnicodeDecodeError) as error:
                # A damaged page: go on with the next position that can be read.
                first, why = after + 1, str(error)
                after = self._next_readable(first)
                where = f"position {first}" if after == first else f"positions {first} to {after}"
                yield first, Bad(f"{self._path.name}, {where}", why)
                if after >= self._head:
                    return

    def _next_readable(self, first: int) -> int:
        """Return the last position of those, from this one on, that cannot be read."""
        for position in range(first + 1, self._head + 1):
            try:
                if self._connection.execute(_EVENTS + " WHERE position = ?", (position,)).fetchone() is not None:
                    return position - 1
            except (sqlite3.Error, UnicodeDecodeError):
                continue
        return max(first, int(self._head))

    def _event(self, row: tuple[Any, ...]) -> Packed | Bad:
        position, sequence, received_us, header, payload, salt, signature, path = row
        values = (position, sequence, received_us, header, payload, salt)
        if tuple(map(type, values)) != (int, int, int, bytes, bytes, bytes):
            return Bad(f"{self._path.name}, position {position}", "its row holds impossible values")
        if signature is None:
            return Packed(Position(position), *values[1:])
        hashes = tuple(path[start : start + _HASH_BYTES] for start in range(0, len(path), _HASH_BYTES))
        return Packed(Position(position), *values[1:], signature, hashes)

    def _claims(self) -> dict[bytes, Claim]:
        """Return what requests made: of two claims of one name, the one with the higher position."""
        found: dict[bytes, Claim] = {}

        def take(name: bytes, first: int, count: int) -> None:
            if name not in found or found[name].first < first:
                found[name] = Claim(Position(first), count)

        for table in ("claims_even", "claims_odd"):
            for (packed,) in self._connection.execute(f"SELECT claims FROM {table}"):  # noqa: S608
                for at in range(0, len(packed), _CLAIM_RECORD_BYTES):
                    record = packed[at : at + _CLAIM_RECORD_BYTES]
                    first, count = record[CLAIM_BYTES:-4], record[-4:]
                    take(record[:CLAIM_BYTES], int.from_bytes(first, "big"), int.from_bytes(count, "big"))
        # Claims of the newest events are in their rows only.
        indexed = self._row("SELECT number FROM state WHERE name = 'indexed'", (0,))[0]
        in_rows = "SELECT claim, position FROM events WHERE position > ? AND claim IS NOT NULL"
        for stored, position in self._connection.execute(in_rows, (indexed,)):
            take(stored[:CLAIM_BYTES], position, int.from_bytes(stored[CLAIM_BYTES:], "big") or 1)
        return found
