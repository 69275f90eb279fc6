"""`everlog community`: members and their rights, the market, chats, files and documents."""

from __future__ import annotations

from typing import Any

import click

from everlog.cli.output import Answer, safe
from everlog.cli.programs.builder import Several, Surface, Values, build
from everlog.cli.programs.spelling import Argument, Option
from everlog.cli.session import Session
from everlog.programs.community import PROGRAM
from everlog.programs.community.commands import (
    Create,
    Deliver,
    Demote,
    Expire,
    ExpireDue,
    Promote,
    Read,
    Say,
    SetPolicy,
    UpdatePost,
)
from everlog.programs.community.questions import (
    Chat,
    Communities,
    DocumentList,
    FileList,
    Ignored,
    OnePost,
    Policy,
    Posts,
    Show,
    ThreadList,
)

_DONE = {
    "Create": "created",
    "Invite": "invited",
    "Join": "joined",
    "Revoke": "revoked",
    "SetPolicy": "policy of",
    "NameBranch": "named a branch of",
    "DescribeNode": "described",
    "Post": "posted",
    "UpdatePost": "updated",
    "Expire": "expired",
    "Advertise": "advertised",
    "Unpin": "unpinned",
    "Ingest": "ingested",
}
_POLICY = ("who_invites", "who_posts", "who_chats", "who_shares", "who_ingests", "post_days")


def _complete(session: Session, value: type[Any], given: Values) -> None:
    """Fill in the community: the one of the setting `scope`, or the only one."""
    if value is Create or "community" not in given:
        return
    if session.server:  # which looks for the only one itself
        given["community"] = given["community"] or session.settings().settings.scope
        return
    from everlog.programs.community.questions import meant

    given["community"] = meant(session.log(), named=given["community"], usual=session.settings().settings.scope)


def _line(command: Any, result: Any) -> str:
    match command:
        case Say():
            return f"sent  {safe(result.message)}"
        case Deliver() | Read():
            return f"{'read' if isinstance(command, Read) else 'delivered'}  {result.count} in {safe(result.thread)}"
        case Promote():
            return f"promoted to {command.to}  {safe(result.name)}"
        case Demote():
            return f"demoted to {command.to}  {safe(result.name)}"
        case _:
            return f"{_DONE[type(command).__name__]}  {safe(result.name)}"


def _expired(session: Session, command: ExpireDue, outcome: Any) -> Answer:
    found = [{"post": name} for name in outcome.result.posts]
    if not found:
        session.out.hint("no post is due")
    return Answer.of_many(found, ("post",))


def _show(session: Session, question: Show, found: dict[str, Any]) -> Answer:
    counts = {name: len(found[name]) for name in ("members", "nodes", "ignored")}
    facts = {name: found[name] for name in ("community", "name", "about", "created_by", "created_at")} | counts
    lines = [f"{name:12}{safe(str(value))}" for name, value in facts.items() if value != ""]
    return Answer.of_one(found["community"], facts, lines=lines, data=found)


def _policy(session: Session, question: Policy, found: dict[str, Any]) -> Answer:
    return Answer.of_many([{"rule": name, "value": found[name]} for name in _POLICY], ("rule", "value"), data=found)


def _ignored(session: Session, question: Ignored, found: list[dict[str, Any]]) -> Answer:
    return Answer.of_many(found, question.columns, named="id")


def _files(session: Session, question: FileList, found: list[dict[str, Any]]) -> Answer:
    cells = {name: lambda one, name=name: ", ".join(one[name]) for name in ("names", "providers")}
    return Answer.of_many(found, question.columns, cells=cells)


def _chat(session: Session, question: Chat, found: dict[str, Any]) -> Answer:
    messages = found["messages"]
    if not messages:
        session.out.hint(f"nobody has written anything in {question.thread}")
    return Answer.of_many(
        messages,
        ("message", "at", "by", "state", "text"),
        lines=[f"{one['at'][:16]}  {safe(one['by'])}: {safe(one['text'])}{_seen(one)}" for one in messages],
        data=found,
        facts={"thread": question.thread, "count": len(messages), "ignored": len(found["ignored"])},
    )


