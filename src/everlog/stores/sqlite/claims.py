"""Which request recorded which events. It is looked up for every append with a key, so it must be very cheap.

A claim is first stored with the group of the first event of its request; the tail (`tail.py`) copies it to a table
later, a thousand at a time. Names are hashes: with one row per claim, every claim of a write would change another
page. So a thousand claims are one row, a run. When there are 16 runs, they are sorted into 256 drawers by the first
byte of their names, with one row per drawer. A lookup searches one drawer and the runs.

Two tables take turns: when the current one is as old as claims must be kept, the other, which is older than that, is
emptied and becomes the current one. So a claim is kept for at least its time and at most twice that, and removal
needs neither an index on time nor a scan.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping

from everlog.core.event import Position
from everlog.stores.contract import CLAIM_BYTES, CLAIMS_KEPT_US_MIN, Claim
from everlog.stores.sqlite.groups import Fetch
from everlog.stores.sqlite.recent import INDEXED

_IN_TAIL = f"SELECT claims FROM groups WHERE first > {INDEXED}"
_TABLES = ("claims_even", "claims_odd")

# The key of a row: the drawer, and the number of the row in it. Runs come after the last drawer.
_DRAWERS = 256
_PLACES = 1 << 32
_RUNS = _DRAWERS * _PLACES
_RUNS_MAX = 16
_RUN_CLAIMS_MIN = 1_024  # fewer in all runs, as after a copy: they become one run, and no drawer is used

_PLACE_BYTES, _COUNT_BYTES = 8, 4
_RECORD_BYTES = CLAIM_BYTES + _PLACE_BYTES + _COUNT_BYTES

_HOLDING = {
    table: f"SELECT claims FROM {table} WHERE place >= ?1 AND place < ?1 + {_PLACES} AND instr(claims, ?2)"
    f" UNION ALL SELECT claims FROM {table} WHERE place >= {_RUNS} AND instr(claims, ?2)"
    for table in _TABLES
}
_PUT = {
    table: f"INSERT INTO {table} SELECT coalesce((SELECT max(place) FROM {table} WHERE place >= ?1"
    f" AND place < ?1 + {_PLACES}), ?1 - 1) + 1, ?2"
    for table in _TABLES
}

_REMEMBERED_MAX = 4_000_000
_WRITES_ALONE_MIN = 32
_ROWS_AT_ONCE = 64


class Claims:
    """The claims of one database, with a trace of every name in memory while no other process writes."""

    def __init__(self, kept_us: int) -> None:
        self._kept_us = max(kept_us, CLAIMS_KEPT_US_MIN)
        self.forget()

    def forget(self) -> None:
        """Drop everything remembered: another connection wrote, or a write was undone."""
        self._turn: tuple[int, int] | None = None  # which table is in use, and since when
        self._writes_alone = 0
        self._traces: _Traces | None = None

    def find(self, fetch: Fetch, name: bytes, *, in_write: bool) -> Claim | None:
        if in_write and not self.perhaps(fetch, (name,)):
            return None
        found: list[Claim] = []
        if not in_write:  # a writer knows the tail; the tail is read first, because claims move from it to the tables
            for (packed,) in fetch(_IN_TAIL + " AND instr(claims, ?)", (name,)):
                found += [claim for there, claim in claims_in(packed) if there == name]
        for table in _TABLES:
            for (packed,) in fetch(_HOLDING[table], (name[0] * _PLACES, name)):
                found += [claim for there, claim in claims_in(packed) if there == name]
        # A name that was claimed again after its time is stored twice.
        return max(found, key=lambda claim: claim.first, default=None)

    def perhaps(self, fetch: Fetch, names: Collection[bytes]) -> Collection[bytes]:
        """Those of the names that may be claimed, by what is known without a question; for a writer."""
        traces = self._known_traces(fetch)
        return names if traces is None else traces.of(names)

    def every(self, fetch: Fetch) -> Iterator[tuple[bytes, Claim]]:
        """All that is remembered, drawer by drawer; of a name that is there twice the newer claim."""
        in_tail = dict(claim for (packed,) in fetch(_IN_TAIL + " ORDER BY first", ()) for claim in claims_in(packed))
        yield from in_tail.items()
        in_runs = [record for table in _TABLES for record in claims_in(_joined(fetch, table, _RUNS))]
        for drawer in range(_DRAWERS):
            newest: dict[bytes, Claim] = {}
            kept = [record for table in _TABLES for record in claims_in(_joined(fetch, table, drawer * _PLACES))]
            for name, claim in (*kept, *(record for record in in_runs if record[0][0] == drawer)):
                if name not in newest or claim.first > newest[name].first:
                    newest[name] = claim
            yield from ((name, claim) for name, claim in newest.items() if name not in in_tail)

    def insert(self, writer: sqlite3.Connection, claims: Mapping[bytes, Claim], *, now_us: int) -> None:
        """Put claims into the table whose turn it is."""
        if self._turn is None:
            row = writer.execute("SELECT number, position FROM state WHERE name = 'claims'").fetchone()
            self._turn = row or (1, now_us - self._kept_us)  # a new log: as if the other table had expired
        number, since_us = self._turn
        if now_us - since_us >= self._kept_us:
            number = 1 - number
            writer.execute(f"DELETE FROM {_TABLES[number]}")
            writer.execute("INSERT OR REPLACE INTO state VALUES ('claims', ?, x'', ?)", (number, now_us))
            self._turn = (number, now_us)
            self._traces = None  # rebuilt: it has names that are free now
            self._writes_alone = min(self._writes_alone, _WRITES_ALONE_MIN)
        if self._traces is not None:
            self._traces.add(claims)
            if self._traces.count > _REMEMBERED_MAX:
                self._traces = None
        if claims:
            writer.execute(_PUT[_TABLES[number]], (_RUNS, packed_claims(claims.items())))
            _sort_runs(writer, _TABLES[number])

    def others_wrote(self) -> None:
        """Another process wrote: the tables may have switched, and this process must not empty the newer one."""
        self._turn = None

    def learn(self, name: bytes) -> None:
        """Another process claimed it."""
        if self._traces is not None:
            self._traces.add((name,))

    def committed(self) -> None:
        """A write ended well, and nobody else has written before it."""
        self._writes_alone += self._writes_alone < _WRITES_ALONE_MIN

    def _known_traces(self, fetch: Fetch) -> _Traces | None:
        """The traces of every name there is, so that a new one costs no question.

        They are made when this process has written alone for a while, and dropped when another one writes.
        """
        if self._traces is None and self._writes_alone == _WRITES_ALONE_MIN:
            self._writes_alone += 1  # asked once: tables that are too large now will not be small soon
            self._traces = _traces_of_all(fetch)
        return self._traces


class _Traces:
    """Two bits for every name, found by bytes of it: a bit that is not set says that the name is not there."""

    def __init__(self) -> None:
        self._bits, self._more_bits = bytearray(1 << 21), bytearray(1 << 21)
        self.count = 0

    def add(self, names: Iterable[bytes]) -> None:
        bits, more = self._bits, self._more_bits
        for name in names:
            trace, other = int.from_bytes(name[1:4], "big"), int.from_bytes(name[4:7], "big")
            bits[trace >> 3] |= 1 << (trace & 7)
            more[other >> 3] |= 1 << (other & 7)
            self.count += 1

    def of(self, names: Iterable[bytes]) -> list[bytes]:
        """Those that have left both traces."""
        bits, found = self._bits, []
        for name in names:
            trace = int.from_bytes(name[1:4], "big")
            if bits[trace >> 3] & (1 << (trace & 7)):
                other = int.from_bytes(name[4:7], "big")
                if self._more_bits[other >> 3] & (1 << (other & 7)):
                    found.append(name)
        return found


def _traces_of_all(fetch: Fetch) -> _Traces | None:
    traces = _Traces()
    for table in _TABLES:
        after = -1
        while rows := fetch(
            f"SELECT place, claims FROM {table} WHERE place > ? ORDER BY place LIMIT ?", (after, _ROWS_AT_ONCE)
        ):
            for _, packed in rows:
                traces.add([packed[at : at + CLAIM_BYTES] for at in range(0, len(packed), _RECORD_BYTES)])
            if traces.count > _REMEMBERED_MAX:
                return None
            after = rows[-1][0]
    return traces


def _sort_runs(writer: sqlite3.Connection, table: str) -> None:
    """Put the claims of all runs into their drawers, if there are enough."""
    (count,) = writer.execute(f"SELECT count(*) FROM {table} WHERE place >= ?", (_RUNS,)).fetchone()
    if count < _RUNS_MAX:
        return
    runs = writer.execute(f"SELECT claims FROM {table} WHERE place >= ? ORDER BY place", (_RUNS,)).fetchall()
    writer.execute(f"DELETE FROM {table} WHERE place >= ?", (_RUNS,))
    together = b"".join([packed for (packed,) in runs])
    if len(together) < _RUN_CLAIMS_MIN * _RECORD_BYTES:
        writer.execute(_PUT[table], (_RUNS, together))
        return
    drawers: dict[int, list[bytes]] = {}
    for at in range(0, len(together), _RECORD_BYTES):
        record = together[at : at + _RECORD_BYTES]
        drawers.setdefault(record[0], []).append(record)
    rows = [(drawer * _PLACES, b"".join(records)) for drawer, records in sorted(drawers.items())]
    writer.executemany(_PUT[table], rows)


def _joined(fetch: Fetch, table: str, place: int) -> bytes:
    rows = fetch(f"SELECT claims FROM {table} WHERE place >= ?1 AND place < ?1 + ?2 ORDER BY place", (place, _PLACES))
    return b"".join([packed for (packed,) in rows])


def packed_claims(claims: Iterable[tuple[bytes, Claim]]) -> bytes:
    """Return claims as they are stored, 28 bytes each."""
    return b"".join(
        [
            name + claim.first.to_bytes(_PLACE_BYTES, "big") + claim.count.to_bytes(_COUNT_BYTES, "big")
            for name, claim in claims
        ]
    )


def claims_in(packed: bytes) -> Iterator[tuple[bytes, Claim]]:
    """Return the names and the claims of such bytes."""
    for at in range(0, len(packed), _RECORD_BYTES):
        first, count = at + CLAIM_BYTES, at + CLAIM_BYTES + _PLACE_BYTES
        position = Position(int.from_bytes(packed[first:count], "big"))
        yield packed[at:first], Claim(position, int.from_bytes(packed[count : at + _RECORD_BYTES], "big"))
