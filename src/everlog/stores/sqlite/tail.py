"""The newest events, which the indexes do not hold yet.

The keys of the index of streams and of the claims are random: each entry would change another page, and every changed
page is written and flushed with the write. So entries are added in bulk, a thousand events at once, within the
transaction of some write. Until then a writer has the newest events in memory, and a reader finds them by a
short scan.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from everlog.core.event import START, Position
from everlog.errors import Damaged
from everlog.stores.contract import Claim
from everlog.stores.lost import lost
from everlog.stores.open_write import OpenWrite
from everlog.stores.sqlite.claims import Claims, claims_in
from everlog.stores.sqlite.groups import COLUMNS, BadRow, Fetch, Place, StoredGroup, claimed_places
from everlog.stores.sqlite.recent import INDEXED

TAIL_MAX = 1_024
"""Events that may wait for the indexes."""

_STREAMS_REMEMBERED_MAX = 200_000
# If other processes wrote more events than this, dropping everything is cheaper than reading them.
_LEARNT_AT_ONCE_MAX = 4 * TAIL_MAX

_NEWS = f"SELECT {COLUMNS} FROM groups WHERE first > ? ORDER BY first"
_COUNT = "SELECT coalesce(sum(kept), 0) FROM (SELECT kept FROM groups WHERE first > ? ORDER BY first LIMIT ?)"
_LAST_SEQUENCES = (
    "SELECT value, (SELECT max(sequence) FROM stream_places WHERE stream ="
    " (SELECT name_id FROM names WHERE family = 0 AND name = value)),"
    " (SELECT max(sequence) FROM purges WHERE stream = value) FROM json_each(?)"
)
_STATE = f"SELECT {INDEXED}, (SELECT count(*) FROM purges)"

Entry = tuple[str, int, int]
"""An event that waits for the index: its stream, its sequence, its position."""


class Tail:
    """What a writer has in memory of the newest events, and of the streams that it used."""

    def __init__(self, claims: Claims) -> None:
        self._table = claims
        self.forget()

    def forget(self) -> None:
        """Drop everything remembered: a write was undone."""
        self.known = False
        self._damage: Damaged | None = None
        self._indexed = START
        self._seen = START  # all events up to here are in the indexes or in memory
        self._purges = 0
        self._sequences: dict[str, int] = {}
        self._claims: dict[bytes, Claim] = {}  # of the events after the index
        self._entries: list[Entry] = []  # likewise
        self._table.forget()

    def catch_up(self, fetch: Fetch) -> None:
        """Load what other processes wrote. Cached sequences stay valid: events are only added."""
        ((indexed, purges),) = fetch(_STATE, ())
        start, self._damage = self._seen, None
        if not self.known or purges != self._purges or self._many(fetch):
            self.forget()
            start = self._seen = indexed
        groups = self._sound(fetch(_NEWS, (start,)))
        if not groups:
            self._table.forget()  # another process wrote no events: perhaps claims of a copy
        self._table.others_wrote()
        self.known = self._damage is None
        self._indexed, self._purges = indexed, purges
        for name in [name for name, claim in self._claims.items() if claim.first <= indexed]:
            self._table.learn(name)  # another process has moved it to the table
            del self._claims[name]
        self._entries = [entry for entry in self._entries if entry[2] > indexed]
        for group, places in groups:
            self._seen = Position(group.last)
            for place in places:
                self._sequences[place.event.stream] = place.sequence
                if place.position > indexed:
                    self._entries.append((place.event.stream, place.sequence, place.position))
            for name, claim in claims_in(group.claims):
                if claim.first > indexed:
                    self._claims[name] = claim
                else:
                    self._table.learn(name)

    def _sound(self, rows: Sequence[Any]) -> list[tuple[StoredGroup, list[Place]]]:
        """Return the groups of rows and where their events are. What a damaged one held is not known."""
        found = []
        for row in rows:
            try:
                group = StoredGroup(row)
                found.append((group, group.places()))
            except BadRow as error:
                self._damage = lost(*claimed_places(row), why=str(error))
        return found

    def _refuse(self) -> None:
        """Refuse to answer, or to add an event, if one of the newest groups is damaged. Other writes may go on."""
        if self._damage is not None:
            raise self._damage

    def _many(self, fetch: Fetch) -> bool:
        ((count,),) = fetch(_COUNT, (self._seen, _LEARNT_AT_ONCE_MAX))
        return bool(count >= _LEARNT_AT_ONCE_MAX)

    def sequences(self, fetch: Fetch, streams: Collection[str]) -> dict[str, int]:
        """Return the last sequences of streams."""
        self._refuse()
        known = self._sequences
        found: dict[str, int] = {}
        for stream in streams:
            sequence = known.get(stream)
            if sequence is None:
                self.meet(fetch, streams)
                sequence = known[stream]
            found[stream] = sequence
        return found

    def meet(self, fetch: Fetch, streams: Collection[str]) -> None:
        """Learn the last sequences of streams that were not met before, all with one question."""
        known = self._sequences
        new = [stream for stream in streams if stream not in known]
        if new:
            for stream, live, purged in fetch(_LAST_SEQUENCES, (json.dumps(new),)):
                known[stream] = max(live or 0, purged or 0)

    def find_claims(self, fetch: Fetch, names: Collection[bytes]) -> dict[bytes, Claim]:
        """Return what requests made, for a writer: from memory, where it is likely."""
        self._refuse()
        found: dict[bytes, Claim] = {}
        for name in names:
            if name in self._claims:
                found[name] = self._claims[name]
        for name in self._table.perhaps(fetch, names):
            if name not in found and (claim := self._table.find(fetch, name, in_write=True)) is not None:
                found[name] = claim
        return found

    def index(
        self,
        writer: sqlite3.Connection,
        staged: OpenWrite,
        entries: Sequence[Entry],
        numbers: Callable[[set[str]], Mapping[str, int]],
    ) -> None:
        """Take the events of a write, and fill the indexes if it is time. `numbers` gives streams their numbers."""
        if entries or staged.staged_purges or staged.staged_claims:
            self._refuse()
        if self._damage is not None:
            return
        self._entries += entries
        # A purge removes what would be indexed later, so everything is indexed before it.
        if staged.position - self._indexed <= TAIL_MAX and not staged.staged_purges:
            self._index_claims_of_others(writer, staged, entries)
            return
        number = numbers({stream for stream, _, _ in self._entries})
        rows = sorted([(number[stream], sequence, position) for stream, sequence, position in self._entries])
        writer.executemany("INSERT INTO stream_places VALUES (?, ?, ?)", rows)
        self._table.insert(writer, {**self._claims, **staged.staged_claims}, now_us=staged.now_us)
        writer.execute("INSERT OR REPLACE INTO state VALUES ('indexed', ?, x'', 0)", (staged.position,))
        self._claims.clear()
        self._entries = []
        self._indexed = staged.position

    def _index_claims_of_others(
        self, writer: sqlite3.Connection, staged: OpenWrite, entries: Sequence[Entry]
    ) -> None:
        """Claims on events of earlier writes, which a copy brings: those groups cannot carry them any more."""
        first = entries[0][2] if entries else staged.position + 1
        others = {name: claim for name, claim in staged.staged_claims.items() if claim.first < first}
        if others:
            self._table.insert(writer, others, now_us=staged.now_us)

    def committed(self, staged: OpenWrite, entries: Sequence[Entry]) -> None:
        """Add a committed write."""
        sequences = self._sequences
        for stream, sequence, _ in entries:
            sequences[stream] = sequence
        for purge, _ in staged.staged_purges:  # it may come before or after the events of its stream
            self._purges += 1
            sequences[purge.stream] = max(purge.sequence, sequences.get(purge.stream, 0))
        self._seen = staged.position
        if self._indexed != staged.position:
            self._claims.update(staged.staged_claims)
        self._table.committed()
        if len(sequences) > _STREAMS_REMEMBERED_MAX:
            self.forget()  # the next write catches up with the tail
