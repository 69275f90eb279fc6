"""`everlog views rebuild`: a view derived anew, by this process or on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from everlog.cli.output import Answer, safe
from everlog.cli.pipeline import log_url, spark_of, spark_options
from everlog.cli.session import Session, common_options, pass_session
from everlog.cli.spark_progress import spark_progress
from everlog.core.counted import counted

if TYPE_CHECKING:
    from everlog.views.rebuild import Rebuilt
    from everlog.views.views import Handle


@click.command("rebuild")
@click.argument("view")
@click.option("--fresh", is_flag=True, help="Begin again, even if a rebuild was begun and stopped.")
@click.option("--keep-old", is_flag=True, help="Build and compare, but let the old one go on answering.")
@click.option(
    "--engine",
    type=click.Choice(["process", "spark", "auto"]),
    default="process",
    show_default=True,
    help="What derives it; auto takes what is likely to be done first.",
)
@spark_options
@common_options
@pass_session
def rebuild_view(
    session: Session, view: str, fresh: bool, keep_old: bool, engine: str, master: str, conf: Mapping[str, str]
) -> None:
    """Derive a view anew beside the one that answers, compare, and switch over.

    The one before is kept for rollback. A rebuild that was stopped goes on where it was. It says which engine it
    would take for a log of this size, and why; on Spark it folds up to the head, and the rest here.

    \b
    Examples:
      everlog views rebuild streams
      everlog views rebuild streams --engine spark
      everlog views rebuild streams --engine spark --master spark://HOST:7077
    """
    import msgspec

    from everlog.cli.progress import progress
    from everlog.pipeline.engine import SPARK, advise
    from everlog.views.rebuild import DIFFERING_SHOWN

    log = session.log()
    handle = log.view(view)
    advice = advise(log.head(), store=session.url or session.settings().settings.store)
    taken = advice.engine if engine == "auto" else engine
    if taken == SPARK:
        done = _rebuilt_on_spark(session, handle, master, conf, switch=not keep_old)
    else:
        session.when_stopped = "stopped; the view answers as before, and the same command goes on where it was"
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
        + (f", and {counted(done.checked, 'key was', 'keys were')} derived here too" if done.checked else ""),
    ]
    lines += [f"  differs: {safe(key)}" for key in done.differing]
    if len(done.differing) == DIFFERING_SHOWN:
        lines.append("  (there may be more)")
    lines.append(
        session.out.paint("ok", "green") + (": it answers now" if done.switched else ": the old one answers")
    )
    session.out.answer(Answer.of_one(done.digest, facts, lines=lines))
    if advice.engine != taken:
        session.out.hint(f"this would probably be quicker: everlog views rebuild {view} --engine {advice.engine}")
    if done.same is False and done.switched:
        session.out.hint(f"to go back: everlog views rollback {view}")


def _rebuilt_on_spark(
    session: Session, handle: Handle, master: str, conf: Mapping[str, str], *, switch: bool
) -> Rebuilt:
    with spark_of(session, master, conf) as spark:
        from everlog.pipeline.handover import derive_on

        log = session.log()
        derive = derive_on(spark, log_url(session), handle.view, log.catalog)
        with spark_progress(session.out, spark, f"folding {handle.view.name}", rows=log.head()):
            return handle.rebuild(switch=switch, derive=derive)
