"""One JSON form for every value, byte for byte that of RFC 8785, and a refusal with a path for what has none."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from everlog.core.canonical import DEPTH_MAX, NUMBER_MAX, canonical, canonical_all, parse_json, parse_json_lines
from everlog.errors import NotCanonical

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.integers(-NUMBER_MAX, NUMBER_MAX) | st.floats(
    -NUMBER_MAX, NUMBER_MAX, allow_nan=False, allow_infinity=False
)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=20,
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-NUMBER_MAX, NUMBER_MAX) | st.text(st.characters(max_codepoint=127)),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(st.characters(max_codepoint=127)), inner, max_size=5)
    ),
    max_leaves=20,
)


def nested(depth: int, leaf: Any = 1) -> Any:
    value = leaf
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


@given(VALUES)
def test_the_bytes_are_those_of_the_rfc(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)


@given(PLAIN)
def test_the_fast_way_for_plain_values_gives_the_same_bytes(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)


@given(st.lists(st.dictionaries(TEXTS, PLAIN | VALUES), max_size=4))
def test_many_values_at_once_give_the_same_bytes_as_each_alone(values: list[dict[str, Any]]) -> None:
    assert canonical_all(values) == list(map(canonical, values))


@pytest.mark.parametrize("wrong", [2**53, float("nan"), "\ud800", b"bytes"])
def test_of_many_values_at_once_the_one_without_a_form_is_refused(wrong: Any) -> None:
    with pytest.raises(NotCanonical):
        canonical_all([{"a": "x"}, {"a": wrong}])


def test_every_control_character_is_escaped_as_the_rfc_says() -> None:
    every = "".join(map(chr, range(256)))
    assert canonical([every, every[:128]]) == rfc8785.dumps([every, every[:128]])


@given(st.floats(-NUMBER_MAX, NUMBER_MAX) | st.floats(-1e-3, 1e-3))
def test_a_number_with_a_fraction_is_printed_as_the_rfc_says(number: float) -> None:
    assert canonical({"n": [number]}) == rfc8785.dumps({"n": [number]})


def test_small_fractions_have_an_exponent_from_the_seventh_place_on() -> None:
    numbers = [0.0001, 0.00001, -0.0000015, 0.000001, 0.0000001, -1.5e-7, 1e-10, 5e-324]
    printed = b"[0.0001,0.00001,-0.0000015,0.000001,1e-7,-1.5e-7,1e-10,5e-324]"
    assert canonical(numbers) == printed == rfc8785.dumps(numbers)


def test_names_are_sorted_as_the_rfc_says_beside_fractions_too() -> None:
    value: Any = {"\ue000": 1.5, "\U0001f600": 2, "é": 0.5, "z": "größer", "a": [0.25]}
    assert canonical(value) == rfc8785.dumps(value)


@pytest.mark.parametrize("value", [{"a": ["x\ud800"]}, {"a": {"\udfff": 1}}, {"a": [1.5, "x\ud800"]}])
def test_a_lone_surrogate_is_named_whatever_stands_beside_it(value: Any) -> None:
    with pytest.raises(NotCanonical, match="lone surrogate"):
        canonical(value)


@pytest.mark.parametrize("text", ['["\\ud800"]', '["\\uDFFF größer"]', '["\ud800"]', '[1, {"\\udead": 2}]'])
def test_a_lone_surrogate_in_json_text_is_refused_as_an_escape_and_as_it_is(text: str) -> None:
    with pytest.raises(NotCanonical, match="lone surrogate"):
        parse_json(text)


def test_a_pair_of_escaped_surrogates_is_one_character() -> None:
    assert parse_json('["\\ud83d\\ude00"]') == ["\U0001f600"]


_TEXTS = (
    '"a"',
    '"x:y"',
    '""',
    '"\\""',
    '"é\U0001f600"',
    "0",
    "-0",
    "1.0",
    "9007199254740993",
    "true",
    "null",
    "NaN",
    "\x01",
)
_PIECES = (
    *_TEXTS,
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    " ",
    "\n",
    '"a":1',
    '"a":{"b":":"}',
    '"a":1,"a":2',
    '{"a":1,"b":[]}',
)


@given(st.lists(st.sampled_from(_PIECES), max_size=9).map("".join))
def test_text_is_read_in_the_same_way_with_and_without_an_escape_in_it(text: str) -> None:
    """An escape has the text read by another, slower parser, which sees every key."""
    found = []
    for beside in ('"a"', '"\\u0061"'):
        try:
            found.append(repr(parse_json(f"[{text},{beside}]")))
        except NotCanonical:
            found.append("refused")
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "text", ['{"a":1,"a":1}', '{"a":":","a":1}', '[{"a:b":1,"a:b":"::"}]', '{"a":{"a":1,"a":2}}']
)
def test_a_key_that_appears_twice_is_refused_beside_colons_in_texts(text: str) -> None:
    with pytest.raises(NotCanonical, match="twice"):
        parse_json(text)


_LINES = (
    '{"a":1}',
    '{"a":{}}',
    "{",
    "}",
    '"a":1}',
    '{"a":[{}',
    "]}",
    ",",
    "",
    " ",
    '{"a":1,"a":2}',
    '{"b":"::"}',
    "\r",
)


@given(st.lists(st.lists(st.sampled_from(_LINES), max_size=3).map("".join), max_size=5))
def test_lines_are_read_at_once_as_they_are_read_one_by_one(lines: list[str]) -> None:
    """An empty object in the second case has the lines read one by one: it begins with a space."""
    found = []
    for first in ("{}", " {}"):
        try:
            found.append(repr(parse_json_lines("\n".join([first, *lines]).encode(), lines_max=100)))
        except NotCanonical:
            found.append("refused")
    assert found[0] == found[1]


@pytest.mark.parametrize("text", ['{"a":1}{"a":2}', '{"a":1}{"a":[{}\n]}', '{"a":1\n}', '{"a":1}\n{"a":1,"a":2}'])
def test_lines_that_are_not_one_object_each_are_refused(text: str) -> None:
    with pytest.raises(NotCanonical):
        parse_json_lines(text.encode(), lines_max=100)


def test_deep_lines_are_refused_at_the_same_depth_as_one_text() -> None:
    for around in (0, 1):
        fine, deep = (b'{"a":' * (DEPTH_MAX + n) + b"1" + b"}" * (DEPTH_MAX + n) for n in (around, around + 1))
        assert (
            parse_json_lines(fine + b"\n" + fine, levels_around=around, lines_max=9)
            == [parse_json(fine, levels_around=around)] * 2
        )
        with pytest.raises(NotCanonical, match="deeper"):
            parse_json_lines(fine + b"\n" + deep, levels_around=around, lines_max=9)


@given(VALUES)
def test_canonical_bytes_read_back_as_the_same_value(value: Any) -> None:
    once = canonical(value)
    again = parse_json(once)
    assert canonical(again) == once


def test_keys_are_sorted_by_utf_16_and_not_by_code_point() -> None:
    """The one order in which plain sorting and RFC 8785 differ."""
    assert canonical({"\ue000": 1, "\U0001f600": 2}).decode() == '{"\U0001f600":2,"\ue000":1}'


def test_numbers_have_one_form() -> None:
    assert canonical([1.0, 1, 1e0, -0.0, 0.0, 1e-7, 123456789.5]) == b"[1,1,1,0,0,1e-7,123456789.5]"


@pytest.mark.parametrize("number", [NUMBER_MAX, -NUMBER_MAX, float(NUMBER_MAX), -float(NUMBER_MAX)])
def test_numbers_up_to_the_last_exact_one_are_accepted(number: float) -> None:
    assert canonical({"n": number}) == b'{"n":%d}' % int(number)
    assert parse_json(b"%d" % int(number)) == number


@pytest.mark.parametrize(
    "number", [2**53, -(2**53), 2**63, 10**400, 2.0**53, -(2.0**53), 1e300, math.inf, -math.inf, math.nan]
)
def test_numbers_that_readers_would_round_are_refused_with_their_path(number: float) -> None:
    with pytest.raises(NotCanonical) as refusal:
        canonical({"list": [0, {"odd name": number}]})
    assert refusal.value.path == '$.list[1]["odd name"]'
    assert refusal.value.details["path"] == refusal.value.path


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ('{"a":{"b":1,"b":2}}', "$.a.b", "twice"),
        ('{"a":1,"a":1}', "$.a", "twice"),
        ('{"a":[NaN]}', "$.a[0]", "NaN"),
        ("[Infinity]", "$[0]", "Infinity"),
        ("[-Infinity]", "$[0]", "-Infinity"),
        ("[1e400]", "$[0]", "too large"),
        ("[9007199254740992]", "$[0]", "2^53"),
        ("[-9007199254740992]", "$[0]", "2^53"),
        ("[9007199254740992.0]", "$[0]", "2^53"),
        ("[12345678901234567890]", "$[0]", "2^53"),
        ('["\\ud800"]', "$[0]", "surrogate"),
        ('{"x":{"\\udc00":1}}', "a key of $.x", "surrogate"),
        ('{"a":', "$", "not JSON"),
        ("", "$", "not JSON"),
        ("{'a':1}", "$", "not JSON"),
        ("[1,]", "$", "not JSON"),
        ("\ufeff[]", "$", "not JSON"),
    ],
)
def test_json_that_two_readers_could_read_differently_is_refused_with_its_path(
    text: str, path: str, reason: str
) -> None:
    for data in (text, text.encode()):
        with pytest.raises(NotCanonical) as refusal:
            parse_json(data)
        assert refusal.value.path == path
        assert reason in refusal.value.reason


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": ["ok", "\ud800"]}, "$.a[1]"),
        ({"a": {"\udfff": 1}}, "a key of $.a"),
        ({"a": {1: "x"}}, "$.a"),
        ({"a": {None: "x"}}, "$.a"),
        ({"a": b"bytes"}, "$.a"),
        ({"a": bytearray(b"x")}, "$.a"),
        ({"a": {"x"}}, "$.a"),
        ({"a": 1 + 2j}, "$.a"),
        ([object()], "$[0]"),
    ],
)
def test_python_values_without_a_json_form_are_refused_with_their_path(value: Any, path: str) -> None:
    with pytest.raises(NotCanonical) as refusal:
        canonical(value)
    assert refusal.value.path == path


def test_bytes_that_are_not_utf_8_are_refused_by_their_place() -> None:
    with pytest.raises(NotCanonical, match="byte 2 is not UTF-8"):
        parse_json(b'["\xff"]')
    with pytest.raises(NotCanonical):
        parse_json('["x"]'.encode("utf-16"))


@pytest.mark.parametrize("leaf", [1, 1.5, "é"])
def test_sixty_four_levels_are_fine_and_sixty_five_are_not(leaf: Any) -> None:
    """Whether the fast way or the careful one looks at it."""
    assert DEPTH_MAX == 64
    fine, too_deep = nested(64, leaf), nested(65, leaf)
    assert parse_json(json.dumps(fine)) == fine
    assert canonical(fine) == rfc8785.dumps(fine)
    for attempt in (lambda: canonical(too_deep), lambda: parse_json(json.dumps(too_deep))):
        with pytest.raises(NotCanonical, match="deeper than 64"):
            attempt()


def test_a_value_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(NotCanonical, match="deeper than 64"):
        canonical(endless)


@pytest.mark.parametrize(
    "bomb",
    [
        "[" * 100_000 + "]" * 100_000,
        '{"a":' * 100_000 + "1" + "}" * 100_000,
        "[" * 100_000,
        "[" + "9" * 100_000 + "]",
        "[-" + "9" * 100_000 + "]",
        "[1." + "9" * 100_000 + "e999]",
    ],
    ids=["arrays", "objects", "unclosed", "digits", "negative", "float"],
)
def test_bombs_are_refused_at_once(bomb: str) -> None:
    begun = time.perf_counter()
    with pytest.raises(NotCanonical):
        parse_json(bomb)
    assert time.perf_counter() - begun < 1


def test_a_number_with_a_very_long_fraction_is_read_like_its_short_form() -> None:
    assert parse_json("[0." + "1" * 100_000 + "]") == [float("0." + "1" * 30)]
