"""Events that are sound and do not count yet: they wait beside the log, and are never sent to others.

    held/ORIGIN              one row for each of its events: number, hash, id, size, and why it waits
    held-event/ORIGIN/HASH   the event, with its proof

The rows are small state of the log: they commit with the events and outlast a restart. There is room for 10,000
events and 64 MB, and for a tenth of each per origin. If there is no room, the events of an unknown author, of the one
that has the most, make room for those of others. What is dropped can be sent again.
"""

from __future__ import annotations

import logging
from base64 import b64decode, b64encode
from collections.abc import Iterator

import msgspec

from everlog.core.codec import from_msgpack, to_msgpack
from everlog.errors import Damaged, EverlogError
from everlog.log.admit.erased import bare, is_bare
from everlog.stores.contract import Encoded, encode_event
from everlog.stores.open_write import OpenWrite
from everlog.stores.small_state import NOTES, RowReader, read_note, read_notes, with_checksum, without_checksum

EVENTS_MAX = 10_000
BYTES_MAX = 64 * 1024 * 1024
ORIGIN_EVENTS_MAX = EVENTS_MAX // 10
ORIGIN_BYTES_MAX = BYTES_MAX // 10

_DROPPED = "it is dropped, and a peer that has it can send it again"

_ROWS, _EVENTS = "held/", "held-event/"


