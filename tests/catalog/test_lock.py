from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import msgspec
import pytest

from everlog.catalog import Catalog
from everlog.catalog.builtin import BUILT_IN
from everlog.catalog.lock import Breach, additions, compare, lock_text, require_compatible
from everlog.errors import InvalidSettings, NewerFormat, SchemaBroken

MOVED = "workpackage.moved"


class Item(msgspec.Struct):
    name: str
    count: int = 0


class Moved(msgspec.Struct):
    went_to: Literal["planned", "doing", "done"]
    reason: Annotated[str, msgspec.Meta(max_length=100)] = ""
    size: int = 0
    items: list[Item] = []
    extra: dict[str, Any] = {}
    first: Item | None = None


class Tree(msgspec.Struct):
    name: str
    children: list[Tree] = []


class Branch(msgspec.Struct):
    name: int
    children: list[Branch] = []


def catalog_of(**models: type[Any]) -> Catalog:
    """A catalog with one type; `v2=Model` is its version 2."""
    catalog = Catalog()
    for version, model in models.items():
        catalog.event(MOVED, version=int(version[1:]))(model)
    return catalog


def changed(**fields: Any) -> type[msgspec.Struct]:
    """Moved with other fields: a type, a (type, default), or None to leave the field out."""
    known: dict[str, Any] = {
        "went_to": Literal["planned", "doing", "done"],
        "reason": (Annotated[str, msgspec.Meta(max_length=100)], ""),
        "size": (int, 0),
        "items": (list[Item], []),
        "extra": (dict[str, Any], {}),
        "first": (Item | None, None),
    }
    members = [
        (name, *field) if isinstance(field, tuple) else (name, field)
        for name, field in (known | fields).items()
        if field is not None
    ]
    return msgspec.defstruct("Moved", members, kw_only=True)


def breaches_of(**fields: Any) -> list[tuple[str, str]]:
    found = compare(lock_text(catalog_of(v1=Moved)), catalog_of(v1=changed(**fields)))
    return [(breach.kind, breach.field) for breach in found]


# ---- the text


def test_the_text_is_stable_and_says_what_the_fields_are() -> None:
    text = lock_text(catalog_of(v1=Moved))
    assert text == lock_text(catalog_of(v1=changed()))
    assert text.endswith("}\n")
    locked = json.loads(text)
    assert locked["format"] == 1
    version = locked["types"][MOVED]["versions"]["1"]
    assert version["fields"]["went_to"] == {"required": True, "schema": {"enum": ["doing", "done", "planned"]}}
    assert version["fields"]["reason"] == {
        "required": False,
        "default": "",
        "schema": {"type": "string", "maxLength": 100},
    }
    assert list(version["defs"]) == ["Item"]


def test_the_text_does_not_depend_on_the_order_of_registering_or_of_fields() -> None:
    one, other = Catalog(), Catalog()
    for catalog, names in ((one, ["a.made", "b.made"]), (other, ["b.made", "a.made"])):
        for name in names:
            catalog.event(name)(Item)
    assert lock_text(one) == lock_text(other)
    turned = msgspec.defstruct("Item", [("count", int, 0), ("name", str)], kw_only=True)
    assert lock_text(catalog_of(v1=turned)) == lock_text(catalog_of(v1=Item))


def test_a_catalog_agrees_with_its_own_lock() -> None:
    for catalog in (BUILT_IN, catalog_of(v1=Moved), catalog_of(v1=Tree), Catalog()):
        assert compare(lock_text(catalog), catalog) == []
        assert additions(lock_text(catalog), catalog) == []


# ---- one test for each kind of breach


def test_a_removed_type_is_a_breach() -> None:
    (breach,) = compare(lock_text(catalog_of(v1=Moved)), BUILT_IN)
    assert (breach.kind, breach.type, breach.version) == ("removed_type", MOVED, 1)


def test_a_removed_version_is_a_breach() -> None:
    (breach,) = compare(lock_text(BUILT_IN), _notes(latest=1))
    assert (breach.kind, breach.type, breach.version) == ("removed_version", "note.added", 2)


def test_a_removed_field_is_a_breach() -> None:
    assert breaches_of(size=None) == [("removed_field", "size")]


