"""`everlog pipeline verify`: the lake compared with its log, and healed."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import click

from everlog.cli.output import Answer, safe
from everlog.cli.pipeline.group import log_url, spark_options
from everlog.cli.pipeline.lake import lake_option
from everlog.cli.pipeline.run import asked_for, start_spark
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.text import counted
from everlog.errors import CHECK_FAILED

if TYPE_CHECKING:
    from everlog.pipeline.audit.lake import Damage, Proof


@click.command("verify")
@click.option("--all", "everything", is_flag=True, help="Compare every row of typed tables and views, not a sample.")
@click.option("--heal", is_flag=True, help="Write the damaged files again from the log; leave all others.")
@lake_option
@spark_options
@common_options
@pass_session
def verify_command(
    session: Session, everything: bool, heal: bool, lake: str | None, master: str, conf: dict[str, str]
) -> None:
    """Compare the lake with its log: the bytes of every file, every event, and a sample of all other rows.

    Each file has the SHA-256 that its commit names, and each event is that of the log. Typed rows and states are
    derived again from the log and compared. What differs is listed with its table, file and positions; then the exit
    code is 8. --heal repairs it: only damaged files are written again, and a run publishes them.

    \b
    Examples:
      everlog pipeline verify
      everlog pipeline verify --all --heal
    """
    import msgspec

    from everlog.application.lake import defined_tables, open_lake
    from everlog.pipeline.session.session import require_libraries

    require_libraries()
    from everlog.pipeline.audit.lake import prove_lake
    from everlog.pipeline.engines.choose import LOCAL, LOCAL_EVENTS_MAX, choose
    from everlog.pipeline.engines.engine import Engine, NeedsSpark
    from everlog.pipeline.engines.local import LocalEngine
    from everlog.pipeline.run import bring_up_to_date, require_types
    from everlog.pipeline.tables.answers import answers_of
    from everlog.pipeline.tables.gold import gold_of
    from everlog.pipeline.tables.view_table import ViewTable

    log = session.log()
    require_types(log)
    found = open_lake(session.location, lake, log_id=log.identity.log_id)
    views = [ViewTable(view, log.catalog.without_keys()) for view in log.views.known()]
    gold = gold_of(
        found, log.views.known(), log.catalog, more=answers_of(log, found, defined_tables(session.location))
    )

    def work(engine: Engine) -> tuple[Proof, str]:
        with found.writing():
            proof = prove_lake(engine, log, log_url(session), found, views, everything=everything, heal=heal)
            if not (heal and proof.damages):
                return proof, ""
            return proof, bring_up_to_date(engine, log, log_url(session), found, gold=gold).left

    choice = choose(log.head(), local_max=LOCAL_EVENTS_MAX, asked_for=asked_for(master, conf))
    on_spark = partial(start_spark, session, found, master, conf)
    with ExitStack() as stack:
        why = choice.why
        proof, left = None, choice.why
        if choice.engine == LOCAL:
            try:
                proof, left = work(LocalEngine())
            except NeedsSpark as needs:
                left = needs.why
        if proof is None or left:
            engine, _ = stack.enter_context(on_spark(left))
            again, _ = work(engine)
            proof = again if proof is None else proof
            why = left
    facts = msgspec.to_builtins(proof)
    lines = [_line(damage) for damage in proof.damages]
    lines += [
        f"compared  {counted(proof.files, 'file')}, {counted(proof.events, 'event')}, "
        f"{counted(proof.typed, 'typed row')}, {counted(proof.states, 'state')} ({why})"
    ]
    if not proof.damages:
        lines.append(session.out.paint("ok", "green") + ": the lake is what its log gives")
    elif heal:
        lines.append(session.out.paint("ok", "green") + f": {counted(len(proof.damages), 'damage')} healed")
    rows = [(one.table, one.path, one.why) for one in proof.damages]
    session.out.answer(
        Answer(
            data=facts,
            ids=[one.table for one in proof.damages],
            columns=("table", "file", "why"),
            rows=rows,
            lines=lines,
            facts=facts,
        )
    )
    if proof.damages and not heal:
        session.out.warn("nothing was changed; to repair it: everlog pipeline verify --heal")
        raise click.exceptions.Exit(CHECK_FAILED)


def _line(damage: Damage) -> str:
    reach = f" (positions {damage.first} to {damage.last})" if damage.last else ""
    named = [*(f"#{position}" for position in damage.positions), *damage.keys]
    return safe(f"{damage.table} {damage.path}{reach}: {damage.why}" + (": " + ", ".join(named) if named else ""))
