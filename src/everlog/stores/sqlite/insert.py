"""Insert the rows of one staged write: the hot path of every append."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from msgspec.structs import astuple

from everlog.stores.open_write import OpenWrite
from everlog.stores.sqlite.claims import claim_column
from everlog.stores.sqlite.queries import BLOCK, SCOPE, STREAM, TYPE
from everlog.stores.sqlite.tail import Tail

_NAMES_REMEMBERED_MAX = 200_000
# Expired notes are looked for once in so many: the look is a scan, and an index for it would cost every append.
_NOTES_BETWEEN_PRUNES = 5_000

_NAMED = "INSERT OR IGNORE INTO names (family, name) SELECT ?, value FROM json_each(?)"
_NUMBERS = "SELECT name, name_id FROM names WHERE family = ? AND name IN (SELECT value FROM json_each(?))"
_PURGED = "INSERT INTO purged VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class Inserter:
    """Caches the numbers of names and the marks of the newest block, so that a row costs one insert."""

    def __init__(self, tail: Tail) -> None:
        self._tail = tail
        self._notes_since_prune = _NOTES_BETWEEN_PRUNES  # the first note of a process prunes
        self.forget()

    def forget(self) -> None:
        """Drop everything remembered: a write was undone."""
        self._names: dict[int, dict[str, int]] = {STREAM: {}, TYPE: {}, SCOPE: {}}
        self._marked: set[tuple[int, int, int]] = set()
        self.catch_up()

    def catch_up(self) -> None:
        """Another process wrote. Cached names and marks stay valid: they are never changed or removed."""
        self._scrub_noted: bool | None = None  # not known: the next write says it again
        self._newest_id = ""  # the greatest id so far, and the block that its row is in; empty means not known
        self._newest_block = -1

    def committed(self) -> None:
        """The write was committed: keep the caches, within bounds."""
        for names in self._names.values():
            if len(names) > _NAMES_REMEMBERED_MAX:
                names.clear()
        if len(self._marked) > 10_000:
            self._marked.clear()

    def insert(self, writer: sqlite3.Connection, staged: OpenWrite, *, scrub_owed: bool = False) -> None:
        if staged.records:
            self._insert_events(writer, staged)
        self._tail.index(writer, staged)
        if staged.placed_purged:
            writer.executemany(_PURGED, [astuple(gone)[:10] for gone in staged.placed_purged])
        for purge, removed in staged.staged_purges:
            writer.execute(
                "INSERT INTO purges VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    purge.reserved,
                    purge.stream,
                    json.dumps(purge.scopes),
                    purge.actor,
                    purge.reason,
                    purge.purged_us,
                    purge.sequence,
                    purge.count,
                ),
            )
            writer.executemany(_PURGED, [astuple(gone)[:10] for gone in removed])
            places = [(gone.position,) for gone in removed]
            writer.executemany("DELETE FROM events WHERE position = ?", places)
            self._meet(writer, STREAM, {purge.stream})
            stream = self._names[STREAM][purge.stream]
            entries = [(stream, gone.sequence) for gone in removed]
            writer.executemany("DELETE FROM stream_places WHERE stream = ? AND sequence = ?", entries)
            writer.executemany("DELETE FROM proofs WHERE position = ?", places)
        if staged.staged_purges:
            # Expired notes are not returned, but may hold bytes of purged events.
            writer.execute("DELETE FROM notes WHERE expires_us <= ?", (staged.now_us,))
        if staged.staged_notes:
            self._write_notes(writer, staged)
        self._write_state(writer, staged, scrub_owed)

    def _insert_events(self, writer: sqlite3.Connection, staged: OpenWrite) -> None:
        streams, types, scopes = self._names[STREAM], self._names[TYPE], self._names[SCOPE]
        events = [encoded.event for _, encoded in staged.records]
        self._meet(writer, STREAM, {event.stream for event in events})
        self._meet(writer, TYPE, {event.type for event in events})
        self._meet(writer, SCOPE, {event.scope for event in events})
        newest_id, newest_block = self._newest_ids(writer)
        id_blocks: list[tuple[str, int]] = []
        strays: list[tuple[str, int]] = []
        rows: list[tuple[Any, ...]] = []
        proofs: list[tuple[Any, ...]] = []
        marks: set[tuple[int, int, int]] = set()
        claims = {claim.first: claim_column(name, claim.count) for name, claim in staged.staged_claims.items()}
        marked = (-1, -1, -1)
        for recorded, encoded in staged.records:
            event = encoded.event
            stream, kind, scope = streams[event.stream], types[event.type], scopes[event.scope]
            position = recorded.position
            block = position // BLOCK
            if marked != (kind, scope, block):
                marked = (kind, scope, block)
                marks.add((TYPE, kind, block))
                marks.add((SCOPE, scope, block))
            if event.id > newest_id:
                newest_id = event.id
                if block != newest_block:
                    newest_block = block
                    id_blocks.append((newest_id, block))
            else:
                strays.append((event.id, position))
            rows.append(
                (
                    position,
                    stream,
                    recorded.sequence,
                    kind,
                    scope,
                    recorded.received_us,
                    encoded.header.decode(),
                    encoded.payload.decode(),
                    event.salt,
                    claims.get(position),
                )
            )
            if event.signature:
                proofs.append((position, event.signature, b"".join(event.path)))
        insert_rows(writer, "INSERT INTO events VALUES ", rows)
        if new_marks := marks - self._marked:
            writer.executemany("INSERT OR IGNORE INTO marks VALUES (?, ?, ?)", sorted(new_marks))
            self._marked |= new_marks
        if id_blocks:
            writer.executemany("INSERT INTO id_blocks VALUES (?, ?)", id_blocks)
        if strays:
            writer.executemany("INSERT INTO id_strays VALUES (?, ?)", strays)
        if proofs:
            writer.executemany("INSERT INTO proofs VALUES (?, ?, ?)", proofs)
        self._newest_id, self._newest_block = newest_id, newest_block

    def _newest_ids(self, writer: sqlite3.Connection) -> tuple[str, int]:
        if not self._newest_id:
            found = writer.execute("SELECT hash, number FROM state WHERE name = 'ids'").fetchone()
            if found is not None:
                self._newest_id, self._newest_block = found[0].decode(), found[1]
        return self._newest_id, self._newest_block

    def _meet(self, writer: sqlite3.Connection, family: int, names: set[str]) -> None:
        """Load the numbers of names that are not cached, and assign numbers to new names."""
        known = self._names[family]
        if not names <= known.keys():
            new = json.dumps(sorted(names - known.keys()))
            writer.execute(_NAMED, (family, new))
            known.update(writer.execute(_NUMBERS, (family, new)).fetchall())

    def _write_state(self, writer: sqlite3.Connection, staged: OpenWrite, scrub_owed: bool) -> None:
        rows: list[tuple[Any, ...]] = [("clock", staged.clock, b"", staged.position)]
        if scrub_owed != self._scrub_noted:
            # After a kill, this shows that purged bytes may still be in the write-ahead log.
            rows.append(("scrub", int(scrub_owed), b"", 0))
            self._scrub_noted = scrub_owed
        if staged.records:
            rows.append(("ids", self._newest_block, self._newest_id.encode(), 0))
        for origin, chain_of in staged.chains.items():
            run = chain_of.runs[-1]
            rows.append(("origin " + origin, run.last, run.hash, run.position))
        insert_rows(writer, "INSERT OR REPLACE INTO state VALUES ", rows)

    def _write_notes(self, writer: sqlite3.Connection, staged: OpenWrite) -> None:
        kept = [(key, value, expires) for key, (value, expires) in staged.staged_notes.items() if value is not None]
        insert_rows(writer, "INSERT OR REPLACE INTO notes VALUES ", kept)
        if len(kept) < len(staged.staged_notes):
            removed = [(key,) for key, (value, _) in staged.staged_notes.items() if value is None]
            writer.executemany("DELETE FROM notes WHERE key = ?", removed)
        self._notes_since_prune += len(kept)
        if self._notes_since_prune >= _NOTES_BETWEEN_PRUNES:
            self._notes_since_prune = 0
            writer.execute("DELETE FROM notes WHERE expires_us <= ?", (staged.now_us,))


# One statement for many rows saves most of the cost of calling SQLite, and releases the interpreter's lock once; one
# statement per row would pass the lock to another thread every time.
_ROWS_AT_ONCE = 64


@lru_cache(maxsize=4 * _ROWS_AT_ONCE)
def _rows(start: str, columns: int, rows: int) -> str:
    row = "(" + ", ".join("?" * columns) + ")"
    return start + ", ".join([row] * rows)


def insert_rows(writer: sqlite3.Connection, start: str, rows: Sequence[tuple[Any, ...]]) -> None:
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        some = rows[first : first + _ROWS_AT_ONCE]
        writer.execute(_rows(start, len(some[0]), len(some)), tuple(chain.from_iterable(some)))
