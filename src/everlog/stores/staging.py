"""One open write, held in memory until it commits: the same rules for every store.

A store says what is committed (`Committed`) and persists what was staged, all at once. So a group of many appends
costs one bulk insert, and undoing one of them costs no trip to the disk.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from everlog.core.clock import receive, send
from everlog.core.codec import Packed, header_hash, unpack
from everlog.core.event import START, Link, Position, Purge, Purged, Recorded
from everlog.core.ids import EventId
from everlog.core.query import EVERYTHING, Query
from everlog.errors import AlreadyPurged, Conflict, IdConflict, NotFound
from everlog.stores.contract import Claim, Reader, Sealed
from everlog.stores.shelf import ShelfChanges


class Committed(Reader, Protocol):
    """What a store knows at the start of a write, beside what any reader may ask."""

    def link(self, origin: str) -> Link: ...

    def sequence(self, stream: str) -> int: ...

    def meet(self, streams: Collection[str]) -> None:
        """The sequences of these streams will be asked for: learn them at once, if it costs less than one by one."""
        ...

    def find_hash(self, event_id: EventId) -> tuple[bytes, bool] | None:
        """The header hash of an id that is there, and whether it was purged; None if it never was."""
        ...

    def purgeable(self, stream: str) -> tuple[list[Purged], tuple[str, ...]]:
        """What a purge of this stream would remove, and the scopes that its events are in."""
        ...


class _Attempt:
    """A part of a write that is undone alone. A class, because a generator would cost more than all it does."""

    __slots__ = ("_marker", "_staged")

    def __init__(self, staged: Staged) -> None:
        self._staged = staged

    def __enter__(self) -> None:
        self._marker = self._staged.marker()

    def __exit__(self, kind: object, error: object, where: object) -> None:
        if kind is not None:
            self._staged.back_to(self._marker)


class Staged:
    """A `Writer` over what is committed plus what it has staged itself."""

    def __init__(self, committed: Committed, *, now_us: int, head: Position, clock: int) -> None:
        self._committed = committed
        self._undo: list[tuple[dict[Any, Any], Any, Any]] = []
        self._sequences: dict[str, int] = {}
        self._ids: dict[EventId, bytes] = {}
        self._now_us = now_us
        self.position = head
        self._clock = clock
        self.links: dict[str, Link] = {}
        self.records: list[tuple[Recorded, Sealed]] = []
        self.staged_purges: list[tuple[Purge, list[Purged]]] = []
        self.placed_purged: list[Purged] = []  # what another log had left of purged events, in order
        self.staged_claims: dict[bytes, Claim] = {}
        self.staged_notes: dict[str, tuple[str | None, int | None]] = {}
        self.shelved: ShelfChanges | None = None  # derived state that commits with this write, if the store has it
        self.clock_before = self._clock

    @property
    def now_us(self) -> int:
        return self._now_us

    @property
    def clock(self) -> int:
        return self._clock

    @property
    def dirty(self) -> bool:
        return bool(
            self.records
            or self.staged_purges
            or self.placed_purged
            or self.staged_notes
            or self.staged_claims
            or self.shelved
            or self._clock != self.clock_before
        )

    # ---- reading, what is staged included

    def read(
        self,
        query: Query = EVERYTHING,
        *,
        after: Position = START,
        upto: Position | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[Recorded]:
        gone = {purge.stream: purge.reserved for purge, _ in self.staged_purges}
        staged = [
            recorded
            for recorded, _ in self.records
            if recorded.position > after
            and (upto is None or recorded.position <= upto)
            and recorded.position > gone.get(recorded.event.stream, START)
            and query.matches(recorded)
        ]
        committed = (
            recorded
            for recorded in self._committed.read(
                query, after=after, upto=upto, limit=None if gone else limit, newest_first=newest_first
            )
            if recorded.event.stream not in gone
        )
        parts = [reversed(staged), committed] if newest_first else [committed, iter(staged)]
        left = limit
        for part in parts:
            for recorded in part:
                if left is not None:
                    if left <= 0:
                        return
                    left -= 1
                yield recorded

    def get(self, event_id: EventId) -> Recorded | None:
        gone = {purge.stream for purge, _ in self.staged_purges}
        for recorded, _ in self.records:
            if recorded.event.id == event_id:
                return recorded
        found = self._committed.get(event_id)
        return None if found is not None and found.event.stream in gone else found

    def head(self) -> Position:
        return self.position

    def purges(self, *, after: Position = START) -> list[Purge]:
        staged = [purge for purge, _ in self.staged_purges if purge.reserved > after]
        return self._committed.purges(after=after) + staged

    def claimed(self, name: bytes) -> Claim | None:
        return self.staged_claims.get(name) or self._committed.claimed(name)

    def claimed_among(self, names: Collection[bytes]) -> set[bytes]:
        found = self._committed.claimed_among(names)
        return found.union(self.staged_claims.keys() & set(names)) if self.staged_claims else found

    def noted(self, key: str) -> str | None:
        staged = self.staged_notes.get(key)
        return self._committed.noted(key) if staged is None else staged[0]

    def notes(self, prefix: str, *, limit: int | None = None, newest_first: bool = False) -> dict[str, str]:
        touched = {key: value for key, (value, _) in self.staged_notes.items() if key.startswith(prefix)}
        if not touched:
            return self._committed.notes(prefix, limit=limit, newest_first=newest_first)
        found: dict[str, str | None] = {**self._committed.notes(prefix), **touched}
        ordered = sorted(found.items(), reverse=newest_first)
        return dict([(key, value) for key, value in ordered if value is not None][:limit])

    # ---- writing

    def tick(self, *, seen: int = 0) -> int:
        self._clock = receive(self._clock, seen) if seen else send(self._clock)
        return self._clock

    def link(self, origin: str) -> Link:
        found = self.links.get(origin)
        return self._committed.link(origin) if found is None else found

    def sequence(self, stream: str) -> int:
        found = self._sequences.get(stream)
        return self._committed.sequence(stream) if found is None else found

    def append(self, events: Sequence[Sealed], *, fresh: bool = False) -> list[Recorded]:
        new: list[Recorded] = []
        sequences, undo, records = self._sequences, self._undo, self.records
        position, clock, now_us = self.position, self._clock, self._now_us
        committed_sequence = self._committed.sequence
        if not fresh:
            events = self._without_known(events)
        if len(events) > 1:
            self._committed.meet({sealed.event.stream for sealed in events})
        ends: dict[str, Sealed] = {}
        for sealed in events:
            event = sealed.event
            stream = event.stream
            before = sequences.get(stream)
            undo.append((sequences, stream, before))
            sequence = (committed_sequence(stream) if before is None else before) + 1
            sequences[stream] = sequence
            position = Position(position + 1)
            recorded = Recorded(position, sequence, now_us, event)
            records.append((recorded, sealed))
            new.append(recorded)
            if event.lamport > clock:
                clock = event.lamport
            if event.origin not in ends or event.origin_seq > ends[event.origin].event.origin_seq:
                ends[event.origin] = sealed
        self.position, self._clock = position, clock  # the clock is never below an event that is here
        for origin, end in ends.items():
            self._go_on_after(origin, Link(end.event.origin_seq, end.hash))
        return new

    def place(self, places: Sequence[Packed | Purged | Purge]) -> None:
        for place in places:
            position = place.reserved if isinstance(place, Purge) else place.position
            if position != self.position + 1:
                raise Conflict(
                    f"position {position} cannot follow position {self.position}",
                    why="the places of a copied log come in order, without a gap, into a log that has none of them",
                    hint="copy into a new log",
                    position=position,
                )
            match place:
                case Packed():
                    self._place_event(place)
                case Purged():
                    self.placed_purged.append(place)
                    self._go_on_after(place.origin, Link(place.origin_seq, place.hash))
                case Purge():
                    self.staged_purges.append((place, []))  # what it removed is placed by itself
                    self._set(self._sequences, place.stream, place.sequence)
            self.position = position

    def _place_event(self, place: Packed) -> None:
        recorded = unpack(place)
        event = recorded.event
        last = self.sequence(event.stream)
        if place.sequence != last + 1:
            raise Conflict(
                f"{event.stream} has sequence {place.sequence} after {last}",
                why="the sequences of a stream have no gap",
                hint="everlog verify on the log that is copied",
                position=place.position,
            )
        digest = header_hash(place.header)
        self.records.append((recorded, Sealed(event, place.header, place.payload, digest)))
        self._set(self._sequences, event.stream, place.sequence)
        self._clock = max(self._clock, event.lamport)
        self._go_on_after(event.origin, Link(event.origin_seq, digest))

    def _go_on_after(self, origin: str, link: Link) -> None:
        if link.origin_seq > self.link(origin).origin_seq:
            self._set(self.links, origin, link)

    def purge(self, stream: str, *, actor: str, reason: str) -> Purge:
        if any(recorded.event.stream == stream for recorded, _ in self.records):
            # The committer gives every purge a write of its own, so that it is a matter of committed history only.
            raise Conflict(
                f"{stream} got events in this very write",
                why="a purge removes committed history",
                hint="purge it in a write of its own",
            )
        removed, scopes = self._committed.purgeable(stream)
        if not removed or any(purge.stream == stream for purge, _ in self.staged_purges):
            raise NotFound(
                f"{stream} has no events to purge",
                why="it never had any, or they were purged before",
                hint="everlog log --stream " + stream,
                stream=stream,
            )
        self.position = Position(self.position + 1)
        purge = Purge(
            reserved=self.position,
            stream=stream,
            scopes=scopes,
            actor=actor,
            reason=reason,
            purged_us=self._now_us,
            sequence=self.sequence(stream),
            count=len(removed),
        )
        self.staged_purges.append((purge, [replace(gone, reserved=purge.reserved) for gone in removed]))
        self._set(self._sequences, stream, purge.sequence)
        return purge

    def claim(self, name: bytes, first: Position, count: int) -> None:
        self._undo.append((self.staged_claims, name, self.staged_claims.get(name)))
        self.staged_claims[name] = Claim(first, count)

    def note(self, key: str, value: str | None, *, expires_us: int | None = None) -> None:
        self._set(self.staged_notes, key, (value, expires_us))

    def attempt(self) -> _Attempt:
        return _Attempt(self)

    def marker(self) -> tuple[Position, int, int, int, int, int]:
        """Where this write stands, for `back_to`."""
        lengths = len(self.records), len(self.staged_purges), len(self.placed_purged), len(self._undo)
        return self.position, self._clock, *lengths

    def back_to(self, marker: tuple[Position, int, int, int, int, int]) -> None:
        """Undo everything since the marker."""
        self.position, self._clock, records, purges, purged, undo = marker
        del self.records[records:]
        del self.staged_purges[purges:]
        del self.placed_purged[purged:]
        self._ids.clear()  # rebuilt from `records` when it is asked for again
        while len(self._undo) > undo:
            holder, key, old = self._undo.pop()
            if old is None:
                del holder[key]
            else:
                holder[key] = old

    # ---- inside

    def _set(self, holder: dict[Any, Any], key: Any, value: Any) -> None:
        self._undo.append((holder, key, holder.get(key)))
        holder[key] = value

    def _without_known(self, events: Sequence[Sealed]) -> list[Sealed]:
        """The events whose id is new; the same id with other content is refused (G5)."""
        if len(self._ids) != len(self.records):
            self._ids = {recorded.event.id: sealed.hash for recorded, sealed in self.records}
        staged = dict(self._ids)
        new: list[Sealed] = []
        for sealed in events:
            event_id = sealed.event.id
            known = staged.get(event_id)
            if known is None:
                found = self._committed.find_hash(event_id)
                if found is not None and found[1]:
                    raise AlreadyPurged(
                        f"event {event_id} was purged from this log",
                        why="a purge is for good: neither a retry nor a peer brings an event back",
                        hint="everlog log --purges",
                        id=event_id,
                    )
                known = None if found is None else found[0]
            if known is None:
                staged[event_id] = sealed.hash
                new.append(sealed)
            elif known != sealed.hash:
                raise IdConflict(
                    f"the id {event_id} is taken by an event with other content",
                    why="an id names one event for ever",
                    hint=f"everlog show {event_id}",
                    id=event_id,
                )
        return new