@pytest.mark.parametrize("other", [str, float, bool, list[int], dict[str, int]])
def test_a_changed_type_is_a_breach(other: Any) -> None:
    assert breaches_of(size=(other, msgspec.UNSET if other is not list[int] else [])) == [("changed_type", "size")]


def test_a_type_that_was_anything_and_is_now_something_is_a_breach() -> None:
    was = catalog_of(v1=changed(size=(Any, None)))
    (breach,) = compare(lock_text(was), catalog_of(v1=Moved))
    assert (breach.kind, breach.field) == ("changed_type", "size")
    assert "any" in breach.text


def test_a_new_field_without_a_default_is_a_breach() -> None:
    assert breaches_of(colour=str) == [("new_required_field", "colour")]


def test_an_optional_field_that_is_now_required_is_a_breach() -> None:
    assert breaches_of(size=int) == [("now_required", "size")]


def test_a_field_that_may_no_longer_be_null_is_a_breach() -> None:
    assert breaches_of(first=(Item, msgspec.UNSET)) == [("changed_type", "first")]


def test_a_choice_that_is_gone_is_a_breach() -> None:
    assert breaches_of(went_to=Literal["planned", "doing"]) == [("narrowed", "went_to")]


def test_a_text_that_became_a_choice_is_a_breach() -> None:
    assert breaches_of(reason=(Literal["", "late"], "")) == [("narrowed", "reason")]


@pytest.mark.parametrize(
    ("field", "meta"),
    [
        ("size", msgspec.Meta(ge=0)),
        ("size", msgspec.Meta(lt=10)),
        ("reason", msgspec.Meta(max_length=99)),
        ("reason", msgspec.Meta(max_length=100, min_length=1)),
        ("reason", msgspec.Meta(max_length=100, pattern="^a")),
        ("items", msgspec.Meta(max_length=3)),
    ],
)
def test_a_narrower_limit_is_a_breach(field: str, meta: msgspec.Meta) -> None:
    types: dict[str, Any] = {"size": int, "reason": str, "items": list[Item]}
    default: dict[str, Any] = {"size": 0, "reason": "", "items": []}
    annotated: Any = Annotated
    assert breaches_of(**{field: (annotated[types[field], meta], default[field])}) == [("narrowed", field)]


@pytest.mark.parametrize(("was", "now", "expected"), [(1, 2, ["narrowed"]), (2, 1, []), (2, 2, [])])
def test_a_raised_lower_limit_is_a_breach_and_a_lowered_one_is_not(was: int, now: int, expected: list[str]) -> None:
    annotated: Any = Annotated
    old, new = (catalog_of(v1=changed(size=(annotated[int, msgspec.Meta(ge=bound)], 5))) for bound in (was, now))
    assert [breach.kind for breach in compare(lock_text(old), new)] == expected


def test_a_breach_inside_a_list_or_an_optional_model_is_found_with_its_path() -> None:
    other = msgspec.defstruct("Item", [("name", str), ("count", str, "")], module="elsewhere")
    assert breaches_of(items=(list[other], [])) == [("changed_type", "items[].count")]  # type: ignore[valid-type]
    narrower = msgspec.defstruct("Item", [("count", int, 0)], module="elsewhere")
    assert breaches_of(first=(narrower | None, None)) == [("removed_field", "first.name")]


def test_a_breach_in_the_values_of_an_object_is_found() -> None:
    assert breaches_of(extra=(dict[str, int], {})) == [("changed_type", "extra.*")]


def test_an_object_of_any_fields_that_became_a_model_is_a_breach() -> None:
    assert ("narrowed", "extra") in breaches_of(extra=(Item, msgspec.UNSET))


def test_a_model_that_refers_to_itself_is_compared_and_ends() -> None:
    found = compare(lock_text(catalog_of(v1=Tree)), catalog_of(v1=Branch))
    assert ("changed_type", "name") in [(breach.kind, breach.field) for breach in found]


def test_a_version_bump_without_an_upcaster_is_a_breach() -> None:
    (breach,) = compare(lock_text(catalog_of(v1=Moved)), catalog_of(v2=Item))
    assert (breach.kind, breach.version) == ("no_upcaster", 1)


def test_a_bump_by_two_needs_two_upcasters() -> None:
    catalog = catalog_of(v3=Item)
    catalog.upcaster(MOVED, from_version=1)(lambda old: old)
    (breach,) = compare(lock_text(catalog_of(v1=Moved)), catalog)
    assert (breach.kind, breach.version) == ("no_upcaster", 2)


