"""Random joins, leaves, crashes, expiries, slow members, failures, purges and resets, on a clock of our own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from tests.consumers.world import NAMES, World

from everlog.stores.contract import Store
from everlog.stores.jsonl.store import JsonlStore
from everlog.stores.segments.store import SegmentsStore
from everlog.stores.sqlite.store import SqliteStore

name = st.sampled_from(NAMES)
few = st.integers(0, 3)


class ConsumersMachine(RuleBasedStateMachine):
    on_poison = "hold"

    def __init__(self) -> None:
        super().__init__()
        self.world = World(on_poison=self.on_poison)

    @rule(key=few, poison=st.booleans())
    def append(self, key: int, poison: bool) -> None:
        self.world.append(key, poison=poison)

    @rule(key=few)
    def append_many(self, key: int) -> None:
        for step in range(6):
            self.world.append((key + step) % 4)

    @rule()
    def append_other(self) -> None:
        self.world.append_other()

    @rule(name=name, in_flight=st.integers(1, 3))
    def join(self, name: str, in_flight: int) -> None:
        self.world.join(name, in_flight)

    @rule(name=name)
    def leave(self, name: str) -> None:
        self.world.leave(name)

    @rule(name=name)
    def crash(self, name: str) -> None:
        self.world.crash(name)

    @rule(name=name)
    def take(self, name: str) -> None:
        self.world.take(name)

    @rule(name=name, index=few)
    def settle(self, name: str, index: int) -> None:
        self.world.settle_one(name, index)

    @rule(name=name)
    def work(self, name: str) -> None:
        for _ in range(4):
            self.world.take(name)
            self.world.settle_one(name, 0)
            self.world.check()

    @rule(index=few)
    def wake_zombie(self, index: int) -> None:
        self.world.wake_zombie(index)

    @rule(seconds=st.sampled_from((0.6, 2.0, 5.0, 11.0)))
    def pass_time(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule(key=few)
    def purge(self, key: int) -> None:
        self.world.purge(key)

    @rule(index=few, skip=st.booleans())
    def decide(self, index: int, skip: bool) -> None:
        self.world.decide(index, skip=skip)

    @rule()
    def reset(self) -> None:
        self.world.reset_group()

    @rule()
    def lag(self) -> None:
        self.world.check_lag()

    @invariant()
    def holds(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        self.world.finish()
        self.world.close()


class PassingMachine(ConsumersMachine):
    on_poison = "pass"


@pytest.mark.parametrize("machine", [ConsumersMachine, PassingMachine])
def test_nothing_is_skipped_and_no_key_is_out_of_order(
    machine: type[ConsumersMachine], pytestconfig: pytest.Config
) -> None:
    examples = 500 if pytestconfig.getoption("--full") else 60
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=50, deadline=None)
    )


STORES: dict[str, Callable[[Path, Callable[[], int]], Store]] = {
    "sqlite": lambda folder, now_us: SqliteStore(folder / "log.db", now_us=now_us),
    "jsonl": lambda folder, now_us: JsonlStore(folder / "log", now_us=now_us),
    "segments": lambda folder, now_us: SegmentsStore(folder / "log", now_us=now_us),
}


@pytest.mark.parametrize("kind", STORES)
def test_the_same_holds_on_a_disk(kind: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    for seed in range(40 if pytestconfig.getoption("--full") else 3):
        folder = tmp_path / str(seed)
        folder.mkdir()

        def store(now_us: Callable[[], int], folder: Path = folder) -> Store:
            return STORES[kind](folder, now_us)

        world = World(store=store)
        world.live(seed, 80)
        world.close()
