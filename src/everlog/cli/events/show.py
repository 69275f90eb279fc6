"""`everlog show`: one event in full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from everlog.cli.output import Answer, json_text, safe
from everlog.cli.session import Session, common_options, missing_ok_option, pass_session, past_damage_option
from everlog.errors import CHECK_FAILED

if TYPE_CHECKING:
    from everlog.application.events.find import FoundEvent, StoredEvent


@click.command("show")
@click.argument("name", metavar="ID|#POSITION|PART")
@click.option("--raw", is_flag=True, help="Show the stored bytes and their hashes, computed again.")
@missing_ok_option
@past_damage_option
@common_options
@pass_session
def show_command(session: Session, name: str, raw: bool) -> None:
    """Show one event in full.

    Name it by its id (ULID or UUID), by its position, or by 6 or more characters from the start or the end of its
    id. Its hashes are computed again: if the event differs from what was recorded, a warning is printed, and with
    --json the field sound is false.

    \b
    Examples:
      everlog show '#12'
      everlog show 12 --raw
      everlog show A8XQ2T
    """
    from everlog.application.anywhere import find_event
    from everlog.application.checks.problems import bad_lines, not_as_recorded
    from everlog.application.events.find import find_stored

    if raw or not session.server:
        session.out.warn(bad_lines(session.log()))
    if raw:
        _show_stored(session, find_stored(session.log(), name))
        return
    found = find_event(session.any_log(), name)
    session.out.warn(not_as_recorded(found.problems))
    _show_event(session, found)


def _show_event(session: Session, found: FoundEvent) -> None:
    from everlog.cli.events.records import moment
    from everlog.core.codec import recorded_object
    from everlog.core.ids import id_uuid

    recorded, causes = found.recorded, found.causes
    event = recorded.event
    facts: dict[str, Any] = {
        "id": event.id,
        "uuid": str(id_uuid(event.id)),
        "type": f"{event.type} version {event.version}",
        "place": f"#{recorded.position}, {event.stream} sequence {recorded.sequence}",
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
    data |= {"causes": [recorded_object(cause) for cause in causes], "sound": not found.problems}
    shown = {"position": recorded.position, "id": event.id, "type": event.type, "stream": event.stream}
    shown |= {"sequence": recorded.sequence, "actor": event.actor, "payload": event.payload}
    session.out.answer(
        Answer(data=data, ids=[event.id], rows=[*rows, ("payload", event.payload)], lines=lines, facts=shown)
    )
    if event.correlation_id:
        session.out.hint(f"all events of this correlation: everlog log --correlation {event.correlation_id}")


def _show_stored(session: Session, found: StoredEvent) -> None:
    rows = list(found.facts.items())
    lines = [f"{session.out.dim(f'{name:<12}')} {safe(str(value))}" for name, value in rows]
    session.out.answer(
        Answer(
            data={"position": found.position, **found.facts, "sound": found.sound},
            ids=[str(found.position)],
            rows=rows,
            lines=lines,
        )
    )
    if not found.sound:
        session.out.hint("the stored bytes are not what was recorded: everlog verify")
        raise click.exceptions.Exit(CHECK_FAILED)
