"""`everlog views rebuild`: rebuild a view, in this process or on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from everlog.cli.output import Answer, safe
from everlog.cli.pipeline.group import log_url, spark_of, spark_options
from everlog.cli.pipeline.progress import spark_progress
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.text import counted

if TYPE_CHECKING:
    from everlog.views.live import LiveView
    from everlog.views.rebuild.blue_green import Rebuilt


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

    from everlog.cli.progress import progress
    from everlog.pipeline.engines.choose import SPARK, choose
    from everlog.views.rebuild.blue_green import DIFFERING_SHOWN
    from everlog.views.registry import live_view

    log = session.log()
    handle = live_view(log, view)
    advice = choose(log.head(), store=session.url or session.settings().settings.store)
    taken = advice.engine if engine == "auto" else engine
    if taken == SPARK:
        done = _rebuilt_on_spark(session, handle, master, conf, switch=not keep_old)
    else:
        session.when_stopped = "stopped; the view answers as before, and the same command continues the rebuild"
        with progress(session.out, f"rebuilding {view}", log.head()) as tell:
            done = handle.rebuild(switch=not keep_old, fresh=fresh, progress=tell)
    facts = {
        **msgspec.to_builtins(done),
        "differing": list(done.differing),
        "engine": taken,
        "advice": advice.engine,
        "why": advice.why,
    }
    compared = {True: "the same as before", False: "not the same as before", None: "nothing to compare with"}
    lines = [
        f"rebuilt   {view}, version {done.version}, {counted(done.keys, 'key')}"
        f" from {counted(done.applied, 'event')}",
        f"position  #{done.position}" + (f", continued after #{done.resumed_at}" if done.resumed_at else ""),
        f"engine    {taken}" + (f" up to #{done.handed_over}" if done.handed_over else "") + f": {advice.why}",
        f"digest    {done.digest}",
        f"compared  {compared[done.same]}"
        + (f", and {counted(done.checked, 'key was', 'keys were')} computed here too" if done.checked else ""),
    ]
    lines += [f"  differs: {safe(key)}" for key in done.differing]
    if len(done.differing) == DIFFERING_SHOWN:
        lines.append("  (there may be more)")
    lines.append(
        session.out.paint("ok", "green") + (": the new build answers" if done.switched else ": the old build answers")
    )
    session.out.answer(Answer.of_one(done.digest, facts, lines=lines))
    if advice.engine != taken:
        session.out.hint(f"this would probably be faster: everlog views rebuild {view} --engine {advice.engine}")
    if done.same is False and done.switched:
        session.out.hint(f"to go back: everlog views rollback {view}")


def _rebuilt_on_spark(
    session: Session, handle: LiveView, master: str, conf: Mapping[str, str], *, switch: bool
) -> Rebuilt:
    with spark_of(session, master, conf) as spark:
        from everlog.pipeline.engines.spark import derive_on

        log = session.log()
        derive = derive_on(spark, log_url(session), handle.view, log.catalog)
        with spark_progress(session.out, spark, f"folding {handle.view.name}", rows=log.head()):
            return handle.rebuild(switch=switch, derive=derive)
