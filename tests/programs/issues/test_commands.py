from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.programs.elsewhere import lawless

import everlog
from everlog.core.event import Event
from everlog.errors import (
    ConfirmationNeeded,
    InvalidField,
    InvalidPayload,
    KeyReuse,
    LookAlike,
    NoSuchSubject,
    QueryMatched,
    RuleRefused,
)
from everlog.log.log import Log
from everlog.programs.command import By, Outcome
from everlog.programs.issues import acting, commands, references
from everlog.programs.issues.acting import IssueResult
from everlog.programs.issues.commands import (
    Close,
    Comment,
    Create,
    Delete,
    Edit,
    Label,
    Link,
    Purge,
    Reopen,
    Restore,
    Unlink,
)
from everlog.programs.issues.questions import IssueHistory, List, Search, Show
from everlog.programs.issues.rules import Issue, issue_of
from everlog.programs.issues.views import Backlinks
from everlog.programs.perform import ask, perform

HOUSE = By(actor="user:ada")


def made(log: Log, title: str = "The door squeaks", **fields: object) -> Outcome[IssueResult]:
    return perform(log, Create(title=title, project="house", **fields), HOUSE)  # type: ignore[arg-type]


def test_an_issue_goes_up_and_down_the_ladder(log: Log) -> None:
    issue = made(log).result.short_id
    seen = [
        perform(log, Close(issue=issue, reason="oiled"), HOUSE).result.state,
        perform(log, Reopen(issue=issue), HOUSE).result.state,
    ]
    words = f"delete {issue}"
    seen.append(perform(log, Delete(issue=issue, force=True, confirm=words, reason="spam"), HOUSE).result.state)
    assert ask(log, List()) == []
    assert [one["id"] for one in ask(log, List(status="deleted"))] == [issue]
    assert ask(log, Show(issue=issue))["reason"] == "spam"
    seen.append(perform(log, Restore(issue=issue), HOUSE).result.state)
    words = f"purge {issue}"
    seen.append(perform(log, Purge(issue=issue, force=True, confirm=words, reason="asked to"), HOUSE).result.state)
    assert seen == ["closed", "open", "deleted", "open", "purged"]
    assert [one["what"] for one in ask(log, IssueHistory(issue=issue))] == ["purged"]


def test_every_change_is_in_the_history_with_its_diff(log: Log) -> None:
    issue = made(log, body="every night", owner="ada").result.short_id
    perform(log, Edit(issue=issue, title=" The  gate squeaks ", owner="", project="house"), By(actor="user:bob"))
    perform(log, Edit(issue=issue, title="The gate squeaks"), HOUSE)
    perform(log, Comment(issue=issue, text=" Oil it.\r\nSoon. "), HOUSE)
    perform(log, Label(issue=issue, labels=["P1", "bug"]), HOUSE)
    found = ask(log, IssueHistory(issue=issue))
    assert [one["what"] for one in found] == ["created", "edited", "commented", "labeled", "labeled"]
    assert found[1]["actor"] == "user:bob"
    assert found[1]["said"] == {
        "changes": {
            "owner": {"from": "ada", "to": ""},
            "title": {"from": "The door squeaks", "to": "The gate squeaks"},
        }
    }
    shown = ask(log, Show(issue=issue))
    assert (shown["title"], shown["owner"], shown["labels"]) == ("The gate squeaks", "", ["bug", "p1"])
    (comment,) = shown["comments"]
    assert (comment["actor"], comment["body"]) == ("user:ada", "Oil it.\nSoon.")


def test_links_are_seen_from_both_ends(log: Log) -> None:
    door, oil = made(log).result.short_id, made(log, "Buy oil").result.short_id
    perform(log, Link(issue=oil, kind="blocks", other=door), HOUSE)
    perform(log, Close(issue=oil), HOUSE)
    (link,), (back,) = ask(log, Show(issue=oil))["links"], ask(log, Show(issue=door))["linked_from"]
    assert (link["kind"], link["id"], link["status"], link["title"]) == ("blocks", door, "open", "The door squeaks")
    assert (back["kind"], back["id"], back["status"]) == ("blocks", oil, "closed")
    assert perform(log, Link(issue=oil, kind="blocks", other=door), HOUSE).records == ()
    perform(log, Unlink(issue=oil, kind="blocks", other=door), HOUSE)
    assert ask(log, Show(issue=door))["linked_from"] == ask(log, Show(issue=oil))["links"] == []
    with pytest.raises(RuleRefused, match="no kind of link"):
        perform(log, Link(issue=oil, kind="hates", other=door), HOUSE)


