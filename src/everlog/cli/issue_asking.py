"""What `everlog issue` answers: issues as a table, one in full, by words, and what happened to one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from everlog.cli.output import Answer, safe
from everlog.cli.session import Session, common_options, pass_session, past_damage_option

_COLUMNS = ("id", "status", "owner", "labels", "changed_at", "title")
_BACKWARDS = {"blocks": "blocked by", "duplicates": "duplicated by", "relates": "relates"}

scope_option = click.option("--scope", metavar="PATH", default="", help="Only in this project and below.")


@click.command("list")
@click.option(
    "--status",
    type=click.Choice(["open", "closed", "deleted", "all"]),
    default="open",
    show_default=True,
    help="Which of them.",
)
@click.option("--label", "labels", metavar="LABEL", multiple=True, help="Only with this label; may be given again.")
@click.option("--owner", metavar="NAME", help="Only those of this owner; empty for those without.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many.")
@scope_option
@past_damage_option
@common_options
@pass_session
def list_issues(
    session: Session, status: str, labels: tuple[str, ...], owner: str | None, limit: int, scope: str
) -> None:
    """Show issues, the newest first.

    Columns when piped: id, status, owner, labels, changed_at, title.

    \b
    Examples:
      everlog issue list
      everlog issue list --status all --label bug --owner ada
    """
    from everlog.domains.issues import asking

    found = asking.listed(
        session.log(),
        scope=_scope(session, scope),
        states=asking.STATES if status == "all" else (status,),
        labels=[label.strip().lower() for label in labels],
        owner=owner,
        limit=limit,
    )
    _table(session, found)
    if not found:
        session.out.hint("there is none: everlog issue create TITLE, or everlog issue list --status all")
    elif len(found) == limit:
        session.out.hint(f"the newest {limit}: --limit shows more")


@click.command("search")
@click.argument("words", metavar="WORD...", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many.")
@scope_option
@past_damage_option
@common_options
@pass_session
def search(session: Session, words: tuple[str, ...], limit: int, scope: str) -> None:
    """Show open and closed issues that have every word in title or body, the newest first.

    Columns when piped: id, status, owner, labels, changed_at, title.

    \b
    Example:
      everlog issue search door night
    """
    from everlog.domains.issues import asking

    found = asking.search(session.log(), " ".join(words), scope=_scope(session, scope), limit=limit)
    _table(session, found)
    if not found:
        session.out.hint("none has these words: everlog issue list --status all")


@click.command("show")
@click.argument("issue")
@scope_option
@past_damage_option
@common_options
@pass_session
def show(session: Session, issue: str, scope: str) -> None:
    """Show one issue in full: what it says, its links, its comments; or what is left of one that was purged.

    \b
    Example:
      everlog issue show hrac
    """
    from everlog.domains.issues import asking

    found = asking.show(session.log(), issue, scope=_scope(session, scope))
    session.out.answer(Answer.of_one(found["id"], found, lines=list(_lines(session, found))))


@click.command("history")
@click.argument("issue")
@scope_option
@past_damage_option
@common_options
@pass_session
def history(session: Session, issue: str, scope: str) -> None:
    """Show everything that happened to an issue, the oldest first; of an edit what each field was and became.

    Columns when piped: position, at, actor, what, detail.

    \b
    Example:
      everlog issue history hrac
    """
    from everlog.domains.issues import asking

    found = asking.history(session.log(), issue, scope=_scope(session, scope))
    columns = ("position", "at", "actor", "what", "detail")
    rows = [(one["position"], one["at"], one["actor"], one["what"], _detail(one["said"])) for one in found]
    session.out.answer(
        Answer(data=found, ids=[one["id"] for one in found], columns=columns, rows=rows, facts={"count": len(found)})
    )


def _scope(session: Session, given: str) -> str:
    return given or session.settings().settings.scope


def _table(session: Session, found: Sequence[dict[str, Any]]) -> None:
    rows = [[", ".join(one[name]) if name == "labels" else one[name] for name in _COLUMNS] for one in found]
    session.out.answer(
        Answer(
            data=list(found),
            ids=[one["id"] for one in found],
            columns=_COLUMNS,
            rows=rows,
            facts={"count": len(found)},
        )
    )


def _lines(session: Session, found: dict[str, Any]) -> Iterator[str]:
    """An issue as a person reads it."""
    dim = session.out.dim
    yield f"{safe(found['id'])}  {found['status']}  {safe(found.get('title', ''))}".rstrip()
    yield dim("  ".join(filter(None, (found["uid"], safe(found["scope"])))))
    facts = [("owner", found.get("owner")), ("labels", ", ".join(found.get("labels", ()))), ("why", found["reason"])]
    if found["status"] == "purged":
        facts.append(("purged", f"{found['purged_at']}  {found['purged_by']}"))
    else:
        facts.append(("created", f"{found['created_at']}  {found['created_by']}"))
        facts.append(("changed", f"{found['changed_at']}  {found['changed_by']}"))
    facts += [(one["kind"], _end(one)) for one in found.get("links", ())]
    facts += [(_BACKWARDS[one["kind"]], _end(one)) for one in found["linked_from"]]
    for name, value in facts:
        if value:
            yield f"{name:13}  {safe(value)}"
    for text in found.get("body", "").split("\n") if found.get("body") else ():
        yield f"  {safe(text)}"
    for comment in found.get("comments", ()):
        yield dim(f"{comment['at']}  {safe(comment['actor'])}")
        for text in comment["body"].split("\n"):
            yield f"  {safe(text)}"


def _end(link: dict[str, Any]) -> str:
    return f"{link['id']}  {link['status']}  {link['title']}".rstrip()


def _detail(said: dict[str, Any]) -> str:
    """What an event says, in a line."""
    if "changes" in said:
        return "; ".join(f"{field}: {one['from']!r} -> {one['to']!r}" for field, one in said["changes"].items())
    if isinstance(said.get("target"), dict):
        return f"{said['kind']} {said['target']['short_id']}"
    for name in ("title", "body", "label", "reason"):
        if said.get(name):
            return str(said[name])
    return ""
