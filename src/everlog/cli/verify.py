"""`everlog verify`: read every byte, compute every hash again, and account for every position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from everlog.cli.output import Answer, Output, json_text, safe
from everlog.cli.session import Session, common_options, missing_ok_option, pass_session
from everlog.errors import CHECK_FAILED

if TYPE_CHECKING:
    from everlog.log.verify.verify import Report

FAULTS_SHOWN = 20


@click.command("verify")
@click.option("--proof", metavar="FILE", help="Check a proof of everlog prove, also without the log.")
@click.option("--checkpoint", metavar="FILE", help="Compare the log with a checkpoint, or check it without the log.")
@click.option("--receipt", metavar="FILE", help="Check a receipt of everlog forget, also without the log.")
@click.option(
    "--key", metavar="KEY", help="The key that must have signed it: z6Mk…, did:key, OpenSSH or verifier key."
)
@missing_ok_option
@common_options
@pass_session
def verify_command(
    session: Session, proof: str | None, checkpoint: str | None, receipt: str | None, key: str | None
) -> None:
    """Verify the log from its bytes.

    Every position is accounted for, every hash is computed again, every chain is followed. The digest covers all
    events in order: equal logs have equal digests. Others may write meanwhile: the log is verified up to its head at
    the start. Exits 8 if anything is wrong. Many problems of one kind are one line; --json lists them all.

    In PostgreSQL, the role of a tenant verifies the events that it may see; `unseen` counts the other positions.

    With --checkpoint, the log must continue the checkpoint: an event that was cut off, changed or moved since is
    found. With --proof, the proof is checked. With --receipt, the receipt of a forget is checked, and that the log
    has its record. They also work on another machine, without the log: then the signatures and the proof are
    checked. --key states who must have signed; without it, the signer is shown.

    \b
    Examples:
      everlog verify
      everlog verify --checkpoint monday.checkpoint
      everlog verify --proof event.proof --key z6Mk...
    """
    import time

    from everlog.application.checks.problems import checked_out, no_hint_to_verify
    from everlog.cli.progress import progress

    out = session.out
    started = time.monotonic()
    claim = None
    if receipt:
        from everlog.cli.trust import answer_receipt

        if proof or checkpoint:
            raise click.UsageError("name one file, with --proof, --checkpoint or --receipt")
        answer_receipt(session, receipt, key)
        return
    if proof or checkpoint or key:
        from everlog.cli.trust import read_claim

        claim = read_claim(session, proof, checkpoint, key)
        if not claim.is_of_log_here:
            claim.answer(out)
            return
    from everlog.application.checks.forks import forked_chains

    any_log = session.any_log()
    with no_hint_to_verify(), progress(out, "verifying", any_log.head()) as show:
        report = any_log.verify(progress=show)
    more: dict[str, Any] = {"unseen": report.unseen} if report.unseen else {}
    if not session.server and (forked := forked_chains(session.log())):
        more["forked"] = forked
    if claim is not None:
        report, more = claim.compared(session.log(), report), {**more, **claim.facts}
    of = None if session.server else checked_out(session.log())
    answer_report(out, report, took_s=time.monotonic() - started, more=more, of=of)


def answer_report(
    out: Output,
    report: Report,
    *,
    took_s: float,
    more: Mapping[str, Any] | None = None,
    of: Mapping[str, Any] | None = None,
) -> None:
    """Print a report, and exit 8 if anything is wrong. `more` has further facts, and `of` names the git branch of
    the events."""
    import msgspec

    from everlog.application.checks.problems import remedy, summarize

    checked_out = ""
    if of is not None:
        checked_out = f"{of['branch'] or 'no branch'} at {of['commit'][:12] or 'no commit'}, epoch {of['epoch']}"

    facts = {
        "ok": report.ok,
        "events": report.events,
        **({"events_of": checked_out} if checked_out else {}),
        "present": report.present,
        "erased": report.erased,
        "purged": report.purged,
        "tampered": report.tampered,
        "head": report.head,
        "digest": report.digest,
        "problems": len(report.problems) + report.unlisted,
        **({"faults": len(report.faults)} if report.faults else {}),
        **(more or {}),
    }
    lines = [
        f"events    {report.events:,}",
        *([f"events of {checked_out}"] if checked_out else []),
        *([f"erased    {report.erased:,} of them, with a record"] if report.erased else []),
        f"purged    {report.purged:,}",
        *([f"tampered  {report.tampered:,}"] if report.tampered else []),
        f"head      #{report.head}",
        f"digest    {report.digest}",
        *(f"{name:<9} {safe(shown(value))}" for name, value in (more or {}).items()),
        f"problems  {facts['problems'] or 'none'}",
    ]
    if report.faults:
        lines.append(f"faults    {len(report.faults)} in chains of other origins; this log is not damaged")
        lines += [f"  #{fault.position} {safe(fault.reason)}" for fault in report.faults[:FAULTS_SHOWN]]
    summary = summarize(report)
    lines += [
        f"  {out.paint(item.place, 'red')}{' ' if item.place else ''}{out.paint(item.code, 'red')}{safe(item.words)}"
        for item in summary
    ]
    lines.append(out.paint("ok", "green") if report.ok else out.paint("NOT OK", "red"))
    problems = [msgspec.to_builtins(problem) for problem in report.problems]
    out.answer(
        Answer(
            data={
                **facts,
                **({"events_of": dict(of)} if of else {}),
                "problems": problems,
                **({"faults": msgspec.to_builtins(report.faults)} if report.faults else {}),
                "took_s": round(took_s, 3),
            },
            ids=[report.digest],
            columns=("position", "code", "reason") if out.agent else (),
            rows=[(item.position, item.code, item.place_and_reason) for item in summary]
            if out.agent
            else [*facts.items(), *(("problem", item.line) for item in summary)],
            lines=lines,
            facts=facts,
        )
    )
    if not report.ok:
        out.hint(remedy(report.problems))
        raise click.exceptions.Exit(CHECK_FAILED)


def shown(value: Any) -> str:
    """Return a fact as a line shows it."""
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "nobody"
    return json_text(value) if isinstance(value, dict) else str(value)