def test_a_link_whose_ends_mean_two_issues_is_refused_whoever_brings_it(log: Log) -> None:
    door, oil = made(log), made(log, "Buy oil")
    head = log.head()
    with pytest.raises(RuleRefused, match="is not the issue"):
        perform(
            log,
            Link(issue=oil.result.short_id, kind="blocks", other=door.result.short_id, other_uid=oil.result.uid),
            HOUSE,
        )
    with pytest.raises(RuleRefused, match="is not the issue"):
        perform(
            log,
            Link(issue=oil.result.short_id, kind="blocks", other=door.result.short_id, uid=door.result.uid),
            HOUSE,
        )
    drifted = {
        "kind": "blocks",
        "source": {"uid": oil.result.uid, "short_id": oil.result.short_id},
        "target": {"uid": door.result.uid, "short_id": oil.result.short_id},
    }
    with pytest.raises(InvalidPayload, match="is not the end of"):
        log.append("issue.linked", stream=f"issue/{oil.result.uid}", payload=drifted)
    assert log.head() == head
    perform(
        log,
        Link(
            issue=oil.result.short_id,
            kind="blocks",
            other=door.result.short_id,
            uid=oil.result.uid,
            other_uid=door.result.uid,
        ),
        HOUSE,
    )
    assert log.head() == head + 1


def test_initial_links_are_made_with_the_issue_or_neither_is(log: Log) -> None:
    door = made(log)
    oil = made(log, "Buy oil", links=[f"blocks:{door.result.short_id}", f"relates:{door.result.uid}"])
    assert [event.type for event in oil.events] == ["issue.created", "issue.linked", "issue.linked"]
    perform(log, Delete(issue=door.result.short_id, force=True, confirm=f"delete {door.result.short_id}"), HOUSE)
    head = log.head()
    with pytest.raises(RuleRefused, match="is deleted"):
        made(log, "Buy grease", links=[f"blocks:{door.result.short_id}"])
    with pytest.raises(NoSuchSubject):
        made(log, "Buy grease", links=["blocks:zzzz"])
    assert log.head() == head


