"""Clones of a repository with a log in it, driven by the real git."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import CATALOG, Clock

from everlog.core.event import Recorded
from everlog.files import DiskFiles
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.stores.jsonl.store import JsonlStore
from everlog.transfer.git import install

SOURCE = Path(__file__).resolve().parents[3] / "src"


class Clone:
    """A working tree with the log in `.everlog`, whose wall clock the test moves."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self.folder = path / ".everlog"
        self.clock = clock

    def git(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            ["git", "-C", str(self.path), *arguments], capture_output=True, text=True, check=False, timeout=300
        )
        assert not check or done.returncode == 0, f"git {' '.join(arguments)}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def everlog(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "everlog", "-C", str(self.path), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def open(self) -> Log:
        store = JsonlStore(self.folder, now_us=self.clock)
        return Log(store, CATALOG, actor="user:ada", now_us=self.clock)

    def say(self, *values: object, stream: str = "thing/1") -> list[str]:
        """Append, in one write, and return the ids."""
        with self.open() as log:
            drafts = [Draft("thing.said", stream=stream, payload={"value": value}) for value in values]
            return [recorded.event.id for recorded in log.append_batch(drafts)]

    def commit(self, message: str = "more") -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)

    def say_and_commit(self, *values: object, stream: str = "thing/1") -> list[str]:
        ids = self.say(*values, stream=stream)
        self.commit(f"say {values}")
        return ids

    def pull(self, other: Clone) -> None:
        self.git("pull", "-q", "--no-rebase", "--no-edit", str(other.path), "main")

    def pull_rebase(self, other: Clone) -> None:
        self.git("pull", "-q", "--rebase", str(other.path), "main")

    def pick(self, other: Clone) -> None:
        """Cherry-pick each commit that is there and not here, known by its message: a picked one has another name."""
        self.git("fetch", "-q", str(other.path), "main")
        here = self.git("log", "--format=%s").splitlines()
        there = self.git("log", "--topo-order", "--reverse", "--no-merges", "--format=%H %s", "HEAD..FETCH_HEAD")
        commits = [line.split(" ", 1) for line in there.splitlines()]
        picked = [name for name, message in commits if message not in here]
        if picked:
            self.git("cherry-pick", "--allow-empty", "--keep-redundant-commits", *picked)

    def status(self) -> str:
        return self.git("status", "--porcelain")

    def day_files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted((self.folder / "events").iterdir())}

    def records(self) -> list[Recorded]:
        with self.open() as log:
            return list(log.read())

    def values(self) -> list[object]:
        """What was said, in causal order: the same in every clone that has the same events."""
        events = sorted((recorded.event for recorded in self.records()), key=lambda event: event.causal_order)
        return [event.payload["value"] for event in events]

    def problems(self) -> list[str]:
        with self.open() as log:
            return [f"{each.code}: {each.reason}" for each in log.verify().problems]

    def origin(self) -> str:
        with self.open() as log:
            return log.identity.origin


@pytest.fixture(autouse=True)
def git_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("git") is None:
        pytest.skip("there is no git here")
    leave_this_machine(tmp_path_factory.mktemp("home"), monkeypatch)


def leave_this_machine(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration of git but that of the test, and a driver that finds this source."""
    for name in list(os.environ):
        if name.startswith(("GIT_", "EVERLOG_", "XDG_")):
            monkeypatch.delenv(name)
    for name, value in {
        "HOME": str(home),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Ada",
        "GIT_AUTHOR_EMAIL": "ada@example.org",
        "GIT_COMMITTER_NAME": "Ada",
        "GIT_COMMITTER_EMAIL": "ada@example.org",
        "PYTHONPATH": str(SOURCE),
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def first(tmp_path: Path, clock: Clock) -> Clone:
    """A repository with a log of one event, committed."""
    path = tmp_path / "first"
    subprocess.run(["git", "init", "-q", "-b", "main", str(path)], check=True)
    clone = Clone(path, clock)
    clone.open().close()
    assert install(DiskFiles(), clone.folder, python=sys.executable) is not None
    clone.say_and_commit("base")
    return clone


@pytest.fixture
def clone_of(tmp_path: Path) -> Callable[..., Clone]:
    """Another clone, with the driver registered unless it is said otherwise."""

    def make(other: Clone, name: str, *, registered: bool = True) -> Clone:
        subprocess.run(["git", "clone", "-q", str(other.path), str(tmp_path / name)], check=True)
        clock = Clock()
        clock.us = other.clock.us
        clone = Clone(tmp_path / name, clock)
        if registered:
            done = install(DiskFiles(), clone.folder, python=sys.executable)
            assert done is not None
            assert done.changed == ["merge.everlog.driver"]
        return clone

    return make


@pytest.fixture
def second(first: Clone, clone_of: Callable[..., Clone]) -> Clone:
    return clone_of(first, "second")
