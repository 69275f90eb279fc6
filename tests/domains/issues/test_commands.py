from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

import everlog
from everlog.core.event import Event
from everlog.domains.deciding import By
from everlog.domains.issues import asking, commands
from everlog.domains.issues.commands import New, Step
from everlog.domains.issues.rules import Issue, issue_of
from everlog.domains.issues.views import Backlinks
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

HOUSE = By(scope="house", actor="user:ada")


def made(log: Log, title: str = "The door squeaks", **fields: object) -> Step:
    return commands.create(log, New(title=title, **fields), by=HOUSE)  # type: ignore[arg-type]


def test_an_issue_goes_up_and_down_the_ladder(log: Log) -> None:
    issue = made(log).short_id
    seen = [commands.close(log, issue, reason="oiled", by=HOUSE).state, commands.reopen(log, issue, by=HOUSE).state]
    words = f"delete {issue}"
    seen.append(commands.delete(log, issue, force=True, confirm=words, reason="spam", by=HOUSE).state)
    assert asking.listed(log) == []
    assert [one["id"] for one in asking.listed(log, states=["deleted"])] == [issue]
    assert asking.show(log, issue)["reason"] == "spam"
    seen.append(commands.restore(log, issue, by=HOUSE).state)
    words = f"purge {issue}"
    seen.append(commands.purge(log, issue, force=True, confirm=words, reason="asked to", by=HOUSE).state)
    assert seen == ["closed", "open", "deleted", "open", "purged"]
    assert [one["what"] for one in asking.history(log, issue)] == ["purged"]


def test_every_change_is_in_the_history_with_its_diff(log: Log) -> None:
    issue = made(log, body="every night", owner="ada").short_id
    commands.edit(log, issue, title=" The  gate squeaks ", owner="", by=By(scope="house", actor="user:bob"))
    commands.edit(log, issue, title="The gate squeaks", by=HOUSE)
    commands.comment(log, issue, " Oil it.\r\nSoon. ", by=HOUSE)
    commands.label(log, issue, ["P1", "bug"], by=HOUSE)
    found = asking.history(log, issue)
    assert [one["what"] for one in found] == ["created", "edited", "commented", "labeled", "labeled"]
    assert found[1]["actor"] == "user:bob"
    assert found[1]["said"] == {
        "changes": {
            "owner": {"from": "ada", "to": ""},
            "title": {"from": "The door squeaks", "to": "The gate squeaks"},
        }
    }
    shown = asking.show(log, issue)
    assert (shown["title"], shown["owner"], shown["labels"]) == ("The gate squeaks", "", ["bug", "p1"])
    (comment,) = shown["comments"]
    assert (comment["actor"], comment["body"]) == ("user:ada", "Oil it.\nSoon.")


def test_links_are_seen_from_both_ends(log: Log) -> None:
    door, oil = made(log).short_id, made(log, "Buy oil").short_id
    commands.link(log, oil, "blocks", door, by=HOUSE)
    commands.close(log, oil, by=HOUSE)
    (link,), (back,) = asking.show(log, oil)["links"], asking.show(log, door)["linked_from"]
    assert (link["kind"], link["id"], link["status"], link["title"]) == ("blocks", door, "open", "The door squeaks")
    assert (back["kind"], back["id"], back["status"]) == ("blocks", oil, "closed")
    assert commands.link(log, oil, "blocks", door, by=HOUSE).done.records == ()
    commands.remove_link(log, oil, "blocks", door, by=HOUSE)
    assert asking.show(log, door)["linked_from"] == asking.show(log, oil)["links"] == []
    with pytest.raises(RuleRefused, match="no kind of link"):
        commands.link(log, oil, "hates", door, by=HOUSE)


def test_a_link_whose_ends_mean_two_issues_is_refused_whoever_brings_it(log: Log) -> None:
    door, oil = made(log), made(log, "Buy oil")
    head = log.head()
    with pytest.raises(RuleRefused, match="is not the issue"):
        commands.link(log, oil.short_id, "blocks", door.short_id, other_uid=oil.uid, by=HOUSE)
    with pytest.raises(RuleRefused, match="is not the issue"):
        commands.link(log, oil.short_id, "blocks", door.short_id, uid=door.uid, by=HOUSE)
    drifted = {
        "kind": "blocks",
        "source": {"uid": oil.uid, "short_id": oil.short_id},
        "target": {"uid": door.uid, "short_id": oil.short_id},
    }
    with pytest.raises(InvalidPayload, match="is not the end of"):
        log.append("issue.linked", stream=f"issue/{oil.uid}", payload=drifted)
    assert log.head() == head
    commands.link(log, oil.short_id, "blocks", door.short_id, uid=oil.uid, other_uid=door.uid, by=HOUSE)
    assert log.head() == head + 1


