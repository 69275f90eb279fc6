"""The JSON of records, and what was made of it lately.

To show a record costs several times as much as to read it: what its group leaves out is hashed again. Readers mostly
want the same recent events, so their texts are kept, up to `BYTES_MAX`. A text is only used for the very event that
it was made of: a purge, an erasure or a restore leaves another row, another salt or another event there.

Where a store keeps groups that know their positions, a page of texts is found without decoding an event.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

import msgspec
from msgspec.structs import astuple

from everlog.catalog.catalog import Catalog
from everlog.core.codec import Packed
from everlog.core.event import Header, Position, Recorded, moment
from everlog.stores.contract import Grouped, PlacedGroup, Stored
from everlog.wire.messages import RecordObject, record_bytes

BYTES_MAX = 24 * 1024 * 1024

T = TypeVar("T")

_decode_header = msgspec.json.Decoder(Header).decode
_encode = msgspec.json.Encoder().encode


class Texts:
    """The texts of one log, for several threads."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._records: _Kept[bytes] = _Kept()
        self._groups: _Kept[list[bytes] | None] = _Kept()

    def of(self, records: Sequence[Recorded], epoch: str) -> list[bytes]:
        """Return records as JSON."""
        found = []
        for recorded in records:
            event = recorded.event
            made_of = (event.id, event.salt, epoch)
            text = self._records.get(recorded.position, made_of)
            if text is None:
                text = record_bytes(recorded)
                if self._catalog.reads_as_stored(event.type, event.version):
                    self._records.put(recorded.position, made_of, text, len(text))
            found.append(text)
        return found

    def of_groups(self, stored: Stored, after: Position, upto: Position, limit: int, epoch: str) -> list[bytes]:
        """Return the records from the one after a position on, without a gap, as far as their groups are whole."""
        found: list[bytes] = []
        if not isinstance(stored, Grouped):
            return found
        following, upto = after + 1, Position(min(upto, after + limit))
        for group in stored.groups(after=after, upto=upto):
            if not isinstance(group, PlacedGroup) or not group.whole or not group.first <= following <= group.last:
                break
            texts = self._of_group(group, epoch)
            if texts is None:
                break
            found += texts[following - group.first : upto - group.first + 1]
            following = group.last + 1
            if following > upto:
                break
        return found

    def _of_group(self, group: PlacedGroup, epoch: str) -> list[bytes] | None:
        made_of = (group.checksum, epoch)
        texts = self._groups.get(group.first, made_of)
        if texts is None:
            texts = self._made(group.packed())
            if texts is not None:
                self._groups.put(group.first, made_of, texts, sum(map(len, texts)))
        return texts

    def _made(self, packed: Iterable[Packed]) -> list[bytes] | None:
        """Return the texts of a group, None if one of its events is not read as it is stored."""
        found, received_us, received_at = [], -1, moment(0)
        for one in packed:
            header = _decode_header(one.header)
            if not self._catalog.reads_as_stored(header.type, header.version):
                return None
            if one.received_us != received_us:
                received_us, received_at = one.received_us, moment(one.received_us)
            payload = msgspec.Raw(one.payload) if one.payload else msgspec.UNSET
            found.append(
                _encode(
                    RecordObject(
                        one.position,
                        one.sequence,
                        received_at,
                        *astuple(header),  # type: ignore[call-arg]
                        payload,
                        one.salt,
                        one.proof,
                        one.path,
                        one.erased_by,
                    )
                )
            )
        return found


class _Kept(Generic[T]):
    """Values by a number, each with what it was made of. The oldest go when there are too many bytes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[int, tuple[object, T, int]] = {}
        self._bytes = 0

    def get(self, key: int, made_of: object) -> T | None:
        found = self._held.get(key)
        return None if found is None or found[0] != made_of else found[1]

    def put(self, key: int, made_of: object, value: T, size: int) -> None:
        with self._lock:
            old = self._held.pop(key, None)
            self._held[key] = (made_of, value, size)
            self._bytes += size - (0 if old is None else old[2])
            while self._bytes > BYTES_MAX:
                self._bytes -= self._held.pop(next(iter(self._held)))[2]
