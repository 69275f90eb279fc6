"""Branches of git: each has its own events and positions, and what a view derived of them is kept."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
from tests.views.said import say

from everlog.core.event import Event
from everlog.log.log import Log
from everlog.stores.contract import InGit
from everlog.views.builds.build import builds_of, read_names
from everlog.views.fold import fold_all
from everlog.views.view import View


class Counting(View):
    """What was said in every stream. It counts how often an event is folded."""

    name = "counting"
    folded: ClassVar[int] = 0

    def key(self, event: Event) -> str:
        return event.stream

    def initial(self) -> list[str]:
        return []

    def apply(self, state: list[str], event: Event) -> list[str]:
        Counting.folded += 1
        return [*state, event.payload["value"]]


class Repository:
    """A log in a repository of git."""

    def __init__(self, folder: Path, make_log: Callable[..., Log]) -> None:
        self.folder = folder
        self.place = folder / "log"
        self._make_log = make_log
        folder.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> None:
        names = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *names, *arguments], cwd=self.folder, check=True, capture_output=True)

    def open(self) -> Log:
        return self._make_log("jsonl", self.place)

    def commit(self, *said: str) -> None:
        with self.open() as log:
            for text in said:
                say(log, text, stream=f"thing/{text}")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "said")


@pytest.fixture
def repository(tmp_path: Path, make_log: Callable[..., Log]) -> Repository:
    return Repository(tmp_path / "repository", make_log)


def folds(log: Log) -> int:
    """How many events are folded until the view answers, which must be right."""
    before = Counting.folded
    found = dict(log.view(Counting).items())
    count = Counting.folded - before
    assert found == fold_all(Counting(), log._store.read())
    return count


@pytest.mark.parametrize("one_handle", [True, False])
def test_a_branch_that_is_checked_out_again_is_not_folded_again(repository: Repository, one_handle: bool) -> None:
    branches = [f"branch{number}" for number in range(4)]
    repository.commit("a", "b")
    for branch in branches:
        repository.git("checkout", "-q", "-b", branch, "main")
        repository.commit(f"in-{branch}")
        with repository.open() as log:
            assert folds(log) == 3
    if one_handle:
        with repository.open() as log:
            for branch in branches * 2:
                repository.git("checkout", "-q", branch)
                assert folds(log) == 0, branch
    for branch in branches * 2:
        repository.git("checkout", "-q", branch)
        with repository.open() as log:
            assert folds(log) == 0, branch
            say(log, "more", stream="thing/more")
            assert folds(log) == 1
            assert f"thing/in-{branch}" in dict(log.view(Counting).items())
        repository.git("commit", "-q", "-a", "-m", "more")


def test_a_purge_reaches_what_is_kept_of_other_branches(repository: Repository) -> None:
    repository.commit("a", "sentinel")
    repository.git("checkout", "-q", "-b", "other")
    repository.commit("b")
    for branch in ("main", "other"):
        repository.git("checkout", "-q", branch)
        with repository.open() as log:
            folds(log)
    with repository.open() as log:
        log.purge("thing/sentinel", reason="asked for")
        assert "thing/sentinel" not in dict(log.view(Counting).items())
        assert folds(log) == 0
    local = [path for path in (repository.place / "local").glob("views.db*") if b"sentinel" in path.read_bytes()]
    assert not local
    repository.git("commit", "-q", "-a", "-m", "purged")
    repository.git("checkout", "-q", "main")
    with repository.open() as log:
        folds(log)


def test_builds_of_branches_that_cannot_come_back_are_removed(repository: Repository) -> None:
    repository.commit("a")
    for number in range(12):
        repository.git("checkout", "-q", "-b", f"branch{number}", "main")
        repository.commit(f"in-{number}")
        with repository.open() as log:
            folds(log)
    with repository.open() as log:
        kept, names = builds_of(log.views.small_state, "counting"), read_names(log.views.small_state, "counting")
        assert isinstance(log._store, InGit)
        others = [build for build in kept if build.number not in (names.active, names.previous)]
        assert 0 < len(others) <= 8
        assert {build.reached.epoch for build in others} <= log._store.other_epochs()
        log.view(Counting).rebuild()
        log.view(Counting).rebuild()
        assert names.active not in [build.number for build in builds_of(log.views.small_state, "counting")]
