"""Which request made which events: looked up for every append that carries a key, so it must cost next to nothing.

A claim is first stored with the first event of its request; the tail (`tail.py`) moves it to a table later. There are
two that take turns: when the one in use is as old as claims must be kept, the other, which is older than that, is
emptied and used from there on. So a claim is kept for its time at least and twice that at most, and forgetting needs
neither an index on time nor a scan.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping

from everlog.core.event import Position
from everlog.stores.contract import CLAIM_BYTES, CLAIMS_KEPT_US_MIN, Claim, Claimed
from everlog.stores.sqlite.queries import INDEXED, PAGE_ROWS, Fetch
from everlog.stores.sqlite.rows import insert_rows
from everlog.stores.staging import Staged

_IN_TAIL = f"SELECT position, claim FROM events WHERE position > {INDEXED}"
_TABLES = ("claims_even", "claims_odd")
_REMEMBERED_MAX = 200_000
_WRITES_ALONE_MIN = 32


class Claims:
    """The claims of one database, with the names remembered while nobody else writes."""

    def __init__(self, kept_us: int) -> None:
        self._kept_us = max(kept_us, CLAIMS_KEPT_US_MIN)
        self.forget()

    def forget(self) -> None:
        """Drop everything remembered: another connection wrote, or a write was undone."""
        self._turn: tuple[int, int] | None = None  # which table is in use, and since when
        self._writes_alone = 0
        self._names: set[bytes] = set()
        self._names_complete = False

    def find(self, fetch: Fetch, name: bytes, *, in_write: bool) -> Claim | None:
        if in_write and self._knows_all(fetch) and name not in self._names:
            return None
        found: list[Claim] = []
        if not in_write:  # a writer knows the tail; and the tail is asked first, because claims move from it to here
            found += [read_claim(*row)[1] for row in fetch(_IN_TAIL + " AND substr(claim, 1, 16) = ?", (name,))]
        for table in _TABLES:
            rows = fetch(f"SELECT position, count FROM {table} WHERE name = ?", (name,))
            found += [Claim(Position(position), count) for position, count in rows]
        # A name that was claimed again after its time is in both.
        return max(found, key=lambda claim: claim.first, default=None)

    def has_none_of(self, fetch: Fetch, names: Collection[bytes]) -> bool:
        """True when it is known without a question that none of the names is claimed; for a writer."""
        return self._knows_all(fetch) and self._names.isdisjoint(names)

    def every(self, fetch: Fetch) -> Iterator[Claimed]:
        """All that is remembered, page by page; of a name that is there twice the newer claim."""
        newest = dict(read_claim(*row) for row in fetch(_IN_TAIL + " AND claim IS NOT NULL ORDER BY position", ()))
        yield from (Claimed(name, claim) for name, claim in newest.items())
        for table, other in (_TABLES, _TABLES[::-1]):
            after = b""
            while rows := fetch(
                f"SELECT name, position, count FROM {table} AS mine WHERE name > ? AND NOT EXISTS (SELECT 1 FROM"
                f" {other} AS other WHERE other.name = mine.name AND other.position > mine.position)"
                " ORDER BY name LIMIT ?",
                (after, PAGE_ROWS),
            ):
                yield from (
                    Claimed(name, Claim(Position(position), count))
                    for name, position, count in rows
                    if name not in newest
                )
                after = rows[-1][0]

    def insert(self, writer: sqlite3.Connection, claims: Mapping[bytes, Claim], *, now_us: int) -> None:
        """Put claims into the table whose turn it is, in the order of their names."""
        if self._turn is None:
            row = writer.execute("SELECT number, position FROM state WHERE name = 'claims'").fetchone()
            self._turn = row or (1, now_us - self._kept_us)  # a new log: as if the other table had had its time
        table, since_us = self._turn
        if now_us - since_us >= self._kept_us:
            table = 1 - table
            writer.execute(f"DELETE FROM {_TABLES[table]}")
            writer.execute("INSERT OR REPLACE INTO state VALUES ('claims', ?, x'', ?)", (table, now_us))
            self._turn = (table, now_us)
            self._names_complete = False  # fetched again: it would hold names that are free now
            self._writes_alone = min(self._writes_alone, _WRITES_ALONE_MIN)
        if self._names_complete:
            self._names.update(claims)  # those of the tail were in no table when the names were fetched
        rows = sorted((name, claim.first, claim.count) for name, claim in claims.items())
        insert_rows(writer, f"INSERT OR REPLACE INTO {_TABLES[table]} VALUES ", rows)

    def others_wrote(self) -> None:
        """Another process did: perhaps the tables changed their turn, and this one must not empty the newer."""
        self._turn = None

    def learn(self, name: bytes) -> None:
        """Another process claimed it."""
        if self._names_complete:
            self._names.add(name)

    def committed(self, staged: Staged) -> None:
        self._writes_alone += self._writes_alone < _WRITES_ALONE_MIN
        if self._names_complete:
            self._names.update(staged.staged_claims)
            self._names_complete = len(self._names) < _REMEMBERED_MAX

    def _knows_all(self, fetch: Fetch) -> bool:
        """True when every name there is is remembered, so that a new one costs no question.

        They are fetched when this process has written alone for a while, and dropped when another one writes.
        """
        if not self._names_complete and self._writes_alone == _WRITES_ALONE_MIN:
            self._writes_alone += 1  # asked once: tables that are too large now will not be small soon
            names = fetch(
                f"SELECT name FROM {_TABLES[0]} UNION ALL SELECT name FROM {_TABLES[1]} LIMIT ?", (_REMEMBERED_MAX,)
            )
            if len(names) < _REMEMBERED_MAX:
                self._names = {name for (name,) in names}
                self._names_complete = True
        return self._names_complete


def claim_column(name: bytes, count: int) -> bytes:
    """A claim as the first event of its request carries it: the name, and the count where it is not 1."""
    return name if count == 1 else name + count.to_bytes((count.bit_length() + 7) // 8, "big")


def read_claim(position: int, stored: bytes) -> tuple[bytes, Claim]:
    """The name and the claim of such a column."""
    return stored[:CLAIM_BYTES], Claim(Position(position), int.from_bytes(stored[CLAIM_BYTES:], "big") or 1)
