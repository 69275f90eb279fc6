"""Groups of consumers: how far each is, and what a reset needs."""

from __future__ import annotations

import pytest

import everlog
from everlog.application.consumer_groups import (
    dead_letters,
    group_overviews,
    member_lags,
    reset_group,
    retry_letter,
    skip_letter,
)
from everlog.consumers import Group
from everlog.errors import ConfirmationNeeded, NotFound


@pytest.fixture
def log() -> everlog.Log:
    """A log with a group whose member handled the first event, and could not handle the second."""
    log = everlog.open("memory:", actor="user:ada")
    for number in (1, 2, 3):
        log.append("note.added", stream=f"note/{number}", payload={"text": "x"})

    def handle(recorded: everlog.Recorded) -> None:
        if recorded.position == 2:
            raise ValueError("no such address")

    group = Group(log, "mailer", partitions=4, attempts_max=1, retry_s=0.0)
    with group.member("one") as member:
        member.run(handle, to_end=True)
    return log


def test_an_overview_counts_members_and_what_failed(log: everlog.Log) -> None:
    (found,) = group_overviews(log)
    assert (found.group, found.partitions, found.key, found.dead_letters) == ("mailer", 4, "stream", 1)
    assert sum(lag.dead_letters for lag in member_lags(log, "mailer")) == 1
    assert found.columns == tuple(found.__struct_fields__)


def test_a_dead_letter_is_decided_once_and_the_decision_is_kept(log: everlog.Log) -> None:
    (letter,) = dead_letters(log, "mailer")
    assert (letter.position, "no such address" in letter.reason) == (2, True)
    assert skip_letter(log, "mailer", 2, reason="it never existed").position == 2
    assert dead_letters(log, "mailer") == []
    assert [one.position for one in dead_letters(log, "mailer", decided=True)] == [2]
    with pytest.raises(NotFound):
        retry_letter(log, "mailer", 3, reason="")


def test_a_reset_needs_the_exact_words(log: everlog.Log) -> None:
    for words in (None, "", "reset", "reset other"):
        with pytest.raises(ConfirmationNeeded) as refused:
            reset_group(log, "mailer", confirm=words)
        assert refused.value.details["confirm"] == "reset mailer"
    reset_group(log, "mailer", to="head", confirm="reset mailer")
    assert group_overviews(log)[0].behind == 0
    reset_group(log, "mailer", confirm="reset mailer")
    assert group_overviews(log)[0].behind == 3
    reset_group(log, "mailer", forget=True, confirm="reset mailer")
    assert group_overviews(log) == []
    with pytest.raises(NotFound):
        member_lags(log, "mailer")
