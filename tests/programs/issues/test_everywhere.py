"""Short ids, look-alikes, keys and what a purge leaves: the same on every store."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from tests.at_once import at_once
from tests.programs.steps import work

import everlog
from everlog.core.query import Query
from everlog.errors import AlreadyPurged, ConfirmationNeeded, KeyReuse, LookAlike, NoSuchSubject, RuleRefused
from everlog.log.log import Log
from everlog.programs.command import By, Outcome
from everlog.programs.issues import PROGRAM, commands
from everlog.programs.issues.acting import IssueResult
from everlog.programs.issues.commands import (
    Close,
    Comment,
    Create,
    Delete,
    Edit,
    Link,
    Purge,
    Restore,
    Unlink,
)
from everlog.programs.issues.questions import List, Search, Show
from everlog.programs.issues.rules import issue_of
from everlog.programs.perform import ask, perform
from everlog.views.view import digest

HOUSE = By()
UIDS = [f"01M7Q2X4T9ZK3V5B8N6W{end}" for end in ("1YHRAC", "2YHRAC", "33HRAC", "4YHRAC", "511234")]


@pytest.fixture(params=["memory", "sqlite", "jsonl", "segments", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return "memory:" if request.param == "memory" else f"{request.param}:{tmp_path / 'log'}"


@pytest.fixture
def log(url: str) -> Iterator[Log]:
    with everlog.open(url, actor="user:ada") as opened:
        yield opened


@pytest.fixture
def uids(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next issues get these uids."""
    given = iter(UIDS)
    monkeypatch.setattr(commands, "new_uid", lambda: next(given))


def made(
    log: Log, title: str, body: str = "", *, project: str = "house", force_new: bool = False
) -> Outcome[IssueResult]:
    return perform(log, Create(title=title, body=body, force_new=force_new, project=project))


def purged(log: Log, short_id: str) -> Outcome[IssueResult]:
    return perform(log, Purge(issue=short_id, force=True, confirm=f"purge {short_id}", reason="a request"), HOUSE)


# ---- short ids


@pytest.mark.usefixtures("uids")
def test_a_short_id_is_extended_only_as_far_as_needed_and_within_its_scope(log: Log) -> None:
    assert made(log, "one").result.short_id == "hrac"
    assert made(log, "two").result.short_id == "yhrac"
    assert made(log, "three").result.short_id == "3hrac"
    assert made(log, "four", project="garden").result.short_id == "hrac"
    assert made(log, "five").result.short_id == "w511234"


@pytest.mark.usefixtures("uids")
def test_a_purged_issue_keeps_its_short_id_and_the_next_one_gets_a_longer_one(log: Log) -> None:
    made(log, "one")
    purged(log, "hrac")
    assert made(log, "two").result.short_id == "yhrac"
    purged(log, "yhrac")
    assert made(log, "three").result.short_id == "3hrac"
    shown = ask(log, Show(issue="hrac", project="house"))
    assert (shown["uid"], shown["status"], shown["reason"]) == (UIDS[0], "purged", "a request")
    assert ask(log, Show(issue="yhrac"))["uid"] == UIDS[1]
    assert ask(log, Show(issue=UIDS[0]))["id"] == "hrac"


@pytest.mark.usefixtures("uids")
def test_a_stream_that_was_purged_past_the_program_still_keeps_others_from_its_name(log: Log) -> None:
    made(log, "one")
    log.purge(f"issue/{UIDS[0]}", reason="by hand")
    with pytest.raises(NoSuchSubject, match="nothing was left in its place"):
        ask(log, Show(issue="hrac"))
    # Nobody knows any more whether it was hrac or yhrac, so that neither is given again.
    assert made(log, "two").result.short_id == "2yhrac"


