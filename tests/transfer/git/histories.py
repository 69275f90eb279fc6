"""Random histories of a log in git: three clones that branch, switch, commit, merge, rebase, pick, stash, reset and
clean, between appends, requests with keys, purges and reads.

The truth is in the lines of the files that are checked out: they are folded here, without the store. They leave one
question open. Git can put back events beside the record of their purge, and only the copy that purged them still
knows that it did: these may be shown or not, but to every handle and on every read path in the same way.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tests.conftest import CATALOG, Clock

from everlog.core.event import Event
from everlog.core.query import Cursor
from everlog.errors import AlreadyPurged
from everlog.files import DiskFiles
from everlog.log.log import Log
from everlog.stores.jsonl.day_files import scan
from everlog.stores.jsonl.lines import EventLine, PurgedLine, PurgeLine
from everlog.stores.jsonl.store import JsonlStore
from everlog.transfer.git import install
from everlog.views.registry import Views
from everlog.views.view import View

DAY_US = 24 * 3600 * 1_000_000
BRANCHES = ("main", "one", "two")
STEPS = 16
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


class CheckedOut(NamedTuple):
    """What is in the files, by id."""

    events: dict[str, EventLine]
    purged: dict[str, str]  # the purge of each
    purges: set[str]

    def put_back(self, purged: dict[str, set[str]]) -> set[str]:
        """The events that are here beside the record of their purge."""
        return {event_id for purge in self.purges for event_id in purged.get(purge, ()) if event_id in self.events}


def checked_out(path: Path) -> CheckedOut:
    found = CheckedOut({}, {}, set())
    for file in sorted((path / ".everlog" / "events").glob("*.jsonl")):
        for each in scan(file.read_bytes()):
            match each.line:
                case EventLine() as line:
                    found.events[line.id] = line
                case PurgedLine() as line:
                    found.purged[line.id] = line.purge
                case PurgeLine() as line:
                    found.purges.add(line.id)
                case None:
                    raise AssertionError(f"{file}: {each.reason}")
    return found


def fold(lines: Iterable[EventLine]) -> Board:
    board: Board = {}
    for line in lines:
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

    def __init__(self, path: Path, random: Random, clock: Clock, purged: dict[str, set[str]]) -> None:
        """`purged` are the events of every purge that any clone made."""
        self.path = path
        self.random = random
        self.clock = clock
        self.purged = purged
        self.log = open_log(path, clock)
        self.reader, self.other_reader = Reader(), Reader()
        self.told = 0
        self.answers: dict[str, set[str]] = {}

    def close(self) -> None:
        self.log.close()

    # ---- what a step must leave

    def check(self) -> None:
        """Both handles, in any order, or only one of them: the board is the fold, and no cursor skips."""
        looks: list[Callable[[], set[str]]] = [self._look_open, self._look_again]
        self.random.shuffle(looks)
        shown = [look() for look in looks[: self.random.choice((1, 2, 2))]]
        assert shown[0] == shown[-1]

    def _look_open(self) -> set[str]:
        return self._look(self.log, self.reader)

    def _look_again(self) -> set[str]:
        with open_log(self.path, self.clock) as log:
            return self._look(log, self.other_reader)

    def _look(self, log: Log, reader: Reader) -> set[str]:
        there = checked_out(self.path)
        either = there.put_back(self.purged)
        board: Board = {}
        shown: list[str] = []
        parts: list[Callable[[], None]] = [
            lambda: board.update(log.view(Said).items()),
            lambda: shown.extend(each.event.id for each in log.read()),
            lambda: reader.catch_up(log),
        ]
        self.random.shuffle(parts)
        for part in parts:
            part()
        assert len(shown) == len(set(shown))
        assert there.events.keys() - either <= set(shown) <= there.events.keys()
        assert {stream: values for stream, values in board.items() if values} == fold(
            there.events[each] for each in shown
        )
        # Nothing is skipped, nothing comes twice. A reader may still have what was purged since it saw it.
        assert len(reader.seen) == len(set(reader.seen))
        assert set(shown) <= set(reader.seen) <= {*shown, *there.purged, *either}
        return set(shown)

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

    def ask(self) -> None:
        """A retry gets an answer that this copy gave and that is checked out, else it is recorded."""
        number = self.random.randrange(3)
        there, given = checked_out(self.path), self.answers.setdefault(f"key {number}", set())
        either = there.put_back(self.purged)
        with open_log(self.path, self.clock) as other:
            logs = [self.log, other]
            self.random.shuffle(logs)
            answers = [self._ask(log, number) for log in logs]
        assert answers[0] == answers[1]
        answer = answers[0]
        here = given & there.events.keys()
        if answer is None:
            assert given & ({*there.purged} | either)
        elif answer in there.events:
            assert answer in here
        else:
            assert here <= either, "it was answered before"
            given.add(answer)

    def _ask(self, log: Log, number: int) -> str | None:
        """Return the id of the answer, or None if it was purged."""
        payload = {"value": f"{self.path.name} asks {number}"}
        try:
            return log.append("thing.said", stream=f"thing/{number}", payload=payload, key=f"key {number}").event.id
        except AlreadyPurged:
            return None

    def purge(self) -> None:
        there = checked_out(self.path)
        either = there.put_back(self.purged)
        streams = sorted({line.stream for line in there.events.values() if line.id not in either})
        if not streams:
            return
        stream = self.random.choice(streams)
        if self.random.random() < 0.5:
            self.log.purge(stream, reason="asked to")
        else:
            with open_log(self.path, self.clock) as log:
                log.purge(stream, reason="asked to")
        for event_id, purge in checked_out(self.path).purged.items():
            self.purged.setdefault(purge, set()).add(event_id)

    def purge_next_day(self) -> None:
        """Its record is in another file than what is left of the events."""
        self.clock.us += DAY_US
        self.purge()

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
        tree = Player(place, self.random, self.clock, self.purged)
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
    *(["ask"] * 4),
    *(["purge"] * 2),
    *(["purge_next_day"] * 2),
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
    purged: dict[str, set[str]] = {}
    players = [Player(place / name, random, clock, purged) for name in ("first", "second", "third")]
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
            report, there = player.log.verify(), checked_out(player.path)
            unnamed = set(there.purged.values()) - there.purges  # git removed the records of purges
            found = {problem.code for problem in report.problems}
            assert found <= ({"purge_disagrees", "sequence_gap"} if unnamed else set()), report.problems
    except BaseException as error:
        error.add_note(f"seed {seed}: {', '.join(done)}")
        raise
    finally:
        for player in players:
            player.close()
        shutil.rmtree(place)
    return sum(player.reader.resets for player in players)
