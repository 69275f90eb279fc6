"""Three clones that append, purge, merge, rebase and pick in any order: in the end there is one log."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from everlog.core.event import START
from everlog.core.query import Cursor
from everlog.log.write.draft import Draft

if TYPE_CHECKING:
    from tests.transfer.git.conftest import Clone

HOUR_US = 3600 * 1_000_000
STREAMS = [f"thing/{number}" for number in range(4)]


class Reader:
    """Goes on from its cursor after every step. What it has seen stays, but for a purge, of which it is told."""

    def __init__(self, clone: Clone) -> None:
        self.clone = clone
        self.cursor: Cursor | int = START
        self.seen: list[str] = []

    def go_on(self) -> None:
        with self.clone.open() as log:
            while True:
                page = log.page_after(self.cursor)
                if page.reset is not None:
                    assert page.reset.reason == "purged"
                    self.cursor = page.reset.cursor
                    self.seen = [record.event.id for record in log.read(upto=page.reset.cursor.position)]
                    continue
                self.seen += [record.event.id for record in page.events]
                self.cursor = page.next_cursor
                if page.at_head:
                    break
            assert self.seen == [record.event.id for record in log.read()]


class Story:
    """What happens to the clones, and what must be there in the end."""

    def __init__(self, clones: list[Clone], seed: int) -> None:
        self.clones = clones
        self.readers = [Reader(clone) for clone in clones]
        self.random = random.Random(seed)
        self.recorded: set[str] = {record.event.id for record in clones[0].records()}
        self.purged: set[str] = set()
        self.commits = 0
        self.brought = 0

    def step(self) -> None:
        number = self.random.randrange(len(self.clones))
        clone = self.clones[number]
        clone.clock.us += self.random.randrange(8 * HOUR_US)
        self.random.choices([self.append, self.append_batch, self.purge, self.bring], [20, 12, 1, 16])[0](clone)
        self.readers[number].go_on()

    def append(self, clone: Clone) -> None:
        self.recorded.update(clone.say_and_commit(len(self.recorded), stream=self.random.choice(STREAMS)))
        self.commits += 1

    def append_batch(self, clone: Clone) -> None:
        drafts = [
            Draft("thing.said", stream=self.random.choice(STREAMS), payload={"value": f"{self.commits}.{number}"})
            for number in range(self.random.randint(2, 6))
        ]
        with clone.open() as log:
            self.recorded.update(record.event.id for record in log.append_batch(drafts))
        clone.commit(f"batch {self.commits}")
        self.commits += 1

    def purge(self, clone: Clone) -> None:
        stream = self.random.choice(STREAMS)
        with clone.open() as log:
            ids = {record.event.id for record in log.read(stream=stream)}
            if not ids:
                return
            log.purge(stream, actor="user:ada", reason="asked to")
        self.purged |= ids
        clone.commit(f"purge {self.commits}")
        self.commits += 1

    def bring(self, clone: Clone) -> None:
        other = self.random.choice([each for each in self.clones if each is not clone])
        self.random.choice([clone.pull, clone.pull_rebase, clone.pick])(other)
        self.brought += 1

    def come_together(self) -> None:
        for _ in range(2):
            for clone in self.clones:
                for other in self.clones:
                    if other is not clone:
                        clone.pull(other)
        for reader in self.readers:
            reader.go_on()


def state_of(clone: Clone) -> dict[str, list[object]]:
    """A fold in causal order."""
    state: dict[str, list[object]] = {}
    for event in sorted((record.event for record in clone.records()), key=lambda event: event.causal_order):
        state.setdefault(event.stream, []).append(event.payload["value"])
    return state


def come_to_one_log(clones: list[Clone], seed: int, commits: int) -> Story:
    story = Story(clones, seed)
    while story.commits < commits:
        story.step()
    story.come_together()
    expected = sorted(story.recorded - story.purged)
    for clone in clones:
        assert sorted(record.event.id for record in clone.records()) == expected
        assert clone.problems() == []
        assert clone.status() == ""
        assert clone.day_files() == clones[0].day_files()
        assert state_of(clone) == state_of(clones[0])
        (clone.folder / "local" / "index.db").unlink()  # and by the order of the lines alone
        assert sorted(record.event.id for record in clone.records()) == expected
        assert clone.problems() == []
    assert len({clone.origin() for clone in clones}) == len(clones)
    return story


@pytest.mark.parametrize("seed", [1, 2])
def test_three_clones_come_to_one_log(first: Clone, clone_of: Callable[..., Clone], seed: int) -> None:
    clones = [first, clone_of(first, "second"), clone_of(first, "third")]
    come_to_one_log(clones, seed, commits=15)


@pytest.mark.slow
def test_three_clones_come_to_one_log_after_200_commits(
    first: Clone, clone_of: Callable[..., Clone], record_property: Callable[[str, object], None]
) -> None:
    clones = [first, clone_of(first, "second"), clone_of(first, "third")]
    story = come_to_one_log(clones, 200, commits=200)
    told = {
        "commits": story.commits,
        "merges, rebases and picks": story.brought,
        "events": len(story.recorded),
        "purged": len(story.purged),
        "day files": len(first.day_files()),
    }
    print(told)
    record_property("told", told)
