from __future__ import annotations

import dataclasses
import enum
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlog.catalog import Catalog
from everlog.core.text import below
from everlog.errors import InvalidPayload


class Colour(enum.Enum):
    RED = "red"


class Item(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    count: int = 0


class Circle(msgspec.Struct, tag="circle"):
    radius: float


class Square(msgspec.Struct, tag="square"):
    side: float


@dataclasses.dataclass
class Place:
    city: str = ""


class Order(msgspec.Struct, rename={"placed_by": "placedBy"}):
    placed_by: str
    items: Annotated[list[Item], msgspec.Meta(max_length=3)] = []
    by_code: dict[str, Item] = {}
    lane: Literal["planned", "doing"] | None = None
    colour: Colour | None = None
    first: Item | None = None
    shape: Circle | Square | None = None
    pair: tuple[Item, ...] = ()
    place: Place | None = None
    size: int | str = 0
    free: Any = None


def defects_of(payload: dict[str, Any], model: type[msgspec.Struct] = Order) -> list[tuple[str, str]]:
    catalog = Catalog()
    catalog.event("order.placed")(model)
    with pytest.raises(InvalidPayload) as refused:
        catalog.validate("order.placed", payload)
    return refused.value.defects


def test_all_defects_are_reported_at_once() -> None:
    assert defects_of({"items": [{"name": "a"}, {"name": 3, "cuont": 1}, {}], "lane": "dong", "size": 1.5}) == [
        ("$.placedBy", "it is missing"),
        ("$.items[1].name", "expected str, got int"),
        ("$.items[1].cuont", "there is no such field; did you mean count?"),
        ("$.items[2].name", "it is missing"),
        ("$.lane", "it is not one of 'planned', 'doing'; did you mean doing?"),
        ("$.size", "expected int | str, got float"),
    ]


@pytest.mark.parametrize(
    ("field", "value", "path", "reason"),
    [
        ("items", [{"name": ""}], "$.items[0].name", "expected str of length >= 1"),
        ("items", [{"name": "a"}] * 4, "$.items", "expected array of length <= 3"),
        ("items", {"name": "a"}, "$.items", "expected array, got object"),
        ("by_code", {"a b": {"name": 1}}, '$.by_code["a b"].name', "expected str, got int"),
        ("colour", "green", "$.colour", "it is not one of 'red'"),
        ("colour", 1.5, "$.colour", "expected str | null, got float"),
        ("first", {"name": "a", "count": "b"}, "$.first.count", "expected int, got str"),
        ("first", 3, "$.first", "expected object | null, got int"),
        ("shape", {"type": "square", "side": "x"}, "$.shape.side", "expected float, got str"),
        ("shape", {"type": "star"}, "$.shape.type", "invalid value 'star'"),
        ("pair", [{"name": "a"}, {"name": None}], "$.pair[1].name", "expected str, got null"),
        ("plaecdBy", 1, "$.plaecdBy", "there is no such field; did you mean placedBy?"),
        ("free", {"deep": [object()]}, "$.free.deep[0]", "a object is not a JSON value"),
    ],
)
def test_each_defect_has_its_path_and_reason(field: str, value: Any, path: str, reason: str) -> None:
    assert defects_of({"placedBy": "ada", field: value}) == [(path, reason)]


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("first", {"name": "a", "colour": "red"}, "$.first.colour"),
        ("items", [{"name": "a"}, {"name": "a", "x": 1}], "$.items[1].x"),
        ("by_code", {"k": {"name": "a", "x": 1}}, "$.by_code.k.x"),
        ("shape", {"type": "circle", "radius": 1.0, "side": 2.0}, "$.shape.side"),
        ("pair", [{"name": "a", "x": None}], "$.pair[0].x"),
        ("place", {"city": "Rome", "street": "x"}, "$.place.street"),
    ],
)
def test_an_unknown_field_below_the_top_does_not_vanish(field: str, value: Any, path: str) -> None:
    (defect,) = defects_of({"placedBy": "ada", field: value})
    assert defect[0] == path
    assert defect[1].startswith("there is no such field; the fields are")


def test_a_tag_shows_which_model_of_several_was_meant() -> None:
    assert defects_of({"placedBy": "ada", "shape": {"type": "square", "side": "x", "sied": 1}}) == [
        ("$.shape.side", "expected float, got str"),
        ("$.shape.sied", "there is no such field; did you mean side?"),
    ]


def test_a_models_own_rule_speaks_when_every_field_is_right() -> None:
    class Span(msgspec.Struct):
        start: int
        end: int

        def __post_init__(self) -> None:
            if self.end < self.start:
                raise ValueError("the end is before the start")

    assert defects_of({"start": 2, "end": 1}, Span) == [("$", "the end is before the start")]
    assert defects_of({"start": 2, "end": "x"}, Span) == [("$.end", "expected int, got str")]


def test_a_free_field_keeps_whatever_json_it_is_given() -> None:
    catalog = Catalog()
    catalog.event("order.placed")(Order)
    free = {"a": [{"b": None}], "first": {"unknown": 1}}
    assert catalog.validate("order.placed", {"placedBy": "ada", "free": free})[1]["free"] == free


def test_the_error_carries_the_defects_for_programs() -> None:
    catalog = Catalog()
    catalog.event("order.placed")(Order)
    with pytest.raises(InvalidPayload) as refused:
        catalog.validate("order.placed", {})
    assert refused.value.details["defects"] == [{"path": "$.placedBy", "reason": "it is missing"}]
    assert refused.value.hint == "everlog schema show order.placed"


class Flat(msgspec.Struct):
    text: str
    number: int
    flag: bool
    ratio: float | None


_RIGHT: dict[str, st.SearchStrategy[Any]] = {
    "text": st.text(max_size=5),
    "number": st.integers(-9, 9),
    "flag": st.booleans(),
    "ratio": st.none() | st.floats(0, 1),
}
_WRONG: dict[str, Any] = {"text": 1, "number": "1", "flag": 0, "ratio": "x"}


@given(payload=st.fixed_dictionaries(_RIGHT), wrong=st.sets(st.sampled_from(sorted(_WRONG)), min_size=1))
def test_exactly_the_wrong_fields_are_named(payload: dict[str, Any], wrong: set[str]) -> None:
    found = defects_of(payload | {name: _WRONG[name] for name in wrong}, Flat)
    assert {path for path, _ in found} == {f"$.{name}" for name in wrong}
    assert len(found) == len(wrong)


def test_an_odd_key_is_quoted_in_a_path() -> None:
    assert below("$", "a") == "$.a"
    assert below("$.a", 3) == "$.a[3]"
    assert below("$", 'a "b"') == '$["a \\"b\\""]'


def test_a_pattern_is_described_in_the_words_of_its_field() -> None:
    class Labeled(msgspec.Struct):
        label: Annotated[str, msgspec.Meta(pattern="^[a-z]+$", description="a label of a-z")]
        other: Annotated[str, msgspec.Meta(pattern="^[a-z]+$")] = "a"
        length: Annotated[str, msgspec.Meta(max_length=1, description="a letter")] = "a"

    assert defects_of({"label": "A B", "other": "A", "length": "ab"}, Labeled) == [
        ("$.label", "it is not a label of a-z"),
        ("$.other", "expected str matching regex '^[a-z]+$'"),
        ("$.length", "expected str of length <= 1"),
    ]
