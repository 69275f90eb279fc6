"""`everlog purge`: remove events permanently, after an exact confirmation; and `log --purges`, its records."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from everlog.cli.output import Answer, safe
from everlog.cli.session import Session, actor_option, common_options, pass_session
from everlog.core.text import counted

if TYPE_CHECKING:
    from everlog.core.query import Query
    from everlog.log.log import Log


@click.command("purge")
@click.argument("stream", metavar="KIND/ID")
@click.option("--reason", metavar="TEXT", required=True, help="Why; it is recorded.")
@click.option("--force", is_flag=True, help="Never ask: --confirm must have the words, also on a terminal.")
@click.option("--confirm", metavar="TEXT", help="The exact words: purge KIND/ID.")
@click.option("--dry-run", is_flag=True, help="Count what would be removed, and remove nothing.")
@actor_option
@common_options
@pass_session
def purge_command(
    session: Session, stream: str, reason: str, force: bool, confirm: str | None, dry_run: bool
) -> None:
    """Remove the events of a stream permanently.

    Their positions, their hashes and a record of the purge remain, so that the log still verifies. Readers with a
    cursor from before the purge get a reset.

    \b
    Examples:
      everlog purge customer/42 --reason "erasure request 17" --dry-run
      everlog purge customer/42 --reason "erasure request 17" --confirm "purge customer/42"
    """
    from everlog.core.fields import require_shape, require_text
    from everlog.errors import NotFound

    require_shape("stream", stream)
    require_text("reason", reason)
    log = session.any_log()
    positions, payload_bytes, scopes = [], 0, set()
    # Stored events are not upcast: one that cannot be converted can still be purged.
    for recorded in log.read(stream=stream) if session.server else session.log().stored.read(_of(stream)):
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
    require_words(
        session,
        confirm,
        words=f"purge {stream}",
        effect=f"removes {counted(len(positions), 'event')} permanently",
        title=f"purging {stream}",
        ask=not force,
        events=len(positions),
    )
    purge = log.purge(stream, reason=reason)
    found = {**facts, "events": purge.count, "reserved": purge.reserved, "reason": reason, "actor": purge.actor}
    lines = [
        f"removed {counted(purge.count, 'event')} of {safe(stream)} permanently",
        f"position #{purge.reserved} holds the record; positions and hashes remain, so the log still verifies",
    ]
    session.out.answer(Answer.of_one(stream, found, lines=lines))
    if not session.server:
        _warn_of_lake(session)


def _warn_of_lake(session: Session) -> None:
    """Warn if there is a lake: it contains the purged events until its next run."""
    from everlog.application.lake import stale_lake

    if lake := stale_lake(session.location):
        session.out.warn(f"the lake in {lake} still contains the events until the next everlog pipeline run")


def _of(stream: str) -> Query:
    from everlog.core.query import Query

    return Query(stream=stream)


def _size(payload: dict[str, object]) -> int:
    from everlog.core.canonical import canonical

    return len(canonical(payload))


def require_words(
    session: Session, confirm: str | None, *, words: str, effect: str, title: str, events: int, ask: bool = True
) -> None:
    """Require the exact words, from the option or typed on a terminal."""
    from shlex import quote

    from everlog.errors import ConfirmationNeeded

    if confirm is None and ask and sys.stdin.isatty() and sys.stderr.isatty() and not (session.json or session.agent):
        session.out.note(f"{title[0].upper()}{title[1:]} {effect}. It cannot be undone.")
        confirm = click.prompt(f"Type '{words}' to continue", default="", show_default=False, err=True)
    if confirm == words:
        return
    raise ConfirmationNeeded(
        f"{title} {effect}" if confirm is None else "the confirmation does not match",
        why=f"the exact words are required: {words}",
        hint=f"if that is what you want, repeat the command with --confirm {quote(words)}",
        confirm=words,
        events=events,
    )


def show_purges(session: Session, log: Log) -> None:
    """Print the records of all purges."""
    from everlog.cli.events.records import moment

    found = log.stored.purges()
    fields = ("reserved", "purged_at", "stream", "scopes", "count", "sequence", "actor", "reason")
    session.out.answer(
        Answer.of_many(
            found,
            ("reserved", "purged_at", "stream", "count", "actor", "reason"),
            cells={"purged_at": lambda purge: moment(purge.purged_at)},
            named="stream",
            data=[
                {name: getattr(purge, name) for name in fields} | {"purged_at": purge.purged_at.isoformat()}
                for purge in found
            ],
        )
    )
    if not found:
        session.out.hint("there are no purges")
