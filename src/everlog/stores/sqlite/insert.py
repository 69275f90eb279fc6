"""Insert the rows of one staged write: the hot path of every append."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from msgspec.structs import astuple

from everlog.stores.lost import lost
from everlog.stores.open_write import OpenWrite
from everlog.stores.sqlite.chains import chain_rows
from everlog.stores.sqlite.claims import packed_claims
from everlog.stores.sqlite.groups import BadRow, StoredGroup, encode, row_of
from everlog.stores.sqlite.queries import BLOCK, SCOPE, STREAM, TYPE
from everlog.stores.sqlite.scan import AT
from everlog.stores.sqlite.tail import Entry, Tail
from everlog.stores.staged_group import StagedGroup, payload_text

_NAMES_REMEMBERED_MAX = 200_000
# Expired notes are looked for once in so many: the look is a scan, and an index for it would cost every append.
_NOTES_BETWEEN_PRUNES = 5_000

_NAMED = "INSERT OR IGNORE INTO names (family, name) SELECT ?, value FROM json_each(?)"
_NUMBERS = "SELECT name, name_id FROM names WHERE family = ? AND name IN (SELECT value FROM json_each(?))"
_REWRITE = "UPDATE groups SET kept = ?, events = ?, checksum = ? WHERE first = ?"
_REWRITTEN_AT_ONCE = 64
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
        self._marked: set[tuple[str, str, int]] = set()  # types and scopes, with the blocks that have both marks
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

    def insert(self, writer: sqlite3.Connection, staged: OpenWrite, *, scrub_owed: bool = False) -> list[Entry]:
        """Insert everything that is staged, and return the new events for `Tail.committed`."""
        groups = staged.groups()
        entries = self._insert_groups(writer, staged, groups) if groups else []
        self._tail.index(writer, staged, entries, lambda streams: self._numbers(writer, STREAM, streams))
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
            stream = self._numbers(writer, STREAM, {purge.stream})[purge.stream]
            places = [(stream, gone.sequence) for gone in removed]
            writer.executemany("DELETE FROM stream_places WHERE stream = ? AND sequence = ?", places)
        if staged.staged_purges or staged.erasures or staged.scrubs:
            self._rewrite(writer, staged)
            # Expired notes are not returned, but may hold bytes of purged events.
            writer.execute("DELETE FROM notes WHERE expires_us <= ?", (staged.now_us,))
        if staged.staged_notes:
            self._write_notes(writer, staged)
        self._write_state(writer, staged, scrub_owed, bool(entries))
        return entries

    def _rewrite(self, writer: sqlite3.Connection, staged: OpenWrite) -> None:
        """Remove what was purged and erased from the rows of its groups. Nothing else of them changes."""
        purged = {gone.position for _, removed in staged.staged_purges for gone in removed}
        places, last = sorted(purged | staged.erasures.keys()), 0
        while places:
            some = places[:_REWRITTEN_AT_ONCE]
            for row in writer.execute(AT, (json.dumps(some),)).fetchall():
                try:
                    changed = StoredGroup(row).rewritten(purged=purged, erased=staged.erasures)
                except BadRow as error:
                    raise lost(row[0], row[1], why=str(error)) from error
                writer.execute(_REWRITE, (*changed, row[0]))
                last = row[1]
            places = [place for place in places[len(some) :] if place > last]

    def _insert_groups(
        self, writer: sqlite3.Connection, staged: OpenWrite, groups: Sequence[StagedGroup]
    ) -> list[Entry]:
        newest_id, newest_block = self._newest_ids(writer)
        id_blocks: list[tuple[str, int]] = []
        strays: list[tuple[str, int]] = []
        stored: list[tuple[Any, ...]] = []
        entries: list[Entry] = []
        used: set[tuple[str, str, int]] = set()
        own = staged.identity.origin
        claims = sorted(staged.staged_claims.items(), key=lambda named: named[1].first)
        for group in groups:
            rows = group.rows(payload_text, own=own)
            first, last = group.first, group.last
            claimed = [named for named in claims if first <= named[1].first <= last] if claims else []
            text = encode(rows)
            stored.append(row_of(group.facts, first, last, len(rows), packed_claims(claimed), text))
            for position, sequence, _, values in rows:
                block = position // BLOCK
                used.add((values[1], values[9], block))
                if values[0] > newest_id:
                    newest_id = values[0]
                    if block != newest_block:
                        newest_block = block
                        id_blocks.append((newest_id, block))
                else:
                    strays.append((values[0], position))
                entries.append((values[3], sequence, position))
        insert_rows(writer, "INSERT INTO groups VALUES ", stored)
        if not used <= self._marked:
            self._mark(writer, used - self._marked)
        if id_blocks:
            writer.executemany("INSERT INTO id_blocks VALUES (?, ?)", id_blocks)
        if strays:
            writer.executemany("INSERT INTO id_strays VALUES (?, ?)", strays)
        self._newest_id, self._newest_block = newest_id, newest_block
        return entries

    def _mark(self, writer: sqlite3.Connection, used: set[tuple[str, str, int]]) -> None:
        """Mark the blocks of types and scopes."""
        types = self._numbers(writer, TYPE, {kind for kind, _, _ in used})
        scopes = self._numbers(writer, SCOPE, {scope for _, scope, _ in used})
        marks = {(TYPE, types[kind], block) for kind, _, block in used}
        marks |= {(SCOPE, scopes[scope], block) for _, scope, block in used}
        writer.executemany("INSERT OR IGNORE INTO marks VALUES (?, ?, ?)", sorted(marks))
        self._marked |= used

    def _newest_ids(self, writer: sqlite3.Connection) -> tuple[str, int]:
        if not self._newest_id:
            found = writer.execute("SELECT hash, number FROM state WHERE name = 'ids'").fetchone()
            if found is not None:
                self._newest_id, self._newest_block = found[0].decode(), found[1]
        return self._newest_id, self._newest_block

    def _numbers(self, writer: sqlite3.Connection, family: int, names: set[str]) -> Mapping[str, int]:
        """Return the numbers of names, among others, and assign numbers to new names."""
        known = self._names[family]
        if not names <= known.keys():
            new = json.dumps(sorted(names - known.keys()))
            writer.execute(_NAMED, (family, new))
            known.update(writer.execute(_NUMBERS, (family, new)).fetchall())
        return known

    def _write_state(self, writer: sqlite3.Connection, staged: OpenWrite, scrub_owed: bool, new_ids: bool) -> None:
        rows: list[tuple[Any, ...]] = [("clock", staged.clock, b"", staged.position)]
        if scrub_owed != self._scrub_noted:
            # After a kill, this shows that purged bytes may still be in the write-ahead log.
            rows.append(("scrub", int(scrub_owed), b"", 0))
            self._scrub_noted = scrub_owed
        if new_ids:
            rows.append(("ids", self._newest_block, self._newest_id.encode(), 0))
        for origin, chain_of in staged.chains.items():
            rows += chain_rows(origin, chain_of)
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
