"""Something that the members of a community, or people outside it, might do next."""

from __future__ import annotations

import random
from typing import Any

from everlog.domains.community import asking, commands
from everlog.domains.community.events import (
    Created,
    Invited,
    ManifestUpdated,
    PolicyUpdated,
    PostCreated,
    PostUpdated,
)
from everlog.domains.deciding import By
from everlog.log.log import Log

PEOPLE = ["user:ada", "user:bob", "user:cyd", "user:dan"]
ROLES: list[Any] = ["member", "moderator", "admin"]
CIDS = [
    "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi",
    "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG",
    "bafynonsense",
]


def step(log: Log, chance: random.Random) -> None:
    who, other = chance.choice(PEOPLE), chance.choice(PEOPLE)
    by = By(actor=who)
    if not asking.communities(log):
        commands.create(log, "hearth", Created(name="The hearth"), by=by)
        return
    match chance.randrange(4):
        case 0:
            _govern(log, chance, other, by)
        case 1:
            commands.invite(log, "hearth", Invited(member=other), by=by)
            commands.join(log, "hearth", by=By(actor=other))
        case _:
            _take_part(log, chance, by)


def _govern(log: Log, chance: random.Random, other: str, by: By) -> None:
    match chance.randrange(8):
        case 0:
            commands.create(log, chance.choice(["hearth", "not an id"]), Created(name="Again"), by=by)
        case 1:
            commands.invite(log, "hearth", Invited(member=other, role=chance.choice(ROLES)), by=by)
        case 2:
            commands.join(log, "hearth", name=other, by=by)
        case 3:
            commands.revoke(log, "hearth", other, reason="a quarrel", by=by)
        case 4:
            commands.promote(log, "hearth", other, to=chance.choice([*ROLES[1:], "king"]), by=by)
        case 5:
            commands.demote(log, "hearth", other, to=chance.choice(ROLES[:2]), by=by)
        case 6:
            what = PolicyUpdated(who_posts=chance.choice(ROLES), post_days=chance.choice([None, 7, 90]))
            commands.set_policy(log, "hearth", what, by=by)
        case _:
            node = chance.choice([commands.here(log), "another node"])
            commands.describe_node(log, "hearth", ManifestUpdated(node=node, capabilities=["chat"]), by=by)


def _take_part(log: Log, chance: random.Random, by: By) -> None:
    name = f"post-{chance.randrange(4)}"
    thread = chance.choice(["general", "help"])
    match chance.randrange(9):
        case 0:
            commands.post(log, "hearth", PostCreated(title="A lamp"), name=name, by=by)
        case 1:
            what = PostUpdated(price=chance.choice(["5", "6"]))
            commands.update_post(log, "hearth", name, what, by=by)
        case 2:
            commands.expire(log, "hearth", name, reason="sold", by=by)
        case 3 | 4:
            commands.say(log, "hearth", thread, chance.choice(["hello", "who is there?"]), by=by)
        case 5:
            commands.mark(log, "hearth", thread, read=chance.random() < 0.5, by=by)
        case 6:
            commands.advertise(log, "hearth", chance.choice(CIDS), size_bytes=7, by=by)
        case 7:
            provider = chance.choice(["", chance.choice(PEOPLE)])
            commands.unpin(log, "hearth", chance.choice(CIDS), provider=provider, by=by)
        case _:
            name = f"doc-{chance.randrange(3)}"
            commands.ingest(log, "hearth", "A manual", name=name, chunks=chance.randrange(9), model="small", by=by)
