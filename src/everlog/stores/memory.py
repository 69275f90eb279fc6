"""The reference store: everything in memory, nothing survives. What it does is what the others must do."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from everlog.core.codec import Packed, header_hash, pack, unpack
from everlog.core.event import BEGINNING, START, Link, Position, Purge, Purged, Recorded
from everlog.core.ids import EventId
from everlog.core.query import EVERYTHING, Query
from everlog.errors import LogClosed
from everlog.stores.contract import Claim, Claimed, Identity, Note, Problem
from everlog.stores.identity import new_identity
from everlog.stores.shelf import StagedShelf
from everlog.stores.staging import Staged


class MemoryStore:
    def __init__(
        self, *, now_us: Callable[[], int] = lambda: time.time_ns() // 1000, identity: Identity | None = None
    ) -> None:
        self._now_us = now_us
        self._lock = threading.RLock()
        self._identity = identity or new_identity(now_us())
        self._places: list[Packed | Purged] = []  # in order of position
        self._by_id: dict[EventId, int] = {}  # id -> index in _places
        self._by_stream: dict[str, list[int]] = {}  # likewise, growing
        self._sequences: dict[str, int] = {}
        self._links: dict[str, Link] = {}
        self._purges: list[Purge] = []
        self._claims: dict[bytes, Claim] = {}
        self._notes: dict[str, tuple[str, int | None]] = {}
        self._clock = 0
        self._head = START
        self._closed = False
        self.shelf = StagedShelf()

    @property
    def identity(self) -> Identity:
        return self._identity

    @contextmanager
    def write(self) -> Iterator[Staged]:
        with self._lock:
            self._require_open()
            staged = Staged(self, now_us=self._now_us(), head=self.head(), clock=self.clock())
            yield staged
            self._persist(staged)

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
            places = self._places
            if query.stream:
                places = [places[index] for index in self._by_stream.get(query.stream, ())]
            first = bisect_right(places, after, key=_position)
            last = len(places) if upto is None else bisect_right(places, upto, key=_position)
            places = places[first:last]
        left = len(places) if limit is None else limit
        for place in reversed(places) if newest_first else places:
            if left <= 0:
                return
            if isinstance(place, Packed):
                recorded = unpack(place)
                if query.matches(recorded):
                    left -= 1
                    yield recorded

    def get(self, event_id: EventId) -> Recorded | None:
        with self._lock:
            self._require_open()
            index = self._by_id.get(event_id)
            place = None if index is None else self._places[index]
        return unpack(place) if isinstance(place, Packed) else None

    def head(self) -> Position:
        self._require_open()
        return self._head

    def purges(self, *, after: Position = START) -> list[Purge]:
        self._require_open()
        return [purge for purge in self._purges if purge.reserved > after]

    def claimed(self, name: bytes) -> Claim | None:
        self._require_open()
        return self._claims.get(name)

    def claimed_among(self, names: Collection[bytes]) -> set[bytes]:
        self._require_open()
        return set() if self._claims.keys().isdisjoint(names) else self._claims.keys() & set(names)

    def noted(self, key: str) -> str | None:
        with self._lock:
            value, expires = self._notes.get(key, (None, None))
        return None if expires is not None and expires <= self._now_us() else value

    def notes(self, prefix: str, *, limit: int | None = None, newest_first: bool = False) -> dict[str, str]:
        self._require_open()
        now = self._now_us()
        with self._lock:
            found = [
                (key, value)
                for key, (value, expires) in self._notes.items()
                if key.startswith(prefix) and (expires is None or expires > now)
            ]
        return dict(sorted(found, reverse=newest_first)[:limit])

    def packed(self, *, after: Position = START) -> Iterator[Packed | Purged]:
        with self._lock:
            self._require_open()
            places = self._places[bisect_right(self._places, after, key=_position) :]
        yield from places

    def kept(self) -> Iterator[Note | Claimed]:
        self._require_open()
        now = self._now_us()
        with self._lock:
            claims = [Claimed(name, claim) for name, claim in self._claims.items()]
            notes = [Note(key, value, expires) for key, (value, expires) in self._notes.items()]
        yield from claims
        yield from (note for note in notes if note.expires_us is None or note.expires_us > now)

    def check(self) -> Iterator[Problem]:
        return iter(())

    def close(self) -> None:
        self._closed = True

    # ---- what a write starts from

    def clock(self) -> int:
        return self._clock

    def link(self, origin: str) -> Link:
        return self._links.get(origin, BEGINNING)

    def sequence(self, stream: str) -> int:
        return self._sequences.get(stream, 0)

    def meet(self, streams: Collection[str]) -> None:
        pass  # all are at hand

    def find_hash(self, event_id: EventId) -> tuple[bytes, bool] | None:
        index = self._by_id.get(event_id)
        if index is None:
            return None
        place = self._places[index]
        return (place.hash, True) if isinstance(place, Purged) else (header_hash(place.header), False)

    def purgeable(self, stream: str) -> tuple[list[Purged], tuple[str, ...]]:
        found = list(self.read(Query(stream=stream)))
        removed = [
            Purged(
                position=recorded.position,
                sequence=recorded.sequence,
                id=recorded.event.id,
                origin=recorded.event.origin,
                origin_seq=recorded.event.origin_seq,
                hash=header_hash(pack(recorded).header),
                previous=recorded.event.previous,
            )
            for recorded in found
        ]
        return removed, tuple(sorted({recorded.event.scope for recorded in found}))

    # ---- inside

    def _persist(self, staged: Staged) -> None:
        for purge, removed in staged.staged_purges:
            for gone in removed:
                self._places[self._by_id[gone.id]] = gone
            self._purges.append(purge)
            self._sequences[purge.stream] = purge.sequence
        new: list[tuple[EventId, str, Packed | Purged]] = [(gone.id, "", gone) for gone in staged.placed_purged]
        for recorded, sealed in staged.records:
            event = sealed.event
            self._sequences[event.stream] = recorded.sequence
            place = Packed(
                recorded.position,
                recorded.sequence,
                recorded.received_us,
                sealed.header,
                sealed.payload,
                event.salt,
                event.signature,
                event.path,
            )
            new.append((event.id, event.stream, place))
        for event_id, stream, placed in sorted(new, key=lambda item: item[2].position):
            self._by_id[event_id] = len(self._places)
            self._by_stream.setdefault(stream, []).append(len(self._places))
            self._places.append(placed)
        self._claims.update(staged.staged_claims)
        for key, (value, expires) in staged.staged_notes.items():
            if value is None:
                self._notes.pop(key, None)
            else:
                self._notes[key] = (value, expires)
        if staged.shelved is not None:
            self.shelf.take(staged.shelved)
        self._links.update(staged.links)
        self._clock = staged.clock
        self._head = staged.position

    def _require_open(self) -> None:
        if self._closed:
            raise LogClosed("the log is closed", hint="open it again")


def _position(place: Packed | Purged) -> Position:
    return place.position
