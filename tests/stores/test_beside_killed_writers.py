"""A process that reads, beside writers that are killed and come back: nothing acknowledged is missing, nothing is
seen twice or out of order, and a live view is the fold of the log, at the end and all the way.

8 kills on each store (4 in PostgreSQL), and 200 with --full.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.places import in_memory
from tests.stores.handle_logs import make_small, open_log
from tests.stores.test_handles import OPENER
from tests.support.handles import Answer, Facts, Nursery, ProcessHandle, SteeredFiles, ask
from tests.support.watching import END

KILLS, KILLS_POSTGRES, KILLS_FULL = 8, 4, 200
WRITES_MAX = 6  # of a writer between two kills
KILL_AFTER_MS_MAX = 6.0


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    made = Nursery(OPENER)
    yield made
    made.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="everlog-beside-", dir=in_memory()))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "segments"])
def test_readers_beside_killed_writers_see_every_event_once(
    kind: str, folder: Path, nursery: Nursery, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    make_small(monkeypatch)
    kills = KILLS_FULL if pytestconfig.getoption("--full") else KILLS
    read_beside_killed_writers(f"{kind}:{folder}/log", nursery, writers=1 if kind == "segments" else 2, kills=kills)


def test_readers_beside_killed_writers_in_postgres_see_every_event_once(
    postgres_url: str, nursery: Nursery, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    make_small(monkeypatch)
    kills = KILLS_FULL if pytestconfig.getoption("--full") else KILLS_POSTGRES
    read_beside_killed_writers(postgres_url, nursery, writers=2, kills=kills)


def read_beside_killed_writers(place: str, nursery: Nursery, *, writers: int, kills: int) -> None:
    open_log(place, SteeredFiles()).close()
    reader = ProcessHandle(nursery)
    reader.begin("watch", place=place)
    work = Work(place, [ProcessHandle(nursery) for _ in range(writers)], random.Random(kills))
    for number in range(kills):
        work.write_a_little()
        work.kill(number % writers)
        assert not reader.ready(), reader.result()  # it has failed
    work.append(0, END)
    paged, subscribed, looks, waits = result_of(reader.result())
    result_of(ask(reader, "open", place=place))
    _, whole, _ = result_of(ask(reader, "look"))
    reader.end()
    work.end()

    assert [one[0] for one in whole] == list(range(1, len(whole) + 1))
    assert {one[0]: one for one in work.acknowledged}.items() <= {one[0]: one for one in whole}.items()
    assert len({one[0] for one in work.acknowledged}) == len(work.acknowledged)
    assert paged == subscribed == whole[: paged[-1][0]]
    assert paged[-1][5] == END
    assert min(looks, waits, work.lost + work.survived) > 0


def result_of(answer: Answer) -> Any:
    assert answer[0] == "ok", answer[1]
    return answer[1]


class Work:
    """Processes that write, and what they have acknowledged."""

    def __init__(self, place: str, writers: list[ProcessHandle], chance: random.Random) -> None:
        self.place = place
        self.writers = writers
        self.chance = chance
        self.acknowledged: list[Facts] = []
        self.lost = self.survived = 0  # writes that were under way at a kill: not acknowledged, and acknowledged
        for writer in writers:
            result_of(ask(writer, "open", place=place))

    def drafts(self, text: str = "") -> list[tuple[str, str, str, str]]:
        chance = self.chance
        return [
            (f"thing/{chance.randrange(8)}", "thing.said", "", text or "x" * chance.choice([1, 100, 2000]))
            for _ in range(1 if text else chance.choice([1, 1, 5]))
        ]

    def append(self, number: int, text: str = "") -> None:
        self.acknowledge(ask(self.writers[number], "append", drafts=self.drafts(text)))

    def acknowledge(self, answer: Answer) -> None:
        self.acknowledged += result_of(answer)[0]

    def write_a_little(self) -> None:
        """All of them at once."""
        for _ in range(self.chance.randrange(WRITES_MAX)):
            for writer in self.writers:
                writer.begin("append", drafts=self.drafts())
            for writer in self.writers:
                self.acknowledge(writer.result())

    def kill(self, number: int) -> None:
        """Kill a writer while it writes, and have it open the log again, while the others write on."""
        victim = self.writers[number]
        others = [writer for writer in self.writers if writer is not victim]
        for writer in [victim, *others]:
            writer.begin("append", drafts=self.drafts())
        time.sleep(self.chance.uniform(0, KILL_AFTER_MS_MAX) / 1000)
        if victim.ready():
            self.survived += 1
            self.acknowledge(victim.result())
        else:
            self.lost += 1
        victim.kill()
        for writer in others:
            self.acknowledge(writer.result())
        result_of(ask(victim, "open", place=self.place))

    def end(self) -> None:
        for writer in self.writers:
            writer.end()
