"""Who may do what, and that no claimed clock, node or order of arrival changes it."""

from __future__ import annotations

import pytest
from tests.programs.community.people import ADA, BOB, CYD, DAN, HOME, Story, founded

from everlog.programs.community.rights import fingerprint


def test_who_begins_a_community_is_its_admin_and_who_was_invited_joins() -> None:
    story = founded((BOB, "member"), (CYD, "moderator"))
    assert story.members() == {ADA: "admin", BOB: "member", CYD: "moderator"}
    assert story.ignored() == []


def test_a_community_begins_once_and_before_anything_else() -> None:
    story = Story()
    story.act(BOB, "community.member.invited", member=CYD)
    story.created()
    story.created(BOB)
    assert story.members() == {ADA: "admin"}
    assert [why for _, _, why in story.ignored()] == [
        "there is no community hearth",
        "hearth was created by user:ada",
    ]


def test_nobody_joins_without_an_invitation_or_from_another_node_than_it_names() -> None:
    story = founded()
    story.act(BOB, "community.member.joined")
    story.act(ADA, "community.member.invited", member=CYD, node="NODE-CYD")
    story.act(CYD, "community.member.joined", from_node="NODE-EVIL")
    assert story.members() == {ADA: "admin"}
    story.act(CYD, "community.member.joined")
    assert story.members() == {ADA: "admin", CYD: "member"}
    assert [why for _, _, why in story.ignored()] == [
        "user:bob has no invitation",
        "user:cyd was invited to join from the node NODE-CYD, and this is NODE-EVIL",
    ]


def test_members_do_not_invite_until_the_policy_lets_them() -> None:
    story = founded((BOB, "member"))
    story.act(BOB, "community.member.invited", member=CYD)
    assert story.ignored() == [(BOB, "invited", "user:bob is a member, and it takes a moderator")]
    story.act(ADA, "community.policy.updated", who_invites="member")
    story.joined(CYD, by=BOB)
    assert story.members()[CYD] == "member"


def test_only_admins_invite_to_a_higher_role() -> None:
    story = founded((BOB, "moderator"))
    story.act(BOB, "community.member.invited", member=CYD, role="moderator")
    assert story.ignored() == [(BOB, "invited", "user:bob is a moderator")]


def test_the_policy_of_the_moment_decides_not_that_of_today() -> None:
    story = founded((BOB, "moderator"))
    story.joined(CYD, by=BOB)
    story.act(ADA, "community.policy.updated", who_invites="admin")
    story.act(BOB, "community.member.invited", member=DAN)
    assert CYD in story.members()
    assert story.ignored() == [(BOB, "invited", "user:bob is a moderator, and it takes an admin")]


def test_the_last_admin_is_neither_revoked_nor_demoted_not_even_by_themselves() -> None:
    story = founded((BOB, "moderator"))
    story.revoked(ADA, by=ADA)
    story.act(ADA, "community.member.demoted", member=ADA, role="member")
    assert story.members() == {ADA: "admin", BOB: "moderator"}
    assert {why for _, _, why in story.ignored()} == {"user:ada is the last admin"}
    story.act(ADA, "community.member.promoted", member=BOB, role="admin")
    story.revoked(ADA, by=ADA)
    assert story.members() == {BOB: "admin"}


@pytest.mark.parametrize(
    ("role", "target", "may"),
    [
        ("member", "member", False),
        ("moderator", "member", True),
        ("moderator", "moderator", False),
        ("moderator", "admin", False),
        ("admin", "moderator", True),
    ],
)
def test_roles_are_taken_back_downwards_only(role: str, target: str, may: bool) -> None:
    story = founded((BOB, role), (CYD, target))
    story.revoked(CYD, by=BOB)
    assert (CYD not in story.members()) is may


def test_between_admins_who_has_been_one_for_longer_may_revoke_and_demote() -> None:
    story = founded((BOB, "admin"), (CYD, "admin"))
    story.revoked(BOB, by=CYD)
    assert story.ignored() == [(CYD, "revoked", "user:bob has been an admin for longer")]
    story.revoked(CYD, by=BOB)
    assert story.members() == {ADA: "admin", BOB: "admin"}


def test_everybody_may_leave_and_step_down() -> None:
    story = founded((BOB, "member"), (CYD, "admin"))
    story.revoked(BOB, by=BOB)
    story.act(CYD, "community.member.demoted", member=CYD, role="moderator", upto={HOME[CYD]: story.chain(CYD)})
    assert story.members() == {ADA: "admin", CYD: "moderator"}
    assert story.ignored() == []


# ---- what a claimed clock does not change


