"""`everlog copy`: copy a whole log into another store."""

from __future__ import annotations

from pathlib import Path

import click

from everlog.cli.output import Answer, safe
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.text import counted


@click.command("copy")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@common_options
@pass_session
def copy_command(session: Session, source: str, target: str) -> None:
    """Copy a whole log from any store to any other.

    FROM and TO are URLs, such as sqlite:log.db. Ids, order, positions, times, signatures, purges, idempotency keys
    and refusals are kept, and both sides are compared byte by byte before the copy gets its name. Others may write to
    FROM meanwhile: the copy is the log at one moment. An interrupted copy continues when the command is repeated.

    The copy has its own origin, so that both logs can be written to afterwards.

    \b
    Examples:
      everlog copy sqlite:.everlog/log.db sqlite:backup.db
      everlog copy sqlite:.everlog/log.db segments:.everlog/segments
      everlog copy jsonl:events postgresql://db.example/logs --json
    """
    import msgspec

    from everlog import wiring
    from everlog.cli.progress import progress
    from everlog.errors import Conflict, InvalidSettings
    from everlog.transfer.copy import copy_log

    base = session.work_in
    if "memory:" in (source, target):
        raise InvalidSettings(
            "a log in memory cannot be copied from here",
            why="it exists only in one process",
            hint="name a stored log, such as sqlite:log.db",
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
    """Return the commands that use the copy. --log takes a path from here, the setting one from the folder."""
    from shlex import quote

    from everlog.application.store_urls import typed_url, url_from_folder
    from everlog.errors import NoLogHere

    there = f"-C {quote(str(session.work_in))} " if session.work_in != Path() else ""
    use = f"to use the copy: everlog {there}--log {typed_url(target)} log"
    try:
        folder = session.folder()
    except NoLogHere:
        return use
    stated = url_from_folder(target, base=session.directory, folder=folder)
    return f"{use}, or everlog {there}config set store {typed_url(stated)}"


def _same(one: Path, other: Path | None) -> bool:
    return other is not None and one.resolve() == other.resolve()
