from __future__ import annotations

from typing import Any

import pytest

from everlog.core.event import Event
from everlog.errors import ConfirmationNeeded, LookAlike, NoSuchSubject, RuleRefused
from everlog.programs.issues import rules
from everlog.programs.issues.events import (
    Change,
    Closed,
    Commented,
    Created,
    Edited,
    Endpoint,
    Labeled,
    Linked,
    Purged,
    Reopened,
    Restored,
    SoftDeleted,
    Unlabeled,
    Unlinked,
)
from everlog.programs.issues.rules import Candidate, Issue, issue_of
from everlog.testing import builders
from everlog.testing.given_when_then import Given, given

UID, OTHER = "01M7Q2X4T9ZK3V5B8N6W1YHRAC", "01M7Q2X4T9ZK3V5B8N6W1YABCD"
HERE, THERE = Endpoint(uid=UID, short_id="hrac"), Endpoint(uid=OTHER, short_id="abcd")
MADE = Created(short_id="hrac", title="The door squeaks", body="every night", owner="ada", labels=["bug"])
LINK = Linked(kind="blocks", source=HERE, target=THERE)
_clock = iter(range(1, 10_000))


def happened(what: str, stream: str = f"issue/{UID}", **payload: Any) -> Event:
    return builders.event(f"issue.{what}", stream=stream, payload=payload, lamport=next(_clock))


CREATED = happened(
    "created", short_id="hrac", title="The door squeaks", body="every night", owner="ada", labels=["bug"]
)
DELETED = happened("soft_deleted", reason="")
PURGED = happened("purged", f"issue-tombstone/{UID}", uid=UID, short_id="hrac", reason="asked to", events=2)


def history(*events: Event) -> Given:
    def fold(found: list[Any]) -> Issue | None:
        return issue_of(UID, found)

    return given(*events).through(fold)


def test_an_edit_says_for_each_field_what_it_was_and_what_it_became() -> None:
    edited = Edited(
        changes={
            "owner": Change(before="ada", to=""),
            "title": Change(before="The door squeaks", to="The gate squeaks"),
        }
    )
    history(CREATED).when(rules.edit, "hrac", {"title": "The gate squeaks", "body": "every night", "owner": ""}).then(
        edited
    )
    history(CREATED).when(rules.edit, "hrac", {"body": "every night"}).then_nothing()


def test_an_edit_is_based_on_the_edits_before() -> None:
    before = happened("edited", changes={"title": {"from": "The door squeaks", "to": "Gate"}})
    history(CREATED, before).when(rules.edit, "hrac", {"title": "Door"}).then(
        Edited(changes={"title": Change(before="Gate", to="Door")})
    )


def test_comments_are_added_and_labels_come_and_go_once() -> None:
    history(CREATED).when(rules.comment, "hrac", "Oil it.").then(Commented(body="Oil it."))
    history(CREATED).when(rules.label, "hrac", ["p1", "bug", "p1"]).then(Labeled(label="p1"))
    history(CREATED).when(rules.unlabel, "hrac", ["p1", "bug"]).then(Unlabeled(label="bug"))
    labeled = happened("labeled", label="p1")
    history(CREATED, labeled).when(rules.label, "hrac", ["p1"]).then_nothing()


def test_a_link_is_made_once_and_leads_to_another_issue_that_is_there() -> None:
    there = Issue(uid=OTHER, created_at="then")
    linked = happened("linked", kind="blocks", source={"uid": UID, "short_id": "hrac"}, target=_plain(THERE))
    history(CREATED).when(rules.link, "hrac", there, LINK).then(LINK)
    history(CREATED, linked).when(rules.link, "hrac", there, LINK).then_nothing()
    itself = Linked(kind="blocks", source=HERE, target=HERE)
    history(CREATED).when(rules.link, "hrac", there, itself).refused(RuleRefused, saying="point to itself")
    for target in (None, Issue(uid=OTHER, created_at="then", deleted=True), Issue(uid=OTHER, purged=True)):
        history(CREATED).when(rules.link, "hrac", target, LINK).refused()
    gone = Unlinked(kind="blocks", source=HERE, target=THERE)
    history(CREATED, linked).when(rules.remove_link, "hrac", gone).then(gone)
    history(CREATED).when(rules.remove_link, "hrac", gone).then_nothing()


def test_an_end_of_a_link_that_means_two_issues_is_refused() -> None:
    with pytest.raises(ValueError, match="is not the end of"):
        Endpoint(uid=UID, short_id="abcd")
    rules.require_no_drift(HERE, "", option="--uid")
    rules.require_no_drift(HERE, UID, option="--uid")
    with pytest.raises(RuleRefused, match="hrac is not the issue") as refused:
        rules.require_no_drift(HERE, OTHER, option="--uid")
    assert refused.value.details["allowed"] == [UID]


def test_closing_and_reopening_do_nothing_where_there_is_nothing_to_do() -> None:
    closed = happened("closed", reason="oiled")
    history(CREATED).when(rules.close, "hrac", "oiled").then(Closed(reason="oiled"))
    history(CREATED, closed).when(rules.close, "hrac", "again").then_nothing()
    history(CREATED, closed).when(rules.reopen, "hrac", "it squeaks").then(Reopened(reason="it squeaks"))
    history(CREATED).when(rules.reopen, "hrac").then_nothing()


