from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import everlog
from everlog.core.event import Event
from everlog.core.query import Query
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
from everlog.errors import InvalidField, InvalidPayload, KeyReuse, NoSuchSubject, RuleRefused
from everlog.log.log import Log
from everlog.testing import builders

ADA, BOB, CYD = By(actor="user:ada"), By(actor="user:bob"), By(actor="user:cyd")
CID = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi"


@pytest.fixture
def hearth(log: Log) -> Log:
    """A log with a community of ada (admin) and bob (member)."""
    commands.create(log, "hearth", Created(name="The hearth"), by=ADA)
    commands.invite(log, "hearth", Invited(member="user:bob"), by=ADA)
    commands.join(log, "hearth", name="Bob", by=BOB)
    return log


def test_a_community_from_its_beginning(hearth: Log) -> None:
    found = asking.manifest(hearth, "hearth")
    assert (found["name"], found["created_by"]) == ("The hearth", "user:ada")
    assert [(one["member"], one["role"], one["name"]) for one in found["members"]] == [
        ("user:ada", "admin", ""),
        ("user:bob", "member", "Bob"),
    ]
    assert {recorded.event.scope for recorded in hearth.read()} == {"hearth"}


def test_whatever_is_recorded_here_counts(hearth: Log) -> None:
    commands.promote(hearth, "hearth", "user:bob", to="admin", by=ADA)
    commands.demote(hearth, "hearth", "user:bob", to="moderator", by=ADA)
    commands.set_policy(hearth, "hearth", PolicyUpdated(post_days=30), by=ADA)
    commands.describe_node(hearth, "hearth", by=BOB)
    commands.post(hearth, "hearth", PostCreated(title="A lamp"), name="lamp", by=BOB)
    commands.say(hearth, "hearth", "general", "hello", by=BOB)
    commands.mark(hearth, "hearth", "general", by=ADA)
    commands.advertise(hearth, "hearth", CID, by=BOB)
    commands.ingest(hearth, "hearth", "The stove", by=BOB)
    commands.revoke(hearth, "hearth", "user:bob", by=ADA)
    assert asking.ignored(hearth, "hearth") == []


def test_a_refusal_is_on_record_and_nothing_is_written(hearth: Log) -> None:
    head = hearth.head()
    with pytest.raises(RuleRefused):
        commands.invite(hearth, "hearth", Invited(member="user:cyd"), by=BOB)
    with pytest.raises(InvalidPayload):
        commands.promote(hearth, "hearth", "user:bob", to="king", by=ADA)
    with pytest.raises(InvalidPayload):
        commands.advertise(hearth, "hearth", "bafynonsense", by=BOB)
    with pytest.raises(InvalidField):
        commands.say(hearth, "hearth", "no such name!", "hello", by=BOB)
    with pytest.raises(NoSuchSubject):
        commands.say(hearth, "elsewhere", "general", "hello", by=BOB)
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
    first = commands.say(hearth, "hearth", "general", "hello", by=by)
    again = commands.say(hearth, "hearth", "general", "hello", by=by)
    assert (again.name, again.done.replayed) == (first.name, True)
    with pytest.raises(KeyReuse):
        commands.say(hearth, "hearth", "general", "something else", by=by)
    by = By(actor="user:bob", key="lamp")
    made = commands.post(hearth, "hearth", PostCreated(title="A lamp"), by=by)
    assert commands.post(hearth, "hearth", PostCreated(title="A lamp"), by=by).name == made.name
    assert len(asking.posts(hearth, "hearth")) == 1


def test_a_dry_run_checks_and_records_nothing(hearth: Log) -> None:
    head = hearth.head()
    assert commands.say(hearth, "hearth", "general", "hello", by=By(actor="user:bob", dry_run=True)).done.dry_run
    with pytest.raises(RuleRefused):
        commands.revoke(hearth, "hearth", "user:ada", by=By(actor="user:bob", dry_run=True))
    assert (hearth.head(), hearth.refusals()) == (head, [])


