"""Random histories of a log in git: three clones that branch, switch, commit, merge, rebase, pick, stash, reset and
clean, between appends and reads.

The truth is in the lines of the files that are checked out: they are folded here, without the store.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from tests.conftest import CATALOG, Clock

from everlog.core.event import Event
from everlog.core.query import Cursor
from everlog.files import DiskFiles
from everlog.log.log import Log
from everlog.stores.jsonl.day_files import scan
from everlog.stores.jsonl.lines import EventLine
from everlog.stores.jsonl.store import JsonlStore
from everlog.transfer.git import install
from everlog.views.registry import Views
from everlog.views.view import View

DAY_US = 24 * 3600 * 1_000_000
BRANCHES = ("main", "one", "two")
STEPS = 14
Board = dict[str, list[str]]


class Said(View):
    """What was said of each thing: a small board."""

    name = "said"
    types = ("thing.said",)

    def initial(self) -> Any:
        return []

    def apply(self, state: Any, event: Event) -> Any:
        return sorted([*state, str(event.payload["value"])])


def git(path: Path, *arguments: str, check: bool = True) -> bool:
    done = subprocess.run(["git", "-C", str(path), *arguments], capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"git {' '.join(arguments)}\n{done.stdout}{done.stderr}"
    return done.returncode == 0


def open_log(path: Path, clock: Clock) -> Log:
    store = JsonlStore(path / ".everlog", now_us=clock)
    return Log(store, CATALOG, actor="user:ada", now_us=clock, make_views=lambda log: Views(log, (Said,)))


def checked_out(path: Path) -> dict[str, EventLine]:
    """The events in the files, by id."""
    found: dict[str, EventLine] = {}
    for file in sorted((path / ".everlog" / "events").glob("*.jsonl")):
        for each in scan(file.read_bytes()):
            assert isinstance(each.line, EventLine), f"{file}: {each.reason}"
            found[each.line.id] = each.line
    return found


def fold(lines: dict[str, EventLine]) -> Board:
    board: Board = {}
    for line in lines.values():
        board.setdefault(line.stream, []).append(str(line.event().payload["value"]))
    return {stream: sorted(values) for stream, values in board.items()}


class Reader:
    """Follows a log with a cursor. After a reset it begins again with all that is there."""

    def __init__(self) -> None:
        self.cursor = Cursor()
        self.seen: list[str] = []
        self.resets = 0

    def catch_up(self, log: Log) -> None:
        while True:
            page = log.page_after(self.cursor, limit=3)
            if page.reset is not None:
                self.resets += 1
                self.seen = [each.event.id for each in log.read(upto=page.reset.cursor.position)]
            self.seen += [each.event.id for each in page.events]
            done = page.next_cursor == self.cursor
            self.cursor = page.next_cursor
            if done:
                return


class Player:
    """A clone, with a log that stays open, and logs that are opened for one question."""

    def __init__(self, path: Path, random: Random, clock: Clock) -> None:
        self.path = path
        self.random = random
        self.clock = clock
        self.log = open_log(path, clock)
        self.reader, self.other_reader = Reader(), Reader()
        self.told = 0
        self.stashed = 0

    def close(self) -> None:
        self.log.close()

    # ---- what a step must leave

    def check(self) -> None:
        """Both handles, in any order, or only one of them: the board is the fold, and no cursor skips."""
        looks: list[Callable[[], None]] = [self._look_open, self._look_again]
        self.random.shuffle(looks)
        for look in looks[: self.random.choice((1, 2, 2))]:
            look()

    def _look_open(self) -> None:
        self._look(self.log, self.reader)

    def _look_again(self) -> None:
        with open_log(self.path, self.clock) as log:
            self._look(log, self.other_reader)

    def _look(self, log: Log, reader: Reader) -> None:
        lines = checked_out(self.path)
        parts = [self._look_at_board, self._look_at_events, self._look_with_cursor]
        self.random.shuffle(parts)
        for part in parts:
            part(log, lines, reader)

    def _look_at_board(self, log: Log, lines: dict[str, EventLine], reader: Reader) -> None:
        assert dict(log.view(Said).items()) == fold(lines)

    def _look_at_events(self, log: Log, lines: dict[str, EventLine], reader: Reader) -> None:
        assert sorted(each.event.id for each in log.read()) == sorted(lines)

    def _look_with_cursor(self, log: Log, lines: dict[str, EventLine], reader: Reader) -> None:
        reader.catch_up(log)
        assert sorted(reader.seen) == sorted(lines)  # each once: nothing is skipped, nothing comes twice

    # ---- steps

    def say(self) -> None:
        """Writes always work."""
        self.told += 1
        stream = f"thing/{self.random.randrange(3)}"
        payload = {"value": f"{self.path.name} {self.told}"}
        if self.random.random() < 0.5:
            self.log.append("thing.said", stream=stream, payload=payload)
        else:
            with open_log(self.path, self.clock) as log:
                log.append("thing.said", stream=stream, payload=payload)

    def next_day(self) -> None:
        self.clock.us += DAY_US
        self.say()

    def commit(self) -> None:
        git(self.path, "add", "-A")
        git(self.path, "commit", "-q", "--allow-empty", "-m", "more")

    def branch(self) -> None:
        name = self.random.choice(BRANCHES)
        if not git(self.path, "checkout", "-q", "-b", name, check=False):
            self.switch()

    def switch(self) -> None:
        """It may be refused because of lines that are not committed."""
        git(self.path, "checkout", "-q", self.random.choice(BRANCHES), check=False)

    def commit_and_switch(self) -> None:
        self.commit()
        self.switch()

    def detach(self) -> None:
        git(self.path, "checkout", "-q", "--detach", self.random.choice(BRANCHES), check=False)

    def merge(self) -> None:
        self.commit()
        if not git(self.path, "merge", "-q", "--no-edit", self.random.choice(BRANCHES), check=False):
            git(self.path, "merge", "--abort", check=False)

    def rebase(self) -> None:
        self.commit()
        if not git(self.path, "rebase", "-q", self.random.choice(BRANCHES), check=False):
            git(self.path, "rebase", "--abort", check=False)

    def pick(self) -> None:
        self.commit()
        picked = git(self.path, "cherry-pick", "--allow-empty", self.random.choice(BRANCHES), check=False)
        if not picked and not git(self.path, "cherry-pick", "--skip", check=False):
            git(self.path, "cherry-pick", "--abort", check=False)

    def stash(self) -> None:
        arguments = self.random.choice(((), ("-u",)))
        before = self._stashes()
        git(self.path, "stash", "push", "-q", *arguments)
        if self._stashes() > before and self.random.random() < 0.5:
            self.check()

    def pop(self) -> None:
        if not self._stashes():
            self.stash()
        if self._stashes() and not git(self.path, "stash", "pop", "-q", check=False):
            git(self.path, "reset", "-q", "--hard")
            git(self.path, "clean", "-q", "-f", "-d")
            git(self.path, "stash", "drop", "-q")

    def _stashes(self) -> int:
        done = subprocess.run(["git", "-C", str(self.path), "stash", "list"], capture_output=True, check=True)
        return done.stdout.count(b"\n")

    def reset(self) -> None:
        target = self.random.choice(("HEAD", "HEAD~1", "HEAD@{1}"))
        git(self.path, "reset", "-q", "--hard", target, check=False)

    def restore(self) -> None:
        git(self.path, "checkout", "-q", "--", ".everlog/events")

    def clean(self) -> None:
        git(self.path, "clean", "-q", "-f", "-d")

    def worktree(self) -> None:
        """Another tree of the same repository: a log of its own."""
        place = self.path.with_name(f"{self.path.name}-tree")
        if not git(self.path, "worktree", "add", "-q", "--detach", str(place), check=False):
            return
        tree = Player(place, self.random, self.clock)
        try:
            tree.check()
            tree.say()
            tree.commit_and_switch()
            tree.check()
            tree.say()
            tree.check()
        finally:
            tree.close()
            git(self.path, "worktree", "remove", "--force", str(place))

    def pull(self, other: Player) -> None:
        self.commit()
        branch = self.random.choice(BRANCHES)
        if not git(self.path, "pull", "-q", "--no-rebase", "--no-edit", str(other.path), branch, check=False):
            git(self.path, "merge", "--abort", check=False)


STEPS_OF = [
    *(["say"] * 8),
    *(["commit"] * 2),
    *(["branch"] * 3),
    *(["switch"] * 2),
    *(["commit_and_switch"] * 5),
    *(["stash"] * 2),
    *(["pop"] * 2),
    *(["reset"] * 2),
    *("next_day", "detach", "merge", "rebase", "pick", "restore", "clean", "worktree", "pull"),
]


def make_clones(place: Path) -> None:
    """Three clones of a repository with a log of one event."""
    place.mkdir()
    subprocess.run(["git", "init", "-q", "-b", "main", str(place / "first")], check=True)
    with open_log(place / "first", Clock()) as log:
        log.append("thing.said", stream="thing/0", payload={"value": "base"})
    install(DiskFiles(), place / "first" / ".everlog", python=sys.executable)
    git(place / "first", "add", "-A")
    git(place / "first", "commit", "-q", "-m", "base")
    for name in ("second", "third"):
        subprocess.run(["git", "clone", "-q", str(place / "first"), str(place / name)], check=True)
        install(DiskFiles(), place / name / ".everlog", python=sys.executable)


def play(template: Path, place: Path, seed: int) -> int:
    """One history. Returns how many resets its readers got."""
    shutil.copytree(template, place, symlinks=True)
    random = Random(seed)
    clock = Clock()
    players = [Player(place / name, random, clock) for name in ("first", "second", "third")]
    done: list[str] = []
    try:
        for _ in range(STEPS):
            player = random.choice((players[0], players[0], *players))
            step = random.choice(STEPS_OF)
            done.append(f"{player.path.name} {step}")
            clock.us += 1_000_000
            if step == "pull":
                player.pull(random.choice([each for each in players if each is not player]))
            else:
                getattr(player, step)()
            player.check()
        for player in players:
            player.say()
            player.check()
            report = player.log.verify()
            assert report.ok, report.problems
    except BaseException as error:
        error.add_note(f"seed {seed}: {', '.join(done)}")
        raise
    finally:
        for player in players:
            player.close()
        shutil.rmtree(place)
    return sum(player.reader.resets for player in players)
