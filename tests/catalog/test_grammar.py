from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlog.catalog.grammar import TYPE_NAMES, Field, FieldError, FieldType, parse_field

_texts = st.text(st.characters(codec="utf-8"), max_size=8)
_types = st.recursive(
    st.builds(
        lambda name, nullable: FieldType(name=name, nullable=nullable),
        st.sampled_from(TYPE_NAMES),
        st.booleans(),
    )
    | st.builds(
        lambda choices, nullable: FieldType(choices=tuple(choices), nullable=nullable),
        st.lists(
            _texts | st.sampled_from(["str", "list", "in review", "a", "b"]), min_size=1, max_size=4, unique=True
        ),
        st.booleans(),
    ),
    lambda items: st.builds(
        lambda item, nullable: FieldType(name="list", item=item, nullable=nullable), items, st.booleans()
    ),
    max_leaves=4,
)
_values: dict[str, st.SearchStrategy[Any]] = {
    "str": _texts,
    "int": st.integers(-(2**53) + 1, 2**53 - 1),
    "float": st.floats(-1e15, 1e15),
    "bool": st.booleans(),
    "object": st.dictionaries(_texts, st.integers(0, 9), max_size=2),
    "any": _texts | st.booleans(),
}


def _value_of(found: FieldType) -> st.SearchStrategy[Any]:
    if found.choices:
        return st.sampled_from(found.choices)
    if found.name == "list":
        return st.lists(_value_of(found.item) if found.item else _texts, max_size=2)
    return _values[found.name]


@given(found=_types, data=st.data())
def test_what_is_written_is_read_back(found: FieldType, data: st.DataObject) -> None:
    plain = Field(type=found, required=not found.nullable)
    assert parse_field(str(plain)) == plain
    with_default = Field(type=found, required=False, default=data.draw(_value_of(found)))
    assert parse_field(str(with_default)) == with_default


@given(found=_types, data=st.data())
def test_a_value_of_the_type_is_accepted_by_its_annotation(found: FieldType, data: st.DataObject) -> None:
    value = data.draw(_value_of(found))
    assert msgspec.convert(value, found.annotation()) == value
    if found.nullable:
        assert msgspec.convert(None, found.annotation()) is None


@given(st.text(max_size=20) | st.text(st.sampled_from("ab |[]?='\"strlist"), max_size=20))
def test_any_text_is_read_or_refused_with_a_reason(text: str) -> None:
    try:
        found = parse_field(text)
    except FieldError as error:
        assert str(error)  # noqa: PT017 - either outcome is right; what matters is that there is no third
    else:
        assert parse_field(str(found)) == found


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("str", "str"),
        (" list [ str ] = [ ] ", "list[str] = []"),
        ("str = ''", 'str = ""'),
        ("str = 'it = so'", 'str = "it = so"'),
        ("int?", "int?"),
        ("int? = 3", "int? = 3"),
        ("int? = null", "int?"),
        ("float = 1", "float = 1.0"),
        ("a|b | c", "a | b | c"),
        ("a | b = b", 'a | b = "b"'),
        ("'in review' | \"str\"", '"in review" | "str"'),
        ("planned | doing?", "planned | doing?"),
        ("list[a | b?]?", "list[a | b?]?"),
        ('object = {"a": [1]}', 'object = {"a": [1]}'),
        ("any?", "any?"),
        ("für | später", "für | später"),
        ('"only"', '"only"'),
    ],
)
def test_the_words_of_a_field(text: str, written: str) -> None:
    assert str(parse_field(text)) == written


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "a type is expected at the end"),
        ("strr", "strr is not a type, and a choice has several texts, as strr | other; did you mean str?"),
        ("planned", "the types are str, int, float, bool, object, list, any"),
        ("str | int", 'write "str" in quotes'),
        ("a | a", "the choice 'a' appears twice"),
        ("a |", "a type is expected at the end"),
        ("list[]", "a type is expected before ]"),
        ("list[str", "a ] is missing after list[str"),
        ("str]", "']' does not belong after str"),
        ("str str", "'str' does not belong after str"),
        ("int[str]", "'[' does not belong after int"),
        ("a & b", "'& b' cannot be read"),
        ("str =", "a default is missing after ="),
        ("str = hello", "a text needs quotes: 'hello'"),
        ("int = 1.5", "the default 1.5 is not a int"),
        ("int = null", "the default null needs a ?, as in int?"),
        ("a | b = c", "a text needs quotes"),
        ("a | b = 'c'", "the default 'c' is not a a | b"),
        ("int = 9007199254740993", "is not JSON"),
        ("float = NaN", "is not JSON"),
        ("list[" * 20 + "str" + "]" * 20, "nested at most"),
    ],
)
def test_a_refused_field_says_what_would_be_right(text: str, reason: str) -> None:
    with pytest.raises(FieldError) as refused:
        parse_field(text)
    assert reason in str(refused.value)
