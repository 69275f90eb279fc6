"""A purge, and git operations that take only a part of it away."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.transfer.git.conftest import Clone

from everlog.core.query import Cursor
from everlog.log.log import Log

DAY_US = 24 * 3600 * 1_000_000


def read(log: Log) -> list[object]:
    return [recorded.event.payload["value"] for recorded in log.read()]


def codes(log: Log) -> list[str]:
    return [problem.code for problem in log.verify().problems]


@pytest.mark.parametrize("also", [False, True])
@pytest.mark.parametrize(
    "command", [["stash", "-q"], ["checkout", "-q", "--", "."], ["reset", "-q", "--hard"]], ids=lambda words: words[0]
)
def test_a_purge_whose_record_is_here_holds_when_git_brings_the_event_back(
    first: Clone, command: list[str], also: bool
) -> None:
    """Git puts back the file of yesterday, and the record is in that of today, which git does not know. With `also`,
    git takes away another event as well, so that there is a new epoch."""
    first.say_and_commit("secret", stream="thing/2")
    if also:
        first.say("not committed")
    first.clock.us += DAY_US
    left = ["base", *(["not committed"] if also else [])]
    with closing(first.open()) as log, closing(first.open()) as other:
        log.purge("thing/2", reason="asked to")
        assert read(log) == read(other) == left
        epoch = log.identity.epoch
        first.git(*command)
        with closing(first.open()) as fresh:
            for each in (fresh, other, log):
                assert read(each) == ["base"]
                assert len(each.stored.purges()) == 1
                assert codes(each) == ["purged_came_back"]
                assert (each.identity.epoch == epoch) is not also
        assert b"secret" in b"".join(first.day_files().values())

        other.append("thing.said", stream="thing/1", payload={"value": "next"})
        assert b"secret" not in b"".join(first.day_files().values())
        for each in (log, other):
            assert read(each) == ["base", "next"]
            assert codes(each) == []
    for path in (first.folder / "local").glob("index.db*"):
        path.unlink()
    assert first.values() == ["base", "next"]
    assert first.problems() == []


def test_a_purge_that_git_takes_away_as_a_whole_is_undone(first: Clone) -> None:
    first.say_and_commit("secret", stream="thing/2")
    with closing(first.open()) as log:
        log.purge("thing/2", reason="asked to")
        first.git("reset", "-q", "--hard")
        assert (read(log), log.stored.purges(), codes(log)) == (["base", "secret"], [], [])


def test_the_positions_of_a_branch_are_not_used_for_files_without_its_purge(first: Clone) -> None:
    first.say_and_commit("of another thing", stream="thing/2")
    first.git("branch", "before")
    with closing(first.open()) as log, closing(first.open()) as other:
        log.purge("thing/2", reason="asked to")
        first.commit()
        assert read(other) == ["base"]
        first.git("checkout", "-q", "before")
        assert read(log) == ["base", "of another thing"]
        first.git("branch", "-q", "-f", "main", "before")
        other.append("thing.said", stream="thing/1", payload={"value": "more"})
        first.commit()
        first.git("checkout", "-q", "main")
        for each in (log, other):
            assert read(each) == ["base", "of another thing"]
            assert (each.stored.purges(), codes(each)) == ([], [])


def test_positions_are_valid_again_when_a_stash_comes_back(first: Clone) -> None:
    first.say("not committed")
    with closing(first.open()) as log, closing(first.open()) as other:
        cursor = log.page_after(Cursor()).next_cursor
        first.git("stash", "-q")
        assert other.page_after(cursor).reset is not None
        first.git("stash", "pop", "-q")
        for each in (log, other):
            page = each.page_after(cursor)
            assert (page.reset, page.events, each.identity.epoch) == (None, (), cursor.epoch)