@pytest.mark.parametrize(
    ("force", "confirm"),
    [(False, "delete hrac"), (True, ""), (True, "delete"), (True, "Delete hrac"), (True, "delete abcd"), (True, " ")],
)
def test_deleting_wants_to_hear_exactly_what_it_should_do(force: bool, confirm: str) -> None:
    asked = history(CREATED).when(rules.delete, "hrac", force=force, confirm=confirm)
    asked.refused(ConfirmationNeeded, saying="the exact words: delete hrac")
    assert isinstance(asked.error, ConfirmationNeeded)
    assert asked.error.hint == "if that is what you want, repeat the command with --force --confirm 'delete hrac'"


def test_deleting_hides_and_restoring_brings_back() -> None:
    said = {"force": True, "confirm": "delete hrac"}
    history(CREATED).when(rules.delete, "hrac", **said, reason="spam").then(SoftDeleted(reason="spam"))
    history(CREATED, DELETED).when(rules.delete, "hrac", **said).then_nothing()
    history(CREATED, DELETED).when(rules.restore, "hrac").then(Restored())
    history(CREATED).when(rules.restore, "hrac").then_nothing()


def test_purging_leaves_the_name_and_wants_to_hear_exactly_what_it_should_do() -> None:
    def purge(past: Given, **said: Any) -> Any:
        return past.when(
            rules.purge, "hrac", **{"force": True, "confirm": "purge hrac", **said}, reason="r", events=1
        )

    left = Purged(uid=UID, short_id="hrac", reason="r", events=1)
    purge(history(CREATED)).then(left)
    purge(history(CREATED, DELETED)).then(left)
    purge(history(PURGED)).then_nothing()
    purge(history(CREATED), confirm="delete hrac").refused(ConfirmationNeeded, saying="purge hrac")
    purge(history(CREATED), force=False).refused(ConfirmationNeeded)
    purge(history()).refused(NoSuchSubject)


@pytest.mark.parametrize(
    ("rule", "arguments"),
    [
        (rules.edit, ({"title": "x"},)),
        (rules.comment, ("x",)),
        (rules.label, (["x"],)),
        (rules.unlabel, (["x"],)),
        (rules.close, ()),
        (rules.reopen, ()),
        (rules.link, (Issue(uid=OTHER, created_at="then"), LINK)),
        (rules.remove_link, (Unlinked(kind="blocks", source=HERE, target=THERE),)),
    ],
)
def test_what_is_deleted_is_restored_first_and_what_is_purged_is_gone(rule: Any, arguments: Any) -> None:
    deleted = history(CREATED, DELETED).when(rule, "hrac", *arguments)
    deleted.refused(RuleRefused, saying="is deleted")
    assert isinstance(deleted.error, RuleRefused)
    assert deleted.error.hint == "everlog issue restore hrac"
    assert deleted.error.details["allowed"] == ["restore", "purge", "show", "history"]
    history(CREATED, DELETED, PURGED).when(rule, "hrac", *arguments).refused(RuleRefused, saying="was purged")
    history(PURGED).when(rule, "hrac", *arguments).refused(RuleRefused, saying="was purged")
    history().when(rule, "hrac", *arguments).refused(NoSuchSubject, saying="there is no issue hrac")


def test_what_came_to_a_stream_whose_issue_is_gone_makes_no_issue() -> None:
    history(happened("commented", body="too late")).when(rules.comment, "hrac", "x").refused(NoSuchSubject)


def test_what_is_very_much_alike_is_not_created_twice_unless_it_must_be() -> None:
    near = Candidate(uid=OTHER, short_id="abcd", status="closed", score=0.93)
    far = Candidate(uid=UID, short_id="hrac", status="open", score=0.69)
    exactly = Candidate(uid=UID, short_id="hrac", status="open", score=0.7)
    given(far).when(rules.create, MADE, [LINK], force_new=False).then(MADE, LINK)
    given(exactly).when(rules.create, MADE, [], force_new=False).refused(LookAlike)
    given(near, far).when(rules.create, MADE, [], force_new=True).then(MADE)
    refused = given(near, far).when(rules.create, MADE, [], force_new=False)
    refused.refused(LookAlike, saying="abcd (closed) by 93%")
    assert isinstance(refused.error, LookAlike)
    assert [one["short_id"] for one in refused.error.details["candidates"]] == ["abcd"]
    assert refused.error.hint.startswith("everlog issue comment abcd TEXT; ")
    assert "--force-new" in refused.error.hint


def test_an_imported_history_in_other_words_is_passed_over() -> None:
    old = [
        happened("linked", type="blocks", to_short_id="abcd"),
        happened("labeled"),
        happened("closed"),
        happened("commented", comment_uid="01HN3R5K8D1234567890ABCDEK"),
    ]
    issue = issue_of(UID, [CREATED, *old])
    assert issue is not None
    assert (issue.links, issue.labels, issue.status, issue.comments) == ((), ("bug",), "closed", 1)


def test_the_order_of_arrival_does_not_matter() -> None:
    first = happened("edited", changes={"title": {"from": "The door squeaks", "to": "first"}})
    second = happened("edited", changes={"title": {"from": "The door squeaks", "to": "second"}})
    assert issue_of(UID, [second, first, CREATED]) == issue_of(UID, [CREATED, first, second])


def _plain(end: Endpoint) -> dict[str, str]:
    return {"uid": end.uid, "short_id": end.short_id}
