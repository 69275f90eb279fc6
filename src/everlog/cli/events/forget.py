"""`everlog forget`: forget a person after an exact confirmation, and list the nodes that have followed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from everlog.cli.events.purge import require_words
from everlog.cli.output import Answer, safe
from everlog.cli.session import Session, actor_option, common_options, pass_session
from everlog.core.text import counted
from everlog.errors import CHECK_FAILED

if TYPE_CHECKING:
    from everlog.application.trust.forget import Receipt


@click.command("forget")
@click.argument("subject", metavar="[SUBJECT]", default="")
@click.option("--confirm", metavar="TEXT", help="The exact words: forget SUBJECT.")
@click.option("--dry-run", is_flag=True, help="Count what would be done, and do nothing.")
@click.option("--status", is_flag=True, help="List every forget, and the nodes that have followed.")
@click.option("--finish", is_flag=True, help="Finish a forget that was interrupted.")
@click.option("--follow", metavar="RECORD", help="Do here what the record of another node asks for.")
@click.option("--out", metavar="FILE", help="Write the receipt to FILE, which is replaced if it exists.")
@actor_option
@common_options
@pass_session
def forget_command(
    session: Session,
    subject: str,
    confirm: str | None,
    dry_run: bool,
    status: bool,
    finish: bool,
    follow: str | None,
    out: str | None,
) -> None:
    """Forget a person: nobody can read their personal fields any more, in this log and in every copy of it.

    Their keys are destroyed. Values that were recorded before a field was declared personal are erased. The person is
    removed from views, snapshots, refusals, dead letters, stored responses, exports in the log's folder and the lake.
    Then every byte of the log is searched for the values. It cannot be undone.

    SUBJECT is the person as personal fields name them, such as customer/41. Every hash, signature, checkpoint and
    proof still verifies. The receipt is signed with the key of the log; everlog verify --receipt FILE checks it.

    \b
    Examples:
      everlog forget customer/41 --dry-run
      everlog forget customer/41 --confirm "forget customer/41" --out 41.receipt
      everlog forget --status
    """
    from everlog.application.trust import forget as use_case
    from everlog.application.trust.owned_bytes import owned_by

    if sum((bool(subject), status, finish, bool(follow))) != 1:
        raise click.UsageError("name one: SUBJECT, --status, --finish or --follow RECORD")
    log = session.log()
    if status:
        _show_status(session)
        return
    if finish:
        done = use_case.finish(log, owned=owned_by(session.location))
        if not done:
            session.out.answer(Answer.of_one("", {"finished": 0}, lines=["there is nothing to finish"]))
            return
    elif follow:
        done = use_case.follow(log, follow, owned=owned_by(session.location))
        if not done:
            session.out.answer(Answer.of_one(follow, {"record": follow}, lines=["this node has followed it before"]))
            return
    else:
        found = use_case.find(log, subject)
        facts = {"subject": subject, "events": len(found.events), "keys": len(found.keys), "erase": len(found.open)}
        if dry_run:
            lines = [
                f"would destroy {counted(len(found.keys), 'key')} of {safe(subject)}, which"
                f" {counted(len(found.events), 'event')} of {counted(len(found.streams), 'stream')} need",
                f"would erase {counted(len(found.open), 'payload')} with values that were never sealed",
                "nothing was changed",
            ]
            session.out.answer(Answer.of_one(subject, {**facts, "dry_run": True}, lines=lines))
            return
        require_words(
            session,
            confirm,
            words=f"forget {subject}",
            effect=f"makes the personal fields of {counted(len(found.events), 'event')} unreadable for good",
            title=f"forgetting {subject}",
            events=len(found.events),
        )
        done = use_case.forget(log, subject, owned=owned_by(session.location))
    _answer(session, done, out)


def _answer(session: Session, done: list[Receipt], out: str | None) -> None:
    from everlog.application.trust.checkpoints import UNSIGNED, write_file

    last = done[-1]
    if out is not None:
        write_file(session.directory / out, str(last.note))
    facts: dict[str, Any] = {
        "record": last.forget.records[0],
        "keys": len(last.forget.keys),
        "erased": last.forget.erased,
        "exports": len(last.exports),
        "lake": last.lake,
        "searched_files": last.searched.files,
        "searched_bytes": last.searched.bytes,
        "found": last.searched.found,
        "unreadable": last.searched.unreadable,
        "beside": last.beside,
        "git": last.git,
        "signed": bool(last.note.signatures),
        **({"file": out} if out else {}),
    }
    lines = [
        f"destroyed {counted(len(last.forget.keys), 'key')}; erased {counted(last.forget.erased, 'payload')}"
        " with values that were never sealed",
        f"record    {last.forget.records[0]}",
        f"searched  {counted(last.searched.files, 'file')}, {last.searched.bytes:,} bytes",
        f"found     {', '.join(map(safe, last.searched.found)) or 'nothing'}",
        *([f"receipt   written to {safe(out)}"] if out else []),
    ]
    session.out.answer(
        Answer.of_one(last.forget.records[0], facts, lines=lines, data={**facts, "note": str(last.note)})
    )
    if last.git:
        session.out.warn("git holds earlier states of these files, with the values that were never sealed")
    if last.beside:
        session.out.warn(f"an export outside the log has values that were never sealed: {', '.join(last.beside)}")
    if last.lake:
        session.out.hint("the lake was removed; everlog pipeline run derives it again")
    if last.searched.unreadable:
        session.out.warn(f"could not be searched: {', '.join(last.searched.unreadable)}")
    if not last.note.signatures:
        session.out.hint(UNSIGNED)
    if last.searched.found:
        session.out.warn("a value is still there: another event or another file has it, too; look at the files named")
        raise click.exceptions.Exit(CHECK_FAILED)


def _show_status(session: Session) -> None:
    import msgspec

    from everlog.application.trust.forget import is_unfinished, status

    log = session.log()
    found = status(log)
    session.out.answer(
        Answer.of_many(
            found,
            ("position", "record", "at", "keys", "erased", "nodes"),
            cells={"nodes": lambda one: ", ".join(one.nodes)},
            named="record",
            data=[msgspec.to_builtins(one) for one in found],
        )
    )
    if is_unfinished(log):
        session.out.warn("a forget is not finished: everlog forget --finish")
    elif not found:
        session.out.hint("nobody was forgotten")
    for one in found:
        if not one.here:
            why = "" if one.counts else "; its author has no right to it"
            session.out.hint(f"this node has not followed: everlog forget --follow {one.record}{why}")
