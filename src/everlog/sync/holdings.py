"""What counts in one log: its chains, where each number is, and the sum of all hashes.

A log is read once from its beginning, and from then on only what is new in it. Nothing is maintained when an event is
recorded. Purged and erased events count: their numbers and hashes stay. An event that lost its standing does not: it
is neither compared nor sent. When the verdicts on chains change, the log is read again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from hashlib import sha256
from itertools import islice
from typing import NamedTuple

from everlog.core.chain import NO_CHAIN, Chain, Run
from everlog.core.codec import Packed, header_columns, header_hash, unpack
from everlog.core.event import START, Position, Purged
from everlog.core.merkle import path
from everlog.log.log import Log
from everlog.log.read.accounting import accounted_slots
from everlog.stores.contract import Stored
from everlog.stores.copied import Runs
from everlog.stores.lost import lost
from everlog.sync.ranges import FINGERPRINT_BYTES, HASH_BYTES, Items, item, varint
from everlog.sync.wire import FORKS_MAX, ORIGINS_MAX, RUNS_MAX, Heads, OriginHead, RunHead, Span
from everlog.trust.forks import ForkProof
from everlog.trust.verdicts import EVERYTHING_COUNTS, Verdicts

_PIECE = 1_000
_SUM_MAX = (1 << (8 * HASH_BYTES)) - 1
_ID, _TYPE, _LAMPORT, _ORIGIN, _ORIGIN_SEQ, _PREVIOUS = 0, 1, 4, 5, 6, 16
_COLUMNS = (_TYPE, _LAMPORT, _ORIGIN, _ORIGIN_SEQ, _PREVIOUS, _ID)


class Stretch(NamedTuple):
    """Numbers of one chain at consecutive positions, the first of them at `position`."""

    first: int
    last: int
    position: int


class Places(NamedTuple):
    """Consecutive positions, and the numbers that they have."""

    position: int
    span: Span


class Holdings:
    def __init__(self, stored: Stored, verdicts: Callable[[], Verdicts]) -> None:
        self._stored = stored
        self._verdicts = verdicts
        self._decided = EVERYTHING_COUNTS
        self._begin("")

    def _begin(self, epoch: str) -> None:
        self._epoch = epoch
        self.position: Position = START
        self.chains: dict[str, Chain] = {}
        self.by_type: dict[str, int] = {}
        self.head = 0
        self.count = 0
        self._total = 0
        self._stretches: dict[str, list[Stretch]] = {}
        self._keys: list[bytes] | None = None
        self._places: list[int] = []
        self._items: Items | None = None
        self._digests: dict[str, tuple[Chain, bytes]] = {}

    def refresh(self) -> None:
        """Read what is new in the log. If positions or verdicts changed, it is read from its beginning.

        Raise Damaged at a position that nothing accounts for: a peer must not take what is lost here for something
        that this log never had.
        """
        epoch, verdicts = self._stored.identity.epoch, self._verdicts()
        if epoch != self._epoch or verdicts != self._decided:
            with_keys = self._keys is not None
            self._begin(epoch)
            self._decided = verdicts
            self._keys = [] if with_keys else None
        slots = accounted_slots(self._stored, self.position)
        runs = Runs(lambda origin: self.chains.get(origin, NO_CHAIN), self._join)
        try:
            while piece := list(islice(slots, _PIECE)):
                self._take(piece, runs)
        finally:
            runs.end()  # the next call continues after what was taken

    def _join(self, origin: str, run: Run) -> None:
        self.chains[origin] = self.chains.get(origin, NO_CHAIN).joined(run)

    def _take(self, piece: list[Packed | Purged], runs: Runs) -> None:
        columns = header_columns([slot.header for slot in piece if isinstance(slot, Packed)])
        rows = zip(*(columns[place] for place in _COLUMNS), strict=True)
        limits, lost = self._decided.limits, self._decided.lost
        for slot in piece:
            if isinstance(slot, Purged):
                type_, lamport, origin, number, previous, id_ = (
                    "",
                    slot.lamport,
                    slot.origin,
                    slot.origin_seq,
                    slot.previous,
                    slot.id,
                )
                digest = slot.hash
            else:
                type_, lamport, origin, number, previous, id_ = next(rows)
                digest = header_hash(slot.header)
            if origin in limits and (number > limits[origin].upto or id_ in lost):
                continue
            self.count += 1
            runs.add(origin, number, previous, digest, slot.position)
            self._place(origin, number, slot.position)
            self._total += int.from_bytes(digest, "little")
            if lamport > self.head:
                self.head = lamport
            if type_ and lamport > self.by_type.get(type_, 0):
                self.by_type[type_] = lamport
            if self._keys is not None:
                self._keys.append(item(lamport, digest))
                self._places.append(slot.position)
        self._total &= _SUM_MAX
        self.position = piece[-1].position
        self._items = None

    def _place(self, origin: str, number: int, position: int) -> None:
        stretches = self._stretches.setdefault(origin, [])
        place = len(stretches)
        if stretches and number <= stretches[-1].last:  # rare: it fills a hole, or it is a fork
            place = bisect_right(stretches, number, key=lambda stretch: stretch.first)
        if place:
            before = stretches[place - 1]
            if number == before.last + 1 and position == before.position + number - before.first:
                stretches[place - 1] = Stretch(before.first, number, before.position)
                return
        stretches.insert(place, Stretch(number, number, position))

    # ---- what it has

    @property
    def fingerprint(self) -> bytes:
        """The fingerprint of all hashes, as `Items.fingerprint` would compute it."""
        total = self._total.to_bytes(HASH_BYTES, "little")
        return sha256(total + varint(self.count)).digest()[:FINGERPRINT_BYTES]

    def heads(self, forks: Iterable[ForkProof] = (), *, time_ms: int = 0) -> Heads:
        """Return what this node reports of itself."""
        identity = self._stored.identity
        listed = self.chains if len(self.chains) <= ORIGINS_MAX else {}
        return Heads(
            community_id=identity.log_id,
            head=self.head,
            heads_by_type=dict(sorted(self.by_type.items())),
            origins={origin: self._origin_head(origin, chain) for origin, chain in sorted(listed.items())},
            forks=list(islice(forks, FORKS_MAX)),
            count=self.count,
            fingerprint=self.fingerprint,
            origin=identity.origin,
            time_ms=time_ms,
        )

    def _origin_head(self, origin: str, chain: Chain) -> OriginHead:
        if chain.forks:  # only of an origin that is no key: which branch came first differs from node to node
            return OriginHead(chain.greatest.origin_seq, self._digest(origin, chain))
        end = chain.end
        beyond = [run for run in chain.runs if run is not chain.contiguous]
        runs = [RunHead(run.first, run.last, run.hash) for run in beyond[:RUNS_MAX]]
        return OriginHead(end.origin_seq, end.hash, runs)

    def _digest(self, origin: str, chain: Chain) -> bytes:
        """Return a hash of all events of a chain that forked, in whatever order they came."""
        known = self._digests.get(origin)
        if known is None or known[0] != chain:
            places = self.places_of([Span(origin, 1, chain.greatest.origin_seq)])
            hashes = sorted(_hash(slot) for each in places for slot in self.slots_at(each))
            known = self._digests[origin] = (chain, sha256(b"".join(hashes)).digest())
        return known[1]

    def items(self) -> Items:
        """Return all events as items of `ranges`. The first call reads the whole log."""
        if self._keys is None:
            self._begin(self._epoch)
            self._keys = []
            self.refresh()
        if self._items is None:
            self._items = Items(self._keys or ())
        return self._items

    def places_of(self, spans: Iterable[Span]) -> list[Places]:
        """Return where numbers are, in order of position. What is not here is left out."""
        found: set[Places] = set()
        for span in spans:
            stretches = self._stretches.get(span.origin, [])
            start = bisect_right(stretches, span.first, key=lambda stretch: stretch.first) - 1
            if start < 0 or self.chains[span.origin].forks:  # stretches of a chain that forked overlap
                start = 0
            for stretch in stretches[start:]:
                first, last = max(span.first, stretch.first), min(span.last, stretch.last)
                if stretch.first > span.last:
                    break
                if first <= last:
                    found.add(Places(stretch.position + first - stretch.first, Span(span.origin, first, last)))
        return sorted(found, key=lambda places: places.position)

    def places_of_hashes(self, hashes: Collection[bytes]) -> list[Places]:
        """Return where events are, by their hashes. What is not here is left out."""
        self.items()
        wanted = set(hashes)
        return [
            Places(position, Span("", 0, 0))
            for key, position in zip(self._keys or (), self._places, strict=True)
            if key[8:] in wanted
        ]

    def slots_at(self, places: Places) -> Iterator[Packed | Purged]:
        """Return what is at these positions now. Raise Damaged at one that cannot be read."""
        following, last = places.position, places.position + places.span.last - places.span.first
        for slot in self._stored.slots(after=Position(places.position - 1)):
            if slot.position != following:
                break
            yield slot
            following += 1
            if following > last:
                return
        raise lost(following, last)

    def hash_at(self, origin: str, number: int) -> bytes:
        """Return the hash of one event; nothing if it is not here."""
        for places in self.places_of([Span(origin, number, number)]):
            for slot in self.slots_at(places):
                return _hash(slot)
        return b""

    def group_path(self, slot: Purged) -> tuple[bytes, ...] | None:
        """Return the path from a purged event to the root of its signed group; None if not all of it is here."""
        first, count = slot.signed_with
        hashes = self._recorded_together(slot, first, count)
        if not hashes:
            places = self.places_of([Span(slot.origin, first, first + count - 1)])
            hashes = [_hash(found) for each in places for found in self.slots_at(each)]
        if not count or len(hashes) != count or hashes[slot.origin_seq - first] != slot.hash:
            return None
        return path(hashes, slot.origin_seq - first)

    def _recorded_together(self, slot: Purged, first: int, count: int) -> list[bytes]:
        """Return the hashes of a group from its positions, also of events that do not count; nothing if others are
        between them. By number, an event of another branch could be taken for one of the group."""
        start = slot.position - (slot.origin_seq - first)
        found = list(islice(self._stored.slots(after=Position(start - 1)), count)) if count and start > 0 else []
        for place, one in enumerate(found):
            event = one if isinstance(one, Purged) else unpack(one).event
            if (one.position, event.origin, event.origin_seq) != (start + place, slot.origin, first + place):
                return []
        return [_hash(one) for one in found] if len(found) == count else []


def chains_that_count(log: Log) -> dict[str, Chain]:
    """Return the chains of a log as far as they count. Only if some do not, the log is read."""
    if not log.verdicts():
        return log.stored.chains()
    holdings = Holdings(log.stored, log.verdicts)
    holdings.refresh()
    return holdings.chains


def _hash(slot: Packed | Purged) -> bytes:
    return slot.hash if isinstance(slot, Purged) else header_hash(slot.header)
