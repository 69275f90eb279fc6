"""`everlog community`: what a person sees of it; the rules are tested in tests/programs."""

from __future__ import annotations

import shlex

import pytest
from tests.cli.conftest import Run
from tests.programs.elsewhere import lawless

from everlog import open as everlog_open

ADA, BOB = ("--actor", "user:ada"), ("--actor", "user:bob")
CID = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi"


@pytest.fixture
def hearth(log: Run) -> Run:
    assert log("community", "create", "hearth", "--name", "The hearth", *ADA).code == 0
    assert log("community", "invite", "user:bob", *ADA).code == 0
    assert log("community", "join", "--name", "Bob", *BOB).code == 0
    return log


def test_a_community_and_its_members(hearth: Run) -> None:
    assert [row[:4] for row in hearth("community", "members").rows] == [
        ["user:ada", "admin", "member", ""],
        ["user:bob", "member", "member", "Bob"],
    ]
    assert hearth("community", "promote", "user:bob", "--to", "moderator", *ADA, "-q").out == "user:bob\n"
    assert hearth("community", "demote", "user:bob", "--to", "member", *ADA).code == 0
    revoked = hearth("community", "revoke", "user:bob", "--reason", "spam", *ADA, "--json").data
    assert (revoked["member"], revoked["community"], revoked["status"]) == ("user:bob", "hearth", "recorded")
    assert hearth("community", "members").rows[0][0] == "user:ada"
    assert [row[2] for row in hearth("community", "members", "--everybody").rows] == ["member", "revoked"]
    shown = hearth("community", "show", "--json").data
    assert (shown["name"], shown["ignored"]) == ("The hearth", [])


def test_a_refusal_says_why_and_what_to_type(hearth: Run) -> None:
    refused = hearth("community", "policy", "--who-posts", "admin", *BOB)
    assert refused.code == 3
    assert "user:bob cannot change the policy" in refused.err
    assert "fix: everlog community promote user:bob --to admin --actor user:ada" in refused.err
    error = hearth("community", "revoke", "user:ada", *ADA, "--json").error
    assert (error["code"], error["why"]) == ("rule_refused", "user:ada is the last admin")
    assert hearth("community", "say", "general", "hello", "--scope", "elsewhere", *BOB).code == 4


def test_what_a_refused_update_says_to_type_changes_the_same_fields(hearth: Run) -> None:
    assert hearth("community", "post", "lamp", "A lamp", *BOB).code == 0
    given = ("--price", "4", "--days", "3")
    refused = hearth("community", "update", "lamp", *given, *ADA, "--json").error
    assert refused["hint"] == 'everlog community update lamp --price "…" --days 3 --actor user:bob'
    assert hearth(*shlex.split(refused["hint"])[1:]).code == 0


def test_who_is_no_actor_is_told_what_one_looks_like(hearth: Run) -> None:
    refused = hearth("community", "invite", "bob", *ADA, "--json").error
    assert refused["why"] == "$.member: it is not an actor, KIND:NAME, such as user:bob"


def test_the_policy_is_shown_and_changed(hearth: Run) -> None:
    assert ["post_days", "90"] in hearth("community", "policy").rows
    assert hearth("community", "policy", "--post-days", "30", *ADA).rows == [["hearth", "recorded"]]
    assert hearth("community", "policy", "--post-days", "30", *ADA).rows == [["hearth", "unchanged"]]
    assert hearth("community", "policy", "--json").data["post_days"] == 30


def test_nodes_are_described_and_shown(hearth: Run) -> None:
    node = hearth("community", "node", "--name", "attic", "--endpoint", "http://attic:1", "--can", "chat", *ADA, "-q")
    shown = hearth("community", "show", "--json").data["nodes"]
    assert shown[node.out.strip()]["capabilities"] == ["chat"]
    assert hearth("community", "node", "ANOTHER", *BOB).rows == [["ANOTHER", "hearth", "recorded"]]


