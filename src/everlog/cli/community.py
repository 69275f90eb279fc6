"""`everlog community`: who is in a community and who may do what; the market, chats and files stand beside."""

from __future__ import annotations

from typing import Any

import click

from everlog.cli import community_life
from everlog.cli.community_meant import asked, listed, meant, said, scope_option
from everlog.cli.doing import by_of, doing_options
from everlog.cli.output import Answer, safe
from everlog.cli.session import Session, common_options, pass_session, past_damage_option

ROLES = ("member", "moderator", "admin")


@click.group("community")
@common_options
def community_command() -> None:
    """A community: members, policy, nodes, market, chats, files, documents.

    --scope names the community. Without it, it is the one of the setting scope, or the only one in the log.

    \b
    Example:
      everlog community create hearth && everlog community invite user:bob
    """


for _command in community_life.COMMANDS:
    community_command.add_command(_command)


@community_command.command("create")
@click.argument("community", metavar="ID")
@click.option("--name", metavar="TEXT", default="", help="What people call it; the id if left out.")
@click.option("--about", metavar="TEXT", default="", help="What it is for.")
@click.option("--sealed", is_flag=True, help="Let the id name its founder, so that nobody else can begin it.")
@doing_options
@pass_session
def create(session: Session, community: str, name: str, about: str, sealed: bool, **by: Any) -> None:
    """Begin a community. Whoever does is its first admin.

    \b
    Example:
      everlog community create hearth --name "The hearth" --actor user:ada
    """
    from everlog.domains.community import commands
    from everlog.domains.community.events import Created

    what = Created(name=name or community, about=about)
    step = commands.create(session.log(), community, what, sealed=sealed, by=by_of(session, **by))
    said(session, step, "created", "community")


@community_command.command("invite")
@click.argument("member")
@click.option("--role", type=click.Choice(ROLES), default="member", show_default=True, help="What they become.")
@click.option("--node", metavar="NODE", default="", help="The only node from which they may join.")
@click.option("--note", metavar="TEXT", default="", help="A word for the record.")
@doing_options
@pass_session
def invite(session: Session, member: str, role: Any, node: str, note: str, **by: Any) -> None:
    """Let somebody join.

    \b
    Example:
      everlog community invite user:bob --role moderator --actor user:ada
    """
    from everlog.domains.community import commands
    from everlog.domains.community.events import Invited

    community, made_by = meant(session, by)
    what = Invited(member=member, role=role, node=node, note=note)
    said(session, commands.invite(session.log(), community, what, by=made_by), "invited", "member")


@community_command.command("join")
@click.option("--name", metavar="TEXT", default="", help="What others call you.")
@doing_options
@pass_session
def join(session: Session, name: str, **by: Any) -> None:
    """Accept an invitation. From then on you speak from this node, which is this log.

    \b
    Example:
      everlog community join --actor user:bob
    """
    from everlog.domains.community import commands

    community, made_by = meant(session, by)
    said(session, commands.join(session.log(), community, name=name, by=made_by), "joined", "member")


@community_command.command("revoke")
@click.argument("member")
@click.option("--reason", metavar="TEXT", default="", help="Why.")
@doing_options
@pass_session
def revoke(session: Session, member: str, reason: str, **by: Any) -> None:
    """End a membership or an invitation; your own, too. The last admin stays.

    What the member said counts up to what is known here: later words do not, whatever clock they claim.

    \b
    Example:
      everlog community revoke user:bob --reason "spam" --actor user:ada
    """
    from everlog.domains.community import commands

    community, made_by = meant(session, by)
    step = commands.revoke(session.log(), community, member, reason=reason, by=made_by)
    said(session, step, "revoked", "member")


@community_command.command("promote")
@click.argument("member")
@click.option("--to", type=click.Choice(ROLES[1:]), required=True, help="The higher role.")
@doing_options
@pass_session
def promote(session: Session, member: str, to: str, **by: Any) -> None:
    """Give a member a higher role.

    \b
    Example:
      everlog community promote user:bob --to moderator --actor user:ada
    """
    from everlog.domains.community import commands

    community, made_by = meant(session, by)
    step = commands.promote(session.log(), community, member, to=to, by=made_by)
    said(session, step, f"promoted to {to}", "member")


@community_command.command("demote")
@click.argument("member")
@click.option("--to", type=click.Choice(ROLES[:2]), required=True, help="The lower role.")
@click.option("--reason", metavar="TEXT", default="", help="Why.")
@doing_options
@pass_session
def demote(session: Session, member: str, to: str, reason: str, **by: Any) -> None:
    """Give a member a lower role; yourself, too. The last admin stays.

    \b
    Example:
      everlog community demote user:bob --to member --actor user:ada
    """
    from everlog.domains.community import commands

    community, made_by = meant(session, by)
    step = commands.demote(session.log(), community, member, to=to, reason=reason, by=made_by)
    said(session, step, f"demoted to {to}", "member")


