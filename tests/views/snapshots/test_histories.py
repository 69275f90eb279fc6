"""R17: a snapshot and its tail equal a full replay, always: random histories with purges and late events,
snapshots that are damaged, missing or stale, and states that are taken away."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import CATALOG
from tests.views.conftest import ALL
from tests.views.snapshots.logs import forget_states, from_nothing, reopened, say

from everlog.errors import EverlogError
from everlog.log.log import Log
from everlog.stores.memory import MemoryStore
from everlog.testing.builders import Chain
from everlog.views.snapshots.check import check_all
from everlog.views.view import View

OPS = ("say", "say", "say", "say", "late", "purge", "snapshot", "snapshot", "full", "damage", "delete", "restart")


class History:
    def __init__(self, folder: Path, view: type[View], seed: int) -> None:
        self.folder = folder
        self.view = view
        self.chance = random.Random(seed)
        self.store = MemoryStore()
        self.log = self._open()
        self.chain = Chain()
        self.points = self.from_snapshots = 0
        self.harmed: set[str] = set()

    def _open(self) -> Log:
        return reopened(self.store, self.folder, catalog=CATALOG)

    def step(self, op: str) -> None:
        chance = self.chance
        stream, actor = f"thing/{chance.randrange(6)}", f"user:u{chance.randrange(3)}"
        match op:
            case "say":
                for _ in range(chance.randrange(1, 6)):
                    say(self.log, chance.randrange(100), stream=f"thing/{chance.randrange(6)}", actor=actor)
            case "late":
                late = self.chain.next(type="thing.said", stream=stream, payload={"value": "late"}, actor=actor)
                self.log.admit([late.event])
            case "purge":
                if any(True for _ in self.log.read(stream=stream, limit=1)):
                    self.log.purge(stream, reason="a test")
            case "snapshot" | "full":
                self.log.view(self.view).snapshot(full=op == "full")
            case "damage" | "delete":
                self._harm(op)
            case _:
                self.restart()

    def _harm(self, op: str) -> None:
        entries = self.log.views.snapshots.folder.entries()
        if not entries:
            return
        chosen = self.chance.choice(entries)
        path = chosen.path
        self.harmed.add(chosen.id)
        if op == "delete":
            path.unlink()
            return
        data = bytearray(path.read_bytes())
        if data:
            place = self.chance.randrange(10, max(11, len(data)))
            data[place % len(data)] ^= self.chance.randrange(1, 256)
            path.write_bytes(data[: self.chance.choice([len(data), place])])

    def restart(self) -> None:
        """Everything that was derived is gone but for the snapshots."""
        forget_states(self.log)
        self.log = self._open()
        handle = self.log.view(self.view)
        self.from_snapshots += handle.position() > 0
        self.compare()
        assert handle.audit().ok
        bases = {entry.id: entry.header.base for entry in self.log.views.snapshots.folder.entries() if entry.header}
        for verdict in check_all(self.log.views.snapshots, handle, sample=3):
            assert verdict.ok or not self.harmed.isdisjoint((verdict.id, bases.get(verdict.id, ""))), verdict

    def compare(self) -> None:
        self.points += 1
        assert self.log.view(self.view).digest() == from_nothing(self.log, self.view)


@settings(max_examples=60)
@given(st.sampled_from(ALL), st.integers(0, 10**6), st.lists(st.sampled_from(OPS), min_size=5, max_size=40))
def test_a_snapshot_and_its_tail_equal_a_full_replay(view: type[View], seed: int, ops: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder) / "snapshots", view, seed)
        for op in ops:
            history.step(op)
        history.restart()


def test_five_hundred_points(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    """The same with a count of what it went through; with --full, 500 points and more."""
    wanted = 500 if pytestconfig.getoption("--full") else 60
    points = used = damaged = number = 0
    while points < wanted:
        history = History(tmp_path / str(number), ALL[number % len(ALL)], number)
        for _ in range(40):
            history.step(history.chance.choice(OPS))
        history.restart()
        points += history.points
        used += history.from_snapshots
        damaged += len(history.harmed)
        number += 1
    print(f"{points} points compared, {used} began at a snapshot, {damaged} snapshots harmed, {number} histories")
    assert used > points // 4, "too few began at a snapshot for this to mean anything"
    assert damaged


def test_every_snapshot_that_can_be_restored_leads_to_the_same(tmp_path: Path) -> None:
    restored = 0
    for number, view in enumerate(ALL):
        history = History(tmp_path / view.name, view, number)
        for _ in range(60):
            history.step(history.chance.choice([op for op in OPS if op not in ("delete", "restart", "purge")]))
        handle = history.log.view(view)
        expected = from_nothing(history.log, view)
        for entry in history.log.views.snapshots.folder.entries():
            try:
                done = handle.restore(entry)
            except EverlogError:
                continue
            restored += 1
            assert done.digest == expected
            history.compare()
    assert restored >= len(ALL)