def test_what_a_revoked_member_says_later_does_not_count_whatever_clock_it_claims() -> None:
    story = founded((BOB, "moderator"))
    story.revoked(BOB)
    story.act(BOB, "community.member.invited", member=CYD)
    story.act(BOB, "community.member.invited", member=CYD, lamport=4)  # as if before the revocation
    assert story.members() == {ADA: "admin"}
    assert story.ignored() == [(BOB, "invited", "user:bob was revoked")] * 2


def test_what_lies_in_the_chain_up_to_the_point_that_was_named_counts_though_it_arrives_later() -> None:
    story = founded((BOB, "moderator"))
    invitation = story.act(BOB, "community.member.invited", member=CYD)
    story.act(CYD, "community.member.joined")
    story.revoked(BOB)
    story.events.remove(invitation)
    story.events.append(invitation)
    assert story.members() == {ADA: "admin", CYD: "member"}


def test_what_was_said_before_but_beyond_the_named_point_is_undone_and_all_that_rests_on_it() -> None:
    story = founded((BOB, "admin"))
    point = story.chain(BOB)
    story.joined(CYD, by=BOB, role="admin")
    story.joined(DAN, by=CYD)
    assert set(story.members()) == {ADA, BOB, CYD, DAN}
    story.revoked(BOB, upto={HOME[BOB]: point})
    assert story.members() == {ADA: "admin"}
    assert [(who, why) for who, _, why in story.ignored()] == [
        (BOB, "user:bob was revoked"),
        (CYD, "user:cyd has no invitation"),
        (CYD, "user:cyd is not a member"),
        (DAN, "user:dan has no invitation"),
    ]


def test_a_demotion_names_a_point_too() -> None:
    story = founded((BOB, "moderator"), (CYD, "member"))
    point = story.chain(BOB)
    story.revoked(CYD, by=BOB, lamport=7)
    story.act(ADA, "community.member.demoted", member=BOB, role="member", upto={HOME[BOB]: point}, lamport=9)
    assert story.members() == {ADA: "admin", BOB: "member", CYD: "member"}
    assert story.ignored() == [(BOB, "revoked", "user:cyd is a member, and user:bob is a member")]


def test_who_is_revoked_cannot_save_themselves_by_a_revocation_of_long_ago() -> None:
    """Bob claims to have revoked cyd as a moderator, before cyd became the admin who revoked him."""
    story = founded((BOB, "moderator"), (CYD, "member"))
    long_ago = 5
    story.act(ADA, "community.member.promoted", member=CYD, role="admin")
    point = story.chain(BOB)
    story.revoked(BOB, by=CYD)
    for upto in ({}, {HOME[CYD]: 1}):
        story.revoked(CYD, by=BOB, upto=upto, lamport=long_ago, seq=point + 1)
    assert story.members() == {ADA: "admin", CYD: "admin"}
    assert {(who, why) for who, _, why in story.ignored()} == {(BOB, "user:bob was revoked")}


def test_of_two_revocations_that_contradict_each_other_the_one_of_the_higher_authority_holds() -> None:
    """Bob's, which is older and undoes the joining of cyd; and ada's, which undoes bob's."""
    story = founded((BOB, "admin"), (CYD, "member"))
    point = story.chain(BOB)
    story.revoked(CYD, by=BOB, upto={})
    story.revoked(BOB, upto={HOME[BOB]: point})
    assert story.members() == {ADA: "admin", CYD: "member"}
    assert story.ignored() == [(BOB, "revoked", "user:bob was revoked")]


def test_who_has_left_cannot_take_that_back_by_something_of_long_ago() -> None:
    story = founded((BOB, "admin"))
    point = story.chain(BOB)
    story.revoked(BOB, by=BOB)
    story.act(BOB, "community.policy.updated", who_invites="member", lamport=3, seq=point + 2)
    assert story.members() == {ADA: "admin"}
    assert story.ignored() == [(BOB, "updated", "user:bob was revoked")]


def test_two_admins_who_revoke_each_other_without_knowing_are_told_apart_by_who_is_senior_not_by_the_clock() -> None:
    for first, second in ((20, 10), (10, 20)):
        story = founded((BOB, "admin"), (CYD, "admin"))
        story.revoked(CYD, by=BOB, lamport=first)
        story.revoked(BOB, by=CYD, lamport=second)
        assert story.members() == {ADA: "admin", BOB: "admin"}


def test_a_taking_that_would_undo_what_its_own_right_rests_on_does_not_count() -> None:
    story = founded((BOB, "moderator"))
    story.joined(CYD, by=BOB)
    story.act(ADA, "community.member.promoted", member=CYD, role="admin")
    story.revoked(BOB, by=CYD, upto={})
    assert story.members() == {ADA: "admin", BOB: "moderator", CYD: "admin"}
    assert story.ignored() == [(CYD, "revoked", "it would undo its own right")]


