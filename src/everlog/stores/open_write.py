"""One open write, held in memory until it commits: the same class for every store.

Nobody else writes until it ends, and an exception undoes all of it. What it reads includes what it has staged. A
store reports what a write starts from (`Store.ends`), and persists what was staged all at once. So a group of many
appends costs one bulk insert, and undoing one of them costs no access to the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from everlog.core.chain import Chain, Run
from everlog.core.clock import receive, send
from everlog.core.codec import Packed
from everlog.core.event import START, Event, Link, Position, Purge, Purged, Recorded, whole
from everlog.core.group import GROUP_MAX, SignedGroup
from everlog.core.ids import EventId
from everlog.core.query import EVERYTHING, Query
from everlog.errors import AlreadyPurged, Conflict, IdConflict, NotFound
from everlog.stores.contract import Claim, Encoded, Erasure, Identity, Known, Removable
from everlog.stores.copied import Runs, decoded_slots
from everlog.stores.own_events import OwnEvents
from everlog.stores.small_state import CLAIMS, NOTES, StateChanges, claim_of, claims_as_rows
from everlog.stores.staged_group import Record, StagedGroup, staged_groups

if TYPE_CHECKING:
    from everlog.stores.contract import Store, Stored


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


def erased(event: Event, by: str) -> Event:
    """Return an event without its payload and salt, and with the id of the event that allowed it."""
    return replace(whole(event), payload={}, salt=b"", erased_by=by)


_LAMPORT, _ORIGIN_SEQ = map(Event.__struct_fields__.index, ("lamport", "origin_seq"))


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
        continue_as: Callable[[str], None],  # has the log continue under another one
    ) -> None:
        self._store = store
        self.stored: Stored = store  # what is committed
        self._settle = settle
        self.continue_as = continue_as
        self.committed_state = store.small_state
        self._known_sequences: dict[str, int] = {}  # as committed, of the streams that were asked for
        self._known_chains: dict[str, Chain] = {}
        self._undo: list[tuple[dict[Any, Any], Any, Any]] = []
        self._sequences: dict[str, int] = {}
        self._ids: dict[EventId, bytes] = {}  # of the first `_parts_with_ids` parts
        self._parts_with_ids = 0
        self.now_us = now_us  # what its events carry as their time of arrival
        self.before = self.position = head
        self.clock = clock  # the Lamport clock
        self.chains: dict[str, Chain] = {}  # as this write leaves them, of the origins that it adds to
        self._parts: list[OwnEvents | list[Record]] = []  # what each append has staged, in order
        self.staged_purges: list[tuple[Purge, list[Purged]]] = []
        self.placed_purged: list[Purged] = []  # what another log had left of purged events, in order
        self.signatures: dict[tuple[str, int], tuple[int, bytes]] = {}  # of groups: origin, first number: count
        self.erasures: dict[Position, Erasure] = {}
        self.staged_claims: dict[bytes, Claim] = {}
        self.staged_notes: dict[str, tuple[str | None, int | None]] = {}
        self.scrubs = False  # whether the bytes of replaced notes must be gone, as after a purge
        self.state_changes: StateChanges | None = None  # of views, if the store commits them with this write
        self._lasting_notes: set[str] = set()  # those that no power cut may take back
        self.clock_before = self.clock

    @property
    def records(self) -> Sequence[Record]:
        """What this write records, with the bytes of each event. New events of this log become objects only here."""
        if len(self._parts) == 1:
            part = self._parts[0]
            return part if isinstance(part, list) else part.records
        return [record for part in self._parts for record in (part if isinstance(part, list) else part.records)]

    @property
    def dirty(self) -> bool:
        return bool(
            self._parts
            or self.staged_purges
            or self.placed_purged
            or self.erasures
            or self.staged_notes
            or self.staged_claims
            or self.state_changes
            or self.clock != self.clock_before
        )

    @property
    def may_be_lost(self) -> bool:
        """Whether a power cut may take this write back: it holds notes alone, and all of them allow it."""
        if self._parts or self.staged_purges or self.placed_purged or self.erasures:
            return False
        if self.staged_claims or self.state_changes:
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
            self._as_left(recorded)
            for recorded in self._store.read(
                query, after=after, upto=upto, limit=None if gone else limit, newest_first=newest_first
            )
            if recorded.event.stream not in gone
        )
        parts = [reversed(staged), committed] if newest_first else [committed, iter(staged)]
        yield from islice(chain(*parts), limit)

    def get(self, event_id: EventId) -> Recorded | None:
        gone = {purge.stream for purge, _ in self.staged_purges}
        for recorded, _ in self.records:
            if recorded.event.id == event_id:
                return recorded
        found = self._store.get(event_id)
        return None if found is None or found.event.stream in gone else self._as_left(found)

    def _as_left(self, recorded: Recorded) -> Recorded:
        """Return a committed record as this write leaves it."""
        erasure = self.erasures.get(recorded.position) if self.erasures else None
        return recorded if erasure is None else replace(recorded, event=erased(recorded.event, erasure.by))

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
        found = self.committed_state.claims(names)
        if not self.staged_claims:
            return found
        return {**found, **{name: self.staged_claims[name] for name in names if name in self.staged_claims}}

    def rows(self, space: str, keys: Collection[str]) -> dict[str, bytes]:
        """Return the rows of these keys that exist: see `everlog.stores.small_state`."""
        if space == CLAIMS:
            return claims_as_rows(self.claims(list(map(bytes.fromhex, keys))))
        if space == NOTES:
            notes = self.staged_notes
            found = self.committed_state.rows(NOTES, [key for key in keys if key not in notes])
            for key in keys:
                value = notes.get(key, (None, None))[0]
                if value is not None:
                    found[key] = value.encode()
            return found
        return (self.state_changes or self.committed_state).rows(space, keys)

    def scan(
        self, space: str, *, prefix: str = "", after: str = "", limit: int | None = None, newest_first: bool = False
    ) -> Iterator[tuple[str, bytes]]:
        """Return notes in order of their keys, the staged ones included."""
        if space != NOTES:
            return self.committed_state.scan(space, after=after, limit=limit)
        touched = {key: value for key, (value, _) in self.staged_notes.items() if key.startswith(prefix)}
        if not touched:
            return self.committed_state.scan(NOTES, prefix=prefix, limit=limit, newest_first=newest_first)
        found: dict[str, bytes | None] = dict(self.committed_state.scan(NOTES, prefix=prefix))
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
        store = self._store
        origin = store.identity.origin
        return origin if store.origins.fits(origin, self.link) else self.take_new_origin()

    def take_new_origin(self) -> str:
        """Have the log continue under an origin that no log has had, and return that origin."""
        origin = self._store.origins.new(self.now_us, before=self._store.identity.origin)
        self.continue_as(origin)
        return origin

    def known(self, event_ids: Collection[EventId]) -> dict[EventId, Known]:
        """Return those of the ids that this log has or had, what is staged included."""
        found = dict(self._store.ends(ids=event_ids).known) if event_ids else {}
        staged = self._staged_ids()
        return found | {one: Known(staged[one], purged=False) for one in event_ids if one in staged}

    def learn(self, streams: Collection[str], origin: str) -> tuple[Chain, dict[str, int]]:
        """Return a chain and the last sequences of streams. The store is asked for all of them at once."""
        staged, known = self._sequences, self._known_sequences
        if not self._known_chains:  # as for nearly every write: nothing is known yet
            ends = self._store.ends(streams=streams, origins=(origin,))
            known.update(ends.sequences)
            self._known_chains.update(ends.chains)
        else:
            self._learn_streams(streams)
        sequences: dict[str, int] = {}
        for stream in streams:  # not a comprehension, which would be a call
            sequences[stream] = staged[stream] if stream in staged else known[stream]
        return self.chain(origin), sequences

    def _learn_streams(self, streams: Collection[str]) -> None:
        new = [stream for stream in streams if stream not in self._known_sequences]
        if new:
            self._known_sequences.update(self._store.ends(streams=new).sequences)

    def link(self, origin: str) -> Link:
        """Return the contiguous end of an origin's chain."""
        return self.chain(origin).end

    def chain(self, origin: str) -> Chain:
        """Return the chain of an origin, as far as it is here."""
        found = self.chains.get(origin)
        if found is None:
            found = self._known_chains.get(origin)
            if found is None:
                self._known_chains.update(self._store.ends(origins=(origin,)).chains)
                found = self._known_chains[origin]
        return found

    def sequence(self, stream: str) -> int:
        """Return the stream's last sequence, 0 if it never had an event. A purge does not take it back."""
        found = self._sequences.get(stream)
        if found is None:
            self._learn_streams((stream,))
            found = self._known_sequences[stream]
        return found

    def append_own(self, events: OwnEvents, sequences: Mapping[str, int]) -> None:
        """Record new events of this log. They continue its chain, and `sequences` are those of their streams then.

        Their ids must be new, and each moves the clock by one.
        """
        staged, undo = self._sequences, self._undo
        for stream in sequences:  # not a comprehension, which would be a call
            undo.append((staged, stream, staged.get(stream)))
        staged.update(sequences)
        self._parts.append(events)
        first, (last_position, _, _, last) = events.rows[0][3], events.rows[-1]
        self.position, self.clock = last_position, last[_LAMPORT]
        run = Run(first[_ORIGIN_SEQ], events.link_hash, last[_ORIGIN_SEQ], events.hashes[-1], last_position)
        self._join(events.origin, run)

    def append(self, events: Sequence[Encoded], *, fresh: bool = False) -> list[Recorded]:
        """Record the events that are new, as they are, and return their records; events that the log has are left
        out. `fresh` states that the ids are new, so that they need not be looked for."""
        new: list[Recorded] = []
        records: list[Record] = []
        sequences, undo, known = self._sequences, self._undo, self._known_sequences
        position, clock, now_us = self.position, self.clock, self.now_us
        if not fresh:
            events = self._without_known(events)
        if not events:
            return []
        self._learn_streams({encoded.event.stream for encoded in events})
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
        self.position, self.clock = position, clock  # the clock is never below an event that is here
        self._parts.append(records)
        for recorded, encoded in records:
            event, number = encoded.event, encoded.event.origin_seq
            self._join(event.origin, Run(number, event.previous, number, encoded.hash, recorded.position))
        return new

    def _join(self, origin: str, run: Run) -> None:
        chains = self.chains
        self._undo.append((chains, origin, chains.get(origin)))
        chains[origin] = self.chain(origin).joined(run)

    # ---- signatures, for the stage `seal`

    def own_groups(self) -> list[StagedGroup]:
        """Return the groups of the new events that this log has made in this write."""
        own = {part.origin for part in self._parts if isinstance(part, OwnEvents)}
        return [group for group in self.groups() if group.facts.origin in own] if own else []

    def groups(self) -> list[StagedGroup]:
        """Return the events of this write as they are stored: see `everlog.core.group`."""
        if len(self._parts) == 1 and isinstance(self._parts[0], OwnEvents) and not self.placed_purged:
            return self._parts[0].groups(GROUP_MAX, self.signatures)
        return staged_groups(self.records, self.signatures, self.placed_purged)

    def sign(self, group: StagedGroup, signature: bytes) -> None:
        """Sign a group of this write. Every receipt of its events has the signature, too."""
        facts = group.facts
        self._set(self.signatures, (facts.origin, facts.first_seq), (facts.count, signature))
        group.give(SignedGroup(replace(facts, signature=signature), group.hashes))

    def copy_in(self, places: Sequence[Packed | Purged | Purge], decoded: Sequence[Record] | None = None) -> None:
        """Place what another log has, as it stands. `decoded` are the records in it, if the caller has them."""
        if decoded is None:
            decoded = decoded_slots([place for place in places if isinstance(place, Packed)])
        events = iter(decoded)
        runs = Runs(self.chain, self._join)
        part: list[Record] = []
        self._parts.append(part)
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
                    record = next(events)
                    self._place_event(place, record, runs)
                    part.append(record)
                case Purged():
                    self.placed_purged.append(place)
                    self.clock = max(self.clock, place.lamport)  # its value is not used again
                    number = place.origin_seq
                    runs.add(place.origin, number, place.previous, place.hash, place.position)
                    self.keep_signature(place.origin, number, place.signature, place.signed_with)
                case Purge():
                    self.staged_purges.append((place, []))  # what it removed is placed by itself
                    self._set(self._sequences, place.stream, place.sequence)
            self.position = position
        runs.end()

    def _place_event(self, place: Packed, record: Record, runs: Runs) -> None:
        _, encoded = record
        event = encoded.event
        last = self.sequence(event.stream)
        if place.sequence != last + 1:
            raise Conflict(
                f"{event.stream} has sequence {place.sequence} after {last}",
                why="the sequences of a stream have no gap",
                hint="everlog verify on the log that is copied",
                position=place.position,
            )
        self._set(self._sequences, event.stream, place.sequence)
        if event.lamport > self.clock:
            self.clock = event.lamport
        runs.add(event.origin, event.origin_seq, event.previous, encoded.hash, place.position)
        if place.signed_with[0]:
            self.keep_signature(event.origin, event.origin_seq, place.signature, place.signed_with)

    def keep_signature(self, origin: str, number: int, signature: bytes, signed_with: tuple[int, int]) -> None:
        """Store the events that this write adds with these numbers as one signed group; `number` is its first one."""
        first_seq, count = signed_with
        if first_seq and (origin, first_seq) not in self.signatures:
            if number != first_seq:
                raise Conflict(
                    f"events {first_seq} to {first_seq + count - 1} of {origin} are copied in two writes",
                    why="they were signed together, and are stored together",
                    hint="copy them in one write",
                )
            self._set(self.signatures, (origin, first_seq), (count, signature))

    def erase(self, event_ids: Collection[EventId], *, by: EventId, again: bool = False) -> list[Position]:
        """Erase the payloads and salts of committed events, and return the positions of those that had one. With
        `again` those that have none are erased, too: git may have brought another line of the event.

        The headers and commitments stay, so chains, proofs and signatures remain valid. `by` is the id of the event
        that allows it, which stays on record with each of them.
        """
        found = []
        for event_id in event_ids:
            recorded = self._store.get(event_id)
            if recorded is None:
                raise NotFound(
                    f"there is no event {event_id} whose payload could be erased",
                    why="it was never recorded here, or it was purged",
                    hint=f"everlog show {event_id}",
                    id=event_id,
                )
            position = recorded.position
            if (recorded.event.salt or again) and position not in self.erasures:
                self._set(self.erasures, position, Erasure(position, event_id, by, recorded.event.commitment))
                found.append(position)
        return found

    def purge(self, stream: str, *, actor: str, reason: str, only: Callable[[Purged], bool] | None = None) -> Purge:
        """Remove the events of a stream, or some `only`."""
        if any(recorded.event.stream == stream for recorded, _ in self.records):
            # The committer gives every purge a separate write, so it concerns committed history only.
            raise Conflict(
                f"{stream} got events in this very write",
                why="a purge removes committed history",
                hint="purge it in a separate write",
            )
        removed, scopes = self._store.ends(purging=stream).removable or Removable([], ())
        removed = [gone for gone in removed if only is None or only(gone)]
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
        staged, undo = self.staged_claims, self._undo
        for name in claims:  # not a comprehension, which would be a call
            undo.append((staged, name, staged.get(name)))
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
        lengths = len(self._parts), len(self.staged_purges), len(self.placed_purged), len(self._undo)
        return self.position, self.clock, *lengths

    def back_to(self, marker: tuple[Position, int, int, int, int, int]) -> None:
        """Undo everything since the marker."""
        self.position, self.clock, parts, purges, purged, undo = marker
        del self._parts[parts:]
        del self.staged_purges[purges:]
        del self.placed_purged[purged:]
        self._ids.clear()  # computed again when they are asked for
        self._parts_with_ids = 0
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
        staged = dict(self._staged_ids())
        new: list[Encoded] = []
        for encoded in events:
            event_id = encoded.event.id
            known = staged.get(event_id) or self._known_hash(event_id)
            if known is None:
                staged[event_id] = encoded.hash
                new.append(encoded)
            elif known != encoded.hash:
                raise _taken(event_id)
        return new

    def refuse_known(self, event_ids: Sequence[EventId]) -> None:
        """Refuse ids for new events that the log has or had, or that are given twice."""
        staged = self._staged_ids()
        for event_id in event_ids:
            if event_id in staged or event_ids.count(event_id) > 1 or self._known_hash(event_id) is not None:
                raise _taken(event_id)

    def _staged_ids(self) -> dict[EventId, bytes]:
        for part in self._parts[self._parts_with_ids :]:
            records = part if isinstance(part, list) else part.records
            self._ids.update((recorded.event.id, encoded.hash) for recorded, encoded in records)
        self._parts_with_ids = len(self._parts)
        return self._ids

    def _known_hash(self, event_id: EventId) -> bytes | None:
        """Return the hash of a committed event, or None if there is no such event; refuse a purged one."""
        found = self._store.ends(ids=(event_id,)).known.get(event_id)
        if found is not None and found.purged:
            raise AlreadyPurged(
                f"event {event_id} was purged from this log",
                why="a purge is for good: neither a retry nor a peer brings an event back",
                hint="everlog log --purges",
                id=event_id,
            )
        return None if found is None else found.hash


def _taken(event_id: EventId) -> IdConflict:
    return IdConflict(
        f"the id {event_id} is taken by an event with other content",
        why="an id names one event for ever",
        hint=f"everlog show {event_id}",
        id=event_id,
    )
