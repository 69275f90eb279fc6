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
    assert found.payload["steps"] == list(range(start, latest))
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


# ---- defaults of fields that came later


class Tagged(msgspec.Struct):
    title: str
    tags: list[str] = []
    weight: int | None = None
    kind: str = msgspec.field(default="note", name="the_kind")
    made_by: str = msgspec.field(default_factory=lambda: "a function, which may answer anything")


def _with_defaults() -> Catalog:
    pydantic = pytest.importorskip("pydantic")

    class Parcel(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        to: str
        express: bool = False
        labels: list[str] = pydantic.Field(default_factory=list)
        nick: str | None = pydantic.Field(default=None, alias="nickName")

    catalog = Catalog()
    catalog.event("thing.tagged", version=3)(Tagged)
    catalog.upcaster("thing.tagged", from_version=1)(
        lambda old: {"title": old["name"], "weight": old.get("weight", 7)}
    )
    catalog.upcaster("thing.tagged", from_version=2)(lambda old: old)
    catalog.event("parcel.sent", version=2)(Parcel)
    catalog.upcaster("parcel.sent", from_version=1)(lambda old: old)
    return catalog


@pytest.mark.parametrize(
    ("event_type", "payload", "expected"),
    [
        ("thing.tagged", {"name": "a"}, {"title": "a", "weight": 7, "tags": [], "the_kind": "note"}),
        (
            "thing.tagged",
            {"name": "a", "weight": None},
            {"title": "a", "weight": None, "tags": [], "the_kind": "note"},
        ),
        ("parcel.sent", {"to": "b"}, {"to": "b", "express": False, "labels": [], "nickName": None}),
        (
            "parcel.sent",
            {"to": "b", "labels": ["x"], "extra": 1},
            {"to": "b", "express": False, "labels": ["x"], "nickName": None, "extra": 1},
        ),
    ],
)
def test_an_upcast_payload_has_the_defaults_of_fields_that_the_upcasters_leave_out(
    an_event: MakeEvent, event_type: str, payload: dict[str, Any], expected: dict[str, Any]
) -> None:
    catalog, old = _with_defaults(), an_event(event_type, 1, payload)
    assert catalog.upcast(old).payload == expected
    assert [event.payload for event in catalog.upcast_all([old])] == [expected]
    # The same on a machine that has no models: that is how views are read on Spark.
    sent = Catalog.reading(catalog.readings(), catalog.defaults([event_type]))
    assert sent.upcast(old).payload == expected


def test_a_default_is_never_shared_between_events(an_event: MakeEvent) -> None:
    catalog = _with_defaults()
    first, second = (catalog.upcast(an_event("thing.tagged", 1, {"name": "a"})).payload for _ in range(2))
    first["tags"].append("only here")
    assert second["tags"] == []


def test_a_view_and_a_reader_see_the_same_defaults() -> None:
    from everlog.log.log import Log
    from everlog.stores.memory import MemoryStore
    from everlog.views.registry import Views
    from everlog.views.view import View

    class Last(View):
        name = "last"

        def apply(self, state: Any, event: Event) -> Any:
            return event.payload

    before = Catalog()
    before.event("thing.tagged")(msgspec.defstruct("Old", [("name", str)]))
    store = MemoryStore()
    Log(store, catalog=before, actor="user:ada").append("thing.tagged", stream="thing/1", payload={"name": "a"})
    log = Log(store, catalog=_with_defaults(), make_views=Views)
    expected = {"title": "a", "weight": 7, "tags": [], "the_kind": "note"}
    assert [recorded.event.payload for recorded in log.read()] == [expected]
    assert log.view(Last).get("thing/1").state == expected
