"""One open write, held in memory until it commits: the same class for every store.

Nobody else writes until it ends, and an exception undoes all of it. What it reads includes what it has staged. A
store reports what a write starts from (`Store.ends`), and persists what was staged all at once. So a group of many
appends costs one bulk insert, and undoing one of them costs no access to the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import force_setattr, replace

from everlog.core.clock import receive, send
from everlog.core.codec import Packed, header_hash, unpack
from everlog.core.event import START, Link, Position, Purge, Purged, Recorded
from everlog.core.ids import EventId
from everlog.core.query import EVERYTHING, Query
from everlog.errors import AlreadyPurged, Conflict, IdConflict, NotFound
from everlog.stores.contract import Claim, Encoded, Identity, Removable
from everlog.stores.small_state import CLAIMS, NOTES, StateChanges, claim_of, claims_as_rows

if TYPE_CHECKING:
    from everlog.stores.contract import Store


class _Attempt:
    """A part of a write that is undone alone. A class, because a generator would cost more than all it does."""

    __slots__ = ("_marker", "_staged")

    def __init__(self, staged: OpenWrite) -> None:
        self._staged = staged

    def __enter__(self) -> None:
        self._marker = self._staged.marker()

    def __exit__(self, kind: object, error: object, where: object) -> None:
        if kind is not None:
            self._staged.back_to(self._marker)


class OpenWrite:
    """What is committed, and what this write has staged."""

    def __init__(
        self,
        store: Store,
        *,
        now_us: int,
        head: Position,
        clock: int,
        settle: Callable[[], None] | None = None,  # makes sure that the log may continue under its origin
    ) -> None:
        self._store = store
        self._settle = settle
        self._small_state = store.small_state
        self._known_sequences: dict[str, int] = {}  # as committed, of the streams that were asked for
        self._known_links: dict[str, Link] = {}
        self._undo: list[tuple[dict[Any, Any], Any, Any]] = []
        self._sequences: dict[str, int] = {}
        self._ids: dict[EventId, bytes] = {}
        self.now_us = now_us  # what its events carry as their time of arrival
        self.position = head
        self.clock = clock  # the Lamport clock
        self.links: dict[str, Link] = {}
        self.records: list[tuple[Recorded, Encoded]] = []
        self.staged_purges: list[tuple[Purge, list[Purged]]] = []
        self.placed_purged: list[Purged] = []  # what another log had left of purged events, in order
        self.staged_claims: dict[bytes, Claim] = {}
        self.staged_notes: dict[str, tuple[str | None, int | None]] = {}
        self.state_changes: StateChanges | None = (
            None  # derived state that commits with this write, if the store has it
        )
        self._lasting_notes: set[str] = set()  # those that no power cut may take back
        self.clock_before = self.clock

    @property
    def dirty(self) -> bool:
        return bool(
            self.records
            or self.staged_purges
            or self.placed_purged
            or self.staged_notes
            or self.staged_claims
            or self.state_changes
            or self.clock != self.clock_before
        )

    @property
    def may_be_lost(self) -> bool:
        """Whether a power cut may take this write back: it holds notes alone, and all of them allow it."""
        if self.records or self.staged_purges or self.placed_purged or self.staged_claims or self.state_changes:
            return False
        return self.clock == self.clock_before and self._lasting_notes.isdisjoint(self.staged_notes)

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
            for recorded in self._store.read(
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
        found = self._store.get(event_id)
        return None if found is not None and found.event.stream in gone else found

    def head(self) -> Position:
        return self.position

    @property
    def epoch(self) -> str:
        return self._store.identity.epoch

    def purges(self, *, after: Position = START) -> list[Purge]:
        staged = [purge for purge, _ in self.staged_purges if purge.reserved > after]
        return self._store.purges(after=after) + staged

    def claims(self, names: Collection[bytes]) -> Mapping[bytes, Claim]:
        """Return the claims of these names that exist."""
        found = self._small_state.claims(names)
        if not self.staged_claims:
            return found
        return {**found, **{name: self.staged_claims[name] for name in names if name in self.staged_claims}}

    def rows(self, space: str, keys: Collection[str]) -> dict[str, bytes]:
        """Return the rows of these keys that exist: see `everlog.stores.small_state`."""
        if space == CLAIMS:
            return claims_as_rows(self.claims(list(map(bytes.fromhex, keys))))
        if space == NOTES:
            notes = self.staged_notes
            found = self._small_state.rows(NOTES, [key for key in keys if key not in notes])
            for key in keys:
                value = notes.get(key, (None, None))[0]
                if value is not None:
                    found[key] = value.encode()
            return found
        return (self.state_changes or self._small_state).rows(space, keys)

    def scan(
        self, space: str, *, prefix: str = "", after: str = "", limit: int | None = None, newest_first: bool = False
    ) -> Iterator[tuple[str, bytes]]:
        """Return notes in order of their keys, the staged ones included."""
        if space != NOTES:
            return self._small_state.scan(space, after=after, limit=limit)
        touched = {key: value for key, (value, _) in self.staged_notes.items() if key.startswith(prefix)}
        if not touched:
            return self._small_state.scan(NOTES, prefix=prefix, limit=limit, newest_first=newest_first)
        found: dict[str, bytes | None] = dict(self._small_state.scan(NOTES, prefix=prefix))
        found.update({key: None if value is None else value.encode() for key, value in touched.items()})
        ordered = sorted(found.items(), reverse=newest_first)
        return iter([(key, value) for key, value in ordered if value is not None][:limit])

    # ---- writing

    def tick(self, *, seen: int = 0) -> int:
        self.clock = receive(self.clock, seen) if seen else send(self.clock)
        return self.clock

    @property
    def identity(self) -> Identity:
        return self._store.identity

    def own_origin(self) -> str:
        """Return the origin of the events that this log makes. A log that was put back takes a new one first."""
        settle, self._settle = self._settle, None
        if settle is not None:
            settle()
        return self._store.identity.origin

    def numbers_of(self, origins: Collection[str]) -> Iterator[tuple[str, int, EventId]]:
        """Return the numbers and ids of all committed events of some origins, purged ones included. It reads the
        whole log."""
        for slot in self._store.slots():
            event = slot if isinstance(slot, Purged) else unpack(slot).event
            if event.origin in origins:
                yield event.origin, event.origin_seq, event.id

    def learn(self, streams: Collection[str], origin: str) -> Link:
        """Ask the store at once for the ends of streams and of a chain; return the end of the chain."""
        if not self._known_links:  # as for nearly every write: nothing is known yet
            ends = self._store.ends(streams=streams, origins=(origin,))
            self._known_sequences.update(ends.sequences)
            self._known_links.update(ends.links)
            return self.link(origin) if self.links else ends.links[origin]
        self._learn_streams(streams)
        return self.link(origin)

    def _learn_streams(self, streams: Collection[str]) -> None:
        new = [stream for stream in streams if stream not in self._known_sequences]
        if new:
            self._known_sequences.update(self._store.ends(streams=new).sequences)

    def link(self, origin: str) -> Link:
        """Return the end of an origin's chain."""
        found = self.links.get(origin)
        if found is None:
            if origin not in self._known_links:
                self._known_links.update(self._store.ends(origins=(origin,)).links)
            found = self._known_links[origin]
        return found

    def sequence(self, stream: str) -> int:
        """Return the stream's last sequence, 0 if it never had an event. A purge does not take it back."""
        found = self._sequences.get(stream)
        if found is None:
            self._learn_streams((stream,))
            found = self._known_sequences[stream]
        return found

    def append(self, events: Sequence[Encoded], *, fresh: bool = False) -> list[Recorded]:
        """Record the events that are new, and return their records; events that the log has are left out.

        `fresh` states that the ids were made by this log just now, so that they need not be looked for.
        """
        new: list[Recorded] = []
        sequences, undo, records, known = self._sequences, self._undo, self.records, self._known_sequences
        position, clock, now_us = self.position, self.clock, self.now_us
        if not fresh:
            events = self._without_known(events)
        if not fresh and len(events) > 1:  # the streams of new events are known: their sequences were just asked for
            self._learn_streams({encoded.event.stream for encoded in events})
        ends: dict[str, Encoded] = {}
        for encoded in events:
            event = encoded.event
            stream = event.stream
            before = sequences.get(stream)
            if before is None:
                last = known.get(stream)
                sequence = (self.sequence(stream) if last is None else last) + 1
            else:
                sequence = before + 1
            undo.append((sequences, stream, before))  # only now: the question above may raise
            sequences[stream] = sequence
            position = Position(position + 1)
            recorded = Recorded(position, sequence, now_us, event)
            records.append((recorded, encoded))
            new.append(recorded)
            if event.lamport > clock:
                clock = event.lamport
            if event.origin not in ends or event.origin_seq > ends[event.origin].event.origin_seq:
                ends[event.origin] = encoded
        self.position, self.clock = position, clock  # the clock is never below an event that is here
        for origin, end in ends.items():
            link = Link(end.event.origin_seq, end.hash)
            before_it = self.links.get(origin) or self._known_links.get(origin)
            if before_it is not None and link.origin_seq > before_it.origin_seq:
                undo.append((self.links, origin, self.links.get(origin)))
                self.links[origin] = link
            else:
                self._go_on_after(origin, link)
        return new

    def set_proof(self, recorded: Recorded, signature: bytes, path: tuple[bytes, ...]) -> None:
        """Set signature and path on an event of this write, for the stage `seal`.

        The header does not cover them. The event is changed in place, so every receipt of this write has them, too.
        """
        force_setattr(recorded.event, "signature", signature)
        force_setattr(recorded.event, "path", path)

    def copy_in(self, places: Sequence[Packed | Purged | Purge]) -> None:
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
                    self.clock = max(self.clock, place.lamport)  # its value is not used again
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
        self.records.append((recorded, Encoded(event, place.header, place.payload, digest)))
        self._set(self._sequences, event.stream, place.sequence)
        self.clock = max(self.clock, event.lamport)
        self._go_on_after(event.origin, Link(event.origin_seq, digest))

    def _go_on_after(self, origin: str, link: Link) -> None:
        if link.origin_seq > self.link(origin).origin_seq:
            self._set(self.links, origin, link)

    def purge(self, stream: str, *, actor: str, reason: str) -> Purge:
        if any(recorded.event.stream == stream for recorded, _ in self.records):
            # The committer gives every purge a separate write, so it concerns committed history only.
            raise Conflict(
                f"{stream} got events in this very write",
                why="a purge removes committed history",
                hint="purge it in a separate write",
            )
        removed, scopes = self._store.ends(purging=stream).removable or Removable([], ())
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
            purged_us=self.now_us,
            sequence=self.sequence(stream),
            count=len(removed),
        )
        self.staged_purges.append((purge, [replace(gone, reserved=purge.reserved) for gone in removed]))
        self._set(self._sequences, stream, purge.sequence)
        return purge

    def claim(self, claims: Mapping[bytes, Claim]) -> None:
        """Claim the events of requests; the same as a `put` of their rows."""
        staged = self.staged_claims
        self._undo.extend([(staged, name, staged.get(name)) for name in claims])
        staged.update(claims)

    def put(
        self,
        space: str,
        rows: Mapping[str, bytes | None],
        *,
        expires_us: int | None = None,
        may_be_lost: bool = False,
    ) -> None:
        """Set rows that commit with the events; None removes one. Only notes expire, and claims are never removed.

        A store need not flush a write that has nothing but notes that may be lost.
        """
        if space == CLAIMS:
            self.claim({bytes.fromhex(key): claim_of(value) for key, value in rows.items() if value is not None})
            return
        for key, value in rows.items():
            if space == NOTES:
                self._set(self.staged_notes, key, (None if value is None else value.decode(), expires_us))
                if not may_be_lost:
                    self._lasting_notes.add(key)
            else:
                raise ValueError(f"an open write sets claims and notes, not {space}: see `state_changes`")

    def attempt(self) -> _Attempt:
        return _Attempt(self)

    def marker(self) -> tuple[Position, int, int, int, int, int]:
        """Where this write stands, for `back_to`."""
        lengths = len(self.records), len(self.staged_purges), len(self.placed_purged), len(self._undo)
        return self.position, self.clock, *lengths

    def back_to(self, marker: tuple[Position, int, int, int, int, int]) -> None:
        """Undo everything since the marker."""
        self.position, self.clock, records, purges, purged, undo = marker
        del self.records[records:]
        del self.staged_purges[purges:]
        del self.placed_purged[purged:]
        self._ids.clear()  # rebuilt from `records` when it is asked for again
        while len(self._undo) > undo:
            holder, key, old = self._undo.pop()
            if old is None:
                holder.pop(key, None)
            else:
                holder[key] = old

    # ---- inside

    def _set(self, holder: dict[Any, Any], key: Any, value: Any) -> None:
        self._undo.append((holder, key, holder.get(key)))
        holder[key] = value

    def _without_known(self, events: Sequence[Encoded]) -> list[Encoded]:
        """The events whose id is new; the same id with other content is refused (G5)."""
        if len(self._ids) != len(self.records):
            self._ids = {recorded.event.id: encoded.hash for recorded, encoded in self.records}
        staged = dict(self._ids)
        new: list[Encoded] = []
        for encoded in events:
            event_id = encoded.event.id
            known = staged.get(event_id)
            if known is None:
                found = self._store.ends(ids=(event_id,)).known.get(event_id)
                if found is not None and found.purged:
                    raise AlreadyPurged(
                        f"event {event_id} was purged from this log",
                        why="a purge is for good: neither a retry nor a peer brings an event back",
                        hint="everlog log --purges",
                        id=event_id,
                    )
                known = None if found is None else found.hash
            if known is None:
                staged[event_id] = encoded.hash
                new.append(encoded)
            elif known != encoded.hash:
                raise IdConflict(
                    f"the id {event_id} is taken by an event with other content",
                    why="an id names one event for ever",
                    hint=f"everlog show {event_id}",
                    id=event_id,
                )
        return new
