"""What is seen of payloads: in any order the same shape, which every payload fits, and its declaration accepts."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlog.catalog.declared import declare, read_types
from everlog.catalog.seen import (
    COLUMNS_MAX,
    FIELDS_MAX,
    declaration,
    json_schema,
    merged,
    merged_all,
    misfit,
    shape_of,
    united,
)

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "a", "2026-11-01T10:00:00Z", "2026-11-01"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
PAYLOADS = st.lists(st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3), min_size=1, max_size=5)


@given(PAYLOADS, st.randoms(use_true_random=False))
def test_in_any_order_the_shape_is_the_same_and_every_payload_fits(payloads: list[Any], rnd: Any) -> None:
    shapes = list(map(shape_of, payloads))
    whole = reduce(merged, shapes)
    cut = rnd.randint(0, len(shapes))
    rnd.shuffle(shapes)
    parts = [part for part in (merged_all(shapes[:cut]), merged_all(shapes[cut:])) if part is not None]
    assert merged_all(parts) == whole
    assert [misfit(whole, payload) for payload in payloads] == [""] * len(payloads)


@given(PAYLOADS, st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=3))
def test_a_payload_that_fits_changes_no_column_and_one_that_does_not_changes_the_shape(
    payloads: list[Any], other: Any
) -> None:
    whole = reduce(merged, map(shape_of, payloads))
    wider = merged(whole, shape_of(other))
    assert json_schema(wider) == json_schema(whole) if misfit(whole, other) == "" else wider != whole


@given(PAYLOADS)
def test_what_was_seen_fits_its_declaration(payloads: list[Any]) -> None:
    fields = declaration(reduce(merged, map(shape_of, payloads)))
    catalog = read_types(declare("", "thing.seen", fields))
    for payload in payloads:
        catalog.validate("thing.seen", payload)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, None, 2.5], "number"),
        (["2026-11-01T10:00:00Z", "2026-11-01T10:00:00.5+01:00"], "string"),
        ([1, "a"], None),
        ([{"a": 1}, [1]], None),
        ([None], None),
        ([dict.fromkeys(map(str, range(FIELDS_MAX + 1)))], None),
    ],
)
def test_values_that_contradict_each_other_have_no_type(values: list[Any], expected: str | None) -> None:
    assert json_schema(reduce(merged, map(shape_of, values))).get("type") == expected


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("2026-11-01T10:00:00.123456+14:00", "time"),
        ("2026-02-30T10:00:00Z", "text"),
        ("2026-11-01T10:00:00+99:99", "text"),
        ("0000-11-01T10:00:00Z", "text"),
        ("0001-01-01T00:00:00+01:00", "text"),
        ("9999-12-31T23:59:59-01:00", "text"),
        ("٢٠٢٦-11-01T10:00:00Z", "text"),
        ("2026-11-01T24:00:01Z", "text"),
        ("2026-11-01T10:00:00.1234567Z", "text"),
    ],
)
def test_a_time_is_one_that_a_timestamp_in_utc_can_hold(text: str, kind: str) -> None:
    assert shape_of(text).kind == kind


def test_payloads_with_too_many_columns_are_left_out_and_the_others_are_merged() -> None:
    wide = dict.fromkeys(map(str, range(FIELDS_MAX + 1)), 1)
    deep = {name: [dict.fromkeys(map(str, range(FIELDS_MAX)), 1)] for name in "abcd"}
    assert FIELDS_MAX * len(deep) > COLUMNS_MAX
    assert united(map(shape_of, [wide, {"n": 1}, deep, {"m": 2}])) == merged(shape_of({"n": 1}), shape_of({"m": 2}))
    assert united([shape_of(wide)]) is None
