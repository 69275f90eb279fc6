"""The differences between two states: by path, in order, and equal as JSON is."""

from __future__ import annotations

from typing import Any

import pytest

from everlog.core.differences import differences, leaves, same, value_at
from everlog.core.text import path_of


@pytest.mark.parametrize(
    ("was", "now", "paths"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 1.0}, []),
        ({"a": 1}, {"a": True}, ["$.a"]),
        ({"a": 1, "b": 2}, {"b": 3, "c": 4}, ["$.a", "$.b", "$.c"]),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3, 4]}}, ["$.a.b[1]", "$.a.b[2]"]),
        ({"a": {}}, {"a": []}, ["$.a"]),
    ],
)
def test_the_changed_paths_are_found(was: Any, now: Any, paths: list[str]) -> None:
    assert [path_of(found.parts) for found in differences(was, now)] == paths


def test_a_list_can_be_compared_as_a_whole() -> None:
    found = list(differences({"a": [1, 2]}, {"a": [1, 3]}, into_lists=False))
    assert [path_of(one.parts) for one in found] == ["$.a"]


def test_true_is_not_1_but_1_0_is() -> None:
    assert same(1, 1.0)
    assert not same(1, True)
    assert same({"a": [0.5]}, {"a": [0.5]})


def test_a_value_is_found_by_its_path_and_every_leaf_is_listed() -> None:
    state = {"a": {"b": [1, {}]}, "c": "x"}
    assert value_at(state, ("a", "b", 0)) == 1
    assert dict(leaves(state)) == {"$.a.b[0]": 1, "$.a.b[1]": {}, "$.c": "x"}
