"""`everlog purge`: the one door out of the log. It asks for the exact words, and there is no way back."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from everlog.cli.output import Answer, safe
from everlog.cli.session import Session, actor_option, common_options, pass_session
from everlog.core.counted import counted

if TYPE_CHECKING:
    from everlog.core.query import Query


@click.command("purge")
@click.argument("stream", metavar="KIND/ID")
@click.option("--reason", metavar="TEXT", required=True, help="Why; it stays on record.")
@click.option("--confirm", metavar="TEXT", help="The exact words: purge KIND/ID.")
@click.option("--dry-run", is_flag=True, help="Count what would go, remove nothing.")
@actor_option
@common_options
@pass_session
def purge_command(session: Session, stream: str, reason: str, confirm: str | None, dry_run: bool) -> None:
    """Remove the events of a stream for good.

    What stays: their positions, their hashes and the record of the purge, so that the log still verifies. Readers
    whose cursor lies before it are told to start anew.

    \b
    Examples:
      everlog purge customer/42 --reason "erasure request 17" --dry-run
      everlog purge customer/42 --reason "erasure request 17" --confirm "purge customer/42"
    """
    from everlog.core.fields import require_shape, require_text
    from everlog.errors import NotFound

    require_shape("stream", stream)
    require_text("reason", reason)
    log = session.log()
    positions, payload_bytes, scopes = [], 0, set()
    for recorded in log.store.read(_of(stream)):
        positions.append(recorded.position)
        payload_bytes += _size(recorded.event.payload)
        scopes.add(recorded.event.scope)
    if not positions:
        raise NotFound(
            f"{stream} has no events to purge",
            why="it never had any, or they were purged before",
            hint="everlog log --purges",
            stream=stream,
        )
    facts = {
        "stream": stream,
        "events": len(positions),
        "first": positions[0],
        "last": positions[-1],
        "payload_bytes": payload_bytes,
        "scopes": sorted(scope for scope in scopes if scope),
    }
    if dry_run:
        lines = [
            f"would remove {counted(len(positions), 'event')} of {safe(stream)}, #{positions[0]} to #{positions[-1]},"
            f" {counted(payload_bytes, 'byte')} of payload",
            "nothing was removed",
        ]
        found = {**facts, "dry_run": True}
        session.out.answer(Answer.of_one(stream, found, lines=lines))
        return
    _require_confirmation(session, stream, len(positions), confirm)
    purge = log.purge(stream, reason=reason)
    found = {**facts, "events": purge.count, "reserved": purge.reserved, "reason": reason, "actor": purge.actor}
    lines = [
        f"removed {counted(purge.count, 'event')} of {safe(stream)} for good",
        f"position #{purge.reserved} holds the record of it; their places and hashes stay, so the log still verifies",
    ]
    session.out.answer(Answer.of_one(stream, found, lines=lines))
    _tell_of_the_lake(session)


def _tell_of_the_lake(session: Session) -> None:
    """A lake follows at its next run, and holds what was purged until then."""
    from everlog.cli.lake_place import lake_path
    from everlog.errors import EverlogError
    from everlog.files import DiskFiles

    try:
        place = lake_path(session)
    except EverlogError:
        return  # a log elsewhere, whose lake could be anywhere
    if DiskFiles().exists(place / "lake.json"):
        session.out.warn(f"the lake in {place} still holds it until the next everlog pipeline run")


def _of(stream: str) -> Query:
    from everlog.core.query import Query

    return Query(stream=stream)


def _size(payload: dict[str, object]) -> int:
    from everlog.core.canonical import canonical

    return len(canonical(payload))


def _require_confirmation(session: Session, stream: str, count: int, confirm: str | None) -> None:
    from shlex import quote

    from everlog.errors import ConfirmationNeeded

    words = f"purge {stream}"
    if confirm is None and sys.stdin.isatty() and sys.stderr.isatty() and not (session.json or session.agent):
        session.out.note(f"This removes {counted(count, 'event')} of {stream} for good. There is no way back.")
        confirm = click.prompt(f"Type '{words}' to go on", default="", show_default=False, err=True)
    if confirm == words:
        return
    raise ConfirmationNeeded(
        f"purging {stream} removes {counted(count, 'event')} for good"
        if confirm is None
        else "the confirmation does not match",
        why=f"it needs the exact words: {words}",
        hint=f"if that is what you want, repeat the command with --confirm {quote(words)}",
        confirm=words,
        events=count,
    )
