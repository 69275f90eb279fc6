"""`everlog views`: derived state, asked, kept up to date, rebuilt and audited."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from everlog.cli.output import Answer, json_text, safe
from everlog.cli.session import (
    Session,
    actor_option,
    common_options,
    missing_ok_option,
    pass_session,
    past_damage_option,
)
from everlog.cli.views_rebuild import rebuild_view
from everlog.core.counted import counted

if TYPE_CHECKING:
    from everlog.views.letters import Letter
    from everlog.views.views import Handle

EXIT_DAMAGED = 8
ROWS_SHOWN = 1000


@click.group("views", invoke_without_command=True)
@common_options
@click.pass_context
def views_command(context: click.Context) -> None:
    """Derived state: list, get, run, rebuild, rollback, audit, dead-letters, retry, skip.

    A view is a fold of events into states. Every log has `streams`, `types` and `actors`; views of your own are named
    by the setting views. Alone, it lists them.

    \b
    Examples:
      everlog views
      everlog views get streams note/1
    """
    if context.invoked_subcommand is None:
        _list(context.ensure_object(Session))


@views_command.command("list")
@common_options
@pass_session
def list_views(session: Session) -> None:
    """List the views and how they stand; nothing is run.

    Columns when piped: view, state, version, position, lag, keys, letters.

    \b
    Example:
      everlog views list
    """
    _list(session)


def _list(session: Session) -> None:
    import msgspec

    from everlog.views.overview import DAMAGED

    found = session.log().views.overviews()
    session.out.answer(
        Answer(
            data=[msgspec.to_builtins(one) for one in found],
            ids=[one.view for one in found],
            columns=("view", "state", "version", "position", "lag", "keys", "letters"),
            rows=[
                (one.view, one.state, one.version or one.code_version, one.position, one.lag, one.keys, one.letters)
                for one in found
            ],
            facts={"count": len(found)},
        )
    )
    for one in found:
        if one.state == DAMAGED:
            session.out.warn(
                f"what {one.view} keeps is damaged; to derive it again: everlog views rebuild {one.view}"
            )
        elif one.mended:
            session.out.warn(
                f"{counted(one.mended, 'row')} of {one.view} did not match the checksum since build {one.build} was"
                f" made, and {'was' if one.mended == 1 else 'were'} folded again: everlog views audit {one.view}"
            )


@views_command.command("get")
@click.argument("view")
@click.argument("key", required=False)
@click.option("--stale", is_flag=True, help="As it was last kept, without reading on.")
@click.option("--after", metavar="KEY", default="", help="Only keys above this one.")
@click.option("--limit", type=click.IntRange(1), default=ROWS_SHOWN, show_default=True, help="At most so many keys.")
@missing_ok_option
@past_damage_option
@common_options
@pass_session
def get_state(session: Session, view: str, key: str | None, stale: bool, after: str, limit: int) -> None:
    """Show the state of a key, or of every key of a view.

    The view is brought up to date first; --json says up to which position.

    Columns when piped: key, state.

    \b
    Examples:
      everlog views get streams note/1
      everlog views get types
    """
    import msgspec

    handle = session.log().view(view)
    if key is not None:
        with _without_keeping(view, key):
            answer = handle.get(key, fresh=not stale)
        if not answer.found:
            if session.missing_ok:
                return
            raise _no_state(view, key)
        found = {**msgspec.to_builtins(answer), "state": answer.state}
        facts = {"view": view, "key": key, "position": answer.position, "lag": answer.lag, "parked": answer.parked}
        lines = json_text(answer.state, indent=2).split("\n")
        session.out.answer(Answer(data=found, ids=[key], rows=[(key, answer.state)], lines=lines, facts=facts))
        if answer.lag or answer.parked or answer.stopped_at:
            session.out.warn(_age(view, answer.lag, answer.parked, answer.stopped_at))
        return
    with _without_keeping(view, "KEY"):
        states = list(handle.items(fresh=not stale, after=after, limit=limit))
    position, lag = handle.position(), handle.lag()
    session.out.answer(
        Answer(
            data={"view": view, "position": position, "lag": lag, "states": dict(states)},
            ids=[name for name, _ in states],
            columns=("key", "state"),
            rows=states,
            facts={"view": view, "position": position, "lag": lag, "count": len(states)},
            next={"after": states[-1][0]} if len(states) == limit else None,
        )
    )
    if not states:
        session.out.hint(_no_keys(view, after, stale))


@contextmanager
def _without_keeping(view: str, key: str) -> Iterator[None]:
    """Who may not write cannot bring a view up to date; to be told a state of it needs no writing."""
    from everlog.errors import ReadOnly

    try:
        yield
    except ReadOnly as error:
        hint = f"{error.hint}; nothing is kept by: everlog state {view} {key}"
        raise ReadOnly(error.what, why=error.why, hint=hint, **error.details) from error


def _age(view: str, lag: int, parked: bool, stopped_at: int) -> str:
    if stopped_at:
        return f"the view {view} is stopped at #{stopped_at}: everlog views dead-letters {view}"
    if parked:
        return f"an event of this key could not be applied: everlog views dead-letters {view}"
    return f"the log is {counted(lag, 'position')} ahead of this answer"


def _no_keys(view: str, after: str, stale: bool) -> str:
    if after:
        return f"{view} has no key above {after}"
    return (
        f"nothing of {view} is kept: everlog views get {view} brings it up to date" if stale else f"{view} is empty"
    )


def _no_state(view: str, key: str) -> Exception:
    from everlog.errors import NotFound

    return NotFound(
        f"the view {view} has no state for {key}",
        why="no event of that key was applied",
        hint=f"everlog views get {view}",
        view=view,
        key=key,
    )


@views_command.command("run")
@click.argument("names", metavar="[VIEW ...]", nargs=-1)
@click.option("--to-end", is_flag=True, help="Bring them up to date and end.")
@common_options
@pass_session
def run_views(session: Session, names: tuple[str, ...], to_end: bool) -> None:
    """Keep views up to date, all of them or those named, until Ctrl-C.

    What a purge could not take out of the states of any view is taken out first.

    Columns when piped: view, position.

    \b
    Examples:
      everlog views run
      everlog views run streams --to-end
    """
    import time

    from everlog.cli.progress import progress
    from everlog.views.runner import Mode

    log = session.log()
    log.views.forget_missed()
    chosen = list(names or log.views.names())
    if to_end:
        reached = []
        for name in chosen:
            handle = log.view(name)
            with progress(session.out, name, log.head()) as tell:
                handle.runner.catch_up(progress=tell)
            reached.append((name, handle.position()))
        session.out.answer(
            Answer(
                data=[{"view": name, "position": position} for name, position in reached],
                ids=chosen,
                columns=("view", "position"),
                rows=reached,
                facts={"count": len(reached)},
            )
        )
        return
    for name in chosen:
        log.views.run(name, mode=Mode.ASYNC)
    session.out.hint(f"keeping {', '.join(chosen)} up to date; Ctrl-C ends it")
    while not log.waiters.closed:
        time.sleep(0.5)


views_command.add_command(rebuild_view)


@views_command.command("rollback")
@click.argument("view")
@common_options
@pass_session
def roll_back_view(session: Session, view: str) -> None:
    """Let the build before the last rebuild answer again.

    \b
    Example:
      everlog views rollback streams
    """
    handle = session.log().view(view)
    build = handle.rollback()
    facts = {"view": view, "build": build.number, "version": build.version, "position": build.position}
    lines = [f"{safe(view)} is answered by build {build.number} (version {build.version}) at #{build.position} again"]
    session.out.answer(Answer.of_one(view, facts, lines=lines))
    if build.version != handle.view.version:
        session.out.hint(
            f"the code here is of version {handle.view.version}, and answers by its own states until version"
            f" {build.version} is put back"
        )


@views_command.command("audit")
@click.argument("names", metavar="[VIEW ...]", nargs=-1)
@click.option("--sample", type=click.IntRange(1), metavar="N", help="Number of keys to fold again (default: all).")
@common_options
@pass_session
def audit_views(session: Session, names: tuple[str, ...], sample: int | None) -> None:
    """Recount the log and fold it again, compare the states, and name what is missing or differs.

    Exits 8 if a view misses an event, counts a key wrongly, has a state that is not what the events say, or has a row
    that does not match its checksum. Without names, every view that has been run.

    Columns when piped: view, position, lag, events, applied, waiting, skipped, gap, wrong, keys, checked, differing,
    damaged.

    \b
    Examples:
      everlog views audit
      everlog views audit streams --sample 1000
    """
    import msgspec

    from everlog.cli.progress import progress
    from everlog.views.overview import NEVER_RUN

    log = session.log()
    known = set(log.views.names())
    run_here = [one.view for one in log.views.overviews() if one.state != NEVER_RUN and one.view in known]
    found = []
    for name in names or run_here:
        with progress(session.out, f"auditing {name}", log.head()) as tell:
            found.append(log.view(name).audit(sample=sample, progress=tell))
    counts = ("view", "position", "lag", "events", "applied", "waiting", "skipped", "gap")
    columns = (*counts, "wrong", "keys", "checked", "differing", "damaged")
    rows: list[tuple[Any, ...]] = [
        (
            *(getattr(one, name) for name in counts),
            len(one.wrong_counts),
            one.keys,
            one.checked,
            len(one.differing),
            len(one.damaged),
        )
        for one in found
    ]
    data = [{**msgspec.to_builtins(one), "ok": one.ok} for one in found]
    session.out.answer(
        Answer(
            data=data,
            ids=[one.view for one in found if not one.ok],
            columns=columns,
            rows=rows,
            facts={"ok": all(one.ok for one in found), "count": len(found)},
        )
    )
    if not found:
        session.out.hint("no view has been run here, so there is nothing to recount: everlog views run --to-end")
    for one in found:
        for missing in one.missing[:20]:
            session.out.warn(f"{one.view} misses #{missing.position}, {missing.type} on {missing.stream}")
        for wrong in one.wrong_counts[:20]:
            session.out.warn(
                f"{one.view} counts {counted(wrong.kept, 'event')} of {wrong.key}, the log has {wrong.recounted}"
            )
        for key in one.damaged[:20]:
            session.out.warn(f"{one.view}: the row of {key} does not match its checksum")
        for key in one.differing[:20]:
            session.out.warn(f"{one.view}: the state of {key} is not what its events say")
    if not all(one.ok for one in found):
        session.out.hint("to derive it again: everlog views rebuild VIEW")
        raise click.exceptions.Exit(EXIT_DAMAGED)


# ---- dead letters


@views_command.command("dead-letters")
@click.argument("view")
@common_options
@pass_session
def dead_letters(session: Session, view: str) -> None:
    """Show the events that a view could not take, why, and what waits behind them.

    Columns when piped: position, what, type, stream, key, reason.

    \b
    Example:
      everlog views dead-letters streams
    """
    found = session.log().view(view).dead_letters()
    _answer_letters(session, found)
    if not found:
        session.out.hint("there are no dead letters")


@views_command.command("retry")
@click.argument("view")
@common_options
@pass_session
def retry_letters(session: Session, view: str) -> None:
    """Try everything that waits once more, through today's upcasters; show what still cannot be applied.

    Columns when piped: position, what, type, stream, key, reason.

    \b
    Example:
      everlog views retry streams
    """
    _answer_letters(session, _tried(session, session.log().view(view)))


def _tried(session: Session, handle: Handle) -> list[Letter]:
    left = handle.retry()
    if not left:
        session.out.hint("nothing waits any more")
    return left


@views_command.command("skip")
@click.argument("view")
@click.argument("position", type=int)
@click.option("--reason", metavar="TEXT", required=True, help="Why; it stays on record.")
@actor_option
@common_options
@pass_session
def skip_letter(session: Session, view: str, position: int, reason: str) -> None:
    """Let a view do without an event that it cannot take, and go on behind it.

    Columns when piped: position, what, type, stream, key, reason.

    \b
    Example:
      everlog views skip streams 17 --reason "a test event"
    """
    _answer_letters(session, session.log().view(view).skip(position, reason=reason))


def _answer_letters(session: Session, letters: list[Letter]) -> None:
    import msgspec

    session.out.answer(
        Answer(
            data=[msgspec.to_builtins(letter) for letter in letters],
            ids=[str(letter.position) for letter in letters],
            columns=("position", "what", "type", "stream", "key", "reason"),
            rows=[
                (
                    letter.position,
                    letter.what,
                    letter.type,
                    letter.stream,
                    letter.key,
                    letter.skipped_because or letter.reason,
                )
                for letter in letters
            ],
            facts={"count": len(letters)},
        )
    )