def _seen(message: dict[str, Any]) -> str:
    readers = ", ".join(message["read"])
    others = ", ".join(who for who in message["delivered"] if who not in message["read"])
    return (f"  (read by {safe(readers)})" if readers else "") + (
        f"  (delivered to {safe(others)})" if others else ""
    )


def _check_update(given: Values) -> None:
    if all(given[name] is None for name in ("title", "text", "price", "days")):
        raise click.UsageError("there is nothing to change: give --title, --text, --price or --days")


def _check_expire(given: Values) -> None:
    if given["due"] == bool(given["name"]):
        raise click.UsageError("name a post, or give --due")


community_command = build(
    Surface(
        program=PROGRAM,
        title="A community: members, policy, nodes, market, chats, files, documents.",
        example="create hearth && everlog community invite user:bob",
        spelling={
            "*.community": Option("--scope", metavar="PATH"),
            **{
                f"{question.__name__}.community": Option("--scope", metavar="ID")
                for question in PROGRAM.questions
                if question is not Policy
            },
            "Create.community": Argument("ID", required=True),
            "Create.description": Option("--about"),
            "*.member": Argument("MEMBER"),
            "Invite.node": Option(metavar="NODE"),
            "DescribeNode.node": Argument("[NODE]"),
            "NameBranch.node": Argument("NODE"),
            "NameBranch.upto": Option("--upto", metavar="ID"),
            "DescribeNode.endpoints": Option("--endpoint", metavar="URL"),
            "DescribeNode.capabilities": Option("--can", metavar="WORD"),
            "Post.name": Argument("NAME", required=True),
            "Post.title": Argument("TITLE"),
            "Post.type": Option("--kind"),
            "UpdatePost.name": Argument("POST"),
            "Expire.name": Argument("[POST]"),
            "*.thread": Argument("THREAD"),
            "Say.text": Argument("TEXT"),
            "Say.reply_to": Option(metavar="ID"),
            "*.messages": Argument("[MESSAGE]..."),
            "*.cid": Argument("CID"),
            "Advertise.size_bytes": Option("--size"),
            "Advertise.media_type": Option("--type", metavar="TYPE"),
            "Unpin.provider": Option(metavar="ACTOR"),
            "Ingest.name": Argument("NAME", required=True),
            "Ingest.title": Argument("TITLE"),
            "Ingest.cid": Option("--cid", metavar="CID"),
            "Posts.by": Option(metavar="ACTOR"),
            "Chat.thread": Argument("[THREAD]"),
        },
        several=(
            Several(
                "update", UpdatePost.__doc__ or "", UpdatePost.examples, ((UpdatePost, ()),), check=_check_update
            ),
            Several(
                "policy",
                "Show who may do what, or change it. Rules that are not given stay as they are.",
                (*Policy.examples, *SetPolicy.examples),
                ((SetPolicy, _POLICY), (Policy, ())),
            ),
            Several(
                "expire",
                "End a post.\n\n"
                "A post whose time has passed has ended, whether that is recorded or not; --due records it.",
                (*Expire.examples, *ExpireDue.examples),
                ((ExpireDue, ("due",)), (Expire, ())),
                flags={"due": "End every post whose time has passed: your own, or all if you are a moderator."},
                check=_check_expire,
            ),
            Several(
                "chats",
                "Show the threads, or the newest messages of one and who has received and read them.",
                (*ThreadList.examples, *Chat.examples),
                ((Chat, ("thread",)), (ThreadList, ())),
            ),
        ),
        columns={
            Policy: "rule, value",
            ThreadList: "thread, last_at, last_by, last_text",
            Chat: "of a thread: message, at, by, state, text; otherwise:",
        },
        line=_line,
        answers={
            ExpireDue: _expired,
            Show: _show,
            Policy: _policy,
            Ignored: _ignored,
            FileList: _files,
            Chat: _chat,
        },
        empty={
            Ignored: lambda session, question: "nothing is ignored",
            Posts: lambda session, question: "nothing is on the market: everlog community post --help",
            ThreadList: lambda session, question: "nobody has written anything: everlog community say --help",
            FileList: lambda session, question: "nobody keeps a file",
            DocumentList: lambda session, question: "there are no documents",
        },
        complete=_complete,
        options={
            Create: [
                click.option("--scope", metavar="PATH", expose_value=False, help="Not used: ID names the community.")
            ]
        },
        left_out=(Communities, OnePost),
    )
)
