"""Whether git removed the lines that are missing, or somebody else did."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.stores.jsonl.own import Clock, day_files, own

from everlog.stores.jsonl.index.git_state import GitState
from everlog.stores.jsonl.store import JsonlStore

DAY_US = 86_400_000_000


def git(path: Path, *arguments: str) -> None:
    who = ["-c", "user.name=ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(path), *who, *arguments], check=True, capture_output=True, timeout=60)


def test_every_file_that_lacks_lines_is_looked_at(tmp_path: Path) -> None:
    """One that git wrote says nothing of the next one."""
    git(tmp_path, "init", "-q")
    clock = Clock()
    store = JsonlStore(tmp_path / "log", now_us=clock)
    own(store)
    clock.us += DAY_US
    own(store)
    git(tmp_path, "add", "log/log.json", "log/events")
    git(tmp_path, "commit", "-q", "-m", "one")
    clock.us -= DAY_US
    own(store)
    git(tmp_path, "commit", "-q", "-a", "-m", "two")
    first, other, checked_out = (recorded.event.id for recorded in store.read())
    state = GitState(store._folder)
    store.close()
    git(tmp_path, "checkout", "-q", "HEAD~1")
    by_git, by_hand = day_files(tmp_path / "log")
    by_hand.write_bytes(b"")

    here: dict[str, set[str]] = {by_git.name: {first}, by_hand.name: set()}
    gone: dict[str, set[str]] = {by_git.name: {checked_out}, by_hand.name: {other}}
    assert state.removed_lines({by_git.name: gone[by_git.name]}, here, ())
    assert not state.removed_lines(gone, here, ())
    assert not state.removed_lines(dict(reversed(gone.items())), here, ())
    assert not state.removed_lines({by_git.name: gone[by_git.name]}, here, {by_git.name})
