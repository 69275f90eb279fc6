"""Read a log as it is stored: groups, slots and blocks, with what purges have left."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import msgspec
from msgspec.structs import astuple, replace

from everlog.core.codec import HEADER_FIELDS, Packed
from everlog.core.event import Position, Purged, microseconds
from everlog.core.query import EVERYTHING, Query
from everlog.errors import Damaged
from everlog.stores.contract import Block
from everlog.stores.lost import UNACCOUNTED, lost
from everlog.stores.sqlite.groups import UNREADABLE, Fetch, StoredGroup, encode
from everlog.stores.sqlite.queries import read_pieces
from everlog.stores.sqlite.recent import Recent
from everlog.stores.sqlite.scan import END, Window, windows

BLOCK_EVENTS = 4000
"""How many events a block has at the least, if there are so many."""

_UNREADABLE_MAX = 10_000
_STUBS = (
    "SELECT position, sequence, id, origin, origin_seq, hash, previous, lamport, reserved, hash_format FROM purged"
    " WHERE position > ? AND position <= ? ORDER BY position"
)
_OCCURRED_AT, _TAGS = HEADER_FIELDS.index("occurred_at"), HEADER_FIELDS.index("tags")


def read_groups(fetch: Fetch, after: int, file: str) -> Iterator[StoredGroup | Purged]:
    """Return every group with a position after this one, and what is left of purged events, in order of position.

    A group comes before what was purged within it. At a damaged place it raises Damaged, and a reader can continue
    after it.
    """
    for groups, stubs, _ in _stretches(fetch, after, file):
        places: list[StoredGroup | Purged] = [*groups, *stubs]
        yield from sorted(places, key=_order)


def _order(place: StoredGroup | Purged) -> tuple[int, bool]:
    return (place.first, False) if isinstance(place, StoredGroup) else (place.position, True)


def _stretches(fetch: Fetch, after: int, file: str) -> Iterator[tuple[list[StoredGroup], list[Purged], int]]:
    """Return groups and stubs, and up to which position they are all that there is, stretch by stretch."""
    low, failure = after, None
    found: Iterator[Window] = windows(fetch, after, END, file=file)
    while True:
        try:
            window = next(found, None)
        except Damaged as error:
            if "position" not in error.details:
                raise
            window, failure = None, error
        groups = [] if window is None else window.groups
        high = window.high if window is not None else END if failure is None else failure.details["position"] - 1
        yield groups, _stubs(fetch, groups, low, high), high
        if failure is not None:
            raise failure
        if window is None:
            return
        low = high


def _stubs(fetch: Fetch, groups: list[StoredGroup], low: int, high: int) -> list[Purged]:
    """Return what is left of purged events. Each has the signature of the group that it was in."""
    found = [Purged(*row) for row in fetch(_STUBS, (low, high))]
    for group in groups:
        facts = group.facts
        if facts.signature and not group.whole:
            signed_with = (facts.first_seq, facts.count)
            found = [
                replace(stub, signature=facts.signature, signed_with=signed_with)
                if group.first <= stub.position <= group.last
                else stub
                for stub in found
            ]
    return found


def read_places(fetch: Fetch, after: int, file: str) -> Iterator[Packed | Purged]:
    """Return every slot after a position as stored bytes, purged ones included, and continue behind damage.

    The events of a damaged group are slots without any bytes: what the row has now is not what was written.
    """
    while True:
        try:
            for groups, stubs, high in _stretches(fetch, after, file):
                places: list[Packed | Purged] = [*stubs]
                for group in groups:
                    places += _packed(group)
                places.sort(key=lambda place: place.position)
                yield from (place for place in places if after < place.position <= high)
            return
        except Damaged as error:
            if "position" not in error.details:
                raise
            first, last = error.details["position"], error.details["after"]
            first = max(first, after + 1)
            left: dict[int, Purged] = {stub.position: stub for stub in _stubs(fetch, [], first - 1, last)}
            if error.why != UNACCOUNTED and last - first < _UNREADABLE_MAX:
                yield from (left.get(place) or _unreadable(place) for place in range(first, last + 1))
            else:
                yield from left.values()
            after = last


def _packed(group: StoredGroup) -> list[Packed]:
    """Return the events of a group as stored bytes; without bytes where they cannot be computed any more."""
    found: list[Packed] = []
    try:
        for packed in group.packed():
            found.append(packed)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return [_unreadable(position) for position in range(group.first, group.last + 1)]
    except Damaged:  # the hash of an event that is not there any more is not known
        found += [_unreadable(place.position) for place in group.places()[len(found) :]]
    return found


def _unreadable(position: int) -> Packed:
    return Packed(Position(position), 0, 0, b"", b"", b"")


def scan_blocks(fetch: Fetch, query: Query, *, after: int, upto: int | None, recent: Recent) -> Iterator[Block]:
    """Return the records that match as columns of stored bytes."""
    columns = _Columns()
    if query == EVERYTHING:
        low, high = after, END if upto is None else upto
        for window in windows(fetch, low, high, file=recent.file):
            for group in window.groups:
                inside = group.first > low and group.last <= min(high, window.high)
                columns.add(group, None if inside else range(low + 1, min(high, window.high) + 1), recent.file)
            if columns.count >= BLOCK_EVENTS:
                yield columns.taken()
    else:
        pieces = read_pieces(fetch, query, after=after, upto=upto, limit=None, newest_first=False, recent=recent)
        for records in pieces:
            by_group: dict[StoredGroup, set[int]] = {}
            for recorded in records:
                assert isinstance(recorded.event.group, StoredGroup)
                by_group.setdefault(recorded.event.group, set()).add(recorded.position)
            for group, positions in by_group.items():
                columns.add(group, positions, recent.file)
            if columns.count >= BLOCK_EVENTS:
                yield columns.taken()
    if columns.count:
        yield columns.taken()


class _Columns:
    """The columns of a block that grows."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self._fields: list[tuple[Any, ...]] = []
        self._signed: list[tuple[bytes, bytes]] = []  # of the rows up to the last signed one

    @property
    def count(self) -> int:
        return len(self._rows)

    def add(self, group: StoredGroup, positions: Collection[int] | None, file: str) -> None:
        """Add the events of a group, or some of them."""
        facts, rows, fields = group.facts, self._rows, self._fields
        path_of: Callable[[Any], tuple[bytes, ...]] | None = group.path if facts.signature else None
        try:
            for (recorded, payload), _, link in group.linked():
                if positions is not None and recorded.position not in positions:
                    continue
                event = recorded.event
                values = astuple(event)
                tags, occurred_at = values[_TAGS], values[_OCCURRED_AT]
                rows.append((recorded.position, recorded.sequence, facts.received_us, payload, event.salt))
                fields.append(
                    (
                        *values[:5],
                        facts.origin,
                        values[6],
                        facts.received_us if occurred_at is None else microseconds(occurred_at),
                        *values[8:_TAGS],
                        encode(tags) if tags else b"{}",
                        link.commitment,
                        link.previous,
                    )
                )
                signature, path = values[19], values[20]
                if not signature and path_of is not None:
                    signature, path = facts.signature, path_of(event)
                if signature:
                    self._signed += [(b"", b"")] * (len(rows) - 1 - len(self._signed))
                    self._signed.append((signature, b"".join(path)))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise lost(group.first, group.last, why=f"{UNREADABLE}: {error}", file=file) from error

    def taken(self) -> Block:
        """Return the block, and begin another one."""
        positions, sequences, received_us, payloads, salts = zip(*self._rows, strict=True)
        block = Block(positions, sequences, received_us, (), tuple(zip(*self._fields, strict=True)), payloads, salts)
        if self._signed:
            signed = [*self._signed, *[(b"", b"")] * (len(self._rows) - len(self._signed))]
            signatures, paths = zip(*signed, strict=True)
            block = block._replace(signatures=signatures, paths=paths)
        self._start()
        return block