@pytest.mark.usefixtures("uids")
def test_a_reference_is_a_short_id_a_uid_or_a_beginning_that_only_one_has(log: Log) -> None:
    for number in range(3):
        made(log, f"number {number} {'abc'[number] * 3}")
    made(log, "elsewhere", project="garden")
    for text in ("hrac", "HRAC", " hrac ", UIDS[0], UIDS[0].lower(), UIDS[0][:-5]):
        assert ask(log, Show(issue=text, project="house"))["uid"] == UIDS[0]
    assert ask(log, Show(issue="hrac", project="garden"))["uid"] == UIDS[3]
    with pytest.raises(RuleRefused, match="may be any of 2 issues"):
        ask(log, Show(issue="hrac"))
    with pytest.raises(RuleRefused, match="may be any of 4 issues"):
        ask(log, Show(issue=UIDS[0][:-6]))
    for text in ("1", "#1", "12345", "rac", "zzzz", "", "hr\0c", "../x", UIDS[4]):
        with pytest.raises(NoSuchSubject):
            ask(log, Show(issue=text))
    with pytest.raises(NoSuchSubject, match="numbers do not name issues"):
        ask(log, Show(issue="#12"))


def test_many_who_create_at_once_get_different_names(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = iter("0123456789ABCDEFGHJK")
    monkeypatch.setattr(commands, "new_uid", lambda: f"01M7Q2X4T9ZK3V5B8N6WA{next(ends)}HRAC")
    found: list[str] = []

    def create(who: int) -> None:
        found.extend(made(log, f"title {who} of {turn}", force_new=True).result.short_id for turn in "xyz")

    at_once(*(partial(create, who) for who in range(4)))
    assert len(set(found)) == len(found) == 12
    assert found.count("hrac") == 1
    assert {one["id"] for one in ask(log, List())} == {*found}


# ---- look-alikes and keys


def test_what_looks_alike_is_refused_with_candidates_and_nothing_is_written(log: Log) -> None:
    first = made(log, "The login page fails on start", "It shows a blank page after the update.")
    made(log, "Something else entirely", "It shows a blank page after the update.")
    head = log.head()
    with pytest.raises(LookAlike) as refused:
        made(log, "the LOGIN page: fails on start!", "After the update it shows a blank page...")
    (candidate,) = refused.value.details["candidates"]
    assert (candidate["short_id"], candidate["score"]) == (first.result.short_id, 1.0)
    assert candidate["title"] == "The login page fails on start"
    assert first.result.short_id in refused.value.hint
    assert log.head() == head
    (remembered,) = log.refusals()
    assert (remembered.code, remembered.operation) == ("look_alike", "issue create")
    assert "login" not in str(remembered.context) + remembered.reason
    made(log, "the login page fails on start", "after the update it shows a blank page", force_new=True)
    made(log, "The login page fails on start", "It shows a blank page after the update.", project="garden")


def test_alike_is_measured_at_seven_tenths_of_title_and_body(log: Log) -> None:
    made(log, "a b c", "x")
    with pytest.raises(LookAlike):
        made(log, "a b d", "x")  # 0.6 * 2/4 + 0.4 = 0.7
    made(log, "a b d", "x y")  # 0.6 * 2/4 + 0.4 * 1/2 = 0.5
    made(log, "a b c", "y")  # 0.6


def test_a_closed_issue_is_a_look_alike_and_a_deleted_or_purged_one_is_not(log: Log) -> None:
    first = made(log, "The door squeaks")
    perform(log, Close(issue=first.result.short_id), HOUSE)
    with pytest.raises(LookAlike):
        made(log, "The door squeaks")
    perform(log, Delete(issue=first.result.short_id, force=True, confirm=f"delete {first.result.short_id}"), HOUSE)
    second = made(log, "The door squeaks")
    purged(log, second.result.short_id)
    third = made(log, "The door squeaks")
    perform(log, Edit(issue=third.result.short_id, title="All is well"), HOUSE)
    made(log, "The door squeaks")


def test_the_same_request_under_a_key_is_the_same_issue_also_when_it_must_be_new(log: Log) -> None:
    other = made(log, "Another")
    by = By(key="once")
    new = Create(
        project="house",
        title="The door squeaks",
        body="every\nnight",
        owner="ada",
        labels=["p1", "bug"],
        links=[f"relates:{other.result.short_id}"],
    )
    first = perform(log, new, by)
    head = log.head()
    cosmetic = Create(
        project="house",
        title="  The  door squeaks ",
        body="every   night\r\n",
        owner="ada ",
        labels=["bug", " P1", "bug"],
        links=[f"relates:{other.result.uid}"],
    )
    again = perform(log, cosmetic, by)
    forced = perform(log, replace(new, force_new=True), by)
    assert (again.result.uid, again.replayed, forced.result.uid, forced.replayed) == (
        first.result.uid,
        True,
        first.result.uid,
        True,
    )
    assert log.head() == head
    for field, value in {"title": "x", "body": "y", "owner": "bob", "labels": ["p1"], "links": []}.items():
        with pytest.raises(KeyReuse):
            perform(log, replace(new, **{field: value}), by)
    assert log.head() == head
    purged(log, first.result.short_id)
    with pytest.raises(AlreadyPurged):
        perform(log, new, by)


# ---- what a purge leaves


def test_a_purge_removes_the_issue_and_leaves_its_name_in_one_write(log: Log, url: str) -> None:
    first, second = made(log, "The door squeaks", "zanzibar"), made(log, "Buy oil")
    perform(log, Comment(issue=first.result.short_id, text="quixotically"), HOUSE)
    perform(log, Link(issue=second.result.short_id, kind="blocks", other=first.result.short_id), HOUSE)
    perform(log, Link(issue=first.result.short_id, kind="relates", other=second.result.short_id), HOUSE)
    with pytest.raises(ConfirmationNeeded):
        perform(log, Purge(issue=first.result.short_id, force=True, confirm="purge", reason="x"), HOUSE)
    head = log.head()
    step = purged(log, first.result.short_id)
    (record,) = log.stored.purges()
    assert (record.stream, record.count, record.reserved) == (f"issue/{first.result.uid}", 3, head + 2)
    (left,) = step.events
    assert (left.type, left.scope, step.result.state) == ("issue.purged", "house", "purged")
    assert left.payload == {
        "uid": first.result.uid,
        "short_id": first.result.short_id,
        "reason": "a request",
        "events": 3,
    }
    assert list(log.read(stream=f"issue/{first.result.uid}")) == []
    assert ask(log, Search(words=["zanzibar"])) == []
    assert [one["id"] for one in ask(log, List(status="all"))] == [second.result.short_id]
    (link,) = ask(log, Show(issue=second.result.short_id))["links"]
    assert (link["id"], link["status"], link["title"]) == (first.result.short_id, "purged", "")
    assert ask(log, Show(issue=second.result.short_id))["linked_from"] == []
    shown = ask(log, Show(issue=first.result.short_id))
    assert (shown["status"], shown["purged_by"], shown["positions"]) == ("purged", "user:ada", [record.reserved])
    assert [one["id"] for one in shown["linked_from"]] == [second.result.short_id]
    with pytest.raises(RuleRefused, match="was purged"):
        perform(log, Comment(issue=first.result.short_id, text="x"))
    with pytest.raises(RuleRefused, match="was purged"):
        perform(log, Restore(issue=first.result.short_id))
    assert purged(log, first.result.short_id).records == ()
    perform(log, Unlink(issue=second.result.short_id, kind="blocks", other=first.result.short_id), HOUSE)
    assert ask(log, Show(issue=second.result.short_id))["links"] == []
    assert log.verify().ok
    if url != "memory:":
        log.close()
        with everlog.open(url) as reopened:
            assert ask(reopened, Show(issue=first.result.short_id))["status"] == "purged"
            reopened.view("issues.short_ids").rebuild()
            assert ask(reopened, Show(issue=first.result.short_id))["status"] == "purged"


def test_a_purge_that_a_clone_made_is_believed_and_can_be_completed(log: Log) -> None:
    first = made(log, "The door squeaks")
    with everlog.open("memory:", actor="user:bob") as clone:
        clone.admit([recorded.event for recorded in log.read()])
        purged(clone, first.result.short_id)
        log.admit([recorded.event for recorded in clone.read()])
    assert ask(log, Show(issue=first.result.short_id))["status"] == "purged"
    assert ask(log, List()) == ask(log, Search(words=["door"])) == []
    with pytest.raises(RuleRefused, match="was purged"):
        perform(log, Comment(issue=first.result.short_id, text="x"), HOUSE)
    assert made(log, "The door squeaks").result.uid != first.result.uid
    assert purged(log, first.result.short_id).result.state == "purged"
    assert list(log.read(stream=f"issue/{first.result.uid}")) == []
    assert log.verify().ok


@pytest.mark.usefixtures("uids")
def test_clones_that_gave_out_the_same_name_agree_on_names_once_they_meet(log: Log) -> None:
    with everlog.open("memory:", actor="user:bob") as clone:
        here, there = made(log, "one"), made(clone, "two")
        assert here.result.short_id == there.result.short_id == "hrac"
        ours, theirs = ([recorded.event for recorded in one.read()] for one in (log, clone))
        log.admit(theirs)
        clone.admit(ours)
        named = [{name: ask(one, Show(issue=name))["uid"] for name in ("hrac", "yhrac")} for one in (log, clone)]
        assert named[0] == named[1]
        assert sorted(named[0].values()) == UIDS[:2]
        assert log.view("issues.current").digest() == clone.view("issues.current").digest()
        assert log.view("issues.short_ids").digest() == clone.view("issues.short_ids").digest()
        # Whoever came first is purged, and the other one does not move up.
        before = named[0]
        purged(log, "hrac")
        assert {name: ask(log, Show(issue=name))["uid"] for name in before} == before
        assert ask(log, Show(issue="yhrac"))["status"] == "open"


def test_after_random_work_the_rows_are_the_fold_of_the_events(log: Log) -> None:
    for part in range(3):
        work(log, "issues", seed=part, steps=30)
        for view in PROGRAM.views:
            handle = log.view(view)
            live = handle.digest()
            assert handle.rebuild().digest == live
            assert handle.audit().ok
    rows = dict(log.view("issues.current").items())
    folded = {
        stream: issue_of(stream.partition("/")[2], (one.event for one in log.read(stream=stream))) for stream in rows
    }
    assert digest(rows.items()) == digest((key, msgspec.to_builtins(issue)) for key, issue in folded.items())
    assert len(rows) > 3
    assert log.stored.purges()
    assert {recorded.event.kind for recorded in log.read(Query())} == {"issue", "issue-tombstone"}
    assert log.verify().ok


@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "segments"])
def test_no_file_holds_a_word_of_a_purged_issue(kind: str, tmp_path: Path) -> None:
    """Neither the events nor the views, the index of words, the refusals and what is remembered of keys."""
    by = By(key="once")
    with everlog.open(f"{kind}:{tmp_path / 'log'}", actor="user:ada") as log:
        new = Create(
            project="house", title="zanzibar squeaks", body="quixotically", owner="eleanor", labels=["xylophone"]
        )
        issue = perform(log, new, by).result.short_id
        other = made(log, "Buy oil").result.short_id
        perform(log, Link(issue=other, kind="blocks", other=issue), HOUSE)
        perform(log, Edit(issue=issue, title="zeppelin squeaks"), HOUSE)
        perform(log, Comment(issue=issue, text="vuvuzela"), HOUSE)
        with pytest.raises(LookAlike, match="zeppelin"):
            made(log, "zeppelin squeaks", "quixotically")
        assert len(ask(log, Search(words=["zeppelin"]))) == 1
        log.view("issues.current").rebuild()
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        secrets = (b"zanzibar", b"quixotic", b"eleanor", b"xylophone", b"zeppelin", b"vuvuzela")
        for word in secrets:
            assert any(word in path.read_bytes() for path in files), "the test looks in the wrong place"
        purged(log, issue)
        ask(log, List())
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert [(path.name, word) for path in files for word in secrets if word in path.read_bytes()] == []
        assert log.verify().ok
