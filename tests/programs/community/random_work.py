"""Something that the members of a community, or people outside it, might do next."""

from __future__ import annotations

import random
from typing import Any

from everlog.log.log import Log
from everlog.programs.command import By
from everlog.programs.community import acting, questions
from everlog.programs.community.commands import (
    Advertise,
    Create,
    Deliver,
    Demote,
    DescribeNode,
    Expire,
    Ingest,
    Invite,
    Join,
    Post,
    Promote,
    Read,
    Revoke,
    Say,
    SetPolicy,
    Unpin,
    UpdatePost,
)
from everlog.programs.perform import perform

PEOPLE = ["user:ada", "user:bob", "user:cyd", "user:dan"]
ROLES: list[Any] = ["member", "moderator", "admin"]
HIGHER: list[Any] = ["moderator", "admin", "king"]
CIDS = [
    "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi",
    "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG",
    "bafynonsense",
]


def step(log: Log, chance: random.Random) -> None:
    who, other = chance.choice(PEOPLE), chance.choice(PEOPLE)
    by = By(actor=who)
    if not questions.communities(log):
        perform(log, Create(community="hearth", name="The hearth"), by)
        return
    match chance.randrange(4):
        case 0:
            _govern(log, chance, other, by)
        case 1:
            perform(log, Invite(community="hearth", member=other), by)
            perform(log, Join(community="hearth"), By(actor=other))
        case _:
            _take_part(log, chance, by)


def _govern(log: Log, chance: random.Random, other: str, by: By) -> None:
    match chance.randrange(8):
        case 0:
            perform(log, Create(community=chance.choice(["hearth", "not an id"]), name="Again"), by)
        case 1:
            perform(log, Invite(community="hearth", member=other, role=chance.choice(ROLES)), by)
        case 2:
            perform(log, Join(community="hearth", name=other), by)
        case 3:
            perform(log, Revoke(community="hearth", member=other, reason="a quarrel"), by)
        case 4:
            perform(log, Promote(community="hearth", member=other, to=chance.choice(HIGHER)), by)
        case 5:
            perform(log, Demote(community="hearth", member=other, to=chance.choice(ROLES[:2])), by)
        case 6:
            what = SetPolicy(
                community="hearth", who_posts=chance.choice(ROLES), post_days=chance.choice([None, 7, 90])
            )
            perform(log, what, by)
        case _:
            node = chance.choice([acting.here(log), "another node"])
            perform(log, DescribeNode(community="hearth", node=node, capabilities=["chat"]), by)


def _take_part(log: Log, chance: random.Random, by: By) -> None:
    name = f"post-{chance.randrange(4)}"
    thread = chance.choice(["general", "help"])
    match chance.randrange(9):
        case 0:
            perform(log, Post(community="hearth", title="A lamp", name=name), by)
        case 1:
            what = UpdatePost(community="hearth", name=name, price=chance.choice(["5", "6"]))
            perform(log, what, by)
        case 2:
            perform(log, Expire(community="hearth", name=name, reason="sold"), by)
        case 3 | 4:
            perform(log, Say(community="hearth", thread=thread, text=chance.choice(["hello", "who is there?"])), by)
        case 5:
            perform(log, (Read if chance.random() < 0.5 else Deliver)(community="hearth", thread=thread), by)
        case 6:
            perform(log, Advertise(community="hearth", cid=chance.choice(CIDS), size_bytes=7), by)
        case 7:
            provider = chance.choice(["", chance.choice(PEOPLE)])
            perform(log, Unpin(community="hearth", cid=chance.choice(CIDS), provider=provider), by)
        case _:
            name = f"doc-{chance.randrange(3)}"
            perform(
                log,
                Ingest(community="hearth", title="A manual", name=name, chunks=chance.randrange(9), model="small"),
                by,
            )
