"""`everlog views`: read derived state, keep it up to date, roll it back and audit it."""

from __future__ import annotations

import click

from everlog.cli.output import Answer, json_text, safe
from everlog.cli.session import (
    Session,
    common_options,
    missing_ok_option,
    pass_session,
    past_damage_option,
)
from everlog.cli.views.dead_letters import dead_letters, retry_letters, skip_letter
from everlog.cli.views.rebuild import rebuild_view
from everlog.core.text import counted
from everlog.errors import CHECK_FAILED

ROWS_SHOWN = 1000


@click.group("views", invoke_without_command=True)
@common_options
@click.pass_context
def views_command(context: click.Context) -> None:
    """Derived state: list, get, run, rebuild, rollback, audit, dead-letters, retry, skip.

    A view folds events into one state per key. Every log has `streams`, `types` and `actors`; the setting views names
    your own. Without a command it lists them.

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
    """List the views and their state. No view is run.

    Columns when piped: view, state, version, position, lag, keys, letters.

    \b
    Example:
      everlog views list
    """
    _list(session)


def _list(session: Session) -> None:
    from everlog.application.anywhere import overviews
    from everlog.application.views.states import warning_about

    found = overviews(session.any_log())
    columns = ("view", "state", "version", "position", "lag", "keys", "letters")
    session.out.answer(Answer.of_many(found, columns, cells={"version": lambda one: one.version or one.code_version}))
    for one in found:
        session.out.warn(warning_about(one))


@views_command.command("get")
@click.argument("view")
@click.argument("key", required=False)
@click.option("--stale", is_flag=True, help="Show the stored state, without reading new events.")
@click.option("--after", metavar="KEY", default="", help="Only keys above this one.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1),
    default=ROWS_SHOWN,
    show_default=True,
    help="The maximum number of keys.",
)
@missing_ok_option
@past_damage_option
@common_options
@pass_session
def get_state(session: Session, view: str, key: str | None, stale: bool, after: str, limit: int) -> None:
    """Show the state of a key, or of every key of a view.

    The view is brought up to date first; --json has its position.

    Columns when piped: key, state.

    \b
    Examples:
      everlog views get streams note/1
      everlog views get types
    """
    import msgspec

    from everlog.application.views.states import age_of, state_of, states_of

    if key is not None:
        answer = state_of(session.any_log(), view, key, stale=stale)
        found = {**msgspec.to_builtins(answer), "state": answer.state}
        facts = {"view": view, "key": key, "position": answer.position, "lag": answer.lag, "parked": answer.parked}
        lines = json_text(answer.state, indent=2).split("\n")
        session.out.answer(Answer(data=found, ids=[key], rows=[(key, answer.state)], lines=lines, facts=facts))
        session.out.warn(age_of(answer))
        return
    all_of_them = states_of(session.any_log(), view, stale=stale, after=after, limit=limit)
    states = all_of_them.states
    where = {"view": view, "position": all_of_them.position, "lag": all_of_them.lag}
    session.out.answer(
        Answer(
            data={**where, "states": states},
            ids=list(states),
            columns=("key", "state"),
            rows=list(states.items()),
            facts={**where, "count": len(states)},
            next={"after": list(states)[-1]} if len(states) == limit else None,
        )
    )
    if not states:
        session.out.hint(_no_keys(view, after, stale))


def _no_keys(view: str, after: str, stale: bool) -> str:
    if after:
        return f"{view} has no key above {after}"
    return (
        f"nothing of {view} is stored: everlog views get {view} brings it up to date" if stale else f"{view} is empty"
    )


@views_command.command("run")
@click.argument("names", metavar="[VIEW ...]", nargs=-1)
@click.option("--to-end", is_flag=True, help="Bring them up to date and exit.")
@common_options
@pass_session
def run_views(session: Session, names: tuple[str, ...], to_end: bool) -> None:
    """Keep views up to date, all of them or those named, until Ctrl-C.

    Rows that a purge could not remove from a view are removed first.

    Columns when piped: view, position.

    \b
    Examples:
      everlog views run
      everlog views run streams --to-end
    """
    import time

    from everlog.application.views.states import bring_up_to_date, run_in_background
    from everlog.cli.progress import progress

    log = session.log()
    if to_end:
        reached = bring_up_to_date(log, names, lambda name: progress(session.out, name, log.head()))
        session.out.answer(Answer.of_many(reached))
        return
    chosen = run_in_background(log, names)
    session.out.hint(f"keeping {', '.join(chosen)} up to date; Ctrl-C ends it")
    while not log.writer.waiters.closed:
        time.sleep(0.5)


for command in (rebuild_view, dead_letters, retry_letters, skip_letter):
    views_command.add_command(command)


@views_command.command("rollback")
@click.argument("view")
@common_options
@pass_session
def roll_back_view(session: Session, view: str) -> None:
    """Return to the build before the last rebuild.

    \b
    Example:
      everlog views rollback streams
    """
    handle = session.log().view(view)
    build = handle.rollback()
    facts = {"view": view, "build": build.number, "version": build.version, "position": build.position}
    lines = [f"{safe(view)} answers from build {build.number} (version {build.version}) at #{build.position} again"]
    session.out.answer(Answer.of_one(view, facts, lines=lines))
    if build.version != handle.view.version:
        session.out.hint(
            f"the code here has version {handle.view.version}, and answers from its own build until version"
            f" {build.version} is restored"
        )


@views_command.command("audit")
@click.argument("names", metavar="[VIEW ...]", nargs=-1)
@click.option("--sample", type=click.IntRange(1), metavar="N", help="Number of keys to fold again (default: all).")
@common_options
@pass_session
def audit_views(session: Session, names: tuple[str, ...], sample: int | None) -> None:
    """Fold the log again, compare the rows, and report what is missing or differs.

    Exits 8 if a view misses an event, has a wrong count or state for a key, or has a row that does not match its
    checksum. Without names, every view that has been run is audited.

    Columns when piped: view, position, lag, events, applied, waiting, skipped, gap, wrong, keys, checked, differing,
    damaged.

    \b
    Examples:
      everlog views audit
      everlog views audit streams --sample 1000
    """
    import msgspec

    from everlog.application.views import states
    from everlog.cli.progress import progress

    log = session.log()
    found = states.audit_views(
        log, names, lambda name: progress(session.out, f"auditing {name}", log.head()), sample=sample
    )
    columns = (
        *("view", "position", "lag", "events", "applied", "waiting", "skipped", "gap"),
        *("wrong", "keys", "checked", "differing", "damaged"),
    )
    session.out.answer(
        Answer.of_many(
            found,
            columns,
            cells={
                "wrong": lambda one: len(one.wrong_counts),
                "differing": lambda one: len(one.differing),
                "damaged": lambda one: len(one.damaged),
            },
            ids=[one.view for one in found if not one.ok],
            facts={"ok": all(one.ok for one in found), "count": len(found)},
            data=[{**msgspec.to_builtins(one), "ok": one.ok} for one in found],
        )
    )
    if not found:
        session.out.hint("no view has been run here, so there is nothing to audit: everlog views run --to-end")
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
            session.out.warn(f"{one.view}: the state of {key} differs from its events")
    if not all(one.ok for one in found):
        session.out.hint("to correct it: everlog views rebuild VIEW")
        raise click.exceptions.Exit(CHECK_FAILED)
