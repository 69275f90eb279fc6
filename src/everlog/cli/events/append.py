"""`everlog append`: one event from the command line, or a batch from a file."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from everlog.cli.output import Answer
from everlog.cli.session import Session, common_options, pass_session, write_options
from everlog.core.text import counted

if TYPE_CHECKING:
    from everlog.application.folder.open import Catalog
    from everlog.log.write.draft import Receipt
    from everlog.log.write.expect import Expectation

COLUMNS = ("position", "id", "stream", "sequence", "status")


@click.command("append")
@click.argument("type", required=False)
@click.argument("words", metavar="[PAYLOAD | FIELD=VALUE ... | -]", nargs=-1)
@click.option("-s", "--stream", metavar="KIND/ID", help="The stream of the event, such as workpackage/WP03.")
@click.option(
    "--batch",
    metavar="FILE",
    help="A file of drafts, one JSON object per line; all are recorded, or none. - is stdin.",
)
@click.option(
    "--expect",
    metavar="WHAT",
    default="any",
    help="What the stream must be at: any, none, exists, or a sequence.",
)
@click.option("--scope", metavar="PATH", default="", help="The scope of the event, such as acme/shop/prod.")
@click.option("--tag", "tags", metavar="NAME=VALUE", multiple=True, help="A tag; may be repeated.")
@click.option(
    "--id",
    "event_id",
    metavar="ID",
    default="",
    help="The id of the event, if you made one; the same id again is a retry.",
)
@write_options
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
    """Record an event of type TYPE.

    The payload is a JSON object, or words FIELD=VALUE, or - for JSON on stdin. When the command exits with 0, the
    event is on disk.

    Columns when piped: position, id, stream, sequence, status (recorded or dry_run).

    \b
    Examples:
      everlog append note.added -s note/1 text="hello" topic=greeting
      everlog append note.added -s note/1 '{"text": "hello"}' --key note-1 --expect none
      everlog append --batch drafts.ndjson
      echo '{"type":"note.added","stream":"note/1","payload":{"text":"hi"}}' | everlog append --batch -
    """
    from everlog.application.events.drafts import committed, drafts_from_ndjson, refused_drafts
    from everlog.log.write.draft import Draft

    session.request_id = request_id
    log = session.any_log()
    scope = scope or session.settings().settings.scope
    if batch is not None:
        if type or words or stream:
            raise click.UsageError("the lines of --batch contain type, stream and payload; leave them out here")
        drafts = drafts_from_ndjson(
            _bytes(session, batch),
            source="stdin" if batch == "-" else batch,
            scope=scope,
            correlation_id=correlation,
            request_id=request_id,
        )
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
                actor=session.actor if session.server else "",
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
        receipt = committed(log, drafts, key=key, operation=operation, dry_run=dry_run)
    except Exception:
        if batch is not None:
            for number, draft, error in refused_drafts(log.catalog, drafts):
                session.out.warn(f"draft {number}, {draft.type} on {draft.stream}: {error}")
        raise
    _answer(session, receipt, one=batch is None, dry_run=dry_run)


def _answer(session: Session, receipt: Receipt, *, one: bool, dry_run: bool) -> None:
    from everlog.cli.output import safe
    from everlog.core.canonical import stored_form
    from everlog.core.codec import recorded_object

    # A retry gets the same answer to the last byte; that it is a retry is written to stderr.
    status = "dry_run" if dry_run else "recorded"
    rows = [
        (recorded.position, recorded.event.id, recorded.event.stream, recorded.sequence, status)
        for recorded in receipt.records
    ]
    data: list[dict[str, Any]] = [
        # The payload as readers and retries get it: with its fields in order.
        {**recorded_object(recorded), "payload": stored_form(recorded.event.payload), "status": status}
        for recorded in receipt.records
    ]
    end = "  dry run, nothing recorded" if dry_run else ""
    lines = [f"#{row[0]} {row[1]}{end}" for row in rows]
    facts = dict(zip(COLUMNS, rows[0], strict=True)) if one else {"count": len(rows), "status": status}
    session.out.answer(
        Answer(
            data=data[0] if one else data,
            ids=[recorded.event.id for recorded in receipt.records],
            columns=() if one else COLUMNS,
            rows=rows,
            lines=lines if one else [*lines, safe(f"{counted(len(rows), 'event')}{end or ' recorded'}")],
            facts=facts,
        )
    )
    if receipt.replayed:
        session.out.hint("already recorded; nothing new was recorded")


# ---- arguments and options


def _payload(session: Session, catalog: Catalog, event_type: str, words: tuple[str, ...]) -> Any:
    from everlog.application.events.drafts import payload_from_words
    from everlog.core.canonical import parse_json
    from everlog.errors import InvalidField

    if words == ("-",):
        return parse_json(_bytes(session, "-"))
    if len(words) == 1 and words[0].lstrip().startswith(("{", "[")):
        return parse_json(words[0])
    try:
        return payload_from_words(words, catalog, event_type)
    except InvalidField as error:
        raise click.UsageError(error.what) from error


def _expectation(text: str) -> Expectation:
    from everlog.application.events.drafts import read_expectation
    from everlog.errors import InvalidField

    try:
        return read_expectation(text)
    except InvalidField as error:
        raise click.BadParameter(error.what, param_hint="--expect") from None


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
    from everlog.application.events.drafts import read_input

    if name == "-":
        if sys.stdin.isatty():
            session.out.hint("reading from the terminal; end with Ctrl-D")
        return sys.stdin.buffer.read()
    return read_input(session.directory, name)