@community_command.command("policy")
@click.option("--who-invites", type=click.Choice(ROLES), help="From this role up.")
@click.option("--who-posts", type=click.Choice(ROLES), help="On the market.")
@click.option("--who-chats", type=click.Choice(ROLES), help="In threads.")
@click.option("--who-shares", type=click.Choice(ROLES), help="Files.")
@click.option("--who-ingests", type=click.Choice(ROLES), help="Documents.")
@click.option("--post-days", type=click.IntRange(1, 3650), help="How long a post is open at most.")
@doing_options
@pass_session
def policy(session: Session, **given: Any) -> None:
    """Show who may do what, or change it: what is not given stays as it is.

    Columns when piped: rule, value.

    \b
    Examples:
      everlog community policy
      everlog community policy --who-posts moderator --post-days 30 --actor user:ada
    """
    from everlog.domains.community import asking, commands
    from everlog.domains.community.events import PolicyUpdated

    names = ("who_invites", "who_posts", "who_chats", "who_shares", "who_ingests", "post_days")
    changes: dict[str, Any] = {name: given.pop(name) for name in names}
    community, made_by = meant(session, given)
    if any(value is not None for value in changes.values()):
        step = commands.set_policy(session.log(), community, PolicyUpdated(**changes), by=made_by)
        said(session, step, "policy of", "community")
        return
    found = asking.manifest(session.log(), community)["policy"]
    listed(session, [{"rule": name, "value": found[name]} for name in names], ("rule", "value"), data=found)


@community_command.command("node")
@click.argument("node", default="")
@click.option("--name", metavar="TEXT", default="", help="What people call it.")
@click.option("--endpoint", "endpoints", metavar="URL", multiple=True, help="Where it listens; may be given again.")
@click.option("--can", "capabilities", metavar="WORD", multiple=True, help="What it can do; may be given again.")
@click.option("--software", metavar="TEXT", default="", help="What runs there.")
@doing_options
@pass_session
def describe_node(session: Session, node: str, name: str, software: str, **given: Any) -> None:
    """Say what a node is, this one if none is named; and speak from there, too, from now on.

    \b
    Example:
      everlog community node --name attic --endpoint http://attic.local:7080 --can chat
    """
    from everlog.domains.community import commands
    from everlog.domains.community.events import ManifestUpdated

    endpoints, capabilities = list(given.pop("endpoints")), list(given.pop("capabilities"))
    community, made_by = meant(session, given)
    what = ManifestUpdated(
        node=node or commands.here(session.log()),
        name=name,
        endpoints=endpoints,
        capabilities=capabilities,
        software=software,
    )
    said(session, commands.describe_node(session.log(), community, what, by=made_by), "described", "node")


@community_command.command("members")
@click.option("--everybody", is_flag=True, help="Also who was invited or revoked.")
@scope_option
@past_damage_option
@common_options
@pass_session
def show_members(session: Session, everybody: bool, scope: str) -> None:
    """Show the members, the higher roles first.

    Columns when piped: member, role, status, name, joined_at.

    \b
    Example:
      everlog community members --everybody
    """
    found = asked(session, "members", scope, everybody=everybody)
    listed(session, found, ("member", "role", "status", "name", "joined_at"))


@community_command.command("show")
@scope_option
@past_damage_option
@common_options
@pass_session
def show(session: Session, scope: str) -> None:
    """Show a community: members, policy, nodes, and what was said without a right to it.

    \b
    Example:
      everlog community show --json
    """
    found = asked(session, "manifest", scope)
    counts = {name: len(found[name]) for name in ("members", "nodes", "ignored")}
    facts = {name: found[name] for name in ("community", "name", "about", "created_by", "created_at")} | counts
    lines = [f"{name:12}{safe(str(value))}" for name, value in facts.items() if value != ""]
    session.out.answer(Answer.of_one(found["community"], facts, lines=lines, data=found))


@community_command.command("ignored")
@scope_option
@past_damage_option
@common_options
@pass_session
def show_ignored(session: Session, scope: str) -> None:
    """Show what was said without a right to it, and why it does not count.

    It stays in the log. Whether something counts follows from the history alone, the same on every node.
    Columns when piped: at, by, type, stream, why, id.

    \b
    Example:
      everlog community ignored
    """
    found = asked(session, "ignored", scope)
    listed(session, found, ("at", "by", "type", "stream", "why", "id"), named="id", empty="nothing is ignored")
