"""`everlog community`: the market, chats, files and documents."""

from __future__ import annotations

from typing import Any

import click

from everlog.cli.community_meant import asked, listed, meant, said, scope_option
from everlog.cli.doing import doing_options, tell
from everlog.cli.output import Answer, safe
from everlog.cli.session import Session, common_options, pass_session, past_damage_option


@click.command("post")
@click.argument("name")
@click.argument("title")
@click.option("--kind", type=click.Choice(["offer", "request", "notice"]), default="offer", show_default=True)
@click.option("--text", metavar="TEXT", default="", help="What it is.")
@click.option("--price", metavar="TEXT", default="", help="What it costs.")
@click.option("--days", type=click.IntRange(1, 3650), help="How long it is open; as long as the policy lets it be.")
@doing_options
@pass_session
def post(
    session: Session, name: str, title: str, kind: Any, text: str, price: str, days: int | None, **by: Any
) -> None:
    """Put something on the market, under a name of its own.

    \b
    Example:
      everlog community post lamp "A lamp, hardly used" --price "5 EUR" --days 14 --actor user:bob
    """
    from everlog.domains.community import commands
    from everlog.domains.community.events import PostCreated

    community, made_by = meant(session, by)
    what = PostCreated(title=title, kind=kind, text=text, price=price)
    step = commands.post(session.log(), community, what, name=name, days=days, by=made_by)
    said(session, step, "posted", "post")


@click.command("update")
@click.argument("name", metavar="POST")
@click.option("--title", metavar="TEXT", help="What it is called.")
@click.option("--text", metavar="TEXT", help="What it is.")
@click.option("--price", metavar="TEXT", help="What it costs.")
@click.option("--days", type=click.IntRange(1, 3650), help="How long it is open from now on.")
@doing_options
@pass_session
def update(
    session: Session, name: str, title: str | None, text: str | None, price: str | None, days: int | None, **by: Any
) -> None:
    """Change a post of yours; what is not given stays as it is.

    \b
    Example:
      everlog community update lamp --price "4 EUR" --actor user:bob
    """
    from everlog.domains.community import commands
    from everlog.domains.community.events import PostUpdated

    if all(given is None for given in (title, text, price, days)):
        raise click.UsageError("there is nothing to change: give --title, --text, --price or --days")
    community, made_by = meant(session, by)
    what = PostUpdated(title=title, text=text, price=price)
    step = commands.update_post(session.log(), community, name, what, days=days, by=made_by)
    said(session, step, "updated", "post")


@click.command("expire")
@click.argument("name", metavar="[POST]", default="")
@click.option("--due", is_flag=True, help="Every post whose time has passed: yours, or as a moderator all.")
@click.option("--reason", metavar="TEXT", default="", help="Why.")
@doing_options
@pass_session
def expire(session: Session, name: str, due: bool, reason: str, **by: Any) -> None:
    """Say that a post is over.

    A post whose time has passed is over, whether anybody says so or not; --due puts it on record.

    \b
    Examples:
      everlog community expire lamp --reason sold --actor user:bob
      everlog community expire --due
    """
    from everlog.domains.community import commands

    if due == bool(name):
        raise click.UsageError("name a post, or give --due")
    community, made_by = meant(session, by)
    if name:
        step = commands.expire(session.log(), community, name, reason=reason, by=made_by)
        said(session, step, "expired", "post")
        return
    steps = commands.expire_due(session.log(), community, by=made_by)
    listed(session, [{"post": step.name} for step in steps], ("post",), empty="no post is due")