def test_what_is_so_already_is_not_said_again(hearth: Log) -> None:
    commands.set_policy(hearth, "hearth", PolicyUpdated(post_days=30), by=ADA)
    commands.post(hearth, "hearth", PostCreated(title="A lamp", price="5"), name="lamp", by=BOB)
    commands.say(hearth, "hearth", "general", "hello", by=BOB)
    commands.mark(hearth, "hearth", "general", by=ADA)
    head = hearth.head()
    assert commands.set_policy(hearth, "hearth", PolicyUpdated(post_days=30), by=ADA).done.records == ()
    assert commands.update_post(hearth, "hearth", "lamp", PostUpdated(price="5"), by=BOB).done.records == ()
    assert commands.mark(hearth, "hearth", "general", by=ADA).done.records == ()
    assert hearth.head() == head


def test_a_revocation_names_how_far_the_member_is_known(hearth: Log) -> None:
    commands.say(hearth, "hearth", "general", "hello", by=BOB)
    origin = commands.here(hearth)
    step = commands.revoke(hearth, "hearth", "user:bob", reason="a quarrel", by=ADA)
    assert step.done.events[0].payload["upto"] == {origin: hearth.head() - 1}
    assert [one["text"] for one in asking.messages(hearth, "hearth", "general").messages] == ["hello"]
    commands.invite(hearth, "hearth", Invited(member="user:bob"), by=ADA)
    commands.join(hearth, "hearth", by=BOB)
    commands.say(hearth, "hearth", "general", "again", by=BOB)
    assert len(asking.messages(hearth, "hearth", "general").messages) == 2


