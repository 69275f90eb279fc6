from __future__ import annotations

import enum
import json
from collections.abc import Callable
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Literal

import msgspec
import pytest

from everlog.catalog import Catalog
from everlog.catalog.builtin import BUILT_IN, NoteAdded
from everlog.core.event import Event
from everlog.errors import InvalidField, InvalidPayload, SchemaBroken, UnknownType
from everlog.testing import builders

MakeEvent = Callable[..., Event]


class Moved(msgspec.Struct):
    """It went from one lane to another."""

    came_from: str
    went_to: Literal["planned", "doing", "done"]
    reason: str = ""
    size: int | None = None


class Tree(msgspec.Struct):
    name: str
    children: list[Tree] = []


class Lane(enum.StrEnum):
    DOING = "doing"


class Scheduled(msgspec.Struct):
    at: datetime
    lane: Lane = Lane.DOING


class Quiet(msgspec.Struct, omit_defaults=True):
    title: str = "untitled"


def a_catalog() -> Catalog:
    catalog = Catalog()
    catalog.event("workpackage.moved")(Moved)
    return catalog


# ---- registering


def test_the_decorator_returns_the_class_itself() -> None:
    assert Catalog().event("workpackage.moved")(Moved) is Moved


def test_registering_the_same_model_again_changes_nothing() -> None:
    catalog = a_catalog()
    catalog.event("workpackage.moved")(Moved)
    assert [info.versions for info in catalog.types()] == [(1,)]


def test_registering_another_model_for_a_version_is_refused() -> None:
    with pytest.raises(SchemaBroken) as refused:
        a_catalog().event("workpackage.moved")(Quiet)
    assert "Moved" in refused.value.why
    assert "Quiet" in refused.value.why
    assert "version=2" in refused.value.hint


@pytest.mark.parametrize("name", ["", "moved it", "9.moved", "workpackage..moved"])
def test_a_type_name_of_the_wrong_shape_is_refused(name: str) -> None:
    with pytest.raises(InvalidField):
        Catalog().event(name)


@pytest.mark.parametrize("version", [0, -1, True, 1.0])
def test_a_version_that_is_no_whole_number_from_one_is_refused(version: Any) -> None:
    with pytest.raises(SchemaBroken):
        Catalog().event("workpackage.moved", version=version)


def test_a_class_that_is_no_model_is_refused_at_once() -> None:
    class Plain:
        pass

    with pytest.raises(SchemaBroken) as refused:
        Catalog().event("workpackage.moved")(Plain)
    assert "msgspec.Struct" in refused.value.why


def test_a_model_that_is_written_as_an_array_is_refused() -> None:
    class Pair(msgspec.Struct, array_like=True):
        left: int

    with pytest.raises(SchemaBroken):
        Catalog().event("pair.made")(Pair)


def test_two_upcasters_for_one_step_are_refused() -> None:
    catalog = a_catalog()
    catalog.upcaster("workpackage.moved", from_version=1)(lambda old: old)
    with pytest.raises(SchemaBroken):
        catalog.upcaster("workpackage.moved", from_version=1)(lambda old: old)


def test_a_model_with_a_type_that_has_no_json_form_is_named_by_check_and_by_use() -> None:
    class Odd(msgspec.Struct):
        what: complex

    catalog = Catalog()
    catalog.event("odd.seen")(Odd)
    assert [problem.startswith("odd.seen version 1:") for problem in catalog.check()] == [True]
    with pytest.raises(SchemaBroken):
        catalog.validate("odd.seen", {"what": 1j})


def test_two_classes_of_one_name_in_a_model_are_refused_with_a_way_out() -> None:
    one, other = (msgspec.defstruct("Item", [(name, int)]) for name in "ab")
    catalog = Catalog()
    catalog.event("pair.made")(msgspec.defstruct("Pair", [("one", one), ("other", other)]))
    with pytest.raises(SchemaBroken) as refused:
        catalog.validate("pair.made", {"one": {"a": 1}, "other": {"b": 1}})
    assert "rename one" in refused.value.why


# ---- validating


def test_a_payload_gets_its_defaults_and_the_latest_version() -> None:
    catalog = a_catalog()
    found = catalog.validate("workpackage.moved", {"came_from": "planned", "went_to": "doing"})
    assert found == (1, {"came_from": "planned", "went_to": "doing", "reason": "", "size": None})


def test_the_latest_version_counts_whatever_the_order_of_registering() -> None:
    catalog = Catalog()
    catalog.event("note.added", version=2)(NoteAdded)
    assert catalog.validate("note.added", {"text": "a"})[0] == 2
    catalog.event("note.added", version=1)(Quiet)
    assert catalog.validate("note.added", {"text": "a"})[0] == 2
    catalog.event("note.added", version=3)(Moved)
    assert catalog.validate("note.added", {"came_from": "", "went_to": "done"})[0] == 3


