"""`everlog views rebuild`: rebuild a view, in this process or on Spark."""

from __future__ import annotations

from collections.abc import Mapping

import click

from everlog.cli.output import Answer, safe
from everlog.cli.pipeline.group import spark_options
from everlog.cli.pipeline.progress import spark_and_url
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.text import counted


@click.command("rebuild")
@click.argument("view")
@click.option("--fresh", is_flag=True, help="Start over, even if an earlier rebuild was interrupted.")
@click.option("--keep-old", is_flag=True, help="Build and compare, but do not switch over.")
@click.option(
    "--engine",
    type=click.Choice(["process", "spark", "auto"]),
    default="process",
    show_default=True,
    help="What computes it; auto takes the one that is probably faster.",
)
@spark_options
@common_options
@pass_session
def rebuild_view(
    session: Session, view: str, fresh: bool, keep_old: bool, engine: str, master: str, conf: Mapping[str, str]
) -> None:
    """Rebuild a view while the old build answers, compare both, and switch over.

    The old build is kept for rollback. An interrupted rebuild continues where it stopped. The answer names the engine
    that suits a log of this size, and why. Spark computes up to the head, and this process the rest.

    \b
    Examples:
      everlog views rebuild streams
      everlog views rebuild streams --engine spark
      everlog views rebuild streams --engine spark --master spark://HOST:7077
    """
    import msgspec

    from everlog.application.views import states
    from everlog.cli.progress import progress

    log = session.log()
    session.when_stopped = "stopped; the view answers as before, and the same command continues the rebuild"
    found = states.rebuild_view(
        log,
        view,
        engine=engine,
        store=session.url or session.settings().settings.store,
        here=lambda: progress(session.out, f"rebuilding {view}", log.head()),
        spark=lambda: spark_and_url(session, f"folding {view}", master, conf),
        switch=not keep_old,
        fresh=fresh,
    )
    done, taken = found.done, found.engine
    facts = {
        **msgspec.to_builtins(done),
        "differing": list(done.differing),
        "engine": taken,
        "advice": found.advice,
        "why": found.why,
    }
    compared = {True: "the same as before", False: "not the same as before", None: "nothing to compare with"}
    lines = [
        f"rebuilt   {view}, version {done.version}, {counted(done.keys, 'key')}"
        f" from {counted(done.applied, 'event')}",
        f"position  #{done.position}" + (f", continued after #{done.resumed_at}" if done.resumed_at else ""),
        f"engine    {taken}" + (f" up to #{done.handed_over}" if done.handed_over else "") + f": {found.why}",
        f"digest    {done.digest}",
        f"compared  {compared[done.same]}"
        + (f", and {counted(done.checked, 'key was', 'keys were')} computed here too" if done.checked else ""),
    ]
    lines += [f"  differs: {safe(key)}" for key in done.differing]
    if not found.shows_all_differing:
        lines.append("  (there may be more)")
    lines.append(
        session.out.paint("ok", "green") + (": the new build answers" if done.switched else ": the old build answers")
    )
    session.out.answer(Answer.of_one(done.digest, facts, lines=lines))
    if found.advice != taken:
        session.out.hint(f"this would probably be faster: everlog views rebuild {view} --engine {found.advice}")
    if done.same is False and done.switched:
        session.out.hint(f"to go back: everlog views rollback {view}")