def test_who_joins_again_speaks_again_but_what_lies_between_stays_without_a_right() -> None:
    story = founded((BOB, "moderator"))
    story.revoked(BOB)
    story.act(BOB, "community.member.invited", member=CYD)
    story.joined(BOB, role="moderator")
    story.act(BOB, "community.member.invited", member=DAN)
    story.act(BOB, "community.member.invited", member=CYD, lamport=4)  # back into the first time
    standing = story.standing()
    assert standing.status(DAN) == "invited"
    assert standing.status(CYD) == ""


# ---- what a node does not change


def test_nobody_speaks_for_a_member_from_a_node_that_is_not_theirs() -> None:
    story = founded((BOB, "member"))
    story.act(ADA, "community.member.promoted", member=BOB, role="admin", from_node=HOME[BOB])
    assert story.members()[BOB] == "member"
    ((who, what, why),) = story.ignored()
    assert (who, what) == (ADA, "promoted")
    assert why.startswith("user:ada does not speak from the node NODE-BOB")


def test_a_member_speaks_from_a_node_that_they_announced_from_another_one_of_theirs() -> None:
    story = founded((BOB, "member"))
    story.act(ADA, "community.policy.updated", post_days=7, from_node="NODE-NEW")
    story.act(ADA, "node.manifest.updated", node="NODE-NEW", name="the laptop")
    story.act(ADA, "community.policy.updated", post_days=30, from_node="NODE-NEW")
    standing = story.standing()
    assert standing.state["policy"]["post_days"] == 30
    assert standing.state["nodes"]["NODE-NEW"]["name"] == "the laptop"
    assert len(story.ignored()) == 1


def test_nobody_describes_the_node_of_another_member() -> None:
    story = founded((BOB, "member"))
    story.act(ADA, "node.manifest.updated", node=HOME[ADA], name="ada's")
    story.act(BOB, "node.manifest.updated", node=HOME[ADA], name="mine now")
    assert story.standing().state["nodes"][HOME[ADA]]["name"] == "ada's"
    assert story.ignored() == [(BOB, "updated", "the node NODE-ADA is one of user:ada")]


def test_a_member_may_speak_from_the_node_of_another_without_changing_what_it_is() -> None:
    story = founded((BOB, "moderator"))
    story.act(ADA, "node.manifest.updated", node=HOME[ADA], name="ada's")
    story.act(BOB, "node.manifest.updated", node=HOME[ADA])
    story.act(BOB, "community.member.invited", member=CYD, from_node=HOME[ADA])
    assert story.standing().state["nodes"][HOME[ADA]]["name"] == "ada's"
    assert (story.standing().status(CYD), story.ignored()) == ("invited", [])


def test_a_revocation_that_names_no_point_of_a_node_leaves_nothing_that_came_from_there() -> None:
    story = founded((BOB, "moderator"))
    story.act(BOB, "node.manifest.updated", node="NODE-SECOND")
    story.joined(CYD, by=BOB)
    story.act(BOB, "community.member.invited", member=DAN, from_node="NODE-SECOND")
    story.revoked(BOB)
    assert story.standing().status(CYD) == "member"
    assert story.standing().status(DAN) == ""


def test_an_id_that_names_its_founder_cannot_be_begun_by_anybody_else() -> None:
    story = Story(f"hearth~{fingerprint(ADA, HOME[ADA])}")
    story.act(BOB, "community.created", name="Mine", lamport=1)
    story.act(ADA, "community.created", name="Mine", from_node="NODE-EVIL", lamport=1)
    story.act(ADA, "community.created", name="The hearth", lamport=9)
    assert story.standing().state["name"] == "The hearth"
    assert story.members() == {ADA: "admin"}


# ---- what a peer may send


def test_what_makes_no_sense_is_ignored_and_stops_nothing() -> None:
    story = founded()
    story.act(ADA, "community.member.invited", membre="a typo")
    story.act(ADA, "community.member.invited", member="user:bob", role="king")
    story.act(ADA, "community.member.revoked")
    story.act(ADA, "community.policy.updated", version=99, who_posts="admin")
    story.act(ADA, "community.member.invited", member=BOB, scope="another")
    story.joined(CYD)
    assert story.members() == {ADA: "admin", CYD: "member"}
    assert [why for _, _, why in story.ignored()] == [
        "its payload is not that of community.member.invited",
        "its payload is not that of community.member.invited",
        "its payload is not that of community.member.revoked",
        "version 99 of it is not known here",
        "its scope is another, and its stream belongs to hearth",
    ]
