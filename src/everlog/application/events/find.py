"""Find one event by its id, by a part of its id, or by its position."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from everlog.core.codec import Packed, commitment, header_hash, unpack
from everlog.core.event import Position, Purged, Recorded
from everlog.core.ids import parse_id
from everlog.core.text import counted
from everlog.errors import Damaged, EverlogError, InvalidField, NotFound
from everlog.log.log import Log
from everlog.log.read.accounting import Places
from everlog.log.read.causes import causes_of
from everlog.log.verify.spot_check import spot_check_at
from everlog.stores.contract import Problem
from everlog.stores.lost import lost

PART_CHARS_MIN = 6
CANDIDATES_MAX = 10


class FoundEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event, the events that caused it, and how its bytes differ from what was recorded."""

    recorded: Recorded
    causes: Sequence[Recorded]
    problems: Sequence[Problem]


class StoredEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The stored text of an event, with every hash computed from it next to the hash that the header has."""

    position: Position
    facts: dict[str, Any]
    sound: bool


def find_event(log: Log, name: str) -> FoundEvent:
    """Return the event that has this id, a part of this id, or this position (`#12` or `12`)."""
    position = find_position(log, name)
    recorded = log.get(position)
    if recorded is None:
        raise _missing(log, name, position)
    causes, _ = causes_of(log.get, recorded)
    return FoundEvent(recorded=recorded, causes=causes, problems=spot_check_at(log.stored, position))


def find_stored(log: Log, name: str) -> StoredEvent:
    """Return the same event as it is stored, also if it cannot be decoded."""
    position = find_position(log, name)
    slot = _slot(log, position) if position > 0 else None
    if not isinstance(slot, Packed) or slot.position != position:
        raise _missing(log, f"#{position}", position)
    facts, sound = _stored_facts(slot)
    problems = spot_check_at(log.stored, position)
    if sound and problems:
        facts, sound = {**facts, "check": f"WRONG, {problems[0].reason}"}, False
    return StoredEvent(position=position, facts=facts, sound=sound)


def find_position(log: Log, name: str) -> Position:
    """Return the position of the event that is named. A position is not checked: there may be no event at it."""
    if re.fullmatch(r"#\d{1,16}|\d{1,9}", name):
        return Position(int(name.removeprefix("#")))
    try:
        found = log.get(parse_id(name))
    except InvalidField:
        return _by_part(log, name)
    return found.position if found is not None else _by_part(log, parse_id(name))


def _by_part(log: Log, part: str) -> Position:
    """Return the one event whose id starts or ends with this text. Only ids are read; nothing is decoded."""
    if len(part) < PART_CHARS_MIN or not part.isalnum():
        raise InvalidField(
            f"{part[:60]!r} does not name an event",
            why=f"an event is named by its id, {PART_CHARS_MIN} or more characters of it, or its position as #12",
            hint="everlog log -n 5",
        )
    wanted = part.upper()
    found: list[tuple[Position, str]] = []
    slots = Places(log.stored)
    for slot in slots:
        event_id = slot.id if isinstance(slot, Purged) else slot.header[2:28].decode(errors="replace")
        if event_id.startswith(wanted) or event_id.endswith(wanted):
            found.append((slot.position, event_id))
    if len(found) == 1:
        return found[0][0]
    if not found:
        slots.raise_if_lost()  # a lost event may have been the one
        raise NotFound(
            f"no event has an id that starts or ends with {part}",
            why="all ids of this log were compared",
            hint="everlog log -n 5",
            name=part,
        )
    listed = ", ".join(f"#{position} {event_id}" for position, event_id in found[:CANDIDATES_MAX])
    more = f" and {len(found) - CANDIDATES_MAX} more" if len(found) > CANDIDATES_MAX else ""
    raise NotFound(
        f"{len(found)} ids start or end with {part}",
        why=f"it could be {listed}{more}",
        hint=f"give more characters, or: everlog show {found[-1][1]}",
        candidates=[event_id for _, event_id in found[:CANDIDATES_MAX]],
    )


def _missing(log: Log, name: str, position: Position) -> EverlogError:
    """Return the error for a position without an event: there never was one, it was purged, or it is lost."""
    head = log.head()
    if position > head or position < 1:
        return NotFound(
            f"there is no event at position {position}",
            why=f"the log's head is #{head}" if head else "the log has no events yet",
            hint="everlog log -n 5",
            position=position,
            head=head,
        )
    slot = _slot(log, position)
    purge = next((found for found in log.stored.purges() if found.reserved == position), None)
    if purge is not None:
        why = f"a purge of {purge.stream} reserves this position ({counted(purge.count, 'event')}, {purge.reason})"
    elif isinstance(slot, Purged) and slot.position == position:
        why = "it was purged; its position and its hash remain"
    else:
        return lost(position, position)
    return NotFound(f"{name} was removed", why=why, hint="everlog log --purges", position=position)


def _slot(log: Log, position: Position) -> Packed | Purged | None:
    return next(log.stored.slots(after=Position(position - 1)), None)


def _stored_facts(slot: Packed) -> tuple[dict[str, Any], bool]:
    facts: dict[str, Any] = {
        "header": slot.header.decode(errors="backslashreplace"),
        "payload": slot.payload.decode(errors="backslashreplace"),
        "salt": slot.salt.hex(),
        "header_hash": header_hash(slot.header).hex(),
    }
    try:
        event = unpack(slot).event
    except Damaged as error:
        return {**facts, "commitment": f"cannot be read: {error.why}"}, False
    facts["previous"] = event.previous.hex()
    facts["commitment"] = event.commitment.hex()
    if not slot.salt and not slot.payload:
        return {**facts, "check": "the payload was erased"}, True
    sound = commitment(slot.salt, slot.payload) == event.commitment
    facts["check"] = "ok, the payload is the one committed to" if sound else "WRONG, the payload is another one"
    return facts, sound
