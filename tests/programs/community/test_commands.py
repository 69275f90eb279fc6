from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.programs.elsewhere import lawless

import everlog
from everlog.core.event import Event
from everlog.core.query import Query
from everlog.errors import InvalidField, InvalidPayload, KeyReuse, NoSuchSubject, RuleRefused
from everlog.log.log import Log
from everlog.programs.command import By
from everlog.programs.community import acting, questions
from everlog.programs.community.commands import (
    Advertise,
    Create,
    Demote,
    DescribeNode,
    ExpireDue,
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
from everlog.testing import builders

ADA, BOB, CYD = By(actor="user:ada"), By(actor="user:bob"), By(actor="user:cyd")
CID = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi"


@pytest.fixture
def hearth(log: Log) -> Log:
    """A log with a community of ada (admin) and bob (member)."""
    perform(log, Create(community="hearth", name="The hearth"), ADA)
    perform(log, Invite(community="hearth", member="user:bob"), ADA)
    perform(log, Join(community="hearth", name="Bob"), BOB)
    return log


def test_a_community_from_its_beginning(hearth: Log) -> None:
    found = questions.manifest(hearth, "hearth")
    assert (found["name"], found["created_by"]) == ("The hearth", "user:ada")
    assert [(one["member"], one["role"], one["name"]) for one in found["members"]] == [
        ("user:ada", "admin", ""),
        ("user:bob", "member", "Bob"),
    ]
    assert {recorded.event.scope for recorded in hearth.read()} == {"hearth"}


def test_whatever_is_recorded_here_counts(hearth: Log) -> None:
    perform(hearth, Promote(community="hearth", member="user:bob", to="admin"), ADA)
    perform(hearth, Demote(community="hearth", member="user:bob", to="moderator"), ADA)
    perform(hearth, SetPolicy(community="hearth", post_days=30), ADA)
    perform(hearth, DescribeNode(community="hearth"), BOB)
    perform(hearth, Post(community="hearth", title="A lamp", name="lamp"), BOB)
    perform(hearth, Say(community="hearth", thread="general", text="hello"), BOB)
    perform(hearth, Read(community="hearth", thread="general"), ADA)
    perform(hearth, Advertise(community="hearth", cid=CID), BOB)
    perform(hearth, Ingest(community="hearth", title="The stove"), BOB)
    perform(hearth, Revoke(community="hearth", member="user:bob"), ADA)
    assert questions.ignored(hearth, "hearth") == []


def test_a_refusal_is_on_record_and_nothing_is_written(hearth: Log) -> None:
    head = hearth.head()
    with pytest.raises(RuleRefused):
        perform(hearth, Invite(community="hearth", member="user:cyd"), BOB)
    with pytest.raises(InvalidPayload):
        perform(hearth, Promote(community="hearth", member="user:bob", to="king"), ADA)  # type: ignore[arg-type]
    with pytest.raises(InvalidPayload):
        perform(hearth, Advertise(community="hearth", cid="bafynonsense"), BOB)
    with pytest.raises(InvalidField):
        perform(hearth, Say(community="hearth", thread="no such name!", text="hello"), BOB)
    with pytest.raises(NoSuchSubject):
        perform(hearth, Say(community="elsewhere", thread="general", text="hello"), BOB)
    assert hearth.head() == head
    found = [(one.code, one.operation, one.actor) for one in hearth.refusals()]
    assert found == [
        ("no_such_subject", "community say", "user:bob"),
        ("invalid_field", "community say", "user:bob"),
        ("invalid_payload", "community advertise", "user:bob"),
        ("invalid_payload", "community promote", "user:ada"),
        ("rule_refused", "community invite", "user:bob"),
    ]


def test_the_same_request_under_a_key_is_done_once(hearth: Log) -> None:
    by = By(actor="user:bob", key="hello-1")
    first = perform(hearth, Say(community="hearth", thread="general", text="hello"), by)
    again = perform(hearth, Say(community="hearth", thread="general", text="hello"), by)
    assert (again.result.message, again.replayed) == (first.result.message, True)
    with pytest.raises(KeyReuse):
        perform(hearth, Say(community="hearth", thread="general", text="something else"), by)
    by = By(actor="user:bob", key="lamp")
    made = perform(hearth, Post(community="hearth", title="A lamp"), by)
    assert perform(hearth, Post(community="hearth", title="A lamp"), by).result.name == made.result.name
    assert len(questions.posts(hearth, "hearth")) == 1


def test_a_dry_run_checks_and_records_nothing(hearth: Log) -> None:
    head = hearth.head()
    assert (
        perform(
            hearth, Say(community="hearth", thread="general", text="hello"), By(actor="user:bob", dry_run=True)
        ).status
        == "dry_run"
    )
    with pytest.raises(RuleRefused):
        perform(hearth, Revoke(community="hearth", member="user:ada"), By(actor="user:bob", dry_run=True))
    assert (hearth.head(), hearth.refusals()) == (head, [])


def test_what_is_so_already_is_not_said_again(hearth: Log) -> None:
    perform(hearth, SetPolicy(community="hearth", post_days=30), ADA)
    perform(hearth, Post(community="hearth", title="A lamp", price="5", name="lamp"), BOB)
    perform(hearth, Say(community="hearth", thread="general", text="hello"), BOB)
    perform(hearth, Read(community="hearth", thread="general"), ADA)
    head = hearth.head()
    assert perform(hearth, SetPolicy(community="hearth", post_days=30), ADA).records == ()
    assert perform(hearth, UpdatePost(community="hearth", name="lamp", price="5"), BOB).records == ()
    assert perform(hearth, Read(community="hearth", thread="general"), ADA).records == ()
    assert hearth.head() == head


def test_a_revocation_names_how_far_the_member_is_known(hearth: Log) -> None:
    perform(hearth, Say(community="hearth", thread="general", text="hello"), BOB)
    origin = acting.here(hearth)
    step = perform(hearth, Revoke(community="hearth", member="user:bob", reason="a quarrel"), ADA)
    assert step.events[0].payload["upto"] == {origin: hearth.head() - 1}
    assert [one["text"] for one in questions.messages(hearth, "hearth", "general").messages] == ["hello"]
    perform(hearth, Invite(community="hearth", member="user:bob"), ADA)
    perform(hearth, Join(community="hearth"), BOB)
    perform(hearth, Say(community="hearth", thread="general", text="again"), BOB)
    assert len(questions.messages(hearth, "hearth", "general").messages) == 2


def test_a_decision_is_made_anew_when_the_community_changes_meanwhile(
    hearth: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bob is revoked between the look at his rights and the append of his word."""
    seen: list[str] = []
    real = questions.standing

    def standing(log: Log, community: str) -> Any:
        found = real(log, community)
        seen.append(found.status("user:bob"))
        if len(seen) == 1:
            perform(log, Revoke(community=community, member="user:bob"), ADA)
        return found

    monkeypatch.setattr(questions, "standing", standing)
    with pytest.raises(RuleRefused):
        perform(hearth, Say(community="hearth", thread="general", text="hello"), BOB)
    assert (seen[0], seen[-1]) == ("member", "revoked")
    assert list(hearth.read(Query(kind="thread"))) == []


def test_posts_are_over_when_their_time_has_passed_and_it_can_be_put_on_record(hearth: Log) -> None:
    perform(hearth, Invite(community="hearth", member="user:cyd"), ADA)
    perform(hearth, Join(community="hearth"), CYD)
    now = datetime.now(UTC)
    for name, who in (("lamp", "user:bob"), ("chair", "user:cyd")):
        perform(hearth, Post(community="hearth", title=name, days=1, name=name), By(actor=who, at=now))
    later = datetime.now(UTC) + timedelta(days=1, seconds=1)
    assert [one["post"] for one in questions.posts(hearth, "hearth")] == ["chair", "lamp"]
    assert questions.posts(hearth, "hearth", now=later) == []
    assert [one["due"] for one in questions.posts(hearth, "hearth", now=later, over=True)] == [True, True]
    assert perform(hearth, ExpireDue(community="hearth"), By(actor="user:bob", at=later)).result.posts == ["lamp"]
    assert perform(hearth, ExpireDue(community="hearth"), By(actor="user:ada", at=later)).result.posts == ["chair"]
    assert questions.posts(hearth, "hearth") == []
    assert questions.post(hearth, "hearth", "lamp")["reason"] == "its time has passed"
    with pytest.raises(NoSuchSubject):
        questions.post(hearth, "hearth", "table")


def test_messages_go_over_days_and_only_as_many_rows_are_read_as_needed(hearth: Log) -> None:
    day_ms = 24 * 60 * 60 * 1000
    start = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
    made: list[Event] = []
    for day in range(4):
        for place in range(3):
            id = f"{_ulid_time(start + day * day_ms + place)}7000000000000000"
            made.append(
                builders.event(
                    "chat.message.sent",
                    stream="thread/hearth:general",
                    payload={"text": f"{day}-{place}"},
                    id=id,
                    lamport=100 + day * 10 + place,
                    origin="NODE-BOB",
                    origin_seq=len(made) + 1,
                    actor="user:bob",
                    scope="hearth",
                )
            )
    perform(hearth, DescribeNode(community="hearth", node="NODE-BOB"), BOB)
    hearth.admit(made)
    texts = [one["text"] for one in questions.messages(hearth, "hearth", "general", limit=4).messages]
    assert texts == ["2-2", "3-0", "3-1", "3-2"]
    assert len(questions.messages(hearth, "hearth", "general").messages) == 12
    (thread,) = questions.threads(hearth, "hearth")
    assert (thread["sent"], thread["days"], thread["last_text"]) == (12, 4, "3-2")
    assert hearth.view("community.chats").count() == 4


def _ulid_time(ms: int) -> str:
    alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    return "".join(alphabet[(ms >> shift) & 31] for shift in range(45, -1, -5))


def test_the_list_of_threads_shows_the_last_message_that_counts(hearth: Log) -> None:
    perform(hearth, Say(community="hearth", thread="general", text="I am a member"), BOB)
    with lawless("community", actor="user:spammer") as elsewhere:
        elsewhere.admit([recorded.event for recorded in hearth.read()])
        for place in range(12):
            stream, text = "thread/hearth:general", {"text": f"spam {place}"}
            spam = elsewhere.append("chat.message.sent", stream=stream, payload=text, scope="hearth")
            hearth.admit([spam.event])
    (thread,) = questions.threads(hearth, "hearth")
    assert (thread["last_text"], thread["sent"]) == ("I am a member", 13)
    assert len(questions.ignored(hearth, "hearth")) == 12


def test_files_and_documents_say_who_keeps_them(hearth: Log) -> None:
    perform(hearth, Advertise(community="hearth", cid=CID, name="plan.pdf", size_bytes=9), BOB)
    perform(hearth, Advertise(community="hearth", cid=CID, name="plan (1).pdf", size_bytes=9), ADA)
    perform(hearth, Ingest(community="hearth", title="The plan", name="plan", cid=CID, chunks=3), BOB)
    (file,) = questions.files(hearth, "hearth")
    assert (file["names"], file["size_bytes"], list(file["providers"])) == (
        ["plan (1).pdf", "plan.pdf"],
        9,
        ["user:bob", "user:ada"],
    )
    perform(hearth, Unpin(community="hearth", cid=CID), ADA)
    assert list(questions.files(hearth, "hearth")[0]["providers"]) == ["user:bob"]
    assert questions.documents(hearth, "hearth")[0]["cid"] == CID


def test_communities_in_one_log_do_not_touch_each_other(hearth: Log) -> None:
    perform(hearth, Create(community="hearth:two", name="Another"), BOB)
    perform(hearth, Post(community="hearth", title="A lamp", name="lamp"), ADA)
    perform(hearth, Post(community="hearth:two", title="A chair", name="lamp"), BOB)
    assert [one["title"] for one in questions.posts(hearth, "hearth")] == ["A lamp"]
    assert [one["title"] for one in questions.posts(hearth, "hearth:two")] == ["A chair"]
    with pytest.raises(RuleRefused) as refused:
        perform(hearth, Say(community="hearth:two", thread="general", text="hello"), ADA)
    assert refused.value.hint == "everlog community invite user:ada --actor user:bob --scope hearth:two"
    with pytest.raises(NoSuchSubject, match="no community is named"):
        questions.meant(hearth)
    assert questions.meant(hearth, usual="hearth:two") == "hearth:two"


def test_a_sealed_community_can_only_be_begun_by_its_founder(log: Log) -> None:
    step = perform(log, Create(community="hearth", name="The hearth", sealed=True), ADA)
    assert step.result.community.startswith("hearth~")
    assert questions.meant(log) == step.result.community
    with everlog.open("memory:") as elsewhere, pytest.raises(RuleRefused, match="names another founder"):
        perform(elsewhere, Create(community=step.result.community, name="Mine"), ADA)


def test_reserved_types_are_refused_here_and_kept_when_a_peer_sends_them(hearth: Log) -> None:
    for name in ("federation.peer.added", "federation.peer.removed"):
        with pytest.raises(InvalidPayload, match="federation is reserved"):
            hearth.append(name, stream="community/hearth", payload={}, scope="hearth")
    before = hearth.view("community.manifest").digest()
    hearth.admit(
        [builders.event("federation.peer.added", stream="community/hearth", payload={"peer": "oak"}, lamport=9)]
    )
    kept = list(hearth.read(Query(types=frozenset(("federation.peer.added",)))))
    assert [recorded.event.payload for recorded in kept] == [{"peer": "oak"}]
    assert hearth.view("community.manifest").digest() == before


def test_a_clone_of_a_log_is_another_node(tmp_path: Path) -> None:
    """Whoever writes in a clone speaks from there only after they said so from where they joined."""
    import shutil

    with everlog.open(f"jsonl:{tmp_path / 'one'}", actor="user:ada") as log:
        perform(log, Create(community="hearth", name="The hearth"))
        origin = acting.here(log)
    shutil.copytree(tmp_path / "one", tmp_path / "two", ignore=shutil.ignore_patterns("local"))
    with everlog.open(f"jsonl:{tmp_path / 'two'}", actor="user:ada") as clone:
        with pytest.raises(RuleRefused, match="does not speak from the node") as refused:
            perform(clone, Say(community="hearth", thread="general", text="hello"))
        assert acting.here(clone) not in ("", origin)
        assert acting.here(clone) in refused.value.hint
