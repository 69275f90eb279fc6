"""A neighbourhood: people are invited, join, offer things, talk, keep files for each other, and one has to go."""

from __future__ import annotations

import hashlib
from base64 import b32encode

from everlog.demo.week import Thread, Week, chance_of
from everlog.domains.community import commands
from everlog.domains.community.events import (
    Created,
    Invited,
    ManifestUpdated,
    PolicyUpdated,
    PostCreated,
    PostUpdated,
)
from everlog.log.log import Log

HEARTH = "hearth"
FOUNDER = "user:ada"
MEMBERS = tuple(
    f"user:{name}"
    for name in (
        *("bob", "carla", "dana", "emil", "fritz", "gerda", "hugo", "ines", "jonas", "karin", "lena", "mats"),
        *("nora", "oskar", "petra", "quinn", "rosa", "sven", "tomasz", "yuki"),
    )
)
MODERATOR, TROUBLE = "user:carla", "user:fritz"
_THINGS = ("A bicycle", "Firewood", "Two chairs", "A drill", "Apples", "A tent", "Jam", "A cot", "Skis", "A lamp")
_TALK = (
    "Good morning!",
    "Has anybody seen a grey cat?",
    "The water is off until noon.",
    "Thank you for the apples.",
    "Who has a long ladder?",
    "I can bring one at six.",
    "See you at the market on Saturday.",
    "The minutes of the meeting are in the files.",
)
_THREADS = ("general", "garden", "tools")


def threads(log: Log, week: Week) -> list[Thread]:
    return [
        _begin(log, week),
        *(_member(log, week, number) for number in range(len(MEMBERS))),
        *(_market(log, week, number) for number in range(40)),
        *(_chat(log, week, thread) for thread in _THREADS),
        _library(log, week),
        _quarrel(log, week),
    ]


def _begin(log: Log, week: Week) -> Thread:
    yield week.on(0, 6)
    commands.create(log, HEARTH, Created(name="The hearth", about="Our street"), by=week.by(FOUNDER))
    node = ManifestUpdated(node=commands.here(log), name="the cellar", capabilities=["chat", "market", "files"])
    commands.describe_node(log, HEARTH, node, by=week.by(FOUNDER))
    commands.set_policy(log, HEARTH, PolicyUpdated(who_invites="member", post_days=30), by=week.by(FOUNDER))


def _member(log: Log, week: Week, number: int) -> Thread:
    chance, member = chance_of("member", number), MEMBERS[number]
    yield week.on(number // 10, 6.2 + number % 10 * 0.5)
    inviter = FOUNDER if number < 6 else MEMBERS[number % 5]
    commands.invite(log, HEARTH, Invited(member=member), by=week.by(inviter))
    yield week.after(chance.uniform(5, 90))
    commands.join(log, HEARTH, name=member.partition(":")[2].capitalize(), by=week.by(member))
    if member == MODERATOR:
        yield week.after(60)
        commands.promote(log, HEARTH, member, to="moderator", by=week.by(FOUNDER))


def _market(log: Log, week: Week, number: int) -> Thread:
    chance = chance_of("market", number)
    yield week.on(1.4 + number * 0.13, chance.uniform(0, 3))
    seller, name = _speaker(week, number), f"post-{number:02}"
    thing = _THINGS[number % len(_THINGS)]
    offer = PostCreated(title=thing, kind="request" if number % 4 == 3 else "offer", price=f"{5 + number % 30} EUR")
    commands.post(log, HEARTH, offer, name=name, by=week.by(seller))
    yield week.after(chance.uniform(200, 1500))
    if chance.random() < 0.5:
        commands.update_post(log, HEARTH, name, PostUpdated(price=f"{3 + number % 20} EUR"), by=week.by(seller))
        yield week.after(chance.uniform(100, 1500))
    if chance.random() < 0.7:
        commands.expire(log, HEARTH, name, reason="it found somebody", by=week.by(seller))


def _chat(log: Log, week: Week, thread: str) -> Thread:
    chance = chance_of("chat", thread)
    yield week.on(1.3, 7)
    last = ""
    while True:
        speaker = _speaker(week, chance.randrange(99))
        text = _TALK[chance.randrange(len(_TALK))]
        reply = last if last and chance.random() < 0.4 else ""
        last = commands.say(log, HEARTH, thread, text, reply_to=reply, by=week.by(speaker)).name
        yield week.after(chance.uniform(0.2, 3))
        reader = _speaker(week, chance.randrange(99))
        if reader != speaker:
            commands.mark(log, HEARTH, thread, [last], read=False, by=week.by(reader))
            if chance.random() < 0.6:
                yield week.after(chance.uniform(0.2, 10))
                commands.mark(log, HEARTH, thread, [last], by=week.by(reader))
        yield week.after(chance.uniform(20, 260))


def _library(log: Log, week: Week) -> Thread:
    chance = chance_of("library")
    yield week.on(1.5, 9)
    for number in range(24):
        keeper = _speaker(week, number)
        name = f"minutes-{number:02}.pdf"
        size = 20_000 + number * 1_717
        commands.advertise(log, HEARTH, _cid(name), name=name, size_bytes=size, by=week.by(keeper))
        yield week.after(chance.uniform(10, 60))
        if number % 2 == 0:
            title = f"Minutes {number:02}"
            commands.ingest(log, HEARTH, title, name=f"doc-{number:02}", cid=_cid(name), chunks=12, model="small",
                            by=week.by(FOUNDER))  # fmt: skip
        if number % 6 == 5:
            commands.unpin(log, HEARTH, _cid(name), by=week.by(keeper))
        yield week.after(chance.uniform(60, 400))


def _quarrel(log: Log, week: Week) -> Thread:
    yield week.on(4, 20)
    commands.revoke(log, HEARTH, TROUBLE, reason="he sold what was not his", by=week.by(FOUNDER))


def _speaker(week: Week, number: int) -> str:
    """Somebody who has surely joined by now and is not revoked later."""
    there = [one for place, one in enumerate(MEMBERS) if one != TROUBLE and week.now >= week.on(place // 10 + 0.6, 0)]
    return there[number % len(there)] if there else FOUNDER


def _cid(name: str) -> str:
    """The name of a content, as IPFS writes it: version 1, raw, SHA-256, in base 32."""
    multihash = bytes([0x01, 0x55, 0x12, 0x20]) + hashlib.sha256(name.encode()).digest()
    return "b" + b32encode(multihash).decode().lower().rstrip("=")
