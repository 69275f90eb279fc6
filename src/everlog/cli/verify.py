"""`everlog verify`: read every byte again, compute every hash again, account for every number."""

from __future__ import annotations

import click

from everlog.cli.output import Answer, safe
from everlog.cli.session import Session, common_options, missing_ok_option, pass_session

EXIT_DAMAGED = 8
RESTORE = "keep this file as it is; restore a backup, or read on what is readable: everlog log --to-end"


@click.command("verify")
@missing_ok_option
@common_options
@pass_session
def verify_command(session: Session) -> None:
    """Prove the log from its bytes.

    Every position is accounted for, every hash computed again, every chain followed. The digest is over all events in
    order: equal logs have equal digests. Exits 8 if anything is wrong.

    \b
    Examples:
      everlog verify
      everlog verify --json
    """
    import time

    import msgspec

    from everlog.cli.progress import progress
    from everlog.errors import Damaged

    log = session.log()
    out = session.out
    started = time.monotonic()
    try:
        with progress(out, "verifying", log.head()) as tell:
            report = log.verify(progress=tell)
    except Damaged as error:
        # It cannot be read to its end; to be sent here again would be of no help.
        hint = RESTORE if error.hint.startswith("everlog verify") else error.hint
        raise Damaged(error.what, why=error.why, hint=hint, **error.details) from error
    took_s = time.monotonic() - started
    facts = {
        "ok": report.ok,
        "events": report.events,
        "purged": report.purged,
        "head": report.head,
        "digest": report.digest,
        "problems": len(report.problems),
    }
    lines = [
        f"events    {report.events:,}",
        f"purged    {report.purged:,}",
        f"head      #{report.head}",
        f"digest    {report.digest}",
        f"problems  {len(report.problems) or 'none'}",
    ]
    lines += [
        out.paint(f"  #{problem.position} " if problem.position else "  the log ", "red")
        + safe(f"{problem.code}: {problem.reason}")
        for problem in report.problems
    ]
    lines.append(out.paint("ok", "green") if report.ok else out.paint("NOT OK", "red"))
    problems = [msgspec.to_builtins(problem) for problem in report.problems]
    out.answer(
        Answer(
            data={**facts, "problems": problems, "took_s": round(took_s, 3)},
            ids=[report.digest],
            columns=("position", "code", "reason") if out.agent else (),
            rows=[(problem.position, problem.code, problem.reason) for problem in report.problems]
            if out.agent
            else [*facts.items(), *(("problem", f"#{p.position} {p.code}: {p.reason}") for p in report.problems)],
            lines=lines,
            facts=facts,
        )
    )
    if not report.ok:
        out.hint(RESTORE)
        raise click.exceptions.Exit(EXIT_DAMAGED)
