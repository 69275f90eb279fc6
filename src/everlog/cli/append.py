"""`everlog append`: one event from the command line, or a batch from a file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everlog.cli.output import Answer
from everlog.cli.session import Session, actor_option, common_options, pass_session
from everlog.cli.times import MOMENT
from everlog.core.counted import counted

if TYPE_CHECKING:
    from everlog.catalog.catalog import Catalog
    from everlog.log.drafts import Draft
    from everlog.log.expect import Expectation
    from everlog.log.requests import Receipt

COLUMNS = ("position", "id", "stream", "sequence", "status")


@click.command("append")
@click.argument("type", required=False)
@click.argument("words", metavar="[PAYLOAD | FIELD=VALUE ... | -]", nargs=-1)
@click.option("-s", "--stream", metavar="KIND/ID", help="What the event is about, such as workpackage/WP03.")
@click.option("--batch", metavar="FILE", help="Drafts, one JSON object a line, recorded all or none; - is stdin.")
@click.option("--expect", metavar="WHAT", default="any", help="any, none, exists, or the stream's sequence now.")
@click.option("--key", metavar="KEY", default="", help="Makes a retry safe: the same request is recorded once.")
@click.option("--scope", metavar="PATH", default="", help="Where it belongs, such as acme/shop/prod.")
@click.option("--tag", "tags", metavar="NAME=VALUE", multiple=True, help="A tag; may be given again.")
@click.option("--causation", metavar="ID", default="", help="The event that led to this one.")
@click.option("--correlation", metavar="ID", default="", help="What belongs together has the same.")
@click.option("--request-id", metavar="ID", default="", help="The request that this came with.")
@click.option("--id", "event_id", metavar="ID", default="", help="An id made before; a repeated one is a retry.")
@click.option("--at", type=MOMENT, metavar="TIME", help="When it happened, if not now: 10m, 2026-11-01T10:00Z.")
@click.option("--dry-run", is_flag=True, help="Check everything, record nothing.")
@actor_option
@common_options
@pass_session
def append_command(
    session: Session,
    type: str | None,
    words: tuple[str, ...],
    stream: str | None,
    batch: str | None,
    expect: str,
    key: str,
    scope: str,
    tags: tuple[str, ...],
    causation: str,
    correlation: str,
    request_id: str,
    event_id: str,
    at: datetime | None,
    dry_run: bool,
) -> None:
    """Record an event of a TYPE.

    The payload is a JSON object, or words FIELD=VALUE, or - for JSON on stdin. When the command ends with 0, the
    event is on the disk.

    Columns when piped: position, id, stream, sequence, status (recorded or dry_run).

    \b
    Examples:
      everlog append note.added -s note/1 text="hello" topic=greeting
      everlog append note.added -s note/1 '{"text": "hello"}' --key note-1 --expect none
      everlog append --batch drafts.ndjson
      echo '{"type":"note.added","stream":"note/1","payload":{"text":"hi"}}' | everlog append --batch -
    """
    from everlog.log.drafts import Draft

    session.request_id = request_id
    log = session.log()
    scope = scope or session.settings().settings.scope
    if batch is not None:
        if type or words or stream:
            raise click.UsageError("--batch brings type, stream and payload in its lines; leave them out here")
        drafts = _drafts(_bytes(session, batch), batch, scope=scope, correlation=correlation, request_id=request_id)
        operation = "batch"
    else:
        if not type:
            raise click.UsageError("Missing argument 'TYPE'")
        if stream is None:
            raise click.UsageError("Missing option '-s' / '--stream'")
        drafts = [
            Draft(
                type=type,
                stream=stream,
                payload=_payload(session, log.catalog, type, words),
                scope=scope,
                expect=_expectation(expect),
                id=event_id,
                occurred_at=at,
                request_id=request_id,
                causation_id=causation,
                correlation_id=correlation,
                tags=_tags(tags),
            )
        ]
        operation = type
    try:
        receipt = log.commit(drafts, key=key, operation=operation, dry_run=dry_run)
    except Exception:
        if batch is not None:
            _name_bad_lines(session, log.catalog, drafts)
        raise
    _answer(session, receipt, one=batch is None, dry_run=dry_run)


def _answer(session: Session, receipt: Receipt, *, one: bool, dry_run: bool) -> None:
    from everlog.cli.output import safe
    from everlog.core.canonical import stored_form
    from everlog.core.codec import recorded_object

    # A retry gets the same answer to the last byte; that it is a retry stands on stderr.
    status = "dry_run" if dry_run else "recorded"
    rows = [
        (recorded.position, recorded.event.id, recorded.event.stream, recorded.sequence, status)
        for recorded in receipt.records
    ]
    data: list[dict[str, Any]] = [
        # The payload as a reader gets it, which is also how a retry gets it: the fields in order.
        {**recorded_object(recorded), "payload": stored_form(recorded.event.payload), "status": status}
        for recorded in receipt.records
    ]
    told = "  dry run, nothing recorded" if dry_run else ""
    lines = [f"#{row[0]} {row[1]}{told}" for row in rows]
    facts = dict(zip(COLUMNS, rows[0], strict=True)) if one else {"count": len(rows), "status": status}
    session.out.answer(
        Answer(
            data=data[0] if one else data,
            ids=[recorded.event.id for recorded in receipt.records],
            columns=() if one else COLUMNS,
            rows=rows,
            lines=lines if one else [*lines, safe(f"{counted(len(rows), 'event')}{told or ' recorded'}")],
            facts=facts,
        )
    )
    if receipt.replayed:
        session.out.hint("already recorded; nothing new was recorded")


# ---- the payload


def _payload(session: Session, catalog: Catalog, event_type: str, words: tuple[str, ...]) -> Any:
    from everlog.core.canonical import parse_json

    if words == ("-",):
        return parse_json(_bytes(session, "-"))
    if len(words) == 1 and words[0].lstrip().startswith(("{", "[")):
        return parse_json(words[0])
    payload: dict[str, Any] = {}
    texts = _text_fields(catalog, event_type)
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{word!r} is neither FIELD=VALUE nor a JSON object")
        if name in payload:
            raise click.UsageError(f"the field {name} is given twice")
        payload[name] = value if name in texts else _json_or_text(value)
    return payload


def _json_or_text(value: str) -> Any:
    from everlog.core.canonical import parse_json
    from everlog.errors import NotCanonical

    try:
        return parse_json(value)
    except NotCanonical as error:
        if "it is not JSON" in error.reason:
            return value
        raise  # JSON that cannot be stored, such as a number beyond 2^53, is not quietly taken for text


def _text_fields(catalog: Catalog, event_type: str) -> set[str]:
    """The fields that hold text whatever it looks like: text="42" stays text."""
    if not catalog.knows(event_type):
        return set()
    properties: Mapping[str, Any] = catalog.json_schema(event_type)["properties"]
    return {name for name, schema in properties.items() if _is_text(schema)}


def _is_text(schema: Mapping[str, Any]) -> bool:
    choices = schema.get("enum")
    if choices is not None:
        return all(isinstance(choice, str) for choice in choices)
    return schema.get("type") == "string"


# ---- options


def _expectation(text: str) -> Expectation:
    from everlog.log.expect import Expect

    try:
        return int(text) if text.lstrip("-").isdigit() else Expect(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not any, none, exists or a number", param_hint="--expect") from None


def _tags(given: tuple[str, ...]) -> dict[str, str]:
    tags = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--tag")
        if name in tags:
            raise click.BadParameter(f"{name} is given twice", param_hint="--tag")
        tags[name] = value
    return tags


def _bytes(session: Session, name: str) -> bytes:
    from everlog.errors import NotFound
    from everlog.files import DiskFiles

    if name == "-":
        if sys.stdin.isatty():
            session.out.hint("reading from the terminal; end with Ctrl-D")
        return sys.stdin.buffer.read()
    try:
        return DiskFiles().read_all(session.place / Path(name))
    except OSError as error:
        raise NotFound(f"{name} cannot be read", why=error.strerror or str(error), hint="check its name") from error


# ---- the batch


def _drafts(data: bytes, source: str, *, scope: str, correlation: str, request_id: str) -> list[Draft]:
    """The drafts of NDJSON; every bad line is told, not only the first."""
    import msgspec

    from everlog.core.canonical import parse_json
    from everlog.errors import InvalidField, NotCanonical
    from everlog.log.drafts import Draft

    drafts, problems = [], []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            found = msgspec.convert(parse_json(line), _line_struct())
            drafts.append(
                Draft(
                    type=found.type,
                    stream=found.stream,
                    payload=found.payload,
                    actor=found.actor,
                    scope=found.scope or scope,
                    expect=_expectation(str(found.expect)),
                    id=found.id,
                    occurred_at=found.occurred_at,
                    request_id=found.request_id or request_id,
                    causation_id=found.causation_id,
                    correlation_id=found.correlation_id or correlation,
                    tags=found.tags,
                )
            )
        except (msgspec.ValidationError, NotCanonical, click.BadParameter) as error:
            problems.append(
                f"line {number}: {getattr(error, 'reason', '') or getattr(error, 'message', '') or error}"
            )
    if problems:
        raise InvalidField(
            f"{source} is not a batch of drafts" if source != "-" else "stdin is not a batch of drafts",
            why="; ".join(problems[:20]),
            hint='a line is {"type": "note.added", "stream": "note/1", "payload": {"text": "hello"}}',
            problems=problems,
        )
    return drafts


@cache
def _line_struct() -> Any:
    import msgspec

    return msgspec.defstruct(
        "Line",
        [
            ("type", str),
            ("stream", str),
            ("payload", Any, msgspec.field(default_factory=dict)),
            ("actor", str, ""),
            ("scope", str, ""),
            ("expect", str | int, "any"),
            ("id", str, ""),
            ("occurred_at", datetime | None, None),
            ("request_id", str, ""),
            ("causation_id", str, ""),
            ("correlation_id", str, ""),
            ("tags", dict[str, str], msgspec.field(default_factory=dict)),
        ],
        forbid_unknown_fields=True,
    )


def _name_bad_lines(session: Session, catalog: Catalog, drafts: list[Draft]) -> None:
    """The refusal of a batch speaks of one event; say which of them would be refused for what they are."""
    from everlog.errors import RejectedEvent

    for number, draft in enumerate(drafts, start=1):
        try:
            catalog.validate(draft.type, draft.payload)
        except RejectedEvent as error:
            session.out.warn(f"draft {number}, {draft.type} on {draft.stream}: {error}")
