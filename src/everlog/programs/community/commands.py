"""The commands of the community program: the community itself, the market, chats, files and documents.

    perform(log, Create(community="hearth", name="The hearth"), By(actor="user:ada"))
    perform(log, Invite(community="hearth", member="user:bob"), By(actor="user:ada"))
    perform(log, Join(community="hearth"), By(actor="user:bob"))
    perform(log, Say(community="hearth", thread="general", text="hello"), By(actor="user:bob"))

An actor must have the right now, and act from a node of theirs: this log. A command without a community is about the
only one that there is.
"""

from __future__ import annotations

from everlog.programs.community.governing import (
    Create,
    Demote,
    DescribeNode,
    Invite,
    Join,
    NameBranch,
    Promote,
    Revoke,
    SetPolicy,
)
from everlog.programs.community.taking_part import (
    Advertise,
    Deliver,
    Expire,
    ExpireDue,
    Ingest,
    Post,
    Read,
    Say,
    Unpin,
    UpdatePost,
)

COMMANDS = (
    Create,
    Invite,
    Join,
    Revoke,
    Promote,
    Demote,
    SetPolicy,
    NameBranch,
    DescribeNode,
    Post,
    UpdatePost,
    Expire,
    ExpireDue,
    Say,
    Deliver,
    Read,
    Advertise,
    Unpin,
    Ingest,
)

__all__ = [
    "COMMANDS",
    "Advertise",
    "Create",
    "Deliver",
    "Demote",
    "DescribeNode",
    "Expire",
    "ExpireDue",
    "Ingest",
    "Invite",
    "Join",
    "NameBranch",
    "Post",
    "Promote",
    "Read",
    "Revoke",
    "Say",
    "SetPolicy",
    "Unpin",
    "UpdatePost",
]
