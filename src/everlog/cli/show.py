"""`everlog show`: one event in full, found by id, by the beginning or end of an id, or by position."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from everlog.cli.output import Answer, json_text, safe
from everlog.cli.session import Session, common_options, missing_ok_option, pass_session, past_damage_option
from everlog.core.counted import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from everlog.core.codec import Packed
    from everlog.core.event import Position, Recorded
    from everlog.errors import EverlogError
    from everlog.log.log import Log

PART_CHARS_MIN = 6
CANDIDATES_MAX = 10


@click.command("show")
@click.argument("name", metavar="ID|#POSITION|PART")
@click.option("--raw", is_flag=True, help="The stored bytes and their hashes, computed again.")
@missing_ok_option
@past_damage_option
@common_options
@pass_session
def show_command(session: Session, name: str, raw: bool) -> None:
    """Show one event in full.

    It is named by its id (ULID or UUID), by its position, or by 6 or more characters from the beginning or the end
    of its id. Its hashes are computed again: if it is not what was recorded, a warning says so, and with --json the
    field sound is false.

    \b
    Examples:
      everlog show '#12'
      everlog show 12 --raw
      everlog show A8XQ2T
    """
    from everlog.cli.records import warn_of, warn_of_bad_lines
    from everlog.log.causes import causes_of
    from everlog.log.glance import glance_at

    log = session.log()
    warn_of_bad_lines(session.out, log.store)
    position = _find(log, name)
    if raw:
        _show_raw(session, log, position)
        return
    recorded = log.at(position)
    if recorded is None:
        raise _gone(log, name, position)
    causes, _ = causes_of(log, recorded)
    problems = glance_at(log.store, position)
    warn_of(session.out, problems)
    _show(session, recorded, causes, sound=not problems)


def _find(log: Log, name: str) -> Position:
    from everlog.core.event import Position
    from everlog.core.ids import parse_id
    from everlog.errors import InvalidField

    if re.fullmatch(r"#\d{1,16}|\d{1,9}", name):
        return Position(int(name.removeprefix("#")))
    try:
        found = log.get(parse_id(name))
    except InvalidField:
        return _by_part(log, name)
    return found.position if found is not None else _by_part(log, parse_id(name))


def _by_part(log: Log, part: str) -> Position:
    """The one event whose id begins or ends so. Only the ids are looked at, nothing is decoded."""
    from everlog.core.event import Purged
    from everlog.errors import InvalidField, NotFound
    from everlog.log.accounting import Places

    if len(part) < PART_CHARS_MIN or not part.isalnum():
        raise InvalidField(
            f"{part[:60]!r} does not name an event",
            why=f"an event is named by its id, {PART_CHARS_MIN} or more characters of it, or its position as #12",
            hint="everlog log -n 5",
        )
    wanted = part.upper()
    found: list[tuple[Position, str]] = []
    places = Places(log.store)
    for place in places:
        event_id = place.id if isinstance(place, Purged) else place.header[2:28].decode(errors="replace")
        if event_id.startswith(wanted) or event_id.endswith(wanted):
            found.append((place.position, event_id))
    if len(found) == 1:
        return found[0][0]
    if not found:
        places.raise_if_lost()  # it may have been the one
        raise NotFound(
            f"no event's id is, begins or ends with {part}",
            why="none of them does",
            hint="everlog log -n 5",
            name=part,
        )
    listed = ", ".join(f"#{position} {event_id}" for position, event_id in found[:CANDIDATES_MAX])
    more = f" and {len(found) - CANDIDATES_MAX} more" if len(found) > CANDIDATES_MAX else ""
    raise NotFound(
        f"{len(found)} ids begin or end with {part}",
        why=f"it could be {listed}{more}",
        hint=f"give more characters, or: everlog show {found[-1][1]}",
        candidates=[event_id for _, event_id in found[:CANDIDATES_MAX]],
    )


def _gone(log: Log, name: str, position: Position) -> EverlogError:
    from everlog.core.event import Purged
    from everlog.errors import NotFound
    from everlog.stores.lost import lost

    head = log.head()
    if position > head or position < 1:
        return NotFound(
            f"there is no event at position {position}",
            why=f"the log's head is #{head}" if head else "the log has no events yet",
            hint="everlog log -n 5",
            position=position,
            head=head,
        )
    place = next(log.store.packed(after=_before(position)), None)
    purge = next((found for found in log.purges() if found.reserved == position), None)
    if purge is not None:
        why = f"a purge of {purge.stream} holds this position ({counted(purge.count, 'event')}, {purge.reason})"
    elif isinstance(place, Purged) and place.position == position:
        why = "it was purged; its place and its hash stay"
    else:
        return lost(position, position)
    hint = "everlog log --purges"
    return NotFound(f"{name} is not there any more", why=why, hint=hint, position=position)


def _before(position: Position) -> Position:
    from everlog.core.event import Position as Place

    return Place(position - 1)


def _show(session: Session, recorded: Recorded, causes: Sequence[Recorded], *, sound: bool) -> None:
    from everlog.cli.records import moment
    from everlog.core.codec import recorded_object
    from everlog.core.ids import id_uuid

    event = recorded.event
    place = f"#{recorded.position}, {event.stream} sequence {recorded.sequence}"
    facts: dict[str, Any] = {
        "id": event.id,
        "uuid": str(id_uuid(event.id)),
        "type": f"{event.type} version {event.version}",
        "place": place,
        "actor": event.actor,
        "scope": event.scope,
        "occurred": moment(event.occurred_at),
        "recorded": moment(recorded.received_at),
        "lamport": event.lamport,
        "origin": f"{event.origin} event {event.origin_seq}",
        "request": event.request_id,
        "correlation": event.correlation_id,
        "key": event.idempotency_key,
        "tags": " ".join(f"{name}={value}" for name, value in event.tags.items()),
    }
    rows = [(name, value) for name, value in facts.items() if value != ""]
    rows += [
        ("because of", f"#{cause.position} {cause.event.type} {cause.event.stream} {cause.event.id}")
        for cause in causes
    ]
    if event.causation_id and not causes:
        rows.append(("because of", f"{event.causation_id} (not in this log)"))
    lines = [f"{session.out.dim(f'{name:<12}')} {safe(str(value))}" for name, value in rows]
    lines += [session.out.dim("payload"), json_text(event.payload, indent=2)]
    data = {**recorded_object(recorded), "uuid": facts["uuid"]}
    data |= {"causes": [recorded_object(cause) for cause in causes], "sound": sound}
    found = {"position": recorded.position, "id": event.id, "type": event.type, "stream": event.stream}
    found |= {"sequence": recorded.sequence, "actor": event.actor, "payload": event.payload}
    session.out.answer(
        Answer(data=data, ids=[event.id], rows=[*rows, ("payload", event.payload)], lines=lines, facts=found)
    )
    if event.correlation_id:
        session.out.hint(f"all that belongs to it: everlog log --correlation {event.correlation_id}")


def _show_raw(session: Session, log: Log, position: Position) -> None:
    from everlog.core.codec import Packed

    place = next(log.store.packed(after=_before(position)), None) if position > 0 else None
    if not isinstance(place, Packed) or place.position != position:
        raise _gone(log, f"#{position}", position)
    found, sound = _raw_facts(place)
    rows = list(found.items())
    lines = [f"{session.out.dim(f'{name:<12}')} {safe(str(value))}" for name, value in rows]
    session.out.answer(
        Answer(data={"position": position, **found, "sound": sound}, ids=[str(position)], rows=rows, lines=lines)
    )
    if not sound:
        session.out.hint("the stored bytes are not what was recorded: everlog verify")
        raise click.exceptions.Exit(8)


def _raw_facts(place: Packed) -> tuple[dict[str, Any], bool]:
    """The stored text, and every hash computed from it, beside what the header claims."""
    from everlog.core.codec import commitment, header_hash, unpack
    from everlog.errors import Damaged

    facts: dict[str, Any] = {
        "header": place.header.decode(errors="backslashreplace"),
        "payload": place.payload.decode(errors="backslashreplace"),
        "salt": place.salt.hex(),
        "header_hash": header_hash(place.header).hex(),
    }
    try:
        event = unpack(place).event
    except Damaged as error:
        return {**facts, "commitment": f"cannot be read: {error.why}"}, False
    facts["previous"] = event.previous.hex()
    facts["commitment"] = event.commitment.hex()
    if not place.salt and not place.payload:
        return {**facts, "check": "the payload was erased"}, True
    sound = commitment(place.salt, place.payload) == event.commitment
    facts["check"] = "ok, the payload is the one committed to" if sound else "WRONG, the payload is another one"
    return facts, sound