def test_the_result_is_not_the_callers_dict() -> None:
    given_payload = {"came_from": "planned", "went_to": "doing", "reason": "", "size": 1}
    _, found = a_catalog().validate("workpackage.moved", given_payload)
    given_payload["reason"] = "changed later"
    assert found["reason"] == ""


def test_a_list_in_the_result_is_not_the_callers_list() -> None:
    class Tagged(msgspec.Struct):
        tags: list[str]
        more: dict[str, Any]

    catalog = Catalog()
    catalog.event("thing.tagged")(Tagged)
    given_payload: dict[str, Any] = {"tags": ["a"], "more": {"deep": [1]}}
    _, found = catalog.validate("thing.tagged", given_payload)
    given_payload["tags"].append("b")
    given_payload["more"]["deep"].append(2)
    assert found == {"tags": ["a"], "more": {"deep": [1]}}


def test_an_instance_and_a_mapping_are_accepted_like_a_dict() -> None:
    catalog = a_catalog()
    expected = (1, {"came_from": "planned", "went_to": "doing", "reason": "", "size": None})
    assert catalog.validate("workpackage.moved", Moved("planned", "doing")) == expected
    mapping = MappingProxyType({"came_from": "planned", "went_to": "doing"})
    assert catalog.validate("workpackage.moved", mapping) == expected


def test_an_instance_is_checked_too() -> None:
    wrong: Any = 3
    with pytest.raises(InvalidPayload) as refused:
        a_catalog().validate("workpackage.moved", Moved(wrong, "doing"))
    assert refused.value.defects == [("$.came_from", "expected str, got int")]


@pytest.mark.parametrize("payload", [None, 3, "text", ["a"], Quiet()])
def test_what_is_neither_object_nor_instance_is_refused(payload: Any) -> None:
    with pytest.raises(InvalidPayload) as refused:
        a_catalog().validate("workpackage.moved", payload)
    assert refused.value.defects[0][0] == "$"


def test_values_that_are_not_json_become_json() -> None:
    catalog = Catalog()
    catalog.event("run.scheduled")(Scheduled)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    expected = {"at": "2026-01-01T00:00:00Z", "lane": "doing"}
    assert catalog.validate("run.scheduled", {"at": moment, "lane": Lane.DOING})[1] == expected
    assert catalog.validate("run.scheduled", expected)[1] == expected
    assert json.loads(json.dumps(catalog.validate("run.scheduled", Scheduled(moment))[1])) == expected


def test_an_enum_given_for_a_text_becomes_the_text() -> None:
    _, found = a_catalog().validate("workpackage.moved", {"came_from": Lane.DOING, "went_to": "done"})
    assert type(found["came_from"]) is str


def test_a_model_that_omits_defaults_still_gets_them_written() -> None:
    catalog = Catalog()
    catalog.event("page.opened")(Quiet)
    assert catalog.validate("page.opened", {}) == (1, {"title": "untitled"})


def test_an_unknown_type_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UnknownType) as refused:
        a_catalog().validate("workpackage.move", {})
    assert "did you mean workpackage.moved?" in refused.value.hint
    assert refused.value.details["type"] == "workpackage.move"


def test_a_typo_in_an_optional_field_does_not_vanish() -> None:
    with pytest.raises(InvalidPayload) as refused:
        a_catalog().validate("workpackage.moved", {"came_from": "planned", "went_to": "doing", "reson": "late"})
    assert refused.value.defects == [("$.reson", "there is no such field; did you mean reason?")]


def test_a_payload_that_holds_itself_is_refused() -> None:
    class Free(msgspec.Struct):
        body: dict[str, Any]

    catalog = Catalog()
    catalog.event("thing.said")(Free)
    circle: dict[str, Any] = {}
    circle["again"] = circle
    with pytest.raises(InvalidPayload):
        catalog.validate("thing.said", {"body": circle})


def test_a_model_may_refer_to_itself() -> None:
    catalog = Catalog()
    catalog.event("tree.grown")(Tree)
    _, found = catalog.validate("tree.grown", {"name": "root", "children": [{"name": "leaf"}]})
    assert found == {"name": "root", "children": [{"name": "leaf", "children": []}]}
    with pytest.raises(InvalidPayload) as refused:
        catalog.validate("tree.grown", {"name": "root", "children": [{"name": "leaf", "nmae": "x"}]})
    assert refused.value.defects == [("$.children[0].nmae", "there is no such field; did you mean name?")]


# ---- asking


