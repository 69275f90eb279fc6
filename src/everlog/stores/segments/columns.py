"""Read stretches of frames as columns: each group is computed once, and no event is made of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import astuple, replace

from everlog.core.codec import HEADER_FIELDS
from everlog.core.event import Position, moment
from everlog.core.group import Group, GroupFacts
from everlog.core.merkle import paths
from everlog.core.query import EVERYTHING, Query
from everlog.errors import Damaged
from everlog.stores.contract import Block
from everlog.stores.segments.groups import group_of
from everlog.stores.segments.state import LogState
from everlog.stores.segments.stretches import damage, frames, stretches

SLAB_EVENTS = 5_000

_SIGNATURE = len(HEADER_FIELDS) + 2
_Row = tuple[int, int, int, bytes, bytes, bytes, bytes, bytes]  # as the columns of a block, without its fields


def blocks(state: LogState, query: Query, after: Position, upto: Position) -> Iterator[Block]:
    """Return what `reader.records` returns, in the same order, as blocks of columns."""
    held: list[_Row] = []
    damaged: Damaged | None = None
    try:
        for rows in _rows(state, query, after, upto):
            held += rows
            if len(held) >= SLAB_EVENTS:
                yield _block(held)
                held = []
    except Damaged as error:
        damaged = error  # the rows before the damage are returned first
    if held:
        yield _block(held)
    if damaged is not None:
        raise damaged


def _block(rows: Sequence[_Row]) -> Block:
    positions, sequences, received_us, headers, payloads, salts, signatures, paths = zip(*rows, strict=True)
    signed = any(signatures)
    return Block(
        positions,
        sequences,
        received_us,
        headers,
        (),
        payloads,
        salts,
        signatures if signed else (),
        paths if signed else (),
    )


def _rows(state: LogState, query: Query, after: Position, upto: Position) -> Iterator[list[_Row]]:
    timeless = replace(query, since=None, until=None)  # a record has no time of arrival: its group has it
    everything = timeless == EVERYTHING
    for stretch in stretches(state, query, after, upto):
        if stretch.gap is not None:
            raise damage(state, stretch.segment, stretch.gap, after)
        with state.source(stretch.segment) as source:
            for found in frames(state, source, stretch, after, upto):
                frame, facts = found.frame, found.frame.facts
                if facts is None or not _is_in_time(facts, query):
                    continue
                if everything or any(timeless.matches(record) for record in frame.records):
                    rows = _of_group(group_of(state, frame))
                    if not everything:
                        matching = {one.position for one in frame.records if timeless.matches(one)}
                        rows = [row for row in rows if row[0] in matching]
                    if frame.before < after or frame.head > upto:
                        rows = [row for row in rows if after < row[0] <= upto]
                    yield rows


def _is_in_time(facts: GroupFacts, query: Query) -> bool:
    received_at = moment(facts.received_us)
    return (query.since is None or received_at >= query.since) and (query.until is None or received_at < query.until)


def _of_group(group: Group) -> list[_Row]:
    received_us, first_seq = group.facts.received_us, group.facts.first_seq
    of_group = [b"".join(path) for path in paths(group.hashes())] if group.signature else []
    of_events = group.proof
    rows: list[_Row] = []
    for (recorded, payload), header, _ in group.linked():
        event = recorded.event
        signature, path = astuple(event)[_SIGNATURE : _SIGNATURE + 2]
        path = b"".join(path)
        if of_group and not signature:
            signature, path = of_events, of_group[event.origin_seq - first_seq]
        rows.append((recorded.position, recorded.sequence, received_us, header, payload, event.salt, signature, path))
    return rows
