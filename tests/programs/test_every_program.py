"""What holds for each of the domains, whatever it is about."""

from __future__ import annotations

import random
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest
from tests.programs.steps import work

import everlog
from everlog import programs
from everlog.core.ids import IdSource
from everlog.core.query import Query
from everlog.log.log import Log
from everlog.views.as_of import cut
from everlog.views.registry import live_view
from everlog.views.view import digest

EVERY = pytest.mark.parametrize("name", sorted(programs.TYPES))
STEPS = 40
ONE_LOG = {"controlplane"}
"""Domains whose logs never come together with others: their views go by positions."""


@EVERY
def test_the_table_of_types_is_what_the_catalog_holds(name: str) -> None:
    assert sorted(programs.TYPES[name]) == [info.type for info in programs.load(name).catalog.types()]


@EVERY
def test_the_catalog_is_sound_and_has_an_old_version_with_an_upcaster(name: str) -> None:
    catalog = programs.load(name).catalog
    assert catalog.check() == []
    assert any(info.upcasts_from for info in catalog.types())


@EVERY
def test_every_type_and_view_says_what_it_is(name: str) -> None:
    domain = programs.load(name)
    assert [info.type for info in domain.catalog.types() if not info.doc] == []
    assert [view.name for view in domain.views if not view.__doc__] == []


@EVERY
def test_no_module_has_an_id_source_that_threads_would_share(name: str) -> None:
    """An id source is not locked: two threads that ask the same one may get the same id."""
    package = import_module(f"everlog.programs.{name}")
    modules = [import_module(found.name) for found in iter_modules(package.__path__, f"{package.__name__}.")]
    assert modules
    found = [(module.__name__, key, value) for module in modules for key, value in vars(module).items()]
    assert [(module, key) for module, key, value in found if isinstance(value, IdSource)] == []


@EVERY
def test_views_are_named_after_their_domain_so_that_a_log_finds_them(name: str, log: Log) -> None:
    assert programs.load(name).views
    for view in programs.load(name).views:
        assert view.name.startswith(f"{name}.")
        assert type(log.view(view.name).view) is view


def test_the_domains_of_a_log_are_loaded_only_when_they_are_needed(log: Log) -> None:
    assert log.catalog.knows("agent.command.proposed")
    assert "agent.command.proposed" not in log.catalog._latest
    log.append("note.added", stream="note/1", payload={"text": "hello"})
    assert "agent.command.proposed" not in log.catalog._latest


@EVERY
@pytest.mark.parametrize(
    ("store", "histories"),
    [
        ("memory", 5),
        ("sqlite", 2),
        pytest.param("memory", 200, marks=pytest.mark.slow),
        pytest.param("sqlite", 50, marks=pytest.mark.slow),
    ],
)
def test_after_random_work_the_views_live_rebuilt_and_as_of_the_head_are_the_same(
    name: str, store: str, histories: int, tmp_path: Path
) -> None:
    for seed in range(histories):
        url = "memory:" if store == "memory" else f"sqlite:{tmp_path / f'{seed}.db'}"
        _require_one_truth(name, url, seed)


def _require_one_truth(name: str, url: str, seed: int) -> None:
    with everlog.open(url, actor="user:ada") as log:
        views = programs.load(name).views
        for view in views:
            log.views.register(view, mode="inline" if seed % 2 else "on-demand")
        refused = 0
        for part in range(4):
            refused += work(log, name, seed=seed * 10 + part, steps=STEPS // 4)
            for view in views:
                log.view(view).catch_up()
        assert log.head() > 0
        assert refused < STEPS, "random work that is always refused shows nothing"
        for view in views:
            handle = live_view(log, view)
            live = handle.digest()
            assert handle.rebuild().digest == live
            at_head = {key: handle.was_at(key, cut(log, log.head())).rows[key].state for key, _ in handle.items()}
            assert digest(at_head.items()) == live
        assert log.verify().ok


@pytest.mark.parametrize("name", sorted(programs.TYPES.keys() - ONE_LOG))
def test_views_say_the_same_whatever_order_the_events_arrive_in(name: str) -> None:
    views = programs.load(name).views
    with everlog.open("memory:", actor="user:ada") as log:
        work(log, name, seed=7, steps=STEPS * 2)
        events = [recorded.event for recorded in log.read()]
        before = {view.name: log.view(view).digest() for view in views}
    chance = random.Random(7)
    for _ in range(3):
        chance.shuffle(events)
        with everlog.open("memory:") as clone:
            for event in events:
                clone.admit([event])
                for view in views:
                    clone.view(view).catch_up()  # each one comes late, to states that are kept
            assert {view.name: clone.view(view).digest() for view in views} == before


@EVERY
def test_random_work_is_refused_with_a_rule_and_a_hint_and_the_refusal_is_on_record(name: str) -> None:
    with everlog.open("memory:", actor="user:ada") as log:
        work(log, name, seed=3, steps=STEPS * 3)
        refusals = log.refusals(limit=None)
        assert refusals, "random work that is never refused shows nothing"
        assert [one.reason for one in refusals if not one.hint] == []


@EVERY
def test_random_work_writes_nothing_but_types_of_its_domain(name: str) -> None:
    with everlog.open("memory:", actor="user:ada") as log:
        work(log, name, seed=1, steps=STEPS)
        assert {recorded.event.type for recorded in log.read(Query())} <= set(programs.TYPES[name])