def test_a_decision_is_made_anew_when_the_community_changes_meanwhile(
    hearth: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bob is revoked between the look at his rights and the append of his word."""
    seen: list[str] = []
    real = asking.standing

    def standing(log: Log, community: str) -> Any:
        found = real(log, community)
        seen.append(found.status("user:bob"))
        if len(seen) == 1:
            commands.revoke(log, community, "user:bob", by=ADA)
        return found

    monkeypatch.setattr(asking, "standing", standing)
    with pytest.raises(RuleRefused):
        commands.say(hearth, "hearth", "general", "hello", by=BOB)
    assert (seen[0], seen[-1]) == ("member", "revoked")
    assert list(hearth.read(Query(kind="thread"))) == []


def test_posts_are_over_when_their_time_has_passed_and_it_can_be_put_on_record(hearth: Log) -> None:
    commands.invite(hearth, "hearth", Invited(member="user:cyd"), by=ADA)
    commands.join(hearth, "hearth", by=CYD)
    soon = datetime.now(UTC) + timedelta(days=1)
    for name, by in (("lamp", BOB), ("chair", CYD)):
        commands.post(hearth, "hearth", PostCreated(title=name, expires_at=soon), name=name, by=by)
    later = soon + timedelta(seconds=1)
    assert [one["post"] for one in asking.posts(hearth, "hearth")] == ["chair", "lamp"]
    assert asking.posts(hearth, "hearth", now=later) == []
    assert [one["due"] for one in asking.posts(hearth, "hearth", now=later, over=True)] == [True, True]
    assert [step.name for step in commands.expire_due(hearth, "hearth", now=later, by=BOB)] == ["lamp"]
    assert [step.name for step in commands.expire_due(hearth, "hearth", now=later, by=ADA)] == ["chair"]
    assert asking.posts(hearth, "hearth") == []
    assert asking.post(hearth, "hearth", "lamp")["reason"] == "its time has passed"
    with pytest.raises(NoSuchSubject):
        asking.post(hearth, "hearth", "table")


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
    commands.describe_node(hearth, "hearth", ManifestUpdated(node="NODE-BOB"), by=BOB)
    hearth.admit(made)
    texts = [one["text"] for one in asking.messages(hearth, "hearth", "general", limit=4).messages]
    assert texts == ["2-2", "3-0", "3-1", "3-2"]
    assert len(asking.messages(hearth, "hearth", "general").messages) == 12
    (thread,) = asking.threads(hearth, "hearth")
    assert (thread["sent"], thread["days"], thread["last_text"]) == (12, 4, "3-2")
    assert hearth.view("community.chats").count() == 4


def _ulid_time(ms: int) -> str:
    alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    return "".join(alphabet[(ms >> shift) & 31] for shift in range(45, -1, -5))


def test_the_list_of_threads_shows_the_last_message_that_counts(hearth: Log) -> None:
    commands.say(hearth, "hearth", "general", "I am a member", by=BOB)
    for place in range(12):
        hearth.append(
            "chat.message.sent",
            stream="thread/hearth:general",
            payload={"text": f"spam {place}"},
            actor="user:spammer",
            scope="hearth",
        )
    (thread,) = asking.threads(hearth, "hearth")
    assert (thread["last_text"], thread["sent"]) == ("I am a member", 13)
    assert len(asking.ignored(hearth, "hearth")) == 12


def test_files_and_documents_say_who_keeps_them(hearth: Log) -> None:
    commands.advertise(hearth, "hearth", CID, name="plan.pdf", size_bytes=9, by=BOB)
    commands.advertise(hearth, "hearth", CID, name="plan (1).pdf", size_bytes=9, by=ADA)
    commands.ingest(hearth, "hearth", "The plan", name="plan", cid=CID, chunks=3, by=BOB)
    (file,) = asking.files(hearth, "hearth")
    assert (file["names"], file["size_bytes"], list(file["providers"])) == (
        ["plan (1).pdf", "plan.pdf"],
        9,
        ["user:bob", "user:ada"],
    )
    commands.unpin(hearth, "hearth", CID, by=ADA)
    assert list(asking.files(hearth, "hearth")[0]["providers"]) == ["user:bob"]
    assert asking.documents(hearth, "hearth")[0]["cid"] == CID


def test_communities_in_one_log_do_not_touch_each_other(hearth: Log) -> None:
    commands.create(hearth, "hearth:two", Created(name="Another"), by=BOB)
    commands.post(hearth, "hearth", PostCreated(title="A lamp"), name="lamp", by=ADA)
    commands.post(hearth, "hearth:two", PostCreated(title="A chair"), name="lamp", by=BOB)
    assert [one["title"] for one in asking.posts(hearth, "hearth")] == ["A lamp"]
    assert [one["title"] for one in asking.posts(hearth, "hearth:two")] == ["A chair"]
    with pytest.raises(RuleRefused) as refused:
        commands.say(hearth, "hearth:two", "general", "hello", by=ADA)
    assert refused.value.hint == "everlog community invite user:ada --actor user:bob --scope hearth:two"
    with pytest.raises(NoSuchSubject, match="which community"):
        asking.meant(hearth)
    assert asking.meant(hearth, usual="hearth:two") == "hearth:two"


def test_a_sealed_community_can_only_be_begun_by_its_founder(log: Log) -> None:
    step = commands.create(log, "hearth", Created(name="The hearth"), sealed=True, by=ADA)
    assert step.community.startswith("hearth~")
    assert asking.meant(log) == step.community
    with everlog.open("memory:") as elsewhere, pytest.raises(RuleRefused, match="names another founder"):
        commands.create(elsewhere, step.community, Created(name="Mine"), by=ADA)


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
        commands.create(log, "hearth", Created(name="The hearth"))
        origin = commands.here(log)
    shutil.copytree(tmp_path / "one", tmp_path / "two", ignore=shutil.ignore_patterns("local"))
    with everlog.open(f"jsonl:{tmp_path / 'two'}", actor="user:ada") as clone:
        with pytest.raises(RuleRefused, match="does not speak from the node") as refused:
            commands.say(clone, "hearth", "general", "hello")
        assert commands.here(clone) not in ("", origin)
        assert commands.here(clone) in refused.value.hint
