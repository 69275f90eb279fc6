"""`everlog issue`: making and changing issues, up and down the ladder; what can be asked stands in issue_asking."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from everlog.cli.doing import by_of, doing_options, tell
from everlog.cli.issue_asking import history, list_issues, search, show
from everlog.cli.output import safe
from everlog.cli.session import Session, common_options, pass_session

if TYPE_CHECKING:
    from everlog.domains.deciding import By
    from everlog.domains.issues.commands import Step

KINDS = click.Choice(["blocks", "duplicates", "relates"])


@click.group("issue")
@common_options
def issue_command() -> None:
    """Issues: create, edit, comment, label, link, close, delete, purge, list, show, search, history and more.

    An issue is named by its short id (the end of its uid), by its uid, or by a beginning of that which only one has.
    With --scope (or the setting `scope`) it belongs to that project, and what lies beyond is not there.

    \b
    Example:
      everlog issue create "The door squeaks" --label bug && everlog issue list
    """


for _command in (list_issues, show, search, history):
    issue_command.add_command(_command)


@issue_command.command("create")
@click.argument("title")
@click.option("--body", metavar="TEXT", default="", help="What there is to say about it.")
@click.option("--owner", metavar="NAME", default="", help="Who takes care of it.")
@click.option("--label", "labels", metavar="LABEL", multiple=True, help="A label; may be given again.")
@click.option("--link", "links", metavar="KIND:ISSUE", multiple=True, help="Such as blocks:hrac; may be given again.")
@click.option("--force-new", is_flag=True, help="Also if there is one very much like it.")
@doing_options
@pass_session
def create(
    session: Session,
    title: str,
    body: str,
    owner: str,
    labels: tuple[str, ...],
    links: tuple[str, ...],
    force_new: bool,
    **by: Any,
) -> None:
    """Open an issue, unless there is one very much like it.

    \b
    Examples:
      everlog issue create "The door squeaks" --body "Every night." --label bug --owner ada
      everlog issue create "Buy oil" --link blocks:hrac --key oil-1
    """
    from everlog.domains.issues import commands
    from everlog.domains.issues.commands import New

    parted = [link.partition(":") for link in links]
    if not all(separator for _, separator, _ in parted):
        raise click.BadParameter("a link is KIND:ISSUE, such as blocks:hrac", param_hint="--link")
    new = New(
        title=title,
        body=body,
        owner=owner,
        labels=labels,
        links=tuple((kind, reference) for kind, _, reference in parted),
    )
    _tell(session, commands.create(session.log(), new, force_new=force_new, by=by_of(session, **by)))


@issue_command.command("edit")
@click.argument("issue")
@click.option("--title", metavar="TEXT", help="A new title.")
@click.option("--body", metavar="TEXT", help="A new body.")
@click.option("--owner", metavar="NAME", help="A new owner; empty for none.")
@doing_options
@pass_session
def edit(session: Session, issue: str, title: str | None, body: str | None, owner: str | None, **by: Any) -> None:
    """Change the title, the body or the owner. What each was before stays on record.

    \b
    Example:
      everlog issue edit hrac --title "The gate squeaks" --owner bob
    """
    from everlog.domains.issues import commands

    if title is None and body is None and owner is None:
        raise click.UsageError("nothing to change: give --title, --body or --owner")
    made_by = by_of(session, **by)
    _tell(session, commands.edit(session.log(), issue, title=title, body=body, owner=owner, by=made_by))


@issue_command.command("comment")
@click.argument("issue")
@click.argument("text")
@doing_options
@pass_session
def comment(session: Session, issue: str, text: str, **by: Any) -> None:
    """Say something about an issue. A comment is neither edited nor deleted.

    \b
    Example:
      everlog issue comment hrac "Oil helps."
    """
    from everlog.domains.issues import commands

    _tell(session, commands.comment(session.log(), issue, text, by=by_of(session, **by)))


@issue_command.command("label")
@click.argument("issue")
@click.argument("labels", metavar="LABEL...", nargs=-1, required=True)
@doing_options
@pass_session
def label(session: Session, issue: str, labels: tuple[str, ...], **by: Any) -> None:
    """Give an issue labels.

    \b
    Example:
      everlog issue label hrac bug p1
    """
    from everlog.domains.issues import commands

    _tell(session, commands.label(session.log(), issue, labels, by=by_of(session, **by)))


@issue_command.command("unlabel")
@click.argument("issue")
@click.argument("labels", metavar="LABEL...", nargs=-1, required=True)
@doing_options
@pass_session
def unlabel(session: Session, issue: str, labels: tuple[str, ...], **by: Any) -> None:
    """Take labels from an issue.

    \b
    Example:
      everlog issue unlabel hrac p1
    """
    from everlog.domains.issues import commands

    _tell(session, commands.unlabel(session.log(), issue, labels, by=by_of(session, **by)))


@issue_command.command("link")
@click.argument("issue")
@click.argument("kind", type=KINDS)
@click.argument("other", metavar="ISSUE")
@click.option("--uid", metavar="UID", default="", help="Refuse if the first one has not this uid.")
@click.option("--to-uid", metavar="UID", default="", help="Refuse if the other one has not this uid.")
@doing_options
@pass_session
def link(session: Session, issue: str, kind: str, other: str, uid: str, to_uid: str, **by: Any) -> None:
    """Have an issue point to another one: it blocks it, duplicates it, or relates to it.

    \b
    Example:
      everlog issue link 8qz1 blocks hrac
    """
    from everlog.domains.issues import commands

    made_by = by_of(session, **by)
    _tell(session, commands.link(session.log(), issue, kind, other, uid=uid, other_uid=to_uid, by=made_by))


@issue_command.command("unlink")
@click.argument("issue")
@click.argument("kind", type=KINDS)
@click.argument("other", metavar="ISSUE")
@click.option("--uid", metavar="UID", default="", help="Refuse if the first one has not this uid.")
@click.option("--to-uid", metavar="UID", default="", help="Refuse if the other one has not this uid.")
@doing_options
@pass_session
def unlink(session: Session, issue: str, kind: str, other: str, uid: str, to_uid: str, **by: Any) -> None:
    """Have an issue point to another one no more.

    \b
    Example:
      everlog issue unlink 8qz1 blocks hrac
    """
    from everlog.domains.issues import commands

    made_by = by_of(session, **by)
    _tell(session, commands.remove_link(session.log(), issue, kind, other, uid=uid, other_uid=to_uid, by=made_by))


# ---- the ladder


@issue_command.command("close")
@click.argument("issue")
@click.option("--reason", metavar="TEXT", default="", help="How it was settled.")
@doing_options
@pass_session
def close(session: Session, issue: str, reason: str, **by: Any) -> None:
    """Settle an issue. It stays visible.

    \b
    Example:
      everlog issue close hrac --reason "oiled"
    """
    from everlog.domains.issues import commands

    _tell(session, commands.close(session.log(), issue, reason=reason, by=by_of(session, **by)))


@issue_command.command("reopen")
@click.argument("issue")
@click.option("--reason", metavar="TEXT", default="", help="Why it is not settled.")
@doing_options
@pass_session
def reopen(session: Session, issue: str, reason: str, **by: Any) -> None:
    """Open a closed issue again.

    \b
    Example:
      everlog issue reopen hrac --reason "it squeaks again"
    """
    from everlog.domains.issues import commands

    _tell(session, commands.reopen(session.log(), issue, reason=reason, by=by_of(session, **by)))


@issue_command.command("delete")
@click.argument("issue")
@click.option("--force", is_flag=True, help="Without it nothing is deleted.")
@click.option("--confirm", metavar="TEXT", help="The exact words: delete SHORT_ID.")
@click.option("--reason", metavar="TEXT", default="", help="Why.")
@doing_options
@pass_session
def delete(session: Session, issue: str, force: bool, confirm: str | None, reason: str, **by: Any) -> None:
    """Hide an issue. It can be restored.

    \b
    Example:
      everlog issue delete hrac --force --confirm "delete hrac"
    """
    from everlog.domains.issues import commands

    made_by = by_of(session, **by)
    said = _words(session, "delete", issue, force, confirm, made_by)
    _tell(session, commands.delete(session.log(), issue, force=force, confirm=said, reason=reason, by=made_by))


@issue_command.command("restore")
@click.argument("issue")
@doing_options
@pass_session
def restore(session: Session, issue: str, **by: Any) -> None:
    """Bring a deleted issue back.

    \b
    Example:
      everlog issue restore hrac
    """
    from everlog.domains.issues import commands

    _tell(session, commands.restore(session.log(), issue, by=by_of(session, **by)))


@issue_command.command("purge")
@click.argument("issue")
@click.option("--reason", metavar="TEXT", required=True, help="Why; it stays on record.")
@click.option("--force", is_flag=True, help="Without it nothing is purged.")
@click.option("--confirm", metavar="TEXT", help="The exact words: purge SHORT_ID.")
@doing_options
@pass_session
def purge(session: Session, issue: str, reason: str, force: bool, confirm: str | None, **by: Any) -> None:
    """Remove an issue for good, with its comments, labels and links. There is no way back.

    What stays is its name: nobody else gets it, and whoever asks for it learns that it was purged.

    \b
    Example:
      everlog issue purge hrac --reason "erasure request 17" --force --confirm "purge hrac"
    """
    from everlog.domains.issues import commands

    made_by = by_of(session, **by)
    said = _words(session, "purge", issue, force, confirm, made_by)
    _tell(session, commands.purge(session.log(), issue, force=force, confirm=said, reason=reason, by=made_by))


def _words(session: Session, verb: str, issue: str, force: bool, confirm: str | None, by: By) -> str:
    """What was said in confirmation; who sits at a terminal is asked for it."""
    if confirm is not None or not force or session.json or session.agent or by.dry_run:
        return confirm or ""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return ""
    from everlog.domains.issues import asking
    from everlog.domains.issues.rules import words_for

    found = asking.show(session.log(), issue, scope=by.scope)
    words = words_for(verb, found["id"])
    means = "This removes it for good. There is no way back." if verb == "purge" else "It can be restored."
    session.out.note(f"{safe(found['id'])}  {found['status']}  {safe(found.get('title', ''))}")
    said: str = click.prompt(f"{means} Type '{words}' to go on", default="", show_default=False, err=True)
    return said


def _tell(session: Session, step: Step) -> None:
    line = f"{step.state}  {safe(step.short_id)}  {safe(step.title)}".rstrip()
    tell(session, step.done, line, id=step.short_id, uid=step.uid, becomes=step.state)