def test_a_link_is_decided_anew_when_its_target_goes_away_meanwhile(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    door, oil = made(log), made(log, "Buy oil")
    real, done = acting.also, list[bool]()

    def also(history: Any, uid: str) -> object:
        found = real(history, uid)
        if not done:
            done.append(True)
            perform(
                log, Delete(issue=door.result.short_id, force=True, confirm=f"delete {door.result.short_id}"), HOUSE
            )
        return found

    monkeypatch.setattr(commands, "also", also)
    with pytest.raises(RuleRefused, match="is deleted"):
        perform(log, Link(issue=oil.result.short_id, kind="blocks", other=door.result.short_id), HOUSE)


def test_what_is_purged_meanwhile_gets_no_more_events(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    door = made(log)
    real, done = issue_of, list[bool]()

    def fold(uid: str, events: Iterable[Event]) -> Issue | None:
        found = real(uid, events)
        if not done:
            done.append(True)
            perform(
                log,
                Purge(
                    issue=door.result.short_id, force=True, confirm=f"purge {door.result.short_id}", reason="asked to"
                ),
                HOUSE,
            )
        return found

    monkeypatch.setattr(acting, "issue_of", fold)
    with pytest.raises(RuleRefused, match="was purged"):
        perform(log, Comment(issue=door.result.short_id, text="too late"), HOUSE)
    assert list(log.read(stream=f"issue/{door.result.uid}")) == []


def test_a_purge_is_decided_anew_when_somebody_was_faster(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    door = made(log)
    real: Callable[..., object] = log.purge
    done: list[bool] = []

    def purge(*arguments: object, **named: object) -> object:
        if not done:
            done.append(True)
            perform(log, Comment(issue=door.result.short_id, text="wait!"), HOUSE)
        return real(*arguments, **named)

    monkeypatch.setattr(log, "purge", purge)
    step = perform(
        log, Purge(issue=door.result.short_id, force=True, confirm=f"purge {door.result.short_id}", reason="r"), HOUSE
    )
    assert step.events[0].payload["events"] == 2
    assert log.stored.purges()[0].count == 2


def test_refusals_are_on_record_and_nothing_is_written(log: Log) -> None:
    door = made(log).result.short_id
    head = log.head()
    with pytest.raises(NoSuchSubject):
        perform(log, Comment(issue="zzzz", text="x"), HOUSE)
    with pytest.raises(InvalidPayload):
        perform(log, Label(issue=door, labels=["no label"]), HOUSE)
    with pytest.raises(InvalidPayload):
        made(log, " ")
    with pytest.raises(ConfirmationNeeded):
        perform(log, Delete(issue=door), HOUSE)
    with pytest.raises(InvalidField):
        perform(log, Purge(issue=door, force=True, confirm=f"purge {door}", reason="x" * 300), HOUSE)
    assert log.head() == head
    found = [(one.code, one.operation) for one in log.refusals()]
    assert found == [
        ("invalid_field", "issue purge"),
        ("invalid_payload", "issue create"),
        ("invalid_payload", "issue label"),
        ("no_such_subject", "issue comment"),
    ]
    assert all(one.hint for one in log.refusals())


def test_what_lies_beyond_the_scope_is_not_there(log: Log) -> None:
    door = made(log)
    with pytest.raises(NoSuchSubject):
        perform(log, Comment(issue=door.result.uid, text="x", project="garden"))
    with pytest.raises(NoSuchSubject):
        ask(log, Show(issue=door.result.short_id, project="garden"))
    assert ask(log, List(project="garden")) == ask(log, Search(words=["door"], project="garden")) == []
    commented = perform(log, Comment(issue=door.result.short_id, text="from above"))
    assert commented.events[0].scope == "house"


def test_a_list_is_filtered_and_the_newest_come_last(log: Log) -> None:
    first = made(log, "one door", owner="ada", labels=["bug", "p1"]).result.short_id
    second = made(log, "two gates", owner="bob", labels=["bug"]).result.short_id
    third = made(log, "three windows").result.short_id
    perform(log, Close(issue=second), HOUSE)

    def ids(**filters: object) -> list[str]:
        return [one["id"] for one in ask(log, List(**filters))]  # type: ignore[arg-type]

    assert ids() == [first, third]
    assert ids(status="all") == [first, second, third]
    assert ids(status="all", labels=["bug"]) == [first, second]
    assert ids(status="all", labels=["bug", "p1"]) == [first]
    assert ids(owner="ada") == [first]
    assert ids(owner="") == [third]
    assert ids(limit=1) == [third]
    assert [one["id"] for one in ask(log, Search(words=["GATES", "two"]))] == [second]


def test_a_dry_run_says_what_would_become_of_it_and_records_nothing(log: Log) -> None:
    dry = By(dry_run=True)
    assert perform(log, Create(title="Dry", project="house"), dry).status == "dry_run"
    door = made(log).result.short_id
    head = log.head()
    assert perform(log, Close(issue=door), dry).result.state == "closed"
    purged = perform(log, Purge(issue=door, force=True, confirm=f"purge {door}", reason="r"), dry)
    assert (purged.result.state, purged.status == "dry_run") == ("purged", True)
    with pytest.raises(NoSuchSubject):
        perform(log, Close(issue="zzzz"), dry)
    assert (log.head(), log.stored.purges(), log.refusals()) == (head, [], [])


def test_a_retry_of_any_command_under_its_key_is_done_once(log: Log) -> None:
    door = made(log).result.short_id
    by = By(key="k")
    first = perform(log, Comment(issue=door, text="once"), by)
    again = perform(log, Comment(issue=door, text="once"), by)
    assert (first.replayed, again.replayed) == (False, True)
    assert ask(log, Show(issue=door))["comments"][0]["id"] == first.events[0].id
    assert len(ask(log, Show(issue=door))["comments"]) == 1


def test_it_gives_up_when_others_never_stop_creating(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    number = iter(range(1000))
    real = references.taken_ends

    def taken(log: Log, uid: str, scope: str) -> set[str]:
        with lawless("issues", actor="user:bob") as elsewhere:
            payload = {"short_id": "", "title": f"{next(number)}"}
            made = elsewhere.append(
                "issue.created", stream=f"issue/{commands.new_uid()}", scope="house", payload=payload
            )
        log.admit([made.event])
        return real(log, uid, scope)

    monkeypatch.setattr(commands, "taken_ends", taken)
    with pytest.raises(QueryMatched):
        made(log)


def test_the_first_version_of_an_issue_is_read_as_the_second(log: Log) -> None:
    recorded = made(log).records[0]
    old = {"number": 12, "title": "Old", "body": "b", "owner": None, "labels": ["z", "a"]}
    before = msgspec.structs.replace(recorded.event, version=1, payload=old)
    assert log.catalog.upcast(before).payload == {
        "short_id": "",
        "title": "Old",
        "body": "b",
        "owner": "",
        "labels": ["a", "z"],
    }
    bare = msgspec.structs.replace(before, payload={"title": None, "labels": "x", "short_id": "abcd"})
    assert log.catalog.upcast(bare).payload["short_id"] == "abcd"


def test_an_import_of_the_trackers_export_is_a_list_of_issues(tmp_path: Path) -> None:
    import json

    from everlog.cli.main import main

    uid = "01HN3R5K8D1234567890ABCDEP"

    def line(number: int, what: str, **payload: object) -> str:
        data = {
            "uid": f"01HN3R5K8D1234567890ABCDE{number}",
            "origin_instance_uid": "01HN3R5K8D1234567890ABCDEM",
            "project_uid": "01HN3R5K8D1234567890ABCDEN",
            "project_name": "kata",
            "issue_uid": uid,
            "type": f"issue.{what}",
            "actor": "ada",
            "payload": json.dumps(payload),
            "created_at": f"2026-03-01 10:00:0{number}",
        }
        return json.dumps({"kind": "event", "data": data}) + "\n"

    lines = [
        line(0, "created", title="From afar", body="a body", author="ada"),
        line(1, "labeled", label="bug"),
        line(2, "linked", type="blocks", to_short_id="zzzz"),
        line(3, "commented", body="hello"),
        line(4, "closed", reason="done"),
    ]
    source, where = tmp_path / "kata.jsonl", f"sqlite:{tmp_path / 'log.db'}"
    source.write_text("".join(lines), encoding="utf-8")
    with everlog.open(where):
        pass
    assert main(["--log", where, "import", str(source)]) == 0
    with everlog.open(where, actor="user:ada") as log:
        shown = ask(log, Show(issue="cdep", project="kata"))
        assert (shown["uid"], shown["title"], shown["status"], shown["labels"]) == (
            uid,
            "From afar",
            "closed",
            ["bug"],
        )
        assert [one["body"] for one in shown["comments"]] == ["hello"]
        perform(log, Reopen(issue="cdep", project="kata"))
        assert ask(log, List())[0]["id"] == "cdep"
        assert log.view("issues.current").dead_letters() == []


def test_a_beginning_that_several_have_names_none_of_them_however_many_lie_elsewhere(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    uids = iter(f"01M7Q2X4T9ZK3V5B8N6W1Y0{end}" for end in ("0AA", "0BB", "0CC", "0DD"))
    monkeypatch.setattr(commands, "new_uid", lambda: next(uids))
    for title in ("one", "two"):
        perform(log, Create(title=title, project="garden"))
    made(log, "three")
    assert perform(log, Comment(issue="01M7Q2X4T9", text="mine", project="house"), HOUSE).result.title == "three"
    made(log, "four")
    with pytest.raises(RuleRefused, match="may be any of 2 issues") as refused:
        perform(log, Close(issue="01M7Q2X4T9", project="house"), HOUSE)
    assert refused.value.hint == "everlog issue show 01M7Q2X4T9ZK3V5B8N6W1Y00CC"


def test_that_an_issue_was_purged_is_not_told_beyond_its_scope(log: Log) -> None:
    issue = made(log)
    log.purge(f"issue/{issue.result.uid}", reason="by hand")
    with pytest.raises(NoSuchSubject, match="was purged, and nothing was left"):
        ask(log, Show(issue=issue.result.short_id, project="house"))
    with pytest.raises(NoSuchSubject, match="nothing was created under this name"):
        ask(log, Show(issue=issue.result.short_id, project="garden"))


def test_a_look_alike_that_is_purged_meanwhile_is_told_without_its_title(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    issue = made(log)
    remember = log.writer.record_refusal

    def late(*given: object) -> None:
        remember(*given)  # type: ignore[arg-type]
        words = f"purge {issue.result.short_id}"
        perform(log, Purge(issue=issue.result.short_id, force=True, confirm=words, reason="a request"), HOUSE)

    monkeypatch.setattr(log.writer, "record_refusal", late)
    with pytest.raises(LookAlike, match=issue.result.short_id) as refused:
        made(log)
    assert [one["title"] for one in refused.value.details["candidates"]] == [""]


def test_a_retry_of_a_purge_under_its_key_is_answered_and_another_purge_is_refused(log: Log) -> None:
    door, gate = made(log), made(log, "Paint the gate")

    def purge(issue: Outcome[IssueResult]) -> Outcome[IssueResult]:
        words = f"purge {issue.result.short_id}"
        by = By(key="k")
        return perform(log, Purge(issue=issue.result.short_id, force=True, confirm=words, reason="a request"), by)

    first, again = purge(door), purge(door)
    assert (again.replayed, again.events, again.result.state) == (True, first.events, "purged")
    assert len(log.stored.purges()) == 1
    with pytest.raises(KeyReuse):
        purge(gate)
    assert ask(log, Show(issue=gate.result.short_id))["status"] == "open"


@pytest.mark.parametrize("within", ["", "acme", "acme/shop"])
def test_a_retry_of_a_purge_is_answered_on_another_handle_and_for_a_caller_with_a_scope(
    tmp_path: Path, within: str
) -> None:
    """The issue has a scope below that of the caller: the key names a request where the caller is, not the issue."""
    url = f"sqlite:{tmp_path / 'log.db'}"
    with everlog.open(url, actor="user:ada") as log, everlog.open(url, actor="user:ada") as other:
        name = perform(log, Create(title="Fix the door"), By(within="acme/shop")).result.short_id
        command = Purge(issue=name, force=True, confirm=f"purge {name}", reason="a request")
        first = perform(log, command, By(within=within, key="k"))
        again = perform(other, command, By(within=within, key="k"))
        assert first.events[0].scope == "acme/shop"
        assert (again.replayed, again.records, other.head()) == (True, first.records, log.head())


def test_what_points_to_an_issue_is_the_same_whatever_order_the_links_arrive_in(log: Log) -> None:
    door, oil = made(log), made(log, "Buy oil")
    perform(log, Link(issue=oil.result.short_id, kind="blocks", other=door.result.short_id), HOUSE)
    perform(log, Unlink(issue=oil.result.short_id, kind="blocks", other=door.result.short_id), HOUSE)
    assert ask(log, Show(issue=door.result.short_id))["linked_from"] == []
    with everlog.open("memory:") as clone:
        for recorded in log.read(newest_first=True):
            clone.admit([recorded.event])
            clone.view(Backlinks).catch_up()
        assert ask(clone, Show(issue=door.result.short_id))["linked_from"] == []


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("reason", ["x" * 300, "a\0b"])
def test_a_dry_run_of_a_purge_is_refused_as_the_purge_is(log: Log, reason: str, dry_run: bool) -> None:
    name = made(log).result.short_id
    wanted = Purge(issue=name, force=True, confirm=f"purge {name}", reason=reason)
    with pytest.raises(InvalidField, match="reason"):
        perform(log, wanted, msgspec.structs.replace(HOUSE, dry_run=dry_run))
    assert log.stored.purges() == []
