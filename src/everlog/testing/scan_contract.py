"""The promise of a store that reads in blocks: it reads the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from everlog.core.codec import HEADER_FIELDS, Packed, header_columns
from everlog.core.event import Header, Position
from everlog.core.query import EVERYTHING, Query
from everlog.stores.contract import Block, Encoded, Scanning, Store, encode_event
from everlog.testing.builders import Chain

VALUES: tuple[Any, ...] = (None, True, -1, 2**53 - 1, 1.5, -0.0, 1e-7, 100.0, "", 'ü ☃ 𝄞 \u0000 \\ " \n', [], {})
QUERIES = (
    EVERYTHING,
    Query(stream="note/3"),
    Query(types=frozenset(("note.added", "note.read"))),
    Query(types=frozenset(("note.read",)), kind="issue"),
    Query(scope="acme"),
    Query(stream="note/9"),
)

_TAGS, _OCCURRED_AT = HEADER_FIELDS.index("tags"), HEADER_FIELDS.index("occurred_at")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ScanContract:
    def test_slabs_hold_what_reading_gives(self, store: Store) -> None:
        if not isinstance(store, Scanning):
            pytest.skip("this store does not read in blocks")
        fill_with_everything(store)
        stored = {place.position: place for place in store.slots() if isinstance(place, Packed)}
        for query in QUERIES:
            for after, upto in ((0, None), (7, 60), (30, 31), (200, None)):
                bounds = {"after": Position(after), "upto": None if upto is None else Position(upto)}
                expected = [stored[record.position] for record in store.read(query, **bounds)]  # type: ignore[arg-type]
                found = [each for block in store.blocks(query, **bounds) for each in packed(block)]  # type: ignore[arg-type]
                assert found == expected, (query, after, upto)

    def test_an_empty_store_has_no_slab(self, store: Store) -> None:
        if not isinstance(store, Scanning):
            pytest.skip("this store does not read in blocks")
        assert list(store.blocks()) == []


def fill_with_everything(store: Store) -> None:
    """Record events of every shape: values, tags, signatures, an erased payload, large and small writes, a purge."""
    chain = Chain()
    made = [
        chain.next(
            type="note.read" if number % 3 else "note.added",
            stream=f"{'note' if number % 2 else 'issue'}/{number % 7}",
            payload={"a": value, "é": [value, {"number": number}]} if number % 5 else {},
            scope=("", "acme", "acme/shop", "acmecorp")[number % 4],
            tags={"b": "2", "a": "ü"} if number % 4 == 0 else {},
        )
        for number, value in enumerate(VALUES * 6)
    ]
    signed = [_changed(each, signature=b"s" * 64, path=(b"1" * 32, b"2" * 32)) for each in made[40:44]]
    erased = _changed(made[50], payload={}, salt=b"")
    events = [*made[:40], *signed, *made[44:50], erased, *made[51:]]
    while events:
        size = 1 + len(events) % 9
        with store.open_write() as writer:
            writer.append(events[:size])
        events = events[size:]
    with store.open_write() as writer:
        writer.purge("note/5", actor="user:ada", reason="a test")


def _changed(sealed: Encoded, **changes: Any) -> Encoded:
    return encode_event(msgspec.structs.replace(sealed.event, **changes))


def packed(block: Block) -> Iterator[Packed]:
    """Yield the records of a block as stored bytes."""
    columns = block.fields or header_columns(block.headers)
    count = len(block.positions)
    assert {len(column) for column in columns} == {count}
    for number in range(count):
        values: list[Any] = [column[number] for column in columns]
        values[_TAGS] = msgspec.json.decode(bytes(values[_TAGS]))
        if isinstance(values[_OCCURRED_AT], int):
            values[_OCCURRED_AT] = _EPOCH + timedelta(microseconds=values[_OCCURRED_AT])
        header = msgspec.convert(values, Header)
        yield Packed(
            Position(block.positions[number]),
            block.sequences[number],
            block.received_us[number],
            msgspec.json.encode(header, order="deterministic"),
            _bytes(block.payloads[number]),
            block.salts[number],
            block.signatures[number] if block.signatures else b"",
            _hashes(block.paths[number] if block.paths else b""),
        )


def _bytes(text: bytes | str) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _hashes(path: bytes) -> tuple[bytes, ...]:
    return tuple(path[start : start + 32] for start in range(0, len(path), 32))
