"""Read a log as it is stored: groups, slots and blocks, with what purges have left."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Any

from msgspec.structs import astuple, replace

from everlog.core.codec import HEADER_FIELDS, Packed
from everlog.core.event import Purged, microseconds
from everlog.core.query import EVERYTHING, Query
from everlog.errors import Damaged
from everlog.stores.contract import Block
from everlog.stores.lost import lost
from everlog.stores.sqlite.groups import Fetch, StoredGroup, encode
from everlog.stores.sqlite.queries import read_pieces
from everlog.stores.sqlite.recent import Recent
from everlog.stores.sqlite.scan import END, windows

BLOCK_EVENTS = 4000
"""How many events a block has at the least, if there are so many."""

_STUBS = (
    "SELECT position, sequence, id, origin, origin_seq, hash, previous, lamport, reserved, hash_format FROM purged"
    " WHERE position > ? AND position <= ? ORDER BY position"
)
_OCCURRED_AT, _TAGS = HEADER_FIELDS.index("occurred_at"), HEADER_FIELDS.index("tags")


def read_groups(fetch: Fetch, after: int, upto: int = END) -> Iterator[StoredGroup | Purged]:
    """Return every readable group with one of these positions, and what is left of purged events, in order of
    position. A group comes before what was purged within it."""
    for groups, stubs, _ in _stretches(fetch, after, upto):
        places: list[StoredGroup | Purged] = [*groups, *stubs]
        yield from sorted(places, key=_order)


def _order(place: StoredGroup | Purged) -> tuple[int, bool]:
    return (place.first, False) if isinstance(place, StoredGroup) else (place.position, True)


def read_places(fetch: Fetch, after: int) -> Iterator[Packed | Purged]:
    """Return every slot after a position as stored bytes, including purged ones. Damage is skipped."""
    for groups, stubs, high in _stretches(fetch, after):
        places: list[Packed | Purged] = [*stubs]
        for group in groups:
            places += _packed(group)
        places.sort(key=lambda place: place.position)
        yield from (place for place in places if after < place.position <= high)


def _packed(group: StoredGroup) -> list[Packed]:
    """Return the events of a group as stored bytes, as far as these can be computed."""
    found: list[Packed] = []
    with suppress(Damaged):  # it cannot be read, or the hash of an event that is not there any more is not known
        found.extend(group.packed())
    return found


def _stretches(fetch: Fetch, after: int, upto: int = END) -> Iterator[tuple[list[StoredGroup], list[Purged], int]]:
    """Return groups and stubs, and up to which position they are all that there is. Damage is skipped."""
    low, found = after, windows(fetch, after, upto)
    while True:
        try:
            window = next(found, None)
        except Damaged as error:
            if "position" not in error.details:
                raise
            high = error.details["after"]
            yield [], _stubs(fetch, [], low, high), high
            low, found = high, windows(fetch, high, upto)
            continue
        groups = [] if window is None else window.groups
        high = upto if window is None else window.high
        yield groups, _stubs(fetch, groups, low, high), high
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


def scan_blocks(fetch: Fetch, query: Query, *, after: int, upto: int | None, recent: Recent) -> Iterator[Block]:
    """Return the records that match as columns of stored bytes."""
    columns = _Columns()
    if query == EVERYTHING:
        low, high = after, END if upto is None else upto
        for window in windows(fetch, low, high, file=recent.file):
            for group in window.groups:
                inside = group.first > low and group.last <= min(high, window.high)
                try:
                    columns.add(group, None if inside else range(low + 1, min(high, window.high) + 1))
                except Damaged as error:
                    if columns.count:
                        yield columns.taken()
                    # An event cannot be linked to the one before it, which is neither here nor purged.
                    missing = error.details["position"] - 1
                    raise lost(missing, missing, file=recent.file) from error
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
                columns.add(group, positions)
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

    def add(self, group: StoredGroup, positions: Collection[int] | None) -> None:
        """Add the events of a group, or some of them."""
        facts, rows, fields = group.facts, self._rows, self._fields
        path_of: Callable[[Any], tuple[bytes, ...]] | None = group.path if facts.signature else None
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
                signature, path = facts.proof, path_of(event)
            if signature:
                self._signed += [(b"", b"")] * (len(rows) - 1 - len(self._signed))
                self._signed.append((signature, b"".join(path)))

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
