"""What one log has: its chains, where each number is, and the sum of all hashes.

A log is read once from its beginning, and from then on only what is new in it. Nothing is maintained when an event is
recorded. Purged events count as events: their numbers and hashes stay.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from hashlib import sha256
from itertools import islice
from typing import NamedTuple

from everlog.core.chain import NO_CHAIN, Chain, Run
from everlog.core.codec import Packed, header_columns, header_hash
from everlog.core.event import START, Position, Purged
from everlog.stores.contract import Stored
from everlog.stores.copied import Runs
from everlog.sync.ranges import FINGERPRINT_BYTES, HASH_BYTES, Items, item, varint
from everlog.sync.wire import ORIGINS_MAX, RUNS_MAX, ForkHead, Heads, OriginHead, RunHead, Span

_PIECE = 1_000
_SUM_MAX = (1 << (8 * HASH_BYTES)) - 1
_TYPE, _LAMPORT, _ORIGIN, _ORIGIN_SEQ, _PREVIOUS = 1, 4, 5, 6, 16


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
    def __init__(self, stored: Stored) -> None:
        self._stored = stored
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

    def refresh(self) -> None:
        """Read what is new in the log. A log whose positions changed is read from its beginning."""
        epoch = self._stored.identity.epoch
        if epoch != self._epoch:
            self._begin(epoch)
        slots = self._stored.slots(after=self.position)
        runs = Runs(lambda origin: self.chains.get(origin, NO_CHAIN), self._join)
        while piece := list(islice(slots, _PIECE)):
            self._take(piece, runs)
        runs.end()

    def _join(self, origin: str, run: Run) -> None:
        self.chains[origin] = self.chains.get(origin, NO_CHAIN).joined(run)

    def _take(self, piece: list[Packed | Purged], runs: Runs) -> None:
        columns = header_columns([slot.header for slot in piece if isinstance(slot, Packed)])
        rows = zip(*(columns[place] for place in (_TYPE, _LAMPORT, _ORIGIN, _ORIGIN_SEQ, _PREVIOUS)), strict=True)
        for slot in piece:
            if isinstance(slot, Purged):
                type_, lamport, origin, number, previous = (
                    "",
                    slot.lamport,
                    slot.origin,
                    slot.origin_seq,
                    slot.previous,
                )
                digest = slot.hash
            else:
                type_, lamport, origin, number, previous = next(rows)
                digest = header_hash(slot.header)
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
        self.count += len(piece)
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

    def heads(self) -> Heads:
        """Return what this node reports of itself."""
        identity = self._stored.identity
        listed = self.chains if len(self.chains) <= ORIGINS_MAX else {}
        return Heads(
            community_id=identity.log_id,
            head=self.head,
            heads_by_type=dict(sorted(self.by_type.items())),
            origins={origin: _origin_head(chain) for origin, chain in sorted(listed.items())},
            forks=[
                ForkHead(origin, fork.origin_seq, fork.hash)
                for origin, chain in sorted(listed.items())
                for fork in sorted(chain.forks, key=lambda fork: (fork.origin_seq, fork.hash))
            ],
            count=self.count,
            fingerprint=self.fingerprint,
            origin=identity.origin,
        )

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
            start = bisect_right(stretches, span.first, key=lambda stretch: stretch.first)
            for stretch in stretches[max(start - 1, 0) :]:
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
        """Return what is at these positions now."""
        last = places.position + places.span.last - places.span.first
        for slot in self._stored.slots(after=Position(places.position - 1)):
            if slot.position > last:
                return
            yield slot

    def hash_at(self, origin: str, number: int) -> bytes:
        """Return the hash of one event; nothing if it is not here."""
        for places in self.places_of([Span(origin, number, number)]):
            for slot in self.slots_at(places):
                return slot.hash if isinstance(slot, Purged) else header_hash(slot.header)
        return b""


def _origin_head(chain: Chain) -> OriginHead:
    end = chain.end
    beyond = [run for run in chain.runs if run is not chain.contiguous]
    return OriginHead(end.origin_seq, end.hash, [RunHead(run.first, run.last, run.hash) for run in beyond[:RUNS_MAX]])