def test_a_catalog_knows_its_types() -> None:
    assert BUILT_IN.knows("note.added")
    assert not BUILT_IN.knows("note.added.twice")
    (info,) = BUILT_IN.types()
    assert (info.type, info.version, info.versions, info.upcasts_from) == ("note.added", 2, (1, 2), (1,))
    assert (info.model, info.doc) == ("NoteAdded", "Somebody wrote something down.")
    assert [(field.name, field.type, field.required) for field in info.fields] == [
        ("text", "str", True),
        ("topic", "str", False),
    ]


# ---- including


def test_including_takes_types_upcasters_and_transitions(an_event: MakeEvent) -> None:
    other = Catalog()
    other.event("workpackage.moved", version=2)(Moved)
    other.upcaster("workpackage.moved", from_version=1)(lambda old: {"came_from": "", "went_to": "done"})
    moves = {"planned": ["doing"]}
    rule = other.transitions(
        "workpackage", type="workpackage.moved", field="went_to", initial="planned", allowed=moves
    )
    catalog = Catalog()
    catalog.include(BUILT_IN)
    catalog.include(other)
    catalog.include(other)
    assert [info.type for info in catalog.types()] == ["note.added", "workpackage.moved"]
    assert catalog.upcast(an_event("workpackage.moved", 1, {"x": 1})).version == 2
    assert catalog.transition_rule("workpackage", "workpackage.moved") == rule
    assert catalog.check() == []


def test_including_a_contradiction_takes_nothing() -> None:
    other = Catalog()
    other.event("aaa.first")(Quiet)
    other.event("workpackage.moved")(Quiet)
    catalog = a_catalog()
    with pytest.raises(SchemaBroken):
        catalog.include(other)
    assert [info.type for info in catalog.types()] == ["workpackage.moved"]


def test_including_other_upcasters_or_transitions_is_refused() -> None:
    one, other = Catalog(), Catalog()
    for catalog, target in ((one, "doing"), (other, "done")):
        catalog.transitions("wp", type="wp.moved", field="to", initial="planned", allowed={"planned": [target]})
    with pytest.raises(SchemaBroken):
        one.include(other)
    one, other = Catalog(), Catalog()
    for catalog in (one, other):
        catalog.upcaster("wp.moved", from_version=1)(lambda old: old)
    with pytest.raises(SchemaBroken):
        one.include(other)


def test_types_that_are_included_later_are_known_at_once_and_loaded_when_one_is_needed() -> None:
    loaded = []

    def load() -> Catalog:
        loaded.append(True)
        return a_catalog()

    names = [info.type for info in a_catalog().types()]
    catalog = Catalog()
    assert catalog.include_later(names, load)
    assert catalog.knows("workpackage.moved")
    assert loaded == []
    catalog.validate("workpackage.moved", Moved("planned", "doing"))
    assert [info.type for info in catalog.types(lent=True)] == names
    assert len(loaded) == 1
    assert catalog.types() == [], "they are lent, and not of its own"


ASKED: dict[str, Callable[[Catalog], Any]] = {
    "types": lambda catalog: catalog.types(lent=True),
    "schema": lambda catalog: catalog.json_schema(lent=True),
    "readings": lambda catalog: catalog.readings(),
    "rules": lambda catalog: catalog.rules(),
    "check": lambda catalog: catalog.check(),
    "gaps": lambda catalog: catalog.gaps(),
}


@pytest.mark.parametrize("ask", ASKED)
def test_a_list_of_everything_has_what_was_included_later_too(ask: str) -> None:
    catalog, at_once = Catalog(), a_catalog()
    catalog.include_later([info.type for info in at_once.types()], a_catalog)
    assert str(ASKED[ask](catalog)) == str(ASKED[ask](at_once))


def test_an_old_event_of_a_type_that_is_included_later_is_upcast() -> None:
    later, catalog = Catalog(), Catalog()
    later.event("thing.done", version=2)(Quiet)
    later.upcaster("thing.done", from_version=1)(lambda old: {"title": old["name"]})
    catalog.include_later(["thing.done"], lambda: later)
    old = builders.event("thing.done", payload={"name": "x"})
    assert catalog.upcast(old).payload == {"title": "x"}


def test_a_catalog_keeps_its_own_type_and_goes_without_the_subject_that_also_has_it() -> None:
    catalog = a_catalog()
    assert not catalog.include_later(["other.thing", "workpackage.moved"], Catalog)
    assert not catalog.knows("other.thing")


def test_including_a_newer_version_replaces_the_check() -> None:
    catalog = a_catalog()
    catalog.validate("workpackage.moved", Moved("planned", "doing"))
    other = Catalog()
    other.event("workpackage.moved", version=2)(Quiet)
    catalog.include(other)
    assert catalog.validate("workpackage.moved", {}) == (2, {"title": "untitled"})
