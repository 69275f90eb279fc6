"""`everlog checkpoint`, `prove` and `heads`: what others can check about a log. `verify` checks it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everlog.cli.output import Answer, Output, safe
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.text import counted
from everlog.errors import NoLogHere

if TYPE_CHECKING:
    from everlog.application.trust.checkpoints import Checked
    from everlog.application.trust.proofs import CheckedProof
    from everlog.log.log import Log
    from everlog.log.verify.verify import Report

_out_option = click.option("--out", metavar="FILE", help="Write to FILE, which is replaced if it exists.")


@click.command("checkpoint")
@_out_option
@common_options
@pass_session
def checkpoint_command(session: Session, out: str | None) -> None:
    """Write a checkpoint: the size and the root of the log's tree, signed with its key.

    It is a signed note (C2SP tlog-checkpoint). Keep it elsewhere, or give it to others: everlog verify
    --checkpoint FILE later finds every event that was cut off, changed or moved since. A log without a key writes an
    unsigned one, which is of use to those who kept it themselves.

    \b
    Examples:
      everlog checkpoint
      everlog checkpoint --out monday.checkpoint
    """
    from everlog.application.trust.checkpoints import UNSIGNED, make_checkpoint
    from everlog.trust.notes import parse_checkpoint

    log = session.log()
    note = make_checkpoint(log, log.signing_key())
    made = parse_checkpoint(note.text)
    facts = {"size": made.size, "root": made.root.hex(), "origin": made.origin, "signed": bool(note.signatures)}
    _give(session, out, str(note), facts, "checkpoint", f"checkpoint of {counted(made.size, 'position')}")
    if not note.signatures:
        session.out.hint(UNSIGNED)


@click.command("prove")
@click.argument("name", metavar="ID|#POSITION|PART")
@click.option("--payload", is_flag=True, help="Include the payload. Without it, only the header is shown to others.")
@_out_option
@common_options
@pass_session
def prove_command(session: Session, name: str, payload: bool, out: str | None) -> None:
    """Write a proof that an event is in the log at its position, as one JSON file.

    It has the event's header, the signature of its author, the path to the root of the log's tree, and the signed
    checkpoint with that root. Anyone can check it without the log: everlog verify --proof FILE. The position of a
    purge or of a purged event can be proved, too.

    \b
    Examples:
      everlog prove '#12' --out event.proof
      everlog prove 01M7GNA1VYFX6R4DN7FYV6RCAF --payload
    """
    import msgspec

    from everlog.application.trust.checkpoints import UNSIGNED
    from everlog.application.trust.proofs import prove

    log = session.log()
    proof = prove(log, name, log.signing_key(), payload=payload)
    text = msgspec.json.format(msgspec.json.encode(proof), indent=1).decode() + "\n"
    facts = {"position": proof.position, "author": proof.group.origin if proof.group else "not signed"}
    _give(session, out, text, facts, "proof", f"proof of #{proof.position}", data=msgspec.to_builtins(proof))
    if not log.signing_key():
        session.out.hint(UNSIGNED)


@click.command("heads")
@_out_option
@common_options
@pass_session
def heads_command(session: Session, out: str | None) -> None:
    """List every origin with the end of its chain: the last number with none missing before it, and its hash.

    It is a signed note, and the same for any copy of the log, in any store and order: two copies with equal heads
    have the same events.

    \b
    Examples:
      everlog heads
      everlog heads --json
    """
    from everlog.application.trust.checkpoints import UNSIGNED, make_heads

    log = session.log()
    note = make_heads(log, log.signing_key())
    origins = [line.split(" ") for line in note.text.splitlines()[2:]]
    data = {
        "log": log.identity.log_id,
        "origins": {origin: {"end": int(end), "hash": hash} for origin, end, hash in origins},
        "note": str(note),
    }
    facts = {"origins": len(origins), "signed": bool(note.signatures)}
    _give(session, out, str(note), facts, "heads", f"heads of {len(origins)} origins", data=data)
    if not note.signatures:
        session.out.hint(UNSIGNED)


def _give(
    session: Session,
    file: str | None,
    text: str,
    facts: dict[str, Any],
    kind: str,
    title: str,
    *,
    data: Any = None,
) -> None:
    """Write the text to a file, or print exactly it."""
    if file is not None:
        from everlog.application.trust.checkpoints import write_file

        write_file(session.directory / file, text)
        facts = {**facts, "file": file}
        session.out.answer(Answer.of_one(file, facts, lines=[f"{title} written to {safe(file)}"]))
    elif session.out.json or session.out.agent or session.out.quiet:
        session.out.answer(Answer.of_one(kind, facts, lines=[], data=data or {**facts, "note": text}))
    else:
        sys.stdout.write(text)


# ---- `verify --proof` and `--checkpoint`


class Claim:
    """What a file claims about a log, after its signatures were checked."""

    def __init__(self, checked: Checked, proved: CheckedProof | None, *, is_of_log_here: bool) -> None:
        self.checked = checked
        self.facts = checked.facts if proved is None else proved.facts
        self.is_of_log_here = is_of_log_here

    def compared(self, log: Log, report: Report) -> Report:
        """Return the report of a log, with how it differs from the checkpoint."""
        import msgspec

        from everlog.application.trust.checkpoints import compare_with_log

        found = compare_with_log(log, self.checked.checkpoint)
        return report if found is None else msgspec.structs.replace(report, problems=(*report.problems, found))

    def answer(self, out: Output) -> None:
        from everlog.cli.verify import shown

        lines = [f"{name:<11} {safe(shown(value))}" for name, value in self.facts.items()]
        lines += [out.paint("ok", "green")]
        out.answer(Answer.of_one(self.checked.checkpoint.origin, {"ok": True, **self.facts}, lines=lines))
        out.hint("the file itself was checked; there was no log of this id here to compare with")


def answer_receipt(session: Session, file: str, key: str | None) -> None:
    """Check the receipt of a forget, and compare it with the log if it is here."""
    from everlog.application.trust.checkpoints import parse_key, read_file
    from everlog.application.trust.forget import check_receipt, compare_receipt
    from everlog.cli.verify import shown

    out = session.out
    checked = check_receipt(read_file(session.directory / file), None if key is None else parse_key(key))
    try:
        is_here = session.log().identity.log_id == checked.log_id
    except NoLogHere:
        is_here = False
    if is_here:
        compare_receipt(session.log(), checked)
    lines = [f"{name:<11} {safe(shown(value))}" for name, value in checked.facts.items()]
    lines += [out.paint("ok", "green")]
    out.answer(Answer.of_one(checked.log_id, {"ok": True, **checked.facts}, lines=lines))
    if not is_here:
        out.hint("the file itself was checked; there was no log of this id here to compare with")


def read_claim(session: Session, proof: str | None, checkpoint: str | None, key: str | None) -> Claim:
    """Read and check the file of `--proof` or `--checkpoint`."""
    from everlog.application.trust.checkpoints import check_checkpoint, parse_key, read_file
    from everlog.application.trust.proofs import check_proof
    from everlog.trust.notes import parse_name

    if bool(proof) == bool(checkpoint):
        raise click.UsageError("name one file, with --proof or --checkpoint")
    known = None if key is None else parse_key(key)
    data = read_file(session.directory / Path(proof or checkpoint or ""))
    proved = check_proof(data, known) if proof else None
    checked = proved.checked if proved is not None else check_checkpoint(data, known)
    name = parse_name(checked.checkpoint.origin)
    try:
        here = session.log().identity.log_id
    except NoLogHere:
        here = ""
    return Claim(checked, proved, is_of_log_here=name is not None and name.log_id == here)
