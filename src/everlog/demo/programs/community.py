"""A neighbourhood: people are invited, join, offer things, talk, keep files for each other, and one has to go."""

from __future__ import annotations

import hashlib
from base64 import b32encode
from typing import Literal

from everlog.demo.week import Thread, Week, chance_of
from everlog.log.log import Log
from everlog.programs.community.commands import (
    Advertise,
    Create,
    Deliver,
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
    perform(log, Create(community=HEARTH, name="The hearth", description="Our street"), week.by(FOUNDER))
    node = DescribeNode(community=HEARTH, name="the cellar", capabilities=["chat", "market", "files"])
    perform(log, node, week.by(FOUNDER))
    perform(log, SetPolicy(community=HEARTH, who_invites="member", post_days=30), week.by(FOUNDER))


def _member(log: Log, week: Week, number: int) -> Thread:
    chance, member = chance_of("member", number), MEMBERS[number]
    yield week.on(number // 10, 6.2 + number % 10 * 0.5)
    inviter = FOUNDER if number < 6 else MEMBERS[number % 5]
    perform(log, Invite(community=HEARTH, member=member), week.by(inviter))
    yield week.after(chance.uniform(5, 90))
    perform(log, Join(community=HEARTH, name=member.partition(":")[2].capitalize()), week.by(member))
    if member == MODERATOR:
        yield week.after(60)
        perform(log, Promote(community=HEARTH, member=member, to="moderator"), week.by(FOUNDER))


def _market(log: Log, week: Week, number: int) -> Thread:
    chance = chance_of("market", number)
    yield week.on(1.4 + number * 0.13, chance.uniform(0, 3))
    seller, name = _speaker(week, number), f"post-{number:02}"
    thing = _THINGS[number % len(_THINGS)]
    price = f"{5 + number % 30} EUR"
    kind: Literal["request", "offer"] = "request" if number % 4 == 3 else "offer"
    perform(log, Post(community=HEARTH, name=name, title=thing, type=kind, price=price), week.by(seller))
    yield week.after(chance.uniform(200, 1500))
    if chance.random() < 0.5:
        perform(log, UpdatePost(community=HEARTH, name=name, price=f"{3 + number % 20} EUR"), week.by(seller))
        yield week.after(chance.uniform(100, 1500))
    if chance.random() < 0.7:
        perform(log, Expire(community=HEARTH, name=name, reason="it found somebody"), week.by(seller))


def _chat(log: Log, week: Week, thread: str) -> Thread:
    chance = chance_of("chat", thread)
    yield week.on(1.3, 7)
    last = ""
    while True:
        speaker = _speaker(week, chance.randrange(99))
        text = _TALK[chance.randrange(len(_TALK))]
        reply = last if last and chance.random() < 0.4 else ""
        sent = perform(log, Say(community=HEARTH, thread=thread, text=text, reply_to=reply), week.by(speaker))
        last = sent.result.message
        yield week.after(chance.uniform(0.2, 3))
        reader = _speaker(week, chance.randrange(99))
        if reader != speaker:
            perform(log, Deliver(community=HEARTH, thread=thread, messages=[last]), week.by(reader))
            if chance.random() < 0.6:
                yield week.after(chance.uniform(0.2, 10))
                perform(log, Read(community=HEARTH, thread=thread, messages=[last]), week.by(reader))
        yield week.after(chance.uniform(20, 260))


def _library(log: Log, week: Week) -> Thread:
    chance = chance_of("library")
    yield week.on(1.5, 9)
    for number in range(24):
        keeper = _speaker(week, number)
        name = f"minutes-{number:02}.pdf"
        size = 20_000 + number * 1_717
        perform(log, Advertise(community=HEARTH, cid=_cid(name), name=name, size_bytes=size), week.by(keeper))
        yield week.after(chance.uniform(10, 60))
        if number % 2 == 0:
            title = f"Minutes {number:02}"
            document = Ingest(
                community=HEARTH, title=title, name=f"doc-{number:02}", cid=_cid(name), chunks=12, model="small"
            )
            perform(log, document, week.by(FOUNDER))
        if number % 6 == 5:
            perform(log, Unpin(community=HEARTH, cid=_cid(name)), week.by(keeper))
        yield week.after(chance.uniform(60, 400))


def _quarrel(log: Log, week: Week) -> Thread:
    yield week.on(4, 20)
    perform(log, Revoke(community=HEARTH, member=TROUBLE, reason="he sold what was not his"), week.by(FOUNDER))


def _speaker(week: Week, number: int) -> str:
    """Return a member that has joined by now and is not revoked later."""
    there = [one for place, one in enumerate(MEMBERS) if one != TROUBLE and week.now >= week.on(place // 10 + 0.6, 0)]
    return there[number % len(there)] if there else FOUNDER


def _cid(name: str) -> str:
    """Return the name of a content, as IPFS writes it: version 1, raw, SHA-256, in base 32."""
    multihash = bytes([0x01, 0x55, 0x12, 0x20]) + hashlib.sha256(name.encode()).digest()
    return "b" + b32encode(multihash).decode().lower().rstrip("=")