@click.command("posts")
@click.option("--over", is_flag=True, help="Also those that are over.")
@click.option("--kind", type=click.Choice(["offer", "request", "notice"]), help="Only these.")
@click.option("--by", metavar="ACTOR", default="", help="Only those of one member.")
@scope_option
@past_damage_option
@common_options
@pass_session
def posts(session: Session, over: bool, kind: str | None, by: str, scope: str) -> None:
    """Show what is on the market, what is over soonest first.

    Columns when piped: post, status, kind, by, price, expires_at, title.

    \b
    Example:
      everlog community posts --kind offer
    """
    found = asked(session, "posts", scope, over=over, kind=kind or "", by=by)
    columns = ("post", "status", "kind", "by", "price", "expires_at", "title")
    listed(session, found, columns, empty="nothing is on the market: everlog community post --help")


@click.command("say")
@click.argument("thread")
@click.argument("text")
@click.option("--reply-to", metavar="ID", default="", help="The message that this answers.")
@doing_options
@pass_session
def say(session: Session, thread: str, text: str, reply_to: str, **by: Any) -> None:
    """Send a message to a thread.

    \b
    Example:
      everlog community say general "hello" --actor user:bob
    """
    from everlog.domains.community import commands

    community, made_by = meant(session, by)
    step = commands.say(session.log(), community, thread, text, reply_to=reply_to, by=made_by)
    tell(session, step.done, f"sent  {safe(step.name)}", message=step.name, thread=thread, community=community)


@click.command("deliver")
@click.argument("thread")
@click.argument("messages", metavar="[MESSAGE]...", nargs=-1)
@doing_options
@pass_session
def deliver(session: Session, thread: str, messages: tuple[str, ...], **by: Any) -> None:
    """Record that messages have reached you: those that are named, or all recent ones.

    \b
    Example:
      everlog community deliver general --actor user:ada
    """
    _mark(session, thread, messages, by, read=False)


@click.command("read")
@click.argument("thread")
@click.argument("messages", metavar="[MESSAGE]...", nargs=-1)
@doing_options
@pass_session
def read(session: Session, thread: str, messages: tuple[str, ...], **by: Any) -> None:
    """Record that you have read messages: those that are named, or all recent ones.

    \b
    Example:
      everlog community read general --actor user:ada
    """
    _mark(session, thread, messages, by, read=True)


def _mark(session: Session, thread: str, messages: tuple[str, ...], by: dict[str, Any], *, read: bool) -> None:
    from everlog.domains.community import commands

    community, made_by = meant(session, by)
    step = commands.mark(session.log(), community, thread, messages, read=read, by=made_by)
    count, verb = len(step.done.records), "read" if read else "delivered"
    tell(session, step.done, f"{verb}  {count} in {safe(thread)}", thread=thread, count=count, community=community)


@click.command("chats")
@click.argument("thread", metavar="[THREAD]", default="")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="So many messages.")
@scope_option
@past_damage_option
@common_options
@pass_session
def chats(session: Session, thread: str, limit: int, scope: str) -> None:
    """Show the threads, or the newest messages of one and who has got and read them.

    Columns when piped: thread, last_at, last_by, last_text; of a thread: message, at, by, state, text.

    \b
    Examples:
      everlog community chats
      everlog community chats general -n 10
    """
    if not thread:
        found = asked(session, "threads", scope)
        columns = ("thread", "last_at", "last_by", "last_text")
        listed(session, found, columns, empty="nobody has said anything: everlog community say --help")
        return
    answer = asked(session, "messages", scope, thread, limit=limit)
    shown = ("message", "at", "by", "state", "text")
    lines = [f"{one['at'][:16]}  {safe(one['by'])}: {safe(one['text'])}{_seen(one)}" for one in answer.messages]
    session.out.answer(
        Answer(
            data={"thread": thread, "messages": answer.messages, "ignored": answer.ignored},
            ids=[one["message"] for one in answer.messages],
            columns=shown,
            rows=[[one[name] for name in shown] for one in answer.messages],
            lines=lines,
            facts={"thread": thread, "count": len(answer.messages), "ignored": len(answer.ignored)},
        )
    )
    if not answer.messages:
        session.out.hint(f"nobody has said anything in {thread}")