def test_a_removed_upcaster_is_a_breach() -> None:
    (breach,) = compare(lock_text(BUILT_IN), _notes(latest=2))
    assert (breach.kind, breach.version) == ("removed_upcaster", 1)


def test_a_breach_in_an_older_version_is_found() -> None:
    old = catalog_of(v1=Item, v2=Moved)
    new = catalog_of(v1=Tree, v2=Moved)
    for catalog in (old, new):
        catalog.upcaster(MOVED, from_version=1)(lambda payload: payload)
    assert [(breach.kind, breach.version, breach.field) for breach in compare(lock_text(old), new)] == [
        ("removed_field", 1, "count")
    ]


# ---- what only adds


def test_a_new_type_is_an_addition() -> None:
    catalog = catalog_of(v1=Moved)
    locked = lock_text(catalog)
    catalog.include(BUILT_IN)
    assert compare(locked, catalog) == []
    assert [(change.kind, change.type) for change in additions(locked, catalog)] == [("new_type", "note.added")]


def test_a_new_version_with_an_upcaster_is_an_addition_even_without_the_old_model() -> None:
    catalog = catalog_of(v2=Item)
    catalog.upcaster(MOVED, from_version=1)(lambda old: old)
    locked = lock_text(catalog_of(v1=Moved))
    assert compare(locked, catalog) == []
    assert [(change.kind, change.version) for change in additions(locked, catalog)] == [("new_version", 2)]


def test_a_new_field_with_a_default_is_an_addition() -> None:
    locked, catalog = lock_text(catalog_of(v1=Moved)), catalog_of(v1=changed(colour=(str, "")))
    assert compare(locked, catalog) == []
    assert [(change.kind, change.field) for change in additions(locked, catalog)] == [("new_field", "colour")]


@pytest.mark.parametrize(
    "fields",
    [
        {"size": (int | None, None)},
        {"size": (Any, None)},
        {"size": (int, 7)},
        {"went_to": Literal["planned", "doing", "done", "lost"]},
        {"went_to": str},
        {"went_to": (Literal["planned", "doing", "done"], "planned")},
        {"reason": (Annotated[str, msgspec.Meta(max_length=200)], "")},
        {"reason": (str, "")},
    ],
)
def test_to_widen_a_field_is_no_breach(fields: dict[str, Any]) -> None:
    assert breaches_of(**fields) == []


# ---- refusing


def test_all_breaches_are_refused_at_once_with_a_way_out() -> None:
    with pytest.raises(SchemaBroken) as refused:
        require_compatible(lock_text(catalog_of(v1=Moved)), catalog_of(v1=changed(size=None, colour=str)))
    error = refused.value
    assert error.what == "2 changes break the schema lock"
    assert "workpackage.moved version 1, field size: the field is gone" in error.why
    assert "field colour" in error.why
    assert "bump the version and add an upcaster" in error.hint
    assert "everlog schema lock" in error.hint
    assert [found["kind"] for found in error.details["breaches"]] == ["removed_field", "new_required_field"]


def test_a_compatible_catalog_is_not_refused() -> None:
    require_compatible(lock_text(catalog_of(v1=Moved)), catalog_of(v1=changed(colour=(str, ""))))


def test_a_breach_reads_as_a_sentence() -> None:
    breach = Breach(kind="removed_field", type=MOVED, version=1, field="size", text="the field is gone")
    assert str(breach) == "workpackage.moved version 1, field size: the field is gone"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 1}', '{"format": 1, "types": {"a.b": {}}}'])
def test_a_lock_that_cannot_be_read_is_never_taken_for_an_empty_one(text: str) -> None:
    with pytest.raises(InvalidSettings):
        compare(text, BUILT_IN)


def test_a_lock_of_a_newer_format_is_refused_as_such() -> None:
    with pytest.raises(NewerFormat):
        compare('{"format": 2, "types": 3}', BUILT_IN)


def _notes(*, latest: int) -> Catalog:
    """The built-in notes without their upcaster."""
    from everlog.catalog.builtin import NoteAdded, NoteAddedV1

    catalog = Catalog()
    catalog.event("note.added", version=1)(NoteAddedV1)
    if latest == 2:
        catalog.event("note.added", version=2)(NoteAdded)
    return catalog
