"""Old events read as today's: every step once, in order, on a copy; and what is told where a step is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlog.catalog import Catalog
from everlog.catalog.builtin import BUILT_IN, NoteAdded
from everlog.core.event import Event
from everlog.errors import SchemaBroken

MakeEvent = Callable[..., Event]


class Moved(msgspec.Struct):
    went_to: str


class Titled(msgspec.Struct):
    title: str = "untitled"


def test_an_event_of_the_latest_version_is_returned_itself(an_event: MakeEvent) -> None:
    event = an_event("note.added", 2, {"text": "a", "topic": ""})
    assert BUILT_IN.upcast(event) is event


@pytest.mark.parametrize(("event_type", "version"), [("never.heard", 1), ("note.added", 3)])
def test_an_event_that_only_others_know_is_returned_itself(
    an_event: MakeEvent, event_type: str, version: int
) -> None:
    event = an_event(event_type, version, {"x": 1})
    assert BUILT_IN.upcast(event) is event


def test_an_old_event_reads_as_todays_and_stays_as_it_was(an_event: MakeEvent) -> None:
    event = an_event("note.added", 1, {"body": "hello"})
    found = BUILT_IN.upcast(event)
    assert (found.version, found.payload) == (2, {"text": "hello", "topic": ""})
    assert (event.version, event.payload) == (1, {"body": "hello"})
    assert msgspec.structs.replace(found, version=1, payload=event.payload) == event


def test_many_events_are_read_as_each_would_be(an_event: MakeEvent) -> None:
    catalog = Catalog()
    catalog.event("thing.moved")(Titled)
    catalog.include(BUILT_IN)
    new = [an_event("thing.moved", 1, {"x": 1}), an_event("never.heard", 1, {})]
    old = an_event("note.added", 1, {"body": "hello"})
    for events in ([], new, [*new, old], [old]):
        assert catalog.upcast_all(events) == [catalog.upcast(event) for event in events]
    assert catalog.upcast_all(new) is new, "nothing is to be done, so nothing should be"
    assert catalog.upcast_all([*new, old])[2].version == 2


def test_an_event_whose_payload_was_erased_is_returned_itself(an_event: MakeEvent) -> None:
    event = an_event("note.added", 1, {}, salt=b"")
    assert BUILT_IN.upcast(event) is event


def test_an_upcaster_cannot_change_what_is_stored(an_event: MakeEvent) -> None:
    catalog = Catalog()
    catalog.event("list.made", version=2)(Titled)

    @catalog.upcaster("list.made", from_version=1)
    def in_place(old: dict[str, Any]) -> dict[str, Any]:
        old["deep"]["items"].append("changed")
        old["title"] = "changed"
        return old

    event = an_event("list.made", 1, {"deep": {"items": []}})
    assert catalog.upcast(event).payload["title"] == "changed"
    assert event.payload == {"deep": {"items": []}}


@given(latest=st.integers(2, 8), data=st.data())
def test_from_any_old_version_every_step_is_taken_once_and_in_order(
    an_event: MakeEvent, latest: int, data: st.DataObject
) -> None:
    catalog = Catalog()
    catalog.event("step.taken", version=latest)(Titled)

    def step(version: int) -> Any:
        return lambda old: {"steps": [*old["steps"], version]}

    for version in range(1, latest):
        catalog.upcaster("step.taken", from_version=version)(step(version))
    start = data.draw(st.integers(1, latest))
    found = catalog.upcast(an_event("step.taken", start, {"steps": []}))
    assert found.version == latest
    assert found.payload == {"steps": list(range(start, latest))}
    assert catalog.check() == []


def test_a_gap_between_versions_is_reported_by_check_and_by_the_read(an_event: MakeEvent) -> None:
    catalog = Catalog()
    catalog.event("workpackage.moved", version=3)(Moved)
    catalog.upcaster("workpackage.moved", from_version=1)(lambda old: old)
    assert catalog.check() == ["workpackage.moved: no upcaster leads from version 2 to 3"]
    with pytest.raises(SchemaBroken) as refused:
        catalog.upcast(an_event("workpackage.moved", 1, {"x": 1}))
    details = refused.value.details
    assert (details["from_version"], details["to_version"], details["event_version"]) == (2, 3, 1)


@pytest.mark.parametrize("result", [KeyError("old_status"), None, 3])
def test_a_failing_upcaster_is_named_with_the_event_and_the_cause(an_event: MakeEvent, result: Any) -> None:
    catalog = Catalog()
    catalog.event("workpackage.moved", version=2)(Moved)

    @catalog.upcaster("workpackage.moved", from_version=1)
    def name_the_lanes(old: dict[str, Any]) -> dict[str, Any]:
        if isinstance(result, Exception):
            raise result
        return result  # type: ignore[no-any-return]

    event = an_event("workpackage.moved", 1, {"x": 1})
    with pytest.raises(SchemaBroken) as refused:
        catalog.upcast(event)
    assert event.id in refused.value.what
    assert "name_the_lanes" in refused.value.why
    assert refused.value.__cause__ is not None
    if isinstance(result, Exception):
        assert refused.value.__cause__ is result


def test_an_upcaster_without_a_model_or_beyond_the_latest_is_reported() -> None:
    catalog = Catalog()
    catalog.event("workpackage.moved")(Moved)
    catalog.upcaster("workpackage.moved", from_version=1)(lambda old: old)
    catalog.upcaster("workpackage.made", from_version=1)(lambda old: old)
    assert catalog.check() == [
        "workpackage.moved: the upcaster from version 1 leads beyond the latest model",
        "workpackage.made: there are upcasters, but no model is registered",
    ]


def test_a_typed_payload_is_the_latest_model_with_later_defaults(an_event: MakeEvent) -> None:
    assert BUILT_IN.typed(an_event("note.added", 1, {"body": "a"})) == NoteAdded(text="a")
    assert BUILT_IN.typed(an_event("note.added", 2, {"text": "a"})) == NoteAdded(text="a", topic="")


def test_a_payload_that_no_model_fits_is_not_typed(an_event: MakeEvent) -> None:
    with pytest.raises(SchemaBroken) as refused:
        BUILT_IN.typed(an_event("note.added", 2, {"text": 3}))
    assert refused.value.details["type"] == "note.added"


def test_many_events_of_a_type_that_is_loaded_later_are_brought_up_too(an_event: MakeEvent) -> None:
    """A page of events, before anything else has needed the type: each is read as one alone would be."""
    lent = Catalog()

    @lent.event("thing.made", version=1)
    class First(msgspec.Struct):
        name: str

    @lent.event("thing.made", version=2)
    class Second(msgspec.Struct):
        title: str

    @lent.upcaster("thing.made", from_version=1)
    def call_it_a_title(old: dict[str, Any]) -> dict[str, Any]:
        return {"title": old["name"]}

    catalog = Catalog()
    catalog.include_later(["thing.made"], lambda: lent)
    (found,) = catalog.upcast_all([an_event("thing.made", 1, {"name": "x"})])
    assert (found.version, found.payload) == (2, {"title": "x"})