def _seen(message: dict[str, Any]) -> str:
    readers = ", ".join(message["read"])
    others = ", ".join(who for who in message["delivered"] if who not in message["read"])
    return (f"  (read by {safe(readers)})" if readers else "") + (
        f"  (delivered to {safe(others)})" if others else ""
    )


@click.command("advertise")
@click.argument("cid", metavar="CID")
@click.option("--name", metavar="TEXT", default="", help="What the file is called.")
@click.option("--size", "size_bytes", type=click.IntRange(min=0), help="Its size in bytes.")
@click.option("--type", "media_type", metavar="TYPE", default="", help="What it is, such as image/png.")
@doing_options
@pass_session
def advertise(session: Session, cid: str, name: str, size_bytes: int | None, media_type: str, **by: Any) -> None:
    """Tell that you keep a file and give it to others. A CID is checked to the last byte.

    \b
    Example:
      everlog community advertise bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi --name plan.pdf
    """
    from everlog.domains.community import commands

    community, made_by = meant(session, by)
    step = commands.advertise(
        session.log(), community, cid, name=name, size_bytes=size_bytes, media_type=media_type, by=made_by
    )
    said(session, step, "advertised", "cid")


@click.command("unpin")
@click.argument("cid", metavar="CID")
@click.option("--provider", metavar="ACTOR", default="", help="Who does not keep it; for moderators.")
@doing_options
@pass_session
def unpin(session: Session, cid: str, provider: str, **by: Any) -> None:
    """Tell that you do not keep a file any more.

    \b
    Example:
      everlog community unpin bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi
    """
    from everlog.domains.community import commands

    community, made_by = meant(session, by)
    step = commands.unpin(session.log(), community, cid, provider=provider, by=made_by)
    said(session, step, "unpinned", "cid")


@click.command("files")
@scope_option
@past_damage_option
@common_options
@pass_session
def files(session: Session, scope: str) -> None:
    """Show the files that somebody keeps, and who does.

    Columns when piped: cid, names, size_bytes, providers.

    \b
    Example:
      everlog community files
    """
    found = asked(session, "files", scope)
    shown = [{**one, "names": ", ".join(one["names"]), "providers": ", ".join(one["providers"])} for one in found]
    listed(session, shown, ("cid", "names", "size_bytes", "providers"), data=found, empty="nobody keeps a file")


@click.command("ingest")
@click.argument("name")
@click.argument("title")
@click.option("--source", metavar="TEXT", default="", help="Where it comes from.")
@click.option("--cid", metavar="CID", default="", help="The file that it was made from.")
@click.option("--chunks", type=click.IntRange(min=0), default=0, help="Into how many parts it was cut.")
@click.option("--model", metavar="TEXT", default="", help="What made the parts searchable.")
@doing_options
@pass_session
def ingest(
    session: Session, name: str, title: str, source: str, cid: str, chunks: int, model: str, **by: Any
) -> None:
    """Tell that a document was made searchable, for the first time or anew.

    \b
    Example:
      everlog community ingest manual "How to light the stove" --source stove.pdf --chunks 42 --model small
    """
    from everlog.domains.community import commands

    community, made_by = meant(session, by)
    step = commands.ingest(
        session.log(),
        community,
        title,
        name=name,
        source=source,
        cid=cid,
        chunks=chunks,
        model=model,
        by=made_by,
    )
    said(session, step, "ingested", "document")


@click.command("documents")
@scope_option
@past_damage_option
@common_options
@pass_session
def documents(session: Session, scope: str) -> None:
    """Show the documents that can be searched.

    Columns when piped: document, title, chunks, model, by, at.

    \b
    Example:
      everlog community documents
    """
    found = asked(session, "documents", scope)
    listed(session, found, ("document", "title", "chunks", "model", "by", "at"), empty="there are no documents")


COMMANDS = (post, update, expire, posts, say, deliver, read, chats, advertise, unpin, files, ingest, documents)
