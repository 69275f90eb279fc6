"""References to issues: a short id, a uid, or a beginning of it; nothing outside of the caller's scope is found."""

from __future__ import annotations

import pytest

from everlog.errors import NoSuchSubject, RuleRefused
from everlog.log.log import Log
from everlog.programs.command import By
from everlog.programs.issues.acting import IssueResult
from everlog.programs.issues.commands import Create, Purge
from everlog.programs.issues.references import find, name_of, names_of, reach, taken_ends
from everlog.programs.perform import perform

ADA = By(actor="user:ada")


def made(log: Log, title: str, project: str = "house") -> IssueResult:
    return perform(log, Create(title=title, project=project, force_new=True), ADA).result


def test_an_issue_is_found_by_each_of_its_names(log: Log) -> None:
    door = made(log, "The door squeaks")
    for text in (door.short_id, door.short_id.upper(), f" {door.short_id} ", door.uid, door.uid.lower()):
        assert find(log, text, scope="house", verb="show").uid == door.uid, text
    assert find(log, door.uid[:20], scope="house", verb="show").uid == door.uid


def test_what_is_outside_of_the_scope_is_not_found(log: Log) -> None:
    door = made(log, "The door squeaks")
    assert find(log, door.short_id, scope="", verb="show").uid == door.uid
    for text in (door.short_id, door.uid, door.uid[:20]):
        with pytest.raises(NoSuchSubject):
            find(log, text, scope="garden", verb="show")


def test_a_beginning_that_two_issues_share_is_refused_and_names_both(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    uids = iter(["01M7Q2X4T9ZK3V5B8N6WA0HRAC", "01M7Q2X4T9ZK3V5B8N6WA0HRAD"])
    monkeypatch.setattr("everlog.programs.issues.commands.new_uid", lambda: next(uids))
    one, other = made(log, "The door squeaks"), made(log, "Buy oil")
    with pytest.raises(RuleRefused, match="any of 2 issues") as refused:
        find(log, "01M7Q2X4", scope="house", verb="show")
    assert sorted(refused.value.details["allowed"]) == [one.uid, other.uid]
    with pytest.raises(NoSuchSubject):
        find(log, "01M7Q2X", scope="house", verb="show")  # too short for a beginning


def test_a_number_names_no_issue_and_the_refusal_explains_it(log: Log) -> None:
    with pytest.raises(NoSuchSubject) as refused:
        find(log, "#17", scope="house", verb="show")
    assert "numbers do not name issues" in refused.value.why


def test_a_purged_issue_is_still_found_and_its_short_id_is_taken(log: Log) -> None:
    door = made(log, "The door squeaks")
    words = f"purge {door.short_id}"
    perform(log, Purge(issue=door.short_id, force=True, confirm=words, reason="asked to"), ADA)
    name = find(log, door.short_id, scope="house", verb="show")
    assert (name.uid, name.purged) == (door.uid, True)
    assert door.short_id in taken_ends(log, door.uid, "house")


def test_a_stream_that_was_purged_past_the_program_takes_every_end_of_its_uid(log: Log) -> None:
    door = made(log, "The door squeaks")
    log.purge(f"issue/{door.uid}", reason="by hand")
    uid = door.uid.lower()
    assert {uid[-4:], uid[-5:], uid} <= taken_ends(log, door.uid, "house")
    assert taken_ends(log, door.uid, "garden") == set()
    with pytest.raises(NoSuchSubject) as refused:
        find(log, door.short_id, scope="house", verb="show")
    assert "was purged" in refused.value.why


def test_names_of_many_leave_out_those_that_nobody_knows(log: Log) -> None:
    door = made(log, "The door squeaks")
    unknown = "01M7Q2X4T9ZK3V5B8N6WA0HRAC"
    assert set(names_of(log, [door.uid, unknown])) == {door.uid}
    assert name_of(log, unknown) is None


def test_a_caller_reaches_the_project_or_what_it_may_see_of_it() -> None:
    assert reach("acme/shop", "acme", "hrac") == "acme/shop"
    assert reach("acme", "acme/shop", "hrac") == "acme/shop"
    assert reach("", "acme", "hrac") == "acme"
    with pytest.raises(NoSuchSubject):
        reach("globex", "acme", "hrac")
