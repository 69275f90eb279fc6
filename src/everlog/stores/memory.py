"""The reference store: everything in memory, nothing survives. What it does is what the others must do."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from everlog.core.chain import NO_CHAIN, Chain
from everlog.core.codec import Packed, header_hash, unpack
from everlog.core.event import START, Position, Purge, Purged, Recorded
from everlog.core.ids import EventId
from everlog.core.merkle import paths
from everlog.core.query import EVERYTHING, Query
from everlog.errors import LogClosed
from everlog.stores.contract import Claim, Ends, Identity, Known, Problem, Removable
from everlog.stores.identity import Origins, continued, new_identity
from everlog.stores.open_write import OpenWrite
from everlog.stores.small_state import Beside, MemoryStateInLog, Row, StoreState, claim_row, note_row


class MemoryStore:
    def __init__(
        self, *, now_us: Callable[[], int] = lambda: time.time_ns() // 1000, identity: Identity | None = None
    ) -> None:
        self._now_us = now_us
        self._lock = threading.RLock()
        self._identity = identity or new_identity(now_us())
        self._slots: list[Packed | Purged] = []  # in order of position
        self._by_id: dict[EventId, int] = {}  # id -> index in _slots
        self._by_stream: dict[str, list[int]] = {}  # likewise, growing
        self._sequences: dict[str, int] = {}
        self._chains: dict[str, Chain] = {}
        self._purges: list[Purge] = []
        self._claims: dict[bytes, Claim] = {}
        self._notes: dict[str, tuple[str, int | None]] = {}
        self._clock = 0
        self._head = START
        self._closed = False
        self._derived = MemoryStateInLog()
        self.origins = Origins()
        beside = Beside(self._find_claims, self._find_note, self._find_notes, self._every_row)
        self.small_state = StoreState(beside, lambda: self._derived)

    @property
    def identity(self) -> Identity:
        return self._identity

    @contextmanager
    def open_write(self) -> Iterator[OpenWrite]:
        with self._lock:
            self._require_open()
            before = self._identity
            staged = OpenWrite(
                self, now_us=self._now_us(), head=self._head, clock=self._clock, continue_as=self._continue_as
            )
            try:
                yield staged
            except BaseException:
                self._identity = before
                raise
            self._persist(staged)

    def _continue_as(self, origin: str) -> None:
        self._identity = continued(self._identity, origin, head=self._head)

    def read(
        self,
        query: Query = EVERYTHING,
        *,
        after: Position = START,
        upto: Position | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[Recorded]:
        with self._lock:
            self._require_open()
            slots = self._slots
            if query.stream:
                slots = [slots[index] for index in self._by_stream.get(query.stream, ())]
            first = bisect_right(slots, after, key=_position)
            last = len(slots) if upto is None else bisect_right(slots, upto, key=_position)
            slots = slots[first:last]
        left = len(slots) if limit is None else limit
        for slot in reversed(slots) if newest_first else slots:
            if left <= 0:
                return
            if isinstance(slot, Packed):
                recorded = unpack(slot)
                if query.matches(recorded):
                    left -= 1
                    yield recorded

    def get(self, event_id: EventId) -> Recorded | None:
        with self._lock:
            self._require_open()
            index = self._by_id.get(event_id)
            slot = None if index is None else self._slots[index]
        return unpack(slot) if isinstance(slot, Packed) else None

    def head(self) -> Position:
        self._require_open()
        return self._head

    def purges(self, *, after: Position = START) -> list[Purge]:
        self._require_open()
        return [purge for purge in self._purges if purge.reserved > after]

    def slots(self, *, after: Position = START) -> Iterator[Packed | Purged]:
        with self._lock:
            self._require_open()
            slots = self._slots[bisect_right(self._slots, after, key=_position) :]
        yield from slots

    def check(self) -> Iterator[Problem]:
        return iter(())

    def watch(self, callback: Callable[[], None]) -> None:
        """Do nothing: no other process can write."""

    def close(self) -> None:
        self._closed = True

    # ---- what a write starts from

    def ends(
        self,
        *,
        streams: Collection[str] = (),
        origins: Collection[str] = (),
        ids: Collection[EventId] = (),
        purging: str = "",
    ) -> Ends:
        self._require_open()
        known = {event_id: self._known(self._by_id[event_id]) for event_id in ids if event_id in self._by_id}
        sequences = {stream: self._sequences.get(stream, 0) for stream in streams}
        chains = {origin: self._chains.get(origin, NO_CHAIN) for origin in origins}
        return Ends(self._clock, sequences, chains, known, self._removable(purging) if purging else None)

    def chains(self) -> dict[str, Chain]:
        self._require_open()
        with self._lock:
            return dict(self._chains)

    def _known(self, index: int) -> Known:
        slot = self._slots[index]
        return Known(slot.hash, True) if isinstance(slot, Purged) else Known(header_hash(slot.header), False)

    def _removable(self, stream: str) -> Removable:
        found = [
            (unpack(slot), slot)
            for index in self._by_stream.get(stream, ())
            if isinstance(slot := self._slots[index], Packed)
        ]
        slots = [
            Purged(
                position=recorded.position,
                sequence=recorded.sequence,
                id=recorded.event.id,
                origin=recorded.event.origin,
                origin_seq=recorded.event.origin_seq,
                hash=header_hash(slot.header),
                previous=recorded.event.previous,
                lamport=recorded.event.lamport,
                signature=slot.signature if slot.signed_with[0] else b"",
                signed_with=slot.signed_with,
            )
            for recorded, slot in found
        ]
        return Removable(slots, tuple(sorted({recorded.event.scope for recorded, _ in found})))

    # ---- claims and notes

    def _find_claims(self, names: Collection[bytes]) -> dict[bytes, Claim]:
        self._require_open()
        return {name: self._claims[name] for name in names if name in self._claims}

    def _find_note(self, key: str) -> str | None:
        self._require_open()
        value, expires = self._notes.get(key, (None, None))
        return None if expires is not None and expires <= self._now_us() else value

    def _find_notes(self, prefix: str, limit: int | None, newest_first: bool) -> dict[str, str]:
        self._require_open()
        now = self._now_us()
        with self._lock:
            found = [
                (key, value)
                for key, (value, expires) in self._notes.items()
                if key.startswith(prefix) and (expires is None or expires > now)
            ]
        return dict(sorted(found, reverse=newest_first)[:limit])

    def _every_row(self) -> Iterator[Row]:
        self._require_open()
        now = self._now_us()
        with self._lock:
            claims, notes = list(self._claims.items()), list(self._notes.items())
        yield from (claim_row(*claim) for claim in claims)
        yield from (note_row(key, *note) for key, note in notes if note[1] is None or note[1] > now)

    # ---- inside

    def _persist(self, staged: OpenWrite) -> None:
        for erasure in staged.erasures.values():
            index = self._by_id[erasure.id]
            slot = self._slots[index]
            assert isinstance(slot, Packed)
            self._slots[index] = replace(slot, payload=b"", salt=b"", erased_by=erasure.by)
        for purge, removed in staged.staged_purges:
            for gone in removed:
                self._slots[self._by_id[gone.id]] = gone
            self._purges.append(purge)
            self._sequences[purge.stream] = purge.sequence
        new: list[tuple[EventId, str, Packed | Purged]] = [(gone.id, "", gone) for gone in staged.placed_purged]
        signed: dict[Position, tuple[bytes, tuple[int, int], tuple[bytes, ...]]] = {}
        for group in staged.groups() if staged.signatures else ():
            facts = group.facts
            if facts.signature:
                whole = paths(group.hashes) if len(group.hashes) == facts.count else []
                for recorded, encoded in group.records:
                    path = whole[encoded.event.origin_seq - facts.first_seq] if whole else encoded.event.path
                    signed[recorded.position] = (facts.signature, (facts.first_seq, facts.count), path)
        for recorded, encoded in staged.records:
            event = encoded.event
            self._sequences[event.stream] = max(recorded.sequence, self._sequences.get(event.stream, 0))
            signature, signed_with, path = signed.get(recorded.position) or (event.signature, (0, 0), event.path)
            slot = Packed(
                recorded.position,
                recorded.sequence,
                recorded.received_us,
                encoded.header,
                encoded.payload,
                event.salt,
                signature,
                path,
                event.erased_by,
                signed_with,
            )
            new.append((event.id, event.stream, slot))
        for event_id, stream, staged_slot in sorted(new, key=lambda item: item[2].position):
            self._by_id[event_id] = len(self._slots)
            self._by_stream.setdefault(stream, []).append(len(self._slots))
            self._slots.append(staged_slot)
        self._claims.update(staged.staged_claims)
        for key, (value, expires) in staged.staged_notes.items():
            if value is None:
                self._notes.pop(key, None)
            else:
                self._notes[key] = (value, expires)
        if staged.state_changes is not None:
            self._derived.take(staged.state_changes)
        self._chains.update(staged.chains)
        self._clock = staged.clock
        self._head = staged.position

    def _require_open(self) -> None:
        if self._closed:
            raise LogClosed("the log is closed", hint="open it again")


def _position(slot: Packed | Purged) -> Position:
    return slot.position
