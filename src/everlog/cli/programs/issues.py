"""`everlog issue`: issues, from open to purged."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from everlog.cli.output import Answer, safe
from everlog.cli.programs.builder import Several, Surface, Values, build, label_from_settings
from everlog.cli.programs.spelling import Argument, Option
from everlog.cli.session import Session
from everlog.programs.issues import PROGRAM
from everlog.programs.issues.claiming import ClaimResult, Ready
from everlog.programs.issues.commands import Delete, Edit, Purge
from everlog.programs.issues.questions import IssueHistory, List, Search, Show

_BACKWARDS = {"blocks": "blocked by", "duplicates": "duplicated by", "relates": "relates"}
_KINDS = click.Choice(["blocks", "duplicates", "relates"])


class _LinkText(click.ParamType[str]):
    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if ":" not in str(value):
            self.fail("a link is KIND:ISSUE, such as blocks:hrac", param, ctx)
        return str(value)


def _check_edit(given: Values) -> None:
    if given["title"] is None and given["body"] is None and given["owner"] is None:
        raise click.UsageError("nothing to change: give --title, --body or --owner")


def _complete(session: Session, value: type[Any], given: Values) -> None:
    """Fill in the project; and at a terminal, ask for the words that a deletion or a purge needs."""
    label_from_settings("project")(session, value, given)
    if value not in (Delete, Purge) or given["confirm"] is not None or not given["force"]:
        return
    dry_run = click.get_current_context().params.get("dry_run")
    if session.json or session.agent or dry_run or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    from everlog.programs.issues.rules import words_for
    from everlog.programs.perform import ask

    found = ask(session.any_log(), Show(issue=given["issue"], project=given["project"]))
    words = words_for(value.verb, found["id"])
    means = "This removes it permanently and cannot be undone." if value is Purge else "It can be restored."
    session.out.note(f"{safe(found['id'])}  {found['status']}  {safe(found.get('title', ''))}")
    given["confirm"] = click.prompt(f"{means} Type '{words}' to continue", default="", show_default=False, err=True)


def _table(session: Session, question: Any, found: list[dict[str, Any]]) -> Answer:
    cells = {"labels": lambda one: ", ".join(one["labels"])}
    return Answer.of_many(found, question.columns, cells=cells, named="id")


def _show(session: Session, question: Show, found: dict[str, Any]) -> Answer:
    return Answer.of_one(found["id"], found, lines=list(_lines(session, found)))


def _lines(session: Session, found: dict[str, Any]) -> Iterator[str]:
    """Yield an issue as a person reads it."""
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


def _history(session: Session, question: IssueHistory, found: list[dict[str, Any]]) -> Answer:
    return Answer.of_many(found, question.columns, cells={"detail": lambda one: _detail(one["said"])}, named="id")


def _detail(payload: dict[str, Any]) -> str:
    """Return what an event says, in a line."""
    if "changes" in payload:
        return "; ".join(f"{field}: {one['from']!r} -> {one['to']!r}" for field, one in payload["changes"].items())
    if isinstance(payload.get("target"), dict):
        return f"{payload['kind']} {payload['target']['short_id']}"
    return next((str(payload[name]) for name in ("title", "body", "label", "reason") if payload.get(name)), "")


def _line(command: Any, result: Any) -> str:
    state = f"claimed until {result.until}" if isinstance(result, ClaimResult) else result.state
    return f"{state}  {safe(result.short_id)}  {safe(result.title)}".rstrip()


def _limited(session: Session, question: List, found: list[dict[str, Any]]) -> str:
    return f"the newest {question.limit}: --limit shows more" if len(found) == question.limit else ""


issue_command = build(
    Surface(
        program=PROGRAM,
        title="Issues: create, edit, comment, label, link, close, delete, purge, list, show, search and more.",
        example='create "The door squeaks" --label bug && everlog issue list',
        spelling={
            "*.project": Option("--scope", metavar="PATH"),
            "*.issue": Argument(),
            "Create.owner": Option(metavar="NAME"),
            "Create.labels": Option("--label", metavar="LABEL"),
            "Create.links": Option("--link", metavar="KIND:ISSUE", type=_LinkText()),
            "Edit.owner": Option(metavar="NAME"),
            "Comment.text": Argument(),
            "Label.labels": Argument("LABEL..."),
            "Unlabel.labels": Argument("LABEL..."),
            "*.kind": Argument(type=_KINDS),
            "*.other": Argument("ISSUE"),
            "*.uid": Option(metavar="UID"),
            "*.other_uid": Option("--to-uid", metavar="UID"),
            "List.labels": Option("--label", metavar="LABEL"),
            "List.owner": Option(metavar="NAME"),
            "Search.words": Argument("WORD..."),
        },
        several=(Several("edit", Edit.__doc__ or "", Edit.examples, ((Edit, ()),), check=_check_edit),),
        line=_line,
        answers={List: _table, Ready: _table, Search: _table, Show: _show, IssueHistory: _history},
        empty={
            List: lambda session, _: "there is none: everlog issue create TITLE, or everlog issue list --status all",
            Ready: lambda session, _: "nothing is ready: everlog issue list shows what is open",
            Search: lambda session, _: "none has these words: everlog issue list --status all",
        },
        hints={List: _limited},
        complete=_complete,
    )
)
