"""Turning one staged write into rows: the hot path of every append.

Many rows are sent by COPY, in its binary form, which is made here by hand:

    "PGCOPY\\n\\377\\r\\n\\0" | flags 0 | extension 0 | row … row | -1
    row:  number of columns (int16), then for each its length (int32) and its bytes

Few rows are sent as one INSERT, because a COPY costs an answer more from the server before its rows may be sent.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from everlog.core.event import Purge, Recorded
from everlog.core.ids import id_value
from everlog.errors import Damaged
from everlog.stores.contract import CLAIMS_KEPT_US_MIN, Sealed
from everlog.stores.postgres.connection import Connection
from everlog.stores.postgres.statements import statements
from everlog.stores.staging import Staged

_COPY_ROWS_MIN = 8
_NAMES_REMEMBERED_MAX = 100_000
# Expired notes and claims are looked for once in so many.
_BETWEEN_PRUNES = 5_000

_SIGNATURE = b"PGCOPY\n\xff\r\n\x00" + struct.pack(">II", 0, 0)
_END = struct.pack(">h", -1)
_COLUMNS = 12
_PLACE = struct.Struct(">h iq iq iq i16s").pack
_LENGTH = struct.Struct(">i").pack
_EMPTY = _LENGTH(0)


class Inserter:
    """Sends what a write has staged. Remembers the encoded form of names, which repeat."""

    def __init__(self, claims_kept_us: int) -> None:
        self._sql = {name: text.encode() for name, text in statements("write").items()}
        self._claims_kept_us = max(claims_kept_us, CLAIMS_KEPT_US_MIN)
        self._names: dict[str, bytes] = {}
        self._claims_since_prune = _BETWEEN_PRUNES  # the first of a process prunes
        self._notes_since_prune = _BETWEEN_PRUNES

    def insert(self, connection: Connection, staged: Staged) -> None:
        """Everything of a write but its commit, and that last: in one go, as far as the server allows it."""
        rows = staged.records
        if len(rows) >= _COPY_ROWS_MIN:
            with connection.cursor() as cursor, cursor.copy(self._sql["copy_events"]) as copy:
                copy.write(self._copy_bytes(rows))
        purges = []
        with connection.pipeline():
            if 0 < len(rows) < _COPY_ROWS_MIN:
                self._insert_few(connection, rows)
            for purge, _ in staged.staged_purges:
                values = {
                    "stream": purge.stream,
                    "actor": purge.actor,
                    "reason": purge.reason,
                    "now": purge.purged_us,
                }
                purges.append((purge, connection.execute(self._sql["purge"], values)))
            for origin, link in staged.links.items():
                connection.execute(
                    self._sql["set_link"],
                    {
                        "origin": origin,
                        "origin_seq": link.origin_seq,
                        "hash": link.hash,
                        "position": _place_of(rows, origin, link.hash),
                    },
                )
            if staged.clock != staged.clock_before:
                connection.execute(self._sql["set_clock"], {"clock": staged.clock})
            if staged.staged_claims:
                self._insert_claims(connection, staged)
            if staged.staged_notes:
                self._write_notes(connection, staged)
            if not purges:
                connection.execute(self._sql["commit"])
        if purges:
            for purge, cursor in purges:
                _compare(purge, cursor.fetchone())
            connection.execute(self._sql["commit"])

    def _copy_bytes(self, rows: Sequence[tuple[Recorded, Sealed]]) -> bytes:
        names, named = self._names, self._named
        parts = [_SIGNATURE]
        add = parts.extend
        for recorded, sealed in rows:
            event, header, payload = sealed.event, sealed.header, sealed.payload
            place = _PLACE(
                _COLUMNS,
                8,
                recorded.position,
                8,
                recorded.sequence,
                8,
                recorded.received_us,
                16,
                id_value(event.id).to_bytes(16, "big"),
            )
            add(
                (
                    place,
                    names.get(event.stream) or named(event.stream),
                    names.get(event.type) or named(event.type),
                    names.get(event.scope) or named(event.scope),
                    _LENGTH(len(header)),
                    header,
                    _LENGTH(len(payload)),
                    payload,
                    _LENGTH(len(event.salt)),
                    event.salt,
                )
            )
            if event.signature:
                path = b"".join(event.path)
                add((_LENGTH(len(event.signature)), event.signature, _LENGTH(len(path)), path))
            else:
                add((_EMPTY, _EMPTY))
        parts.append(_END)
        return b"".join(parts)

    def _named(self, name: str) -> bytes:
        if len(self._names) >= _NAMES_REMEMBERED_MAX:
            self._names.clear()
        data = name.encode()
        encoded = self._names[name] = _LENGTH(len(data)) + data
        return encoded

    def _insert_few(self, connection: Connection, rows: Sequence[tuple[Recorded, Sealed]]) -> None:
        found = [_row(recorded, sealed) for recorded, sealed in rows]
        if len(found) == 1:
            connection.execute(self._sql["insert_event"], found[0], binary=True)
        else:
            connection.execute(self._sql["insert_events"], [list(column) for column in zip(*found, strict=True)])

    def _insert_claims(self, connection: Connection, staged: Staged) -> None:
        claims = staged.staged_claims
        connection.execute(
            self._sql["insert_claims"],
            {
                "names": [UUID(bytes=name) for name in claims],
                "firsts": [claim.first for claim in claims.values()],
                "counts": [claim.count for claim in claims.values()],
                "now": staged.now_us,
            },
        )
        self._claims_since_prune += len(claims)
        if self._claims_since_prune >= _BETWEEN_PRUNES:
            before = staged.now_us - self._claims_kept_us
            connection.execute(self._sql["forget_claims"], {"limit": 2 * self._claims_since_prune, "before": before})
            self._claims_since_prune = 0

    def _write_notes(self, connection: Connection, staged: Staged) -> None:
        kept = [(key, value.encode(), end) for key, (value, end) in staged.staged_notes.items() if value is not None]
        if kept:
            keys, values, ends = (list(column) for column in zip(*kept, strict=True))
            connection.execute(self._sql["set_notes"], {"keys": keys, "values": values, "ends": ends})
        removed = [key for key, (value, _) in staged.staged_notes.items() if value is None]
        if removed:
            connection.execute(self._sql["remove_notes"], {"keys": removed})
        self._notes_since_prune += len(kept)
        if self._notes_since_prune >= _BETWEEN_PRUNES:
            self._notes_since_prune = 0
            connection.execute(self._sql["forget_notes"], {"now": staged.now_us})


def _row(recorded: Recorded, sealed: Sealed) -> tuple[Any, ...]:
    event = sealed.event
    return (
        recorded.position,
        recorded.sequence,
        recorded.received_us,
        UUID(int=id_value(event.id)),
        event.stream,
        event.type,
        event.scope,
        sealed.header.decode(),
        sealed.payload.decode(),
        event.salt,
        event.signature,
        b"".join(event.path),
    )


def _place_of(rows: Sequence[tuple[Recorded, Sealed]], origin: str, digest: bytes) -> int:
    return next(
        recorded.position
        for recorded, sealed in reversed(rows)
        if sealed.hash == digest and sealed.event.origin == origin
    )


def _compare(purge: Purge, done: tuple[Any, ...] | None) -> None:
    """The database purges by its own count; if that is not what was staged, nothing of it is kept."""
    if done != (purge.reserved, purge.sequence, purge.count):
        raise Damaged(
            f"the purge of {purge.stream} was undone",
            why=f"{purge.count} events up to sequence {purge.sequence} were to go, and the database found {done}",
            hint="everlog verify",
        )
