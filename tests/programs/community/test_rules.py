"""What may be said on the market, in chats, of files and documents; who may say it is in test_rights."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.programs.community.people import ADA, BOB, CYD, DAN, HOME, Story, founded

from everlog.core.event import Event
from everlog.errors import NoSuchSubject, RuleRefused
from everlog.programs.community import rules
from everlog.programs.community.events import (
    CATALOG,
    CidAdvertised,
    CidUnpinned,
    DocumentIngested,
    MessageRead,
    MessageSent,
    PostCreated,
    PostExpired,
    PostUpdated,
    name_of,
)
from everlog.programs.community.membership import Standing
from everlog.programs.community.reading import act_to_be, in_order
from everlog.testing.builders import NOON
from everlog.testing.given_when_then import Given, given

CID = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi"
LAMP, TALK, FILE, MANUAL = "post/hearth:lamp", "thread/hearth:general", f"file/hearth:{CID}", "document/hearth:manual"


@pytest.fixture
def story() -> Story:
    return founded((BOB, "moderator"), (CYD, "member"), (DAN, "member"))


def so_far(story: Story) -> Given:
    """What was said, as a rule gets it: how the community stands, and what was said of each subject."""

    def fold(events: list[Any]) -> tuple[Standing, list[Event]]:
        return story.standing(), [event for event in events if event.kind != "community"]

    return given(*(CATALOG.upcast(event) for event in story.events)).through(fold)


def say(history: tuple[Standing, list[Event]], who: str, payload: Any, stream: str) -> list[Any]:
    """The rule of every command: what was said of a subject before, and whether this may be said now."""
    standing, events = history
    kind, name = stream.partition("/")[0], name_of(stream)
    before = rules.fold_subject(standing, kind, name, in_order([event for event in events if event.stream == stream]))
    act = act_to_be(payload, by=who, origin=HOME[who], at=rules.text(NOON))
    rules.insist(standing, act, f"speak of {name}", kind=kind, subject=before.subject, name=name)
    return [payload]


def folded(story: Story, stream: str) -> rules.FoldedSubject:
    kind, name = stream.partition("/")[0], name_of(stream)
    mine = [CATALOG.upcast(event) for event in story.events if event.stream == stream]
    return rules.fold_subject(story.standing(), kind, name, in_order(mine))


POST = PostCreated(title="A lamp")


def test_a_post_is_created_once_and_by_members(story: Story) -> None:
    so_far(story).when(say, CYD, POST, LAMP).then(POST)
    story.act(CYD, "market.post.created", stream=LAMP, title="A lamp", version=2)
    so_far(story).when(say, DAN, POST, LAMP).refused(RuleRefused, saying="user:cyd created it")
    story.revoked(DAN)
    so_far(story).when(say, DAN, POST, "post/hearth:chair").refused(RuleRefused, saying="user:dan was revoked")


def test_the_policy_says_who_posts(story: Story) -> None:
    story.act(ADA, "community.policy.updated", who_posts="moderator")
    so_far(story).when(say, CYD, POST, LAMP).refused(RuleRefused, saying="it takes a moderator")
    so_far(story).when(say, BOB, POST, LAMP).then(POST)


def test_a_post_is_changed_by_its_author_and_ended_by_its_author_or_a_moderator(story: Story) -> None:
    change, end = PostUpdated(price="5"), PostExpired(reason="sold")
    so_far(story).when(say, CYD, change, LAMP).refused(NoSuchSubject, saying="there is no post lamp")
    story.act(CYD, "market.post.created", stream=LAMP, title="A lamp", version=2)
    so_far(story).when(say, CYD, change, LAMP).then(change)
    so_far(story).when(say, BOB, change, LAMP).refused(RuleRefused, saying="user:cyd created it")
    so_far(story).when(say, DAN, end, LAMP).refused(RuleRefused, saying="user:cyd created it")
    so_far(story).when(say, BOB, end, LAMP).then(end)
    story.act(CYD, "market.post.expired", stream=LAMP)
    so_far(story).when(say, CYD, change, LAMP).refused(RuleRefused, saying="the post lamp is over")


def test_a_post_is_open_for_as_many_days_as_the_policy_says(story: Story) -> None:
    def lasting(days: float) -> PostCreated:
        return PostCreated(title="A lamp", expires_at=NOON + timedelta(days=days))

    story.act(ADA, "community.policy.updated", post_days=7)
    so_far(story).when(say, CYD, lasting(7), LAMP).then(lasting(7))
    so_far(story).when(say, CYD, lasting(7.1), LAMP).refused(RuleRefused, saying="open for 7 days at most")
    so_far(story).when(say, CYD, lasting(0), LAMP).refused(RuleRefused, saying="over already")
    story.act(CYD, "market.post.created", stream=LAMP, title="A lamp", version=2)
    assert folded(story, LAMP).subject["expires_at"] == rules.text(NOON + timedelta(days=7))


def test_an_update_leaves_what_it_does_not_name(story: Story) -> None:
    story.act(CYD, "market.post.created", stream=LAMP, title="A lamp", price="5", version=2)
    story.act(CYD, "market.post.updated", stream=LAMP, price="4")
    found = folded(story, LAMP).subject
    assert (found["title"], found["price"], found["status"]) == ("A lamp", "4", "open")


def test_the_first_version_of_a_post_is_read_as_the_second(story: Story) -> None:
    story.act(CYD, "market.post.created", stream=LAMP, title="A lamp", body="for the attic", wanted=True)
    found = folded(story, LAMP).subject
    assert (found["kind"], found["text"]) == ("request", "for the attic")


def test_a_first_version_that_makes_no_sense_stops_nothing(story: Story) -> None:
    story.act(CYD, "market.post.created", stream=LAMP, nonsense=True)
    found = folded(story, LAMP)
    assert (found.subject, [one["why"] for one in found.ignored]) == (
        {},
        ["its payload is not that of market.post.created"],
    )


def test_a_message_is_marked_by_others_once_it_is_there(story: Story) -> None:
    hello = MessageSent(text="hello")
    so_far(story).when(say, CYD, hello, TALK).then(hello)
    sent = story.act(CYD, "chat.message.sent", stream=TALK, text="hello")
    read = MessageRead(message=sent.id)
    so_far(story).when(say, DAN, read, TALK).then(read)
    so_far(story).when(say, CYD, read, TALK).refused(RuleRefused, saying="user:cyd sent the message")
    so_far(story).when(say, DAN, read, "thread/hearth:other").refused(NoSuchSubject, saying="there is no message")


def test_who_has_read_a_message_has_got_it_and_the_first_time_counts(story: Story) -> None:
    sent = story.act(CYD, "chat.message.sent", stream=TALK, text="hello")
    for who in (DAN, BOB, DAN):
        story.act(who, "chat.message.read", stream=TALK, message=sent.id)
    message = folded(story, TALK).subject[sent.id]
    assert sorted(message["read"]) == sorted(message["delivered"]) == [BOB, DAN]


def test_what_strangers_say_in_a_thread_is_left_out_and_told_as_ignored(story: Story) -> None:
    story.revoked(DAN)
    sent = story.act(DAN, "chat.message.sent", stream=TALK, text="I am still here")
    story.act(CYD, "chat.message.read", stream=TALK, message=sent.id)
    found = folded(story, TALK)
    assert found.subject == {}
    assert [one["why"] for one in found.ignored] == [
        "user:dan was revoked",
        f"there is no message {sent.id} in general",
    ]


def test_a_file_is_kept_by_many_and_unpinned_by_who_keeps_it_or_a_moderator(story: Story) -> None:
    keep, drop = CidAdvertised(cid=CID), CidUnpinned(cid=CID)
    so_far(story).when(say, CYD, keep, FILE).then(keep)
    so_far(story).when(say, CYD, drop, FILE).refused(NoSuchSubject, saying="user:cyd does not keep the file")
    for who in (CYD, DAN):
        story.act(who, "file.cid.advertised", stream=FILE, cid=CID, name="plan.pdf")
    so_far(story).when(say, CYD, drop, FILE).then(drop)
    of_cyd = CidUnpinned(cid=CID, provider=CYD)
    so_far(story).when(say, DAN, of_cyd, FILE).refused(RuleRefused, saying="user:cyd keeps it")
    so_far(story).when(say, BOB, of_cyd, FILE).then(of_cyd)
    story.act(BOB, "file.cid.unpinned", stream=FILE, cid=CID, provider=CYD)
    assert list(folded(story, FILE).subject) == [DAN]


def test_a_file_is_told_of_in_its_own_stream(story: Story) -> None:
    other = "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG"
    story.act(CYD, "file.cid.advertised", stream=FILE, cid=other)
    story.act(CYD, "file.cid.advertised", stream=FILE, cid="bafynonsense")
    assert [one["why"] for one in folded(story, FILE).ignored] == [
        f"it is about the file {other}",
        "its payload is not that of file.cid.advertised",
    ]


def test_a_document_says_what_was_last_said_of_it(story: Story) -> None:
    manual = DocumentIngested(title="The stove")
    so_far(story).when(say, CYD, manual, MANUAL).then(manual)
    story.act(CYD, "rag.document.ingested", stream=MANUAL, title="The stove", chunks=4)
    story.act(DAN, "rag.document.ingested", stream=MANUAL, title="The stove, again", chunks=5)
    found = folded(story, MANUAL).subject
    assert (found["title"], found["chunks"], found["by"], found["times"]) == ("The stove, again", 5, DAN, 2)


def test_a_refusal_names_the_rule_what_was_tried_what_is_allowed_and_what_to_type(story: Story) -> None:
    story.act(CYD, "market.post.created", stream=LAMP, title="A lamp", version=2)
    error = so_far(story).when(say, DAN, PostExpired(), LAMP).error
    assert isinstance(error, RuleRefused)
    assert error.what == "user:dan cannot speak of lamp"
    assert error.details["rule"].startswith("a post is changed by its author")
    assert error.details["allowed"] == [CYD, "moderator", "admin"]
    assert error.hint == "everlog community expire lamp --actor user:cyd"
