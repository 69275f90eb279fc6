"""What an open write has staged, as frames: one for each group, and in the last one everything else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

import msgspec
from msgspec.structs import replace

from everlog.core.codec import HEADER_FIELDS, header_bytes, payload_bytes
from everlog.core.event import START, Position, Purged
from everlog.core.group import GroupFacts
from everlog.errors import Damaged, NotCanonical
from everlog.stores.contract import Encoded
from everlog.stores.open_write import OpenWrite
from everlog.stores.segments.format.frame import COMMIT, NOTHING_ELSE, PURGING, Rest
from everlog.stores.segments.index.chains import Ends, add_group, add_purged, last_position, unshown
from everlog.stores.segments.index.live_part import Entry
from everlog.stores.staged_group import StagedGroup, payload_value

_ID, _TYPE, _STREAM, _ORIGIN_SEQ, _SCOPE = map(HEADER_FIELDS.index, ("id", "type", "stream", "origin_seq", "scope"))


class StagedFrame(msgspec.Struct, gc=False):
    facts: GroupFacts | None
    rows: Sequence[Any]  # the records as they are stored
    rest: Rest | None
    before: Position
    head: Position
    last: Position  # of the last event of the group
    entries: Sequence[Entry]  # what the index needs of the records


def frames_of(staged: OpenWrite) -> list[StagedFrame]:
    """Return the frames of a write. Refuse an event that would not be read back as it is."""
    before, own, now_us = staged.before, staged.stored.identity.origin, staged.now_us
    frames: list[StagedFrame] = []
    ends = Ends()
    groups = staged.groups()
    spans: list[tuple[StagedGroup | None, Position, Position]] = []
    if len(groups) == 1 and groups[0].first == before + 1:  # as nearly always
        spans.append((groups[0], before, staged.position))
    else:
        spans.extend(_spans(groups, before, staged.position))
    for number, (group, start, head) in enumerate(spans):
        facts: GroupFacts | None = None
        rows: Sequence[Any] = ()
        last = START
        rest: Rest | None = Rest(before=start, head=head)
        if group is not None:
            facts = group.facts
            new = facts.origin == own and facts.received_us == now_us  # made by this log just now
            if not new:
                _refuse_changed(group)
            rows = group.rows(payload_value, own=own if new else "")
            if rows and rows[0][0] == start + 1 and rows[-1][0] == head:
                rest = None
            last = last_position(facts, (rows[0][0], rows[0][3][_ORIGIN_SEQ]) if rows else None, start)
        if number == len(spans) - 1 and _has_more(staged):
            rest = _rest(staged, rest or NOTHING_ELSE, start, ends)
        if facts is not None:
            add_group(ends, facts, last)
        entries = [
            (position, sequence, event[_ID], event[_TYPE], event[_STREAM], event[_SCOPE])
            for position, sequence, _, event in rows
        ]
        frames.append(StagedFrame(facts, rows, rest, start, head, last, entries))
    chains = unshown(ends, staged.chains)
    if chains:
        frames[-1].rest = replace(frames[-1].rest or NOTHING_ELSE, chains=chains)
    return frames


def mark_frame(kind: int, head: Position) -> StagedFrame:
    """Return a frame without events, such as the mark of a clean end."""
    return StagedFrame(None, (), Rest(kind, head, head), head, head, START, ())


def _spans(
    groups: Sequence[StagedGroup], before: Position, head: Position
) -> Iterator[tuple[StagedGroup | None, Position, Position]]:
    """Return the groups with the positions that their frames cover: from the first one up to the next group."""
    if not groups or groups[0].first > before + 1:
        first = Position(groups[0].first - 1) if groups else head
        yield None, before, first
        before = first
    for number, group in enumerate(groups):
        last = head if number == len(groups) - 1 else Position(groups[number + 1].first - 1)
        yield group, before, last
        before = last


def _has_more(staged: OpenWrite) -> bool:
    return bool(
        staged.staged_claims or staged.staged_notes or staged.staged_purges or staged.placed_purged or staged.erasures
    )


def _rest(staged: OpenWrite, rest: Rest, before: Position, ends: Ends) -> Rest:
    claims = staged.staged_claims
    removed: list[Purged] = []
    for _, gone_with_it in staged.staged_purges:
        removed += gone_with_it
    kind = PURGING if removed or staged.erasures or staged.scrubs else COMMIT
    if kind == COMMIT and staged.placed_purged:
        add_purged(ends, staged.placed_purged)
    places: list[int] = []
    for claim in claims.values():
        places += (claim.first - before, claim.count)
    return Rest(
        kind,
        before=rest.before,
        head=rest.head,
        claim_names=b"".join(claims),
        claim_places=tuple(places),
        notes=staged.staged_notes,
        purges=tuple(map(itemgetter(0), staged.staged_purges)),
        purged=(*removed, *map(_unsigned, staged.placed_purged)),
        erased=tuple(staged.erasures.values()),
    )


def _unsigned(gone: Purged) -> Purged:
    """Return what is left of an event without the signature of its group, which the group keeps."""
    return replace(gone, signature=b"", signed_with=(0, 0)) if gone.signature else gone


def _refuse_changed(group: StagedGroup) -> None:
    """Refuse an event of which the stored values do not give back the bytes that it came with."""
    for recorded, encoded in group.records:
        if not _gives_back(encoded):
            raise Damaged(
                f"event {encoded.event.id} cannot be stored",
                why="its header or its payload is not in the canonical form, so that its hash could not be computed",
                hint="everlog verify on the log that it comes from",
                position=recorded.position,
                after=recorded.position,
            )


def _gives_back(encoded: Encoded) -> bool:
    event = encoded.event
    try:
        payload = payload_bytes(event.payload) if event.salt else b""
    except NotCanonical:
        return False
    return payload == encoded.payload and header_bytes(event) == encoded.header
