"""What holds for each of the domains, whatever it is about."""

from __future__ import annotations

import random
import tomllib
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest
from tests.programs.steps import step_of

from everlog import programs
from everlog.core.ids import IdSource
from everlog.log.log import Log
from everlog.testing.program_contract import ProgramContract

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
EVERY = pytest.mark.parametrize("name", sorted(programs.TYPES))


@EVERY
def test_the_table_of_types_is_what_the_catalog_holds(name: str) -> None:
    assert sorted(programs.TYPES[name]) == [info.type for info in programs.load(name).types.types()]
    assert programs.VIEWS[name] == tuple(view.name for view in programs.load(name).views)


@EVERY
def test_the_catalog_is_sound_and_has_an_old_version_with_an_upcaster(name: str) -> None:
    catalog = programs.load(name).types
    assert catalog.check() == []
    assert any(info.upcasts_from for info in catalog.types())


@EVERY
def test_no_module_has_an_id_source_that_threads_would_share(name: str) -> None:
    """An id source is not locked: two threads that ask the same one may get the same id."""
    package = import_module(f"everlog.programs.{name}")
    modules = [import_module(found.name) for found in iter_modules(package.__path__, f"{package.__name__}.")]
    assert modules
    found = [(module.__name__, key, value) for module in modules for key, value in vars(module).items()]
    assert [(module, key) for module, key, value in found if isinstance(value, IdSource)] == []


def test_the_domains_of_a_log_are_loaded_only_when_they_are_needed(log: Log) -> None:
    assert log.catalog.knows("agent.command.proposed")
    assert "agent.command.proposed" not in log.catalog._latest
    log.append("note.added", stream="note/1", payload={"text": "hello"})
    assert "agent.command.proposed" not in log.catalog._latest


class OneOfEverlog(ProgramContract):
    """The suite for programs of other distributions, and its long form."""

    def step(self, log: Log, chance: random.Random) -> None:
        step_of(self.program.name)(log, chance)

    @pytest.mark.slow
    def test_the_views_after_many_histories(self, tmp_path: Path) -> None:
        for seed in range(200):
            self.require_one_truth("memory:", seed)
        for seed in range(50):
            self.require_one_truth(f"sqlite:{tmp_path / f'{seed}.db'}", seed)


class TestAgents(OneOfEverlog):
    program = programs.load("agents")


class TestCommunity(OneOfEverlog):
    program = programs.load("community")


class TestControlPlane(OneOfEverlog):
    program = programs.load("controlplane")
    meets_others = False  # its views go by positions


class TestIssues(OneOfEverlog):
    program = programs.load("issues")


class TestWorkPackages(OneOfEverlog):
    program = programs.load("workpackages")


def test_every_program_runs_the_suite() -> None:
    tested = {kind.program.name for kind in OneOfEverlog.__subclasses__()}
    assert tested == set(programs.TYPES) == set(programs.GROUPS.values())


def test_the_programs_are_registered_as_plugins_are() -> None:
    """In pyproject.toml, from which the wheel takes its entry points."""
    points = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["entry-points"]["everlog.programs"]
    assert points == {word: f"everlog.programs.{name}:PROGRAM" for word, name in programs.GROUPS.items()}
    assert {word: programs.load(name).group for word, name in programs.GROUPS.items()} == {w: w for w in points}
