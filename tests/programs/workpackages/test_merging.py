"""Clones in git that move the same package offline: a plain git merge, and every clone shows the same board."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.transfer.git.conftest import leave_this_machine

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")


class Clone:
    """A working tree with a log, and somebody who works there."""

    def __init__(self, path: Path, actor: str) -> None:
        self.path, self.actor = path, actor

    def git(self, *arguments: str) -> None:
        self._run(["git", *arguments])

    def wp(self, *arguments: str) -> Any:
        actor = ["--actor", self.actor] if arguments[0] not in ("board", "status", "history") else []
        told = self.everlog("wp", *arguments, *actor, "--json")
        return json.loads(told)["data"]

    def everlog(self, *arguments: str) -> str:
        return self._run([sys.executable, "-P", "-m", "everlog", *arguments])

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-qm", f"work of {self.actor}")

    def pull(self, other: Clone) -> None:
        self.git("pull", "-q", "--no-rebase", "--no-edit", str(other.path), "main")

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(command, cwd=self.path, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def clones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Clone, Clone]:
    """Two clones of a repository whose log has one planned package."""
    (tmp_path / "home").mkdir()
    leave_this_machine(tmp_path / "home", monkeypatch)
    first = Clone(tmp_path / "first", "user:ada")
    first.path.mkdir()
    first.git("init", "-q", "-b", "main")
    first.everlog("init", "--store", "jsonl:.", "--program", "wp")
    first.wp("create", "WP01", "Index")
    first.commit()
    second = Clone(tmp_path / "second", "user:bob")
    first.git("clone", "-q", ".", str(second.path))
    second.everlog("init")
    return first, second


def test_a_package_that_two_clones_moved_offline_is_the_same_in_both_after_a_merge(
    clones: tuple[Clone, Clone],
) -> None:
    first, second = clones
    first.wp("move", "WP01", "doing")
    second.wp("move", "WP01", "doing")
    second.wp("move", "WP01", "for_review")
    first.wp("board")  # so that the merge finds a board that is kept, and must fold late moves into it
    first.commit()
    second.commit()

    first.pull(second)
    second.pull(first)

    (here,), (there,) = first.wp("board"), second.wp("board")
    assert here == there
    assert here["lane"] == "for_review", "the greater clock wins"
    assert [(head["by"], head["lane"]) for head in here["conflict"]] == [
        ("user:ada", "doing"),
        ("user:bob", "for_review"),
    ]
    assert first.wp("history", "WP01") == second.wp("history", "WP01")
    assert first.wp("status", "WP01")["conflict"] == here["conflict"]
    marked = [bool(step["conflicts_with"]) for step in first.wp("history", "WP01")]
    assert marked == [False, True, True, True]

    first.wp("move", "WP01", "done")
    first.commit()
    second.pull(first)
    (settled,) = second.wp("board")
    assert (settled["lane"], settled["conflict"]) == ("done", None)


def test_a_circle_of_dependencies_that_a_merge_closed_is_told_and_can_be_opened(clones: tuple[Clone, Clone]) -> None:
    first, second = clones
    first.wp("create", "WP02", "Clock")
    first.commit()
    second.pull(first)
    first.wp("depend", "WP01", "--on", "WP02")
    second.wp("depend", "WP02", "--on", "WP01")
    first.commit()
    second.commit()
    first.pull(second)
    with pytest.raises(AssertionError, match="WP01 needs WP02 needs WP01: a circle that came with a merge"):
        first.wp("move", "WP01", "doing")
    first.wp("depend", "WP01", "--on-nothing")
    assert first.wp("move", "WP01", "doing")["lane"] == "doing"
