"""Read lines as columns.

A run of lines is decoded in one call, and payloads stay the text of the line. Where a whole block is one run, as most
are, the index returns whole columns instead of rows. Lines of another shape (the seed's own shape) are read one by
one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from everlog.core.codec import HEADER_FIELDS, encode_header
from everlog.core.event import EVENT_FIELDS, Event, Position, values_of
from everlog.core.query import EVERYTHING, Query
from everlog.stores.contract import Block
from everlog.stores.jsonl.index.read import (
    LineMoved,
    Lines,
    Row,
    damage_among,
    each_line,
    event_of,
    lines_alone,
    payload_text,
    refuse_moved,
    until_unchanged,
    wanted_row,
    wanted_rows,
)
from everlog.stores.jsonl.index.schema import END, Damage
from everlog.stores.jsonl.lines import BadLine, are_unchanged, scan_events

SLAB_ROWS = 5_000
_RUN_BYTES_MAX = 64 * 1024 * 1024
_FIELDS = len(HEADER_FIELDS)
_numbers = msgspec.json.Decoder(list[int]).decode
_PAYLOAD, _SALT, _SIGNATURE, _PATH = range(_FIELDS, _FIELDS + 4)


def blocks(lines: Lines, query: Query, *, after: Position, upto: Position | None) -> Iterator[Block]:
    """What `read_records` gives, in the same order; but an actor or a correlation is left to the caller."""
    low, high = int(after), END if upto is None else int(upto)
    epoch = ""
    while True:
        while query == EVERYTHING and low < high:
            together = until_unchanged(lines, lambda: _together(lines, low, high))  # noqa: B023 - called at once
            if together is None:
                break
            epoch = lines.same_epoch(epoch)
            yield together
            low = together.positions[-1]
        rows, block, damage = until_unchanged(lines, lambda: _page(lines, query, low, high))  # noqa: B023 - likewise
        epoch = lines.same_epoch(epoch)
        if block is not None:
            yield block
        if damage is not None:
            raise lines.error(damage)
        if len(rows) < SLAB_ROWS:
            return
        low = rows[-1][0]


# In order of position, by which the table is sorted. In another order, the ids would not match.
_COLUMNS_OF_RUN = (
    "SELECT count(*), max(position), json_group_array(sequence), json_group_array(received_us), group_concat(id, '')"
    " FROM events WHERE position > ? AND position <= ?"
)


def _together(lines: Lines, low: int, high: int) -> Block | None:
    """Return the next positions as a block if they have no gap and their lines are one run; else None, for
    `_page`."""
    index = lines.index()
    count, last, sequences, received_us, ids = index.fetch(_COLUMNS_OF_RUN, (low, min(low + SLAB_ROWS, high)))[0]
    if not count or last - low != count:
        return None
    first, end = wanted_row(index, low + 1), wanted_row(index, last)
    if first is None or end is None or first[4] != end[4] or not 0 <= end[5] - first[5] <= _RUN_BYTES_MAX:
        return None
    data = lines.span(first, end)
    if not are_unchanged(data.split(b"\n")):
        return None
    try:
        events = scan_events(data)
    except BadLine:
        return None
    if len(events) != count or "".join([event[0] for event in events]) != ids:
        return None
    return _block(range(low + 1, last + 1), _numbers(sequences), _numbers(received_us), events)


def _page(lines: Lines, query: Query, low: int, high: int) -> tuple[list[Row], Block | None, Damage | None]:
    index = lines.index()
    rows = wanted_rows(index, query, low, high, SLAB_ROWS, newest_first=False)
    damage = damage_among(index, rows, low, high, SLAB_ROWS)
    if damage is not None:
        rows = [row for row in rows if row[0] < damage.first]
    if not rows:
        return rows, None, damage
    events = [event for run, data in lines.runs(rows) for event in _events(run, data)]
    positions, sequences, received_us, ids, *_ = zip(*rows, strict=True)
    if [event[0] for event in events] != list(ids):
        raise LineMoved(next(row for row, event in zip(rows, events, strict=True) if event[0] != row[3]))
    return rows, _block(positions, sequences, received_us, events), damage


def _block(
    positions: Sequence[int], sequences: Sequence[int], received_us: Sequence[int], events: list[tuple[Any, ...]]
) -> Block:
    fields: list[Sequence[Any]] = list(zip(*events, strict=True))
    salts = fields[_SALT]
    payloads = list(map(bytes, fields[_PAYLOAD]))
    if not all(salts):  # no salt: erased. An empty payload is not written either, but has a salt
        payloads = [text if salt else b"" for text, salt in zip(payloads, salts, strict=True)]
    signatures = fields[_SIGNATURE] if any(fields[_SIGNATURE]) else ()
    paths = [b"".join(path) for path in fields[_PATH]] if signatures else ()
    return Block(positions, sequences, received_us, (), fields[:_FIELDS], payloads, salts, signatures, paths)


def _events(rows: list[Row], data: bytes) -> list[tuple[Any, ...]]:
    refuse_moved(rows, data)
    try:
        found = scan_events(lines_alone(rows, data))
    except BadLine:
        found = [_values(event_of(line)) for line in each_line(rows, data)]
    if len(found) != len(rows):
        raise LineMoved
    return found


def _values(event: Event) -> tuple[Any, ...]:
    values = dict(zip(EVENT_FIELDS, values_of(event), strict=True))
    text = encode_header(event.occurred_at).strip(b'"').decode()
    values.update(occurred_at=text, tags=encode_header(event.tags), payload=payload_text(event.payload))
    return tuple(values.values())