def test_initial_links_are_made_with_the_issue_or_neither_is(log: Log) -> None:
    door = made(log)
    oil = made(log, "Buy oil", links=(("blocks", door.short_id), ("relates", door.uid)))
    assert [event.type for event in oil.done.events] == ["issue.created", "issue.linked", "issue.linked"]
    commands.delete(log, door.short_id, force=True, confirm=f"delete {door.short_id}", by=HOUSE)
    head = log.head()
    with pytest.raises(RuleRefused, match="is deleted"):
        made(log, "Buy grease", links=(("blocks", door.short_id),))
    with pytest.raises(NoSuchSubject):
        made(log, "Buy grease", links=(("blocks", "zzzz"),))
    assert log.head() == head


def test_a_link_is_decided_anew_when_its_target_goes_away_meanwhile(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    door, oil = made(log), made(log, "Buy oil")
    real, done = commands._also, list[bool]()

    def also(history: object, name: object) -> object:
        found = real(history, name)  # type: ignore[arg-type]
        if not done:
            done.append(True)
            commands.delete(log, door.short_id, force=True, confirm=f"delete {door.short_id}", by=HOUSE)
        return found

    monkeypatch.setattr(commands, "_also", also)
    with pytest.raises(RuleRefused, match="is deleted"):
        commands.link(log, oil.short_id, "blocks", door.short_id, by=HOUSE)


def test_what_is_purged_meanwhile_gets_no_more_events(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    door = made(log)
    real, done = issue_of, list[bool]()

    def fold(uid: str, events: Iterable[Event]) -> Issue | None:
        found = real(uid, events)
        if not done:
            done.append(True)
            commands.purge(
                log, door.short_id, force=True, confirm=f"purge {door.short_id}", reason="asked to", by=HOUSE
            )
        return found

    monkeypatch.setattr(commands, "issue_of", fold)
    with pytest.raises(RuleRefused, match="was purged"):
        commands.comment(log, door.short_id, "too late", by=HOUSE)
    assert list(log.read(stream=f"issue/{door.uid}")) == []


def test_a_purge_is_decided_anew_when_somebody_was_faster(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    door = made(log)
    real, done = log.purge_leaving, list[bool]()

    def purge_leaving(*arguments: object, **named: object) -> object:
        if not done:
            done.append(True)
            commands.comment(log, door.short_id, "wait!", by=HOUSE)
        return real(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(log, "purge_leaving", purge_leaving)
    step = commands.purge(log, door.short_id, force=True, confirm=f"purge {door.short_id}", reason="r", by=HOUSE)
    assert step.done.events[0].payload["events"] == 2
    assert log.purges()[0].count == 2


def test_refusals_are_on_record_and_nothing_is_written(log: Log) -> None:
    door = made(log).short_id
    head = log.head()
    with pytest.raises(NoSuchSubject):
        commands.comment(log, "zzzz", "x", by=HOUSE)
    with pytest.raises(InvalidPayload):
        commands.label(log, door, ["no label"], by=HOUSE)
    with pytest.raises(InvalidPayload):
        made(log, " ")
    with pytest.raises(ConfirmationNeeded):
        commands.delete(log, door, by=HOUSE)
    with pytest.raises(InvalidField):
        commands.purge(log, door, force=True, confirm=f"purge {door}", reason="x" * 300, by=HOUSE)
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
    beyond = By(scope="garden")
    with pytest.raises(NoSuchSubject):
        commands.comment(log, door.uid, "x", by=beyond)
    with pytest.raises(NoSuchSubject):
        asking.show(log, door.short_id, scope="garden")
    assert asking.listed(log, scope="garden") == asking.search(log, "door", scope="garden") == []
    commented = commands.comment(log, door.short_id, "from above", by=By())
    assert commented.done.events[0].scope == "house"


def test_a_list_is_filtered_and_the_newest_come_first(log: Log) -> None:
    first = made(log, "one door", owner="ada", labels=("bug", "p1")).short_id
    second = made(log, "two gates", owner="bob", labels=("bug",)).short_id
    third = made(log, "three windows").short_id
    commands.close(log, second, by=HOUSE)

    def ids(**filters: object) -> list[str]:
        return [one["id"] for one in asking.listed(log, **filters)]  # type: ignore[arg-type]

    assert ids() == [third, first]
    assert ids(states=asking.STATES) == [third, second, first]
    assert ids(states=asking.STATES, labels=["bug"]) == [second, first]
    assert ids(states=asking.STATES, labels=["bug", "p1"]) == [first]
    assert ids(owner="ada") == [first]
    assert ids(owner="") == [third]
    assert ids(limit=1) == [third]
    assert [one["id"] for one in asking.search(log, "GATES two")] == [second]
    assert asking.search(log, "gates two", states=["open"]) == []


def test_a_dry_run_says_what_would_become_of_it_and_records_nothing(log: Log) -> None:
    dry = By(scope="house", dry_run=True)
    assert commands.create(log, New(title="Dry"), by=dry).done.dry_run
    door = made(log).short_id
    head = log.head()
    assert commands.close(log, door, by=dry).state == "closed"
    purged = commands.purge(log, door, force=True, confirm=f"purge {door}", reason="r", by=dry)
    assert (purged.state, purged.done.dry_run) == ("purged", True)
    with pytest.raises(NoSuchSubject):
        commands.close(log, "zzzz", by=dry)
    assert (log.head(), log.purges(), log.refusals()) == (head, [], [])


def test_a_retry_of_any_command_under_its_key_is_done_once(log: Log) -> None:
    door = made(log).short_id
    by = By(scope="house", key="k")
    first = commands.comment(log, door, "once", by=by)
    again = commands.comment(log, door, "once", by=by)
    assert (first.done.replayed, again.done.replayed) == (False, True)
    assert asking.show(log, door)["comments"][0]["id"] == first.done.events[0].id
    assert len(asking.show(log, door)["comments"]) == 1


def test_it_gives_up_when_others_never_stop_creating(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    number = iter(range(1000))
    real = commands._taken

    def taken(*arguments: object) -> object:
        log.append(
            "issue.created",
            stream=f"issue/{commands.new_uid()}",
            scope="house",
            payload={"short_id": "", "title": f"{next(number)}"},
        )
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(commands, "_taken", taken)
    with pytest.raises(QueryMatched):
        made(log)


def test_the_first_version_of_an_issue_is_read_as_the_second(log: Log) -> None:
    recorded = made(log).done.records[0]
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
        shown = asking.show(log, "cdep", scope="kata")
        assert (shown["uid"], shown["title"], shown["status"], shown["labels"]) == (
            uid,
            "From afar",
            "closed",
            ["bug"],
        )
        assert [one["body"] for one in shown["comments"]] == ["hello"]
        commands.reopen(log, "cdep", by=By(scope="kata"))
        assert asking.listed(log)[0]["id"] == "cdep"
        assert log.view("issues.current").dead_letters() == []


def test_a_beginning_that_several_have_names_none_of_them_however_many_lie_elsewhere(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    uids = iter(f"01M7Q2X4T9ZK3V5B8N6W1Y0{end}" for end in ("0AA", "0BB", "0CC", "0DD"))
    monkeypatch.setattr(commands, "new_uid", lambda: next(uids))
    for title in ("one", "two"):
        commands.create(log, New(title=title), by=By(scope="garden"))
    made(log, "three")
    assert commands.comment(log, "01M7Q2X4T9", "mine", by=HOUSE).title == "three"
    made(log, "four")
    with pytest.raises(RuleRefused, match="may be any of 2 issues") as refused:
        commands.close(log, "01M7Q2X4T9", by=HOUSE)
    assert refused.value.hint == "everlog issue show 01M7Q2X4T9ZK3V5B8N6W1Y00CC"


def test_that_an_issue_was_purged_is_not_told_beyond_its_scope(log: Log) -> None:
    issue = made(log)
    log.purge(f"issue/{issue.uid}", reason="by hand")
    with pytest.raises(NoSuchSubject, match="was purged, and nothing was left"):
        asking.show(log, issue.short_id, scope="house")
    with pytest.raises(NoSuchSubject, match="nothing was created under this name"):
        asking.show(log, issue.short_id, scope="garden")


def test_a_look_alike_that_is_purged_meanwhile_is_told_without_its_title(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    issue = made(log)
    remember = log.remember_refusal

    def late(*given: object) -> None:
        remember(*given)  # type: ignore[arg-type]
        words = f"purge {issue.short_id}"
        commands.purge(log, issue.short_id, force=True, confirm=words, reason="a request", by=HOUSE)

    monkeypatch.setattr(log, "remember_refusal", late)
    with pytest.raises(LookAlike, match=issue.short_id) as refused:
        made(log)
    assert [one["title"] for one in refused.value.details["candidates"]] == [""]


def test_a_retry_of_a_purge_under_its_key_is_answered_and_another_purge_is_refused(log: Log) -> None:
    door, gate = made(log), made(log, "Paint the gate")

    def purge(issue: Step) -> Step:
        words = f"purge {issue.short_id}"
        by = By(scope="house", key="k")
        return commands.purge(log, issue.short_id, force=True, confirm=words, reason="a request", by=by)

    first, again = purge(door), purge(door)
    assert (again.done.replayed, again.done.events, again.state) == (True, first.done.events, "purged")
    assert len(log.purges()) == 1
    with pytest.raises(KeyReuse):
        purge(gate)
    assert asking.show(log, gate.short_id)["status"] == "open"


def test_what_points_to_an_issue_is_the_same_whatever_order_the_links_arrive_in(log: Log) -> None:
    door, oil = made(log), made(log, "Buy oil")
    commands.link(log, oil.short_id, "blocks", door.short_id, by=HOUSE)
    commands.remove_link(log, oil.short_id, "blocks", door.short_id, by=HOUSE)
    assert asking.show(log, door.short_id)["linked_from"] == []
    with everlog.open("memory:") as clone:
        for recorded in log.read(newest_first=True):
            clone.admit([recorded.event])
            clone.view(Backlinks).catch_up()
        assert asking.show(clone, door.short_id)["linked_from"] == []
