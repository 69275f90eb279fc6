"""Keys of requests in git: a retry gets the answer that was given here first, whatever git brings since."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from tests.transfer.git.conftest import Clone

from everlog.log.log import Log


def ask(log: Log, value: str = "paid", key: str = "k") -> str:
    return str(log.append("thing.said", stream="thing/1", payload={"value": value}, key=key).event.id)


def without_index(clone: Clone) -> None:
    for path in (clone.folder / "local").glob("index.db*"):
        path.unlink()


@pytest.mark.parametrize("earlier", ["main", "feat"])
def test_a_merge_of_another_answer_does_not_change_the_answer(first: Clone, earlier: str) -> None:
    """Both branches have answered the request once; each keeps its answer, whichever is the older one."""
    first.git("branch", "feat")
    answers: dict[str, str] = {}
    with closing(first.open()) as log, closing(first.open()) as other:
        for branch in (earlier, *{"main", "feat"} - {earlier}):
            first.git("checkout", "-q", branch)
            answers[branch] = ask(log)
            first.commit()
            assert ask(other) == answers[branch]
        assert answers["main"] != answers["feat"]
        for branch, of in (("feat", "main"), ("main", "feat~1")):
            first.git("checkout", "-q", branch)
            assert ask(log) == answers[branch]
            first.git("merge", "-q", "--no-edit", of)
            assert ask(other) == ask(log) == answers[branch]
            assert len(list(log.read())) == 3
            without_index(first)
            with closing(first.open()) as fresh:
                assert ask(fresh) == answers[branch]
                assert len(list(fresh.read())) == 3
                assert fresh.verify().ok


def test_the_key_of_another_clone_is_not_the_key_of_this_one(first: Clone, clone_of: Callable[..., Clone]) -> None:
    second = clone_of(first, "second")
    with closing(first.open()) as log, closing(second.open()) as other:
        theirs = ask(other, "something else")
        second.commit()
        first.pull(second)
        mine = ask(log)
        first.commit()
        second.pull(first)
        assert (ask(log), ask(other, "something else")) == (mine, theirs)


def test_a_cleaning_that_leaves_the_local_folder_keeps_keys(first: Clone) -> None:
    with closing(first.open()) as log:
        answer = ask(log)
    first.commit()
    first.git("clean", "-fdxq", "-e", "local/")
    with closing(first.open()) as log, closing(first.open()) as other:
        assert ask(log) == ask(other) == answer