class Held(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One event that waits."""

    origin_seq: int
    hash: bytes
    id: str
    size: int
    code: str
    bare: bool = False  # it came without its payload, and waits for the record that allows it


_rows = msgspec.json.Decoder(list[Held])
_logger = logging.getLogger("everlog")


class Quarantine:
    """The events that wait, as an open write leaves them."""

    def __init__(self, write: OpenWrite) -> None:
        self._write = write
        self._of: dict[str, list[Held]] = {}
        self._sizes: dict[str, tuple[int, int]] | None = None  # of every origin: events, bytes
        self._events, self._bytes = 0, 0
        self._changed: set[str] = set()
        self._read: dict[bytes, Encoded] = {}

    def of(self, origin: str) -> list[Held]:
        """Return what waits of an origin."""
        found = self._of.get(origin)
        if found is None:
            text = read_note(self._write, _ROWS + origin)
            found = self._of[origin] = [] if text is None else _decoded(_ROWS + origin, text)
        return found

    def origins(self) -> set[str]:
        """Return the origins of which something waits."""
        return {origin for origin, (events, _) in self._totals().items() if events}

    def event(self, origin: str, held: Held) -> Encoded | None:
        """Return an event that waits. One that cannot be read any more is dropped, and None returned."""
        if held.hash in self._read:
            return self._read[held.hash]
        encoded = _read(self._write, origin, held)
        if encoded is None:
            _logger.warning("event %s of %s waited and cannot be read; %s", held.id, origin, _DROPPED)
            self.remove(origin, held.hash)
            return None
        self._read[held.hash] = encoded
        return encoded

    def whole(self, origin: str, hash: bytes) -> Encoded | None:
        """Return an event that waits with its payload."""
        found = next((row for row in self.of(origin) if row.hash == hash and not row.bare), None)
        return None if found is None else self.event(origin, found)

    def some_are_bare(self) -> bool:
        """Return whether something waits without its payload."""
        return any(row.bare for origin in self.origins() for row in self.of(origin))

    def is_crowded(self, origin: str, more: int) -> bool:
        """Return whether there is no room for so many bytes more of an origin."""
        events, used = self._totals().get(origin, (0, 0))
        return events >= ORIGIN_EVENTS_MAX or used + more > ORIGIN_BYTES_MAX

    def add(self, encoded: Encoded, code: str, *, stranger: bool) -> bool:
        """Keep an event, or note the reason for which it waits now; return False if there is no room for it.

        A `stranger` is an origin that nothing gives a right to write: its events make room for those of others.
        An event with its payload takes the place of the same one without.
        """
        event, without = encoded.event, is_bare(encoded.event)
        rows = self.of(event.origin)
        if not without and any(row.hash == encoded.hash and row.bare for row in rows):
            self.remove(event.origin, encoded.hash)
        for place, row in enumerate(rows):
            if row.hash == encoded.hash:
                if row.code != code:
                    rows[place] = msgspec.structs.replace(row, code=code)
                    self._changed.add(event.origin)
                return True
        text = b64encode(to_msgpack(event)).decode()
        if not self._make_room(event.origin, len(text), stranger):
            return False
        self._write.put(NOTES, {_key(event.origin, encoded.hash): text.encode()})
        rows.append(Held(event.origin_seq, encoded.hash, event.id, len(text), code, without))
        self._count(event.origin, 1, len(text))
        return True

    def remove(self, origin: str, hash: bytes) -> None:
        rows = self.of(origin)
        for place, row in enumerate(rows):
            if row.hash == hash:
                del rows[place]
                self._read.pop(hash, None)
                self._write.put(NOTES, {_key(origin, hash): None})
                self._count(origin, -1, -row.size)
                return

    def forget(self, origin: str, hash: bytes, by: str) -> None:
        """Remove the payload of an event that waits, because the record `by` lists it as erased."""
        rows = self.of(origin)
        for place, row in enumerate(rows):
            encoded = self.event(origin, row) if row.hash == hash else None
            if encoded is not None:
                self._read.pop(hash)
                text = b64encode(to_msgpack(bare(encoded, by).event)).decode()
                self._write.put(NOTES, {_key(origin, hash): text.encode()})
                rows[place] = msgspec.structs.replace(row, size=len(text))
                self._count(origin, 0, len(text) - row.size)
                return

    def save(self) -> None:
        """Put the rows that changed."""
        for origin in sorted(self._changed):
            rows = self._of[origin]
            self._write.put(NOTES, {_ROWS + origin: with_checksum(msgspec.json.encode(rows)) if rows else None})
        self._changed.clear()

    def _make_room(self, origin: str, size: int, stranger: bool) -> bool:
        events, used = self._totals().get(origin, (0, 0))
        if events + 1 > ORIGIN_EVENTS_MAX or used + size > ORIGIN_BYTES_MAX:
            return False
        while not self._fits(size):
            if stranger or not self._drop_a_stranger(origin):
                return False
        return True

    def _fits(self, size: int) -> bool:
        self._totals()
        return self._events < EVENTS_MAX and self._bytes + size <= BYTES_MAX

    def _drop_a_stranger(self, but: str) -> bool:
        """Drop what waits of the unknown origin that has the most."""
        sizes = self._totals()
        for origin in sorted(sizes, key=sizes.__getitem__, reverse=True):
            rows = self.of(origin)
            if origin != but and rows and all(row.code == "unknown_author" for row in rows):
                for row in list(rows):
                    self.remove(origin, row.hash)
                return True
        return False

    def _totals(self) -> dict[str, tuple[int, int]]:
        if self._sizes is None:
            self._sizes = {
                origin: (len(rows), sum(row.size for row in rows)) for origin, rows in held_rows(self._write)
            }
            self._events = sum(events for events, _ in self._sizes.values())
            self._bytes = sum(size for _, size in self._sizes.values())
        return self._sizes

    def _count(self, origin: str, events: int, size: int) -> None:
        totals = self._totals()
        before = totals.get(origin, (0, 0))
        totals[origin] = (before[0] + events, before[1] + size)
        self._events += events
        self._bytes += size
        self._changed.add(origin)


def held_rows(state: RowReader) -> Iterator[tuple[str, list[Held]]]:
    """Return what waits, by origin."""
    for key, text in read_notes(state, _ROWS).items():
        yield key.removeprefix(_ROWS), _decoded(key, text)


def held_events(state: RowReader) -> Iterator[Encoded]:
    """Return the events that wait, as far as they can be read."""
    for origin, rows in held_rows(state):
        yield from (one for one in (_read(state, origin, row) for row in rows) if one is not None)


def _read(state: RowReader, origin: str, held: Held) -> Encoded | None:
    text = read_note(state, _key(origin, held.hash))
    try:
        found = None if text is None else encode_event(from_msgpack(b64decode(text)))
    except (ValueError, msgspec.MsgspecError, EverlogError):
        return None
    return found if found is not None and found.hash == held.hash else None


def _decoded(key: str, text: str) -> list[Held]:
    try:
        return _rows.decode(without_checksum(key, text))
    except Damaged:
        _logger.warning("the list of what waits of %s cannot be read; %s", key.removeprefix(_ROWS), _DROPPED)
        return []


def _key(origin: str, hash: bytes) -> str:
    return f"{_EVENTS}{origin}/{hash.hex()}"
