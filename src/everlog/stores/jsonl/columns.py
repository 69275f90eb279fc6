"""Read lines as columns.

A run of lines is decoded in one call, and payloads stay the text of the line. Where a whole block is one run, as most
are, the index returns whole columns instead of rows. Lines of another shape (the seed's own shape) are read one by
one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from everlog.core.codec import HEADER_FIELDS
from everlog.core.event import Position
from everlog.core.query import EVERYTHING, Query
from everlog.stores.contract import Block
from everlog.stores.jsonl.index.query import Row, damage_among, wanted_row, wanted_rows
from everlog.stores.jsonl.index.read import Lines, until_unchanged
from everlog.stores.jsonl.index.schema import END, Damage
from everlog.stores.jsonl.lines import BadLine, true_checksum
from everlog.stores.jsonl.many_lines import Values, scan_events

SLAB_ROWS = 5_000
_RUN_BYTES_MAX = 64 * 1024 * 1024
_FIELDS = len(HEADER_FIELDS)
_numbers = msgspec.json.Decoder(list[int]).decode
_PAYLOAD, _SALT, _SIGNATURE, _PATH = range(_FIELDS, _FIELDS + 4)
_ORIGIN, _ORIGIN_SEQ, _TAGS = map(HEADER_FIELDS.index, ("origin", "origin_seq", "tags"))


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


# In order of position, by which the table is sorted. In another order, the checksums would not match.
_COLUMNS_OF_RUN = (
    "SELECT count(*), max(position), json_group_array(sequence), json_group_array(received_us), json_group_array(crc)"
    " FROM events WHERE position > ? AND position <= ?"
)


def _together(lines: Lines, low: int, high: int) -> Block | None:
    """Return the next positions as a block if they have no gap and their lines are one run; else None, for
    `_page`."""
    index = lines.index()
    count, last, sequences, received_us, checksums = index.fetch(_COLUMNS_OF_RUN, (low, min(low + SLAB_ROWS, high)))[
        0
    ]
    if not count or last - low != count:
        return None
    first, end = wanted_row(index, low + 1), wanted_row(index, last)
    if first is None or end is None or first[4] != end[4] or not 0 <= end[5] - first[5] <= _RUN_BYTES_MAX:
        return None
    data = lines.span(first, end)
    if list(map(true_checksum, data.split(b"\n"))) != _numbers(checksums):
        return None
    try:
        events = scan_events(data)
    except BadLine:
        return None
    return _block(lines, range(low + 1, last + 1), _numbers(sequences), _numbers(received_us), events)


def _page(lines: Lines, query: Query, low: int, high: int) -> tuple[list[Row], Block | None, Damage | None]:
    index = lines.index()
    rows = wanted_rows(index, query, low, high, SLAB_ROWS, newest_first=False)
    damage = damage_among(index, rows, low, high, SLAB_ROWS)
    if damage is not None:
        rows = [row for row in rows if row[0] < damage.first]
    if not rows:
        return rows, None, damage
    positions, sequences, received_us, *_ = zip(*rows, strict=True)
    return rows, _block(lines, positions, sequences, received_us, lines.values(rows)), damage


def _block(
    lines: Lines,
    positions: Sequence[int],
    sequences: Sequence[int],
    received_us: Sequence[int],
    events: list[Values],
) -> Block:
    groups = lines.groups()
    if groups is not None:
        for values in events:
            facts = None if values[_SIGNATURE] else groups.of(values[_ORIGIN], values[_ORIGIN_SEQ])
            if facts is not None:
                values[_SIGNATURE], values[_PATH] = facts.proof, groups.path(facts, values[_ORIGIN_SEQ])
    fields: list[Sequence[Any]] = list(zip(*events, strict=True))
    signatures = fields[_SIGNATURE] if any(fields[_SIGNATURE]) else ()
    paths = [b"".join(path) for path in fields[_PATH]] if signatures else ()
    header = fields[:_FIELDS]
    return Block(positions, sequences, received_us, (), header, fields[_PAYLOAD], fields[_SALT], signatures, paths)
