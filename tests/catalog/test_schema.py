from __future__ import annotations

import enum
from typing import Annotated, Any, Literal

import msgspec
import pytest

from everlog.catalog import Catalog
from everlog.catalog.builtin import BUILT_IN
from everlog.errors import UnknownType


class Size(enum.Enum):
    SMALL = "small"


class Item(msgspec.Struct):
    name: str


class Made(msgspec.Struct):
    """It was made."""

    items: list[Item]
    extra: dict[str, Any] = {}
    counts: dict[str, int] = {}
    size: Size = Size.SMALL
    lane: Literal["doing", "to do"] = "doing"
    note: Annotated[str, msgspec.Meta(description="What for.")] | None = None
    anything: Any = None


class Tree(msgspec.Struct):
    children: list[Tree] = []


def a_catalog() -> Catalog:
    catalog = Catalog()
    catalog.event("thing.made")(Made)
    catalog.event("tree.grown")(Tree)
    return catalog


def test_one_type_is_an_object_with_its_definitions() -> None:
    schema = a_catalog().json_schema("thing.made")
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert (schema["title"], schema["x-event-version"], schema["description"]) == ("thing.made", 1, "It was made.")
    assert (schema["type"], schema["required"], schema["additionalProperties"]) == ("object", ["items"], False)
    assert schema["properties"]["items"] == {"type": "array", "items": {"$ref": "#/$defs/Item"}}
    assert schema["$defs"]["Item"] == {
        "type": "object",
        "properties": {"name": {"type": "string"}},
        "required": ["name"],
        "additionalProperties": False,
    }
    assert set(schema["$defs"]) == {"Item", "Size"}


def test_an_older_version_has_its_schema_too() -> None:
    assert list(BUILT_IN.json_schema("note.added", version=1)["properties"]) == ["body"]
    assert list(BUILT_IN.json_schema("note.added")["properties"]) == ["text", "topic"]


@pytest.mark.parametrize(("event_type", "version"), [("note.aded", None), ("note.added", 9), ("never", 1)])
def test_a_schema_of_what_is_not_known_is_refused(event_type: str, version: int | None) -> None:
    with pytest.raises(UnknownType):
        BUILT_IN.json_schema(event_type, version=version)


def test_all_types_are_one_document_whose_references_lead_somewhere() -> None:
    schema = a_catalog().json_schema()
    assert set(schema["$defs"]) == {
        "thing.made",
        "thing.made:Item",
        "thing.made:Size",
        "tree.grown",
        "tree.grown:Tree",
    }
    references = set(_references(schema))
    assert {reference.removeprefix("#/$defs/") for reference in references} == set(schema["$defs"])
    assert [event["properties"]["type"]["enum"] for event in schema["oneOf"]] == [["thing.made"], ["tree.grown"]]


def test_models_of_one_name_do_not_overwrite_each_other() -> None:
    first = msgspec.defstruct("Item", [("a", int)])
    second = msgspec.defstruct("Item", [("b", int)])
    catalog = Catalog()
    catalog.event("one.made")(msgspec.defstruct("Made", [("item", first)]))
    catalog.event("two.made")(msgspec.defstruct("Made", [("item", second)]))
    definitions = catalog.json_schema()["$defs"]
    assert list(definitions["one.made:Item"]["properties"]) == ["a"]
    assert list(definitions["two.made:Item"]["properties"]) == ["b"]


def test_an_empty_catalog_has_an_empty_document() -> None:
    assert Catalog().json_schema()["$defs"] == {}
    assert "oneOf" not in Catalog().json_schema()


def test_fields_are_described_in_the_words_of_declared_types() -> None:
    info = a_catalog().types()[0]
    assert [(field.name, field.type) for field in info.fields] == [
        ("items", "list[Item]"),
        ("extra", "object"),
        ("counts", "object of int"),
        ("size", "small"),
        ("lane", 'doing | "to do"'),
        ("note", "str?"),
        ("anything", "any"),
    ]
    assert [field.name for field in info.fields if field.required] == ["items"]
    assert info.fields[4].default == "doing"


def _references(schema: Any) -> list[str]:
    if isinstance(schema, dict):
        own = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
        return own + [found for value in schema.values() for found in _references(value)]
    if isinstance(schema, list):
        return [found for value in schema for found in _references(value)]
    return []
