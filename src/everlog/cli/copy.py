"""`everlog copy`: a whole log into another store."""

from __future__ import annotations

from pathlib import Path

import click

from everlog.cli.output import Answer, safe
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.counted import counted


@click.command("copy")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@common_options
@pass_session
def copy_command(session: Session, source: str, target: str) -> None:
    """Copy a whole log from any store to any other.

    FROM and TO are URLs, such as sqlite:log.db. Ids, order, positions, times, signatures, purges, idempotency keys
    and refusals are kept, and both sides are compared, byte by byte, before the copy gets its name. FROM may be
    written to meanwhile: the copy is of one moment. A copy that was stopped goes on when the command is repeated.

    The copy has an origin of its own, so that both logs may be written to afterwards.

    \b
    Examples:
      everlog copy sqlite:.everlog/log.db sqlite:backup.db
      everlog copy sqlite:.everlog/log.db segments:.everlog/segments
      everlog copy jsonl:events postgresql://db.example/logs --json
    """
    import msgspec

    from everlog import wiring
    from everlog.cli.progress import progress
    from everlog.cutover.copy import copy_log
    from everlog.errors import Conflict, InvalidSettings

    base = session.directory
    if "memory:" in (source, target):
        raise InvalidSettings(
            "a log in memory cannot be copied from here",
            why="it lives in one process and ends with it",
            hint="name a log that lasts, such as sqlite:log.db",
        )
    paths = [wiring.store_path(url, base=base) for url in (source, target)]
    if source == target or (paths[0] is not None and _same(paths[0], paths[1])):
        raise Conflict(
            "FROM and TO are the same log",
            why=f"both are {wiring.shown_url(source)}",
            hint="name another place for the copy",
        )
    store = wiring.open_store(source, base=base, create=False)
    try:
        wiring.refuse_unfinished(store, wiring.shown_url(source))
        with progress(session.out, "copying and comparing", 2 * store.head()) as tell:
            copied = copy_log(store, wiring.copy_target(target, base=base), progress=tell)
    finally:
        store.close()
    facts = {
        **msgspec.to_builtins(copied.summary),
        "notes": copied.notes,
        "claims": copied.claims,
        "resumed_at": copied.resumed_at,
        "log_id": copied.identity.log_id,
        "origin": copied.identity.origin,
        "epoch": copied.identity.epoch,
    }
    shown = wiring.shown_url(target)  # without its password
    resumed = f", continued after #{copied.resumed_at}" if copied.resumed_at else ""
    lines = [
        f"copied    {counted(copied.summary.events, 'event')} to {safe(shown)}{resumed}",
        f"purged    {copied.summary.purged:,}",
        f"head      #{copied.summary.head}",
        f"digest    {copied.summary.digest}",
        session.out.paint("ok", "green") + ": both sides are equal",
    ]
    session.out.answer(Answer.of_one(copied.summary.digest, facts, lines=lines))
    session.out.hint(_how_to_use(session, target))


def _how_to_use(session: Session, target: str) -> str:
    """The commands that use the copy: --log takes its path from here, and the setting from the folder."""
    from shlex import quote

    from everlog.cli.store_urls import typed_url, url_from_folder
    from everlog.errors import NoLogHere

    there = f"-C {quote(str(session.directory))} " if session.directory != Path() else ""
    told = f"to use the copy: everlog {there}--log {typed_url(target)} log"
    try:
        folder = session.folder()
    except NoLogHere:
        return told
    stated = url_from_folder(target, base=session.place, folder=folder)
    return f"{told}, or everlog {there}config set store {typed_url(stated)}"


def _same(one: Path, other: Path | None) -> bool:
    return other is not None and one.resolve() == other.resolve()
