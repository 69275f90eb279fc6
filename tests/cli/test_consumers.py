"""`everlog consumers`: what it tells of a group, and what a person can decide."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Run

import everlog as library
from everlog.consumers import Group
from everlog.core.event import Recorded


def fails_on_the_second(recorded: Recorded) -> None:
    if recorded.position == 2:
        raise ValueError("no such address")


@pytest.fixture
def group(notes: Run, place: Path) -> Run:
    """Five notes, and a group that could not take the second of note/1: the third and the fourth wait behind it."""
    with library.open() as log:
        mailer = Group(log, "mailer", partitions=4, attempts_max=2, retry_s=0.0)
        with mailer.member("a") as member:
            member.run(fails_on_the_second, to_end=True)
    return notes


def test_no_groups_is_an_empty_answer(log: Run) -> None:
    found = log("consumers", "list", "--json")
    assert (found.code, found.data) == (0, [])
    assert "no groups" in log("consumers", "list").err


def test_every_group_is_listed(group: Run) -> None:
    assert group("consumers", "list").rows == [["mailer", "0", "4", "stream", "0", "3"]]
    (found,) = group("consumers", "list", "--json").data
    assert found["dead_letters"] == 3


def test_lag_is_told_for_each_member(group: Run) -> None:
    group("append", "note.added", "-s", "note/9", "text=new")
    with library.open() as log:
        member = Group(log, "mailer", partitions=4).member("a")
        assert member.take() is not None
        rows = group("consumers", "lag", "mailer").rows
        assert [row[:3] for row in rows] == [["a", "4", "1"]]
        (data,) = group("consumers", "lag", "mailer", "--json").data
        assert (data["member"], data["partitions"], data["events"], data["positions"]) == ("a", [0, 1, 2, 3], 1, 1)
        assert data["lease_until"]
        member.leave()
    assert group("consumers", "lag", "mailer", "--agent").out.startswith("OK group=mailer members=0 events=1\n")


def test_a_group_that_is_not_there_is_not_found(log: Run) -> None:
    found = log("consumers", "lag", "nobody", "--json")
    assert (found.code, found.error["code"]) == (4, "not_found")
    assert log("consumers", "lag", "nobody", "--missing-ok").code == 0


def test_dead_letters_are_shown_with_their_reasons(group: Run) -> None:
    rows = group("consumers", "dead-letters", "mailer").rows
    assert [row[:3] for row in rows] == [
        ["2", "failed", "note/1"],
        ["3", "waiting", "note/1"],
        ["4", "waiting", "note/1"],
    ]
    assert rows[0][-1] == "ValueError: no such address"
    assert group("consumers", "dead-letters", "mailer", "-q").out == "2\n3\n4\n"


def test_a_retried_letter_is_handled_and_what_waits_follows(group: Run) -> None:
    assert group("consumers", "retry", "mailer", "2", "--reason", "mended", "--actor", "user:eve").code == 0
    seen: list[int] = []
    with library.open() as log, Group(log, "mailer", partitions=4).member("a") as member:
        member.run(lambda recorded: seen.append(recorded.position), to_end=True)
    assert seen == [2, 3, 4]
    assert group("consumers", "dead-letters", "mailer").out == ""
    decided = group("consumers", "dead-letters", "mailer", "--decided", "--json").data
    assert [(one["what"], one.get("decided_by", "")) for one in decided] == [
        ("done", "user:eve"),
        ("done", ""),
        ("done", ""),
    ]


def test_a_skipped_letter_stays_on_record(group: Run) -> None:
    found = group("consumers", "skip", "mailer", "2", "--reason", "never existed", "--actor", "user:eve", "--json")
    assert (found.data["what"], found.data["decided_by"]) == ("skipped", "user:eve")
    assert group("consumers", "skip", "mailer", "2", "--reason", "again").code == 4
    assert group("consumers", "skip", "mailer", "3").code == 2


def test_a_reset_wants_its_exact_words(group: Run) -> None:
    found = group("consumers", "reset", "mailer", "--json")
    assert (found.code, found.error["code"], found.error["details"]["confirm"]) == (
        6,
        "confirmation_needed",
        "reset mailer",
    )
    assert group("consumers", "reset", "mailer", "--to", "2", "--confirm", "reset mailer").code == 0
    assert [row[2] for row in group("consumers", "lag", "mailer").rows] == ["3"]
    assert group("consumers", "reset", "mailer", "--to", "99", "--confirm", "reset mailer").code == 3
    assert group("consumers", "reset", "mailer", "--forget", "--confirm", "reset mailer").code == 0
    assert group("consumers", "list").out == ""
