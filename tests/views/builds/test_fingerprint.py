"""Which code has made a state: the text of a view, and the earlier texts of everlog's own views."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.views.conftest import Said

from everlog.core.canonical import canonical
from everlog.core.event import Event
from everlog.log.log import Log
from everlog.views.builds import fingerprint
from everlog.views.builds.build import active_build, put_build
from everlog.views.builds.fingerprint import EARLIER, catalog_fingerprint, code_fingerprint, is_code_of
from everlog.views.builtin import Actors, Streams, Types
from everlog.views.registry import views_of
from everlog.views.view import View


def _counted(state: dict[str, int]) -> dict[str, int]:
    return {"events": state.get("events", 0) + 1}


class Counts(View):
    name = "counts"

    def apply(self, state: dict[str, int], event: Event) -> dict[str, int]:
        return _counted(state)


class CountsWithUses(Counts):
    uses = (_counted,)


class LaterCounts(Counts):
    version = 2


def test_a_fingerprint_depends_on_the_text_the_version_and_what_the_view_uses() -> None:
    found = {code_fingerprint(view) for view in (Counts(), CountsWithUses(), LaterCounts(), Streams())}
    assert len(found) == 4
    assert code_fingerprint(Counts()) == code_fingerprint(Counts())


def test_a_fingerprint_of_the_catalog_depends_on_the_types_that_a_view_applies(make_log: Callable[..., Log]) -> None:
    catalog = make_log("memory").catalog

    class Notes(Counts):
        types = ("note.added",)

    assert catalog_fingerprint(catalog, Notes()) != catalog_fingerprint(catalog, Counts())


@pytest.mark.parametrize("view", [Streams(), Types(), Actors()], ids=lambda view: view.name)
def test_the_text_of_the_previous_version_counts_as_the_same_code(view: View) -> None:
    assert is_code_of(view, EARLIER[view.name, view.version])
    assert is_code_of(view, code_fingerprint(view))
    assert not is_code_of(view, EARLIER["fields", 1])


def test_states_of_the_previous_version_are_continued_without_a_warning(
    make_log: Callable[..., Log], caplog: pytest.LogCaptureFixture
) -> None:
    with make_log("sqlite") as log:
        log.append("note.added", stream="note/1", payload={"text": "one"})
        log.view(Streams).catch_up()
        log.views.close()
        state = log.views.small_state
        build = active_build(state, "streams")
        assert build is not None
        earlier = EARLIER["streams", 1]
        with state.change() as change:
            put_build(change, replace(build, code=earlier))
        with caplog.at_level(logging.WARNING, "everlog"):
            log.append("note.added", stream="note/1", payload={"text": "two"})
            assert log.view(Streams).get("note/1").state["events"] == 2
        assert caplog.messages == []
        after = active_build(state, "streams")
        assert after is not None
        assert (after.code, after.is_of(Streams())) == (earlier, True)
        assert [one.state for one in views_of(log).overviews() if one.view == "streams"] == ["ok"]


def test_a_file_that_is_edited_is_not_the_code_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "from tests.views.conftest import Said\n\n\nclass Edited(Said):\n    name = 'edited'\n    more = {}\n"
    module = tmp_path / "edited_view.py"
    module.write_text(source.format(1))
    monkeypatch.syspath_prepend(str(tmp_path))
    view = importlib.import_module("edited_view").Edited()
    before = code_fingerprint(view)
    module.write_text(source.format(100))
    assert code_fingerprint(view) == before


def test_the_fingerprint_follows_the_code_also_where_there_is_no_source() -> None:
    def make(text: str) -> View:
        space: dict[str, Any] = {"View": View}
        exec(
            f"class Made(View):\n    name = 'made'\n    def apply(self, state, event):\n        return {text}", space
        )
        found: View = space["Made"]()
        return found

    assert code_fingerprint(make("{'a': 1}")) == code_fingerprint(make("{'a': 1}"))
    assert code_fingerprint(make("{'a': 1}")) != code_fingerprint(make("{'a': 2}"))
    assert code_fingerprint(make("[x for x in state]")) != code_fingerprint(make("[x + 1 for x in state]"))

    class Using(Said):
        uses = (canonical,)

    class UsingMore(Said):
        uses = (canonical, code_fingerprint)

    fingerprints = {code_fingerprint(view) for view in (Said(), Using(), UsingMore())}
    assert len(fingerprints) == 3

    class Deeper(Said):
        def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
            return super().apply(state, event)

    assert code_fingerprint(Deeper()) != code_fingerprint(Said())
    assert code_fingerprint(Said()) == code_fingerprint(Said())


def test_code_without_a_source_is_known_by_its_compiled_parts() -> None:
    """Stored states carry the fingerprint: what it is made of must stay as it is."""
    made: dict[str, Any] = {}
    exec("def outer(a):\n    def inner(b):\n        return b + 17\n    return inner(a).bit_length()", made)
    parts = fingerprint._read_source(made["outer"]).split(" ")
    inner = next(one for one in made["outer"].__code__.co_consts if hasattr(one, "co_code"))
    assert parts[:2] == ["outer", made["outer"].__code__.co_code.hex()]
    assert {"bit_length", "inner", inner.co_code.hex(), "17"} <= set(parts)