def test_the_market(hearth: Run) -> None:
    assert hearth("community", "post", "lamp", "A lamp", "--price", "5", "--days", "14", *BOB).code == 0
    assert hearth("community", "update", "lamp", "--price", "4", *BOB).code == 0
    assert hearth("community", "update", "lamp", *BOB).code == 2
    (row,) = hearth("community", "posts").rows
    assert (row[0], row[1], row[4], row[6]) == ("lamp", "open", "4", "A lamp")
    assert hearth("community", "posts", "--kind", "request").rows == []
    assert hearth("community", "posts", "--by", "user:ada").rows == []
    assert hearth("community", "expire", "--due", *BOB).out == ""
    assert hearth("community", "expire", "lamp", "--reason", "sold", *BOB).code == 0
    assert hearth("community", "expire").code == 2
    assert hearth("community", "posts").rows == []
    assert hearth("community", "posts", "--over", "--json").data[0]["reason"] == "sold"


def test_chats(hearth: Run) -> None:
    message = hearth("community", "say", "general", "hello", *BOB, "-q").out.strip()
    answer = hearth("community", "say", "general", "welcome", "--reply-to", message, *ADA, "--json").data
    assert hearth("community", "deliver", "general", message, *ADA).code == 0
    assert hearth("community", "chats", "general").rows[0][2:] == ["user:bob", "delivered", "hello"]
    assert hearth("community", "read", "general", *ADA).rows == [["general", "1", "hearth", "recorded"]]
    assert hearth("community", "read", "general", *ADA).rows == [["general", "0", "hearth", "unchanged"]]
    found = hearth("community", "chats", "general", "--json").data
    assert [(one["state"], one["reply_to"]) for one in found["messages"]] == [("read", ""), ("sent", message)]
    assert hearth("community", "chats", "general", "-n", "1", "-q").out.strip() == answer["message"]
    assert hearth("community", "chats").rows[0][0] == "general"
    assert hearth("community", "read", "general", "nonsense", *ADA).code == 3


def test_files_and_documents(hearth: Run) -> None:
    given = ("--name", "plan.pdf", "--size", "9", "--type", "application/pdf")
    assert hearth("community", "advertise", CID, *given, *BOB).code == 0
    assert hearth("community", "files").rows == [[CID, "plan.pdf", "9", "user:bob"]]
    refused = hearth("community", "advertise", CID[:-2], *BOB)
    assert (refused.code, "promises a hash of 32 bytes" in refused.err) == (3, True)
    assert hearth("community", "unpin", CID, "--provider", "user:bob", *ADA).code == 0
    assert hearth("community", "files").rows == []
    told = ("--source", "stove.pdf", "--chunks", "42", "--model", "small", "--cid", CID)
    assert hearth("community", "ingest", "stove", "The stove", *told, *BOB).code == 0
    assert hearth("community", "documents").rows[0][:4] == ["stove", "The stove", "42", "small"]


def test_what_does_not_count_is_shown_with_the_reason(hearth: Run) -> None:
    given = ("-s", "thread/hearth:general", "text=spam", "--scope", "hearth", "--actor", "user:eve")
    refused = hearth("append", "chat.message.sent", *given, "--json")
    assert (refused.code, refused.error["code"]) == (3, "rule_refused")
    assert "--actor" not in refused.error["hint"], "what to type uses nobody else's name"
    with lawless("community", actor="user:eve") as elsewhere, everlog_open() as here:
        spam = elsewhere.append(
            "chat.message.sent", stream="thread/hearth:general", payload={"text": "spam"}, scope="hearth"
        )
        here.admit([spam.event])
    (row,) = hearth("community", "ignored").rows
    assert row[1:5] == ["user:eve", "chat.message.sent", "thread/hearth:general", "user:eve is not a member"]
    assert hearth("community", "chats", "general", "--json").data["ignored"][0]["by"] == "user:eve"


def test_the_community_that_is_meant(hearth: Run) -> None:
    assert hearth("community", "create", "oak", "--sealed", *BOB).code == 0
    unclear = hearth("community", "members")
    assert (unclear.code, "no community is named" in unclear.err) == (4, True)
    assert len(hearth("community", "members", "--scope", "hearth").rows) == 2
    assert hearth("config", "set", "scope", "hearth").code == 0
    assert len(hearth("community", "members").rows) == 2
    refused = hearth("community", "invite", "user:cyd", *BOB)
    assert "--actor user:ada --scope hearth" in refused.err


def test_without_a_community_it_says_how_to_begin_one(log: Run) -> None:
    found = log("community", "members")
    assert (found.code, "fix: everlog community create NAME" in found.err) == (4, True)
