"""The order of arrival never shows: not in the views, not in the asking, whatever a peer claims."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given as for_every
from hypothesis import settings
from hypothesis import strategies as some
from tests.programs.community.people import ADA, BOB, CYD, DAN, HOME, Story, founded

import everlog
from everlog.core.event import Event
from everlog.log.log import Log
from everlog.programs.command import By
from everlog.programs.community import acting, questions
from everlog.programs.community.commands import Create, DescribeNode, Invite, Join, Revoke, Say
from everlog.programs.community.rights import fingerprint
from everlog.programs.community.views import VIEWS, Chats, Documents, Files, Manifest, Market, Threads
from everlog.programs.perform import perform
from everlog.testing.view_contract import ViewContract

CID = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi"
PEOPLE = [ADA, BOB, CYD, DAN]
ROLES = ["member", "moderator", "admin"]


def a_full_life() -> list[Event]:
    """Something of every type, with and without a right to it."""
    story = founded((BOB, "moderator"), (CYD, "member"))
    story.act(ADA, "community.policy.updated", who_posts="member")
    story.act(BOB, "node.manifest.updated", node="NODE-SECOND")
    lamp, talk, file, manual = "post/hearth:lamp", "thread/hearth:general", f"file/hearth:{CID}", "document/hearth:m"
    for who in (CYD, DAN):
        story.act(who, "market.post.created", stream=lamp, title="A lamp", version=2)
        sent = story.act(who, "chat.message.sent", stream=talk, text="hello")
        story.act(who, "file.cid.advertised", stream=file, cid=CID)
        story.act(who, "rag.document.ingested", stream=manual, title="A manual")
        story.act(BOB, "chat.message.delivered", stream=talk, message=sent.id)
        story.act(BOB, "chat.message.read", stream=talk, message=sent.id)
    story.act(BOB, "chat.message.read", stream=talk, message="nonsense")
    story.act(CYD, "market.post.updated", stream=lamp, price="5")
    story.act(BOB, "market.post.expired", stream=lamp, reason="sold")
    story.act(CYD, "file.cid.unpinned", stream=file, cid=CID)
    story.act(ADA, "community.member.promoted", member=CYD, role="moderator")
    story.act(ADA, "community.member.demoted", member=CYD, role="member", upto={HOME[CYD]: 99})
    story.revoked(BOB, upto={HOME[BOB]: 3})
    return story.events


class TestManifest(ViewContract):
    view = Manifest
    events = a_full_life()


class TestMarket(ViewContract):
    view = Market
    events = a_full_life()


class TestThreads(ViewContract):
    view = Threads
    events = a_full_life()


class TestChats(ViewContract):
    view = Chats
    events = a_full_life()


class TestFiles(ViewContract):
    view = Files
    events = a_full_life()


class TestDocuments(ViewContract):
    view = Documents
    events = a_full_life()


# ---- everything, in any order, through real logs


def folded(log: Log, community: str = "hearth") -> str:
    """All that can be asked, as one text."""
    found = {
        "manifest": questions.manifest(log, community),
        "members": questions.members(log, community, everybody=True),
        "posts": questions.posts(log, community, over=True),
        "threads": questions.threads(log, community),
        "messages": [
            questions.messages(log, community, one["thread"]).messages for one in questions.threads(log, community)
        ],
        "files": questions.files(log, community),
        "documents": questions.documents(log, community),
        "ignored": questions.ignored(log, community),
        "views": [log.view(view).digest() for view in VIEWS],
    }
    return json.dumps(found, sort_keys=True)


MOVES = some.tuples(
    some.integers(0, 9),  # what
    some.sampled_from(PEOPLE),  # who
    some.sampled_from(PEOPLE),  # about whom
    some.integers(0, 2),  # which role
    some.one_of(some.none(), some.none(), some.integers(0, 12)),  # a point in a chain, if not the right one
    some.one_of(some.none(), some.none(), some.tuples(some.integers(1, 30), some.integers(1, 12))),  # a lie
    some.sampled_from(["", "", "", "", *HOME.values(), "NODE-NEW"]),  # from where
)
WILD = some.lists(MOVES, min_size=3, max_size=25).map(lambda moves: wild_history(moves))


def wild_history(moves: list[Any], community: str = "hearth", *, honest: str = "") -> Story:
    """What people might say who are honest, mistaken or lying: about anybody, from any node, at any time.

    From the node of somebody honest come only right clocks, a right chain and points that are known.
    """
    story = Story(community)
    story.created()
    for what, who, other, role, point, lie, node in moves:
        who = ADA if what in (1, 6) else who  # so that something comes of it often enough
        if (node or HOME[who]) == HOME.get(honest):
            point = lie = None
        how: dict[str, Any] = {"from_node": node} | ({} if lie is None else {"lamport": lie[0], "seq": lie[1]})
        upto = dict(story._chains) if point is None else {HOME[other]: point}
        match what:
            case 0 | 1:
                story.act(who, "community.member.invited", member=other, role=ROLES[role], **how)
                story.act(other, "community.member.joined")
            case 2:
                story.act(who, "community.member.joined", **how)
            case 3:
                story.act(who, "community.member.revoked", member=other, upto=upto, **how)
            case 4:
                story.act(who, "community.member.demoted", member=other, role=ROLES[role % 2], upto=upto, **how)
            case 5 | 6:
                story.act(who, "community.member.promoted", member=other, role=ROLES[1 + role % 2], **how)
            case 7:
                story.act(who, "community.policy.updated", who_invites=ROLES[role], **how)
            case 8:
                story.act(who, "node.manifest.updated", node=["NODE-NEW", HOME[other]][role % 2], **how)
            case _:
                story.act(who, "chat.message.sent", stream=f"thread/{community}:general", text="hello", **how)
    return story


@settings(max_examples=60, deadline=None)
@for_every(WILD, some.randoms(use_true_random=False))
def test_every_order_of_arrival_leads_to_the_same_answers(story: Story, chance: Any) -> None:
    events, texts = story.events, set()
    for _ in range(3):
        arriving = [*events, *chance.sample(events, 2)]
        chance.shuffle(arriving)
        with everlog.open("memory:", actor=ADA) as log:
            while arriving:
                size = chance.randint(1, len(arriving))
                log.admit(arriving[:size])
                arriving = arriving[size:]
                if chance.random() < 0.5:  # the views are somewhere on the way when the rest arrives
                    log.view(Manifest).catch_up()
                    log.view(Chats).catch_up()
            texts.add(folded(log))
    assert len(texts) == 1


@settings(max_examples=150, deadline=None)
@for_every(WILD)
def test_whatever_is_said_there_is_an_admin_and_nothing_is_lost(story: Story) -> None:
    standing = story.standing()
    assert standing.with_role("admin")
    governance = [event for event in story.events if event.kind == "community"]
    assert len(standing.state["said"]) == len(governance)
    assert len({one["id"] for one in standing.state["ignored"]}) == len(standing.state["ignored"])


SEALED = f"hearth~{fingerprint(ADA, HOME[ADA])}"
FORGERIES: list[tuple[str, dict[str, Any]]] = [
    ("community.created", {"name": "Mine"}),
    ("community.member.joined", {}),
    ("community.policy.updated", {"who_invites": "member"}),
    ("node.manifest.updated", {"node": "NODE-EVIL"}),
    *(("community.member.invited", {"member": who, "role": "admin"}) for who in PEOPLE),
    *(("community.member.promoted", {"member": who, "role": "admin"}) for who in PEOPLE),
    *(("community.member.revoked", {"member": who, "upto": {}}) for who in PEOPLE),
    ("community.member.revoked", {"member": BOB, "upto": {HOME[BOB]: 99}}),
    *(("community.member.demoted", {"member": who, "role": "member", "upto": {HOME[BOB]: 99}}) for who in PEOPLE),
]


@settings(max_examples=200, deadline=None)
@for_every(
    some.lists(MOVES, min_size=3, max_size=25),
    some.lists(some.tuples(some.sampled_from(FORGERIES), some.integers(1, 120)), min_size=1, max_size=3),
)
def test_who_is_revoked_changes_nothing_by_what_they_say_beyond_the_point_whatever_clock_it_claims(
    moves: list[Any], forgeries: list[tuple[tuple[str, dict[str, Any]], int]]
) -> None:
    """The founder, who is honest, revokes bob; and bob, who may have been anything before, writes into the past."""
    story = wild_history(moves, SEALED, honest=ADA)
    story._clock, story._chains = 100, dict.fromkeys(HOME.values(), 50)
    story.revoked(BOB)
    before = story.standing()
    if before.role(ADA) != "admin" or before.since(ADA)[0] != 1:
        return  # she is not the founder any more who ranks above everybody
    for (kind, payload), lamport in forgeries:
        if kind == "community.member.joined" and _was_invited_at(story, lamport):
            return  # whoever is invited may join: the invitation was never taken back
        story.act(BOB, kind, lamport=lamport, seq=max(60, story.chain(BOB) + 1), **payload)
    after = story.standing()
    for part in ("members", "policy", "policies", "nodes"):
        assert after.state[part] == before.state[part], part


def _was_invited_at(story: Story, lamport: int) -> bool:
    earlier = Story(story.community)
    earlier.events = [event for event in story.events if event.lamport <= lamport]
    return bool(earlier.events) and earlier.standing().status(BOB) == "invited"


# ---- two nodes that were apart


@pytest.fixture
def apart() -> Any:
    with everlog.open("memory:", actor=ADA) as here, everlog.open("memory:", actor=BOB) as there:
        perform(here, Create(community="hearth", name="The hearth"))
        perform(here, Invite(community="hearth", member=BOB, role="moderator"))
        _send(here, there)
        perform(there, Join(community="hearth"), By(actor=BOB))
        _send(there, here)
        yield here, there


def _send(source: Log, target: Log) -> None:
    target.admit([recorded.event for recorded in source.read() if target.get(recorded.event.id) is None])


def test_two_nodes_that_were_apart_agree_on_everything_after_they_met(apart: tuple[Log, Log]) -> None:
    here, there = apart
    perform(there, Say(community="hearth", thread="general", text="known to both"), By(actor=BOB))
    _send(there, here)
    perform(here, Revoke(community="hearth", member=BOB, reason="a quarrel"))
    perform(there, Say(community="hearth", thread="general", text="not known to ada"), By(actor=BOB))
    perform(there, Invite(community="hearth", member=CYD), By(actor=BOB))
    _send(here, there)
    _send(there, here)
    assert folded(here) == folded(there)
    texts = [one["text"] for one in questions.messages(here, "hearth", "general").messages]
    assert texts == ["known to both"]
    assert [one["why"] for one in questions.ignored(here, "hearth")] == ["user:bob was revoked"] * 2


def test_a_member_is_not_believed_on_a_node_that_they_did_not_announce(apart: tuple[Log, Log]) -> None:
    here, there = apart
    elsewhere = acting.here(there)
    with pytest.raises(everlog.EverlogError, match="user:ada does not speak from the node") as refused:
        perform(there, Say(community="hearth", thread="general", text="it is me"), By(actor=ADA))
    typed, _, where = refused.value.hint.partition("; ")
    assert typed == f"everlog community node {elsewhere} --actor user:ada"
    assert where == f"type it in the log of the node {acting.here(here)}, and bring its events here"
    perform(here, DescribeNode(community="hearth", node=elsewhere))
    _send(here, there)
    perform(there, Say(community="hearth", thread="general", text="it is me"), By(actor=ADA))
    _send(there, here)
    assert [one["by"] for one in questions.messages(here, "hearth", "general").messages] == [ADA]
