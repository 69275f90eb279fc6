"""The audit names what a view has missed, and states that differ."""

from __future__ import annotations

from typing import Any

import pytest
from tests.views.conftest import ByActor, Said
from tests.views.said import say

from everlog.log.log import Log
from everlog.log.read import pages
from everlog.views.builds.content import applied_blocks, mark_applied


def test_the_audit_finds_an_injected_hole(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = log.view(ByActor)
    say(log, 1, scope="acme/shop")
    hole = say(log, 2, stream="thing/hole", scope="acme/shop")
    say(log, 3)
    real = pages.OpenPage

    def leaky(*args: Any, **options: Any) -> Any:
        page = real(*args, **options)
        page.found = iter([[recorded for recorded in piece if recorded.position != hole] for piece in page.found])
        return page

    monkeypatch.setattr("everlog.views.builds.open_build.OpenPage", leaky)
    handle.catch_up()
    monkeypatch.undo()

    audit = handle.audit()
    assert (audit.ok, audit.gap, audit.lag) == (False, 1, 0)
    assert [missing.position for missing in audit.missing] == [hole]
    assert (audit.by_stream, audit.by_type) == ({"thing/hole": 1}, {"thing.said": 1})
    assert audit.by_scope == {"acme/shop": 1}
    assert [(wrong.key, wrong.kept, wrong.recounted) for wrong in audit.wrong_counts] == [("user:ada", 2, 3)]

    rebuilt = handle.rebuild()
    assert (rebuilt.same, rebuilt.differing) == (False, ("user:ada",))
    assert handle.audit().ok


def test_a_position_that_was_applied_again_says_nothing_of_the_one_after_it(log: Log) -> None:
    say(log, 1)
    handle = log.view(Said)
    handle.catch_up()
    build = handle.build()
    assert build is not None
    with log.views.small_state.change() as change:
        assert mark_applied(change, build, [2, 2, 4]) == 2
    assert applied_blocks(log.views.small_state, build) == {0: 0b10110}


def test_the_audit_finds_a_state_that_was_lost(log: Log) -> None:
    say(log, 1)
    say(log, 2, stream="thing/2")
    handle = log.view(Said)
    handle.catch_up()
    build = handle.build()
    assert build is not None
    with log.views.small_state.change() as change:
        change.put(build.rows, {"thing/2": None})
    audit = handle.audit()
    assert [(wrong.key, wrong.kept, wrong.recounted) for wrong in audit.wrong_counts] == [("thing/2", 0, 1)]
