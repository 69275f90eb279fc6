"""The promises of every program, as a test suite for your own programs. The programs of everlog run the same suite.

    class TestShed(ProgramContract):
        program = PROGRAM

        def step(self, log, chance):
            perform(log, chance.choice([Buy(tool="saw"), Lend(tool="saw", to="bob")]))

`step` does one thing that a user might do; it is often one that the rules refuse. The suite proves that the catalog
is sound, that views give the same live, rebuilt, as of the head, and in any order of arrival, that refusals have a
rule and a hint and are on record, and that a direct append does not get around the rules.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import ClassVar

import pytest

import everlog
from everlog import programs
from everlog.errors import EverlogError, RejectedEvent
from everlog.log.log import Log
from everlog.programs.program import Program
from everlog.views.as_of import cut
from everlog.views.registry import live_view
from everlog.views.view import digest


class ProgramContract:
    """The suite. Its name does not start with Test, so pytest collects only its subclasses."""

    program: ClassVar[Program]
    steps: ClassVar[int] = 40
    meets_others: ClassVar[bool] = True
    """False if logs of the program never come together with others: the order of arrival is then not tested."""

    def step(self, log: Log, chance: random.Random) -> None:
        """Do one thing. Raise an EverlogError if it is refused."""
        raise NotImplementedError

    def test_the_catalog_is_sound_and_everything_has_a_description(self) -> None:
        assert self.program.types.check() == []
        assert [info.type for info in self.program.types.types() if not info.doc] == []
        assert [view.name for view in self.program.views if not view.__doc__] == []

    def test_the_views_are_named_after_the_program_so_that_a_log_finds_them(self) -> None:
        with self._log() as log:
            for view in self.program.views:
                assert view.name.startswith(f"{self.program.name}.")
                assert type(log.view(view.name).view) is view

    def test_after_random_work_the_views_live_rebuilt_and_as_of_the_head_are_the_same(self, tmp_path: Path) -> None:
        for seed in range(5):
            self.require_one_truth("memory:", seed)
        for seed in range(2):
            self.require_one_truth(f"sqlite:{tmp_path / f'{seed}.db'}", seed)

    def test_the_views_are_the_same_whatever_order_the_events_arrive_in(self) -> None:
        if not self.meets_others:
            return
        with self._log() as log:
            self._work(log, seed=7, steps=self.steps * 2)
            events = [recorded.event for recorded in log.read()]
            before = {view.name: log.view(view).digest() for view in self.program.views}
        chance = random.Random(7)
        for _ in range(3):
            chance.shuffle(events)
            with self._log(actor="") as clone:
                for event in events:
                    clone.admit([event])
                    for view in self.program.views:
                        clone.view(view).catch_up()  # each event comes late, to states that are kept
                assert {view.name: clone.view(view).digest() for view in self.program.views} == before

    def test_a_refusal_has_a_hint_and_is_on_record(self) -> None:
        with self._log() as log:
            self._work(log, seed=3, steps=self.steps * 3)
            refusals = log.refusals(limit=None)
            assert refusals, "random work that is never refused shows nothing"
            assert [one.reason for one in refusals if not one.hint] == []

    def test_random_work_writes_nothing_but_types_of_the_program(self) -> None:
        with self._log() as log:
            self._work(log, seed=1, steps=self.steps)
            own = {info.type for info in self.program.types.types()}
            assert {recorded.event.type for recorded in log.read()} <= own

    def test_a_direct_append_meets_the_rules(self) -> None:
        with self._log() as log:
            self._work(log, seed=1, steps=self.steps)
            written = {recorded.event.type: recorded.event for recorded in log.read()}
            assert written
            head = log.head()
            for event in written.values():
                with pytest.raises(RejectedEvent):
                    log.append(event.type, stream="nobodys-kind/1", payload=event.payload)
            assert log.head() == head

    def require_one_truth(self, url: str, seed: int) -> None:
        """Check the views of the log at a URL while random work is done in it."""
        with self._log(url) as log:
            views = self.program.views
            for view in views:
                log.views.register(view, mode="inline" if seed % 2 else "on-demand")
            refused = 0
            for part in range(4):
                refused += self._work(log, seed=seed * 10 + part, steps=self.steps // 4)
                for view in views:
                    log.view(view).catch_up()
            assert log.head() > 0
            assert refused < self.steps, "random work that is always refused shows nothing"
            for view in views:
                handle = live_view(log, view)
                live = handle.digest()
                assert handle.rebuild().digest == live
                at_head = {key: handle.was_at(key, cut(log, log.head())).rows[key].state for key, _ in handle.items()}
                assert digest(at_head.items()) == live
            assert log.verify().ok

    def _work(self, log: Log, *, seed: int, steps: int) -> int:
        """Do so many steps, and return how many were refused. Anything but a refusal is a defect."""
        chance, refused = random.Random(seed), 0
        for _ in range(steps):
            try:
                self.step(log, chance)
            except EverlogError:
                refused += 1
        return refused

    def _log(self, url: str = "memory:", *, actor: str = "user:ada") -> Log:
        own = () if self.program.name in programs.TYPES else (self.program,)
        return everlog.open(url, programs=own, actor=actor)
