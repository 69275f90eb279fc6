"""The pure parts of snapshots: patches, thinning, triggers, fingerprints, files."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlog.core.canonical import canonical
from everlog.errors import Damaged
from everlog.views.snapshots.patch import Body, apply_patch, make_patch

# ---- patches

keys = st.text(max_size=3) | st.sampled_from(["a/b", "a~b", "~1", "/", ""])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=10,
)
rows = st.dictionaries(keys, values.map(lambda state: canonical([1, 0, "", None, state])), max_size=5)
bodies = st.builds(
    lambda rows, places: {"rows": rows, "places": places, "letters": {}},
    rows,
    st.dictionaries(keys, st.text("0123456789abcdef", max_size=4).map(canonical), max_size=3),
)


@given(bodies, bodies)
def test_a_patch_leads_from_any_body_to_any_other(base: Body, body: Body) -> None:
    assert apply_patch(base, make_patch(base, body)) == {
        section: dict(sorted(members.items())) for section, members in body.items()
    }


@given(values, values)
def test_a_patch_of_one_state_does_what_rfc_6902_says(was: Any, now: Any) -> None:
    """Applied by another, plainer hand: on the decoded document, operation by operation."""
    base: Body = {"rows": {"k": canonical([1, 0, "", None, was])}, "places": {}, "letters": {}}
    body: Body = {"rows": {"k": canonical([2, 0, "", ["s"], now])}, "places": {}, "letters": {}}
    document: Any = {"rows": {"k": [1, 0, "", None, was]}, "places": {}, "letters": {}}
    document = json.loads(json.dumps(document))
    for op in json.loads(make_patch(base, body)):
        parts = [part.replace("~1", "/").replace("~0", "~") for part in op["path"].split("/")[1:]]
        target = document
        for part in parts[:-1]:
            target = target[int(part)] if isinstance(target, list) else target[part]
        last = parts[-1]
        if op["op"] == "remove":
            del target[int(last) if isinstance(target, list) else last]
        elif isinstance(target, list):
            if last == "-":
                target.append(op["value"])
            else:
                assert op["op"] == "replace"
                target[int(last)] = op["value"]
        else:
            assert (last in target) == (op["op"] == "replace")
            target[last] = op["value"]
    assert canonical(document["rows"]["k"]) == body["rows"]["k"]


def test_a_list_that_grew_costs_what_was_added() -> None:
    long = list(range(1000))
    base: Body = {"rows": {"k": canonical([1, 0, "", None, {"l": long}])}, "places": {}, "letters": {}}
    body: Body = {"rows": {"k": canonical([2, 0, "", None, {"l": [*long, 7]}])}, "places": {}, "letters": {}}
    assert len(make_patch(base, body)) < 150


@pytest.mark.parametrize(
    "patch",
    [
        b'[{"op":"remove","path":"/rows/none"}]',
        b'[{"op":"replace","path":"/rows/k/9","value":1}]',
        b'[{"op":"add","path":"/rows/k"}]',
        b'[{"op":"move","path":"/rows/k/0","value":1}]',
        b'[{"op":"add","path":"","value":1}]',
        b'[{"op":"add","path":"/nowhere/k","value":1}]',
        b"[{",
        b"{}",
    ],
)
def test_a_patch_that_does_not_fit_is_damage(patch: bytes) -> None:
    base: Body = {"rows": {"k": canonical([1, 0, "", None, {}])}, "places": {}, "letters": {}}
    with pytest.raises(Damaged):
        apply_patch(base, patch)


# ---- thinning and triggers


# ---- fingerprints
