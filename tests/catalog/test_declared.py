from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlog.catalog.declared import declare, read_types
from everlog.catalog.lock import compare, lock_text
from everlog.errors import InvalidPayload, InvalidSettings, TransitionRefused

TYPES = """\
# Our work.
[types."workpackage.moved"]
version = 1
doc = "A work package went from one lane to another."
fields = { came_from = "str", went_to = "planned | doing | for_review | done", reason = "str = ''", \
tags = "list[str] = []", size = "int?" }
transitions = { kind = "workpackage", field = "went_to", initial = "planned", \
allowed = { planned = ["doing"], doing = ["for_review", "planned"] } }
"""


def problems_of(text: str) -> str:
    with pytest.raises(InvalidSettings) as refused:
        read_types(text, source="team/types.toml")
    assert "team/types.toml" in refused.value.what
    assert refused.value.hint
    return refused.value.why


# ---- reading


def test_declared_types_work_like_those_in_python() -> None:
    catalog = read_types(TYPES, source="types.toml")
    payload: dict[str, Any] = {"came_from": "planned", "went_to": "doing"}
    expected = payload | {"reason": "", "tags": [], "size": None}
    assert catalog.validate("workpackage.moved", payload) == (1, expected)
    (info,) = catalog.types()
    assert (info.doc, info.model) == ("A work package went from one lane to another.", "WorkpackageMoved")
    assert [field.name for field in info.fields if field.required] == ["came_from", "went_to"]
    assert catalog.check() == []


def test_declared_fields_are_checked() -> None:
    catalog = read_types(TYPES, source="types.toml")
    with pytest.raises(InvalidPayload) as refused:
        catalog.validate("workpackage.moved", {"went_to": "dnoe", "tags": ["a", 1], "size": "big", "resaon": ""})
    assert [path for path, _ in refused.value.defects] == [
        "$.came_from",
        "$.went_to",
        "$.tags[1]",
        "$.size",
        "$.resaon",
    ]


def test_declared_transitions_hold() -> None:
    rule = read_types(TYPES, source="types.toml").transition_rule("workpackage", "workpackage.moved")
    assert rule is not None
    rule.check("workpackage/WP03", "planned", "doing")
    with pytest.raises(TransitionRefused):
        rule.check("workpackage/WP03", "planned", "done")


def test_a_default_object_is_not_shared_between_payloads() -> None:
    catalog = read_types('[types."a.made"]\nfields = { x = \'object = {"k": [1]}\' }', source="types.toml")
    first, second = (catalog.validate("a.made", {})[1] for _ in range(2))
    first["x"]["k"].append(2)
    assert second == {"x": {"k": [1]}}


@pytest.mark.parametrize("name", ["from", "class", "self", "type", "copy", "default"])
def test_a_field_may_have_a_name_that_python_uses(name: str) -> None:
    catalog = read_types(f'[types."a.made"]\nfields = {{ {name} = "str" }}', source="types.toml")
    assert catalog.validate("a.made", {name: "x"})[1] == {name: "x"}


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "[types]\n"])
def test_an_empty_file_declares_nothing(text: str) -> None:
    assert read_types(text, source="types.toml").types() == []


def test_a_type_may_have_no_fields() -> None:
    catalog = read_types('[types."day.ended"]\n', source="types.toml")
    assert catalog.validate("day.ended", {}) == (1, {})


def test_reading_twice_gives_the_same_lock() -> None:
    one, other = read_types(TYPES, source="a"), read_types(TYPES, source="b")
    assert compare(lock_text(one), other) == []


def test_a_higher_version_waits_for_its_upcaster() -> None:
    catalog = read_types('[types."a.made"]\nversion = 2\n', source="types.toml")
    assert catalog.check() == ["a.made: no upcaster leads from version 1 to 2"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("types", "at end of document"),
        ("[tpyes]", "tpyes: there is no such field; did you mean types?"),
        ('[types."a.made"]\nfeilds = {}', 'types["a.made"].feilds: there is no such field; did you mean fields?'),
        ('[types."a.made"]\nversion = "1"', 'types["a.made"].version: expected int, got str'),
        ('[types."a.made"]\nversion = 0', "expected int >= 1"),
        ('[types."a.made"]\nfields = { x = 3 }', 'types["a.made"].fields.x: expected str, got int'),
        ('[types."a.made"]\nfields = { x = "strr" }', "a.made, field x: 'strr': strr is not a type"),
        ('[types."a.made"]\nfields = { x-y = "str" }', "a.made, field 'x-y': a name is letters"),
        ('[types."a made"]', "a type is subject.past_tense"),
        ('[types."a.made".transitions]\nkind = "a"', "transitions.field: it is missing"),
    ],
)
def test_a_mistake_is_named_by_file_type_and_field(text: str, reason: str) -> None:
    assert reason in problems_of(text)


def test_all_mistakes_are_named_at_once() -> None:
    why = problems_of(
        '[types."a.made"]\nfields = { x = "strr", y = "int = a" }\n[types."b.made"]\nfields = { z = "" }'
    )
    assert all(part in why for part in ("a.made, field x", "a.made, field y", "b.made, field z"))


@pytest.mark.parametrize(
    ("moves", "reason"),
    [
        ('field = "lane", initial = "a", allowed = { a = ["b"] }', "the model has no field lane"),
        ('field = "to", initial = "a", allowed = { a = ["x"] }', "the field to never says x"),
        ('field = "to", initial = "c", allowed = { a = ["b"] }', "start at c, from where nothing is allowed"),
    ],
)
def test_transitions_that_do_not_fit_are_refused(moves: str, reason: str) -> None:
    fields = 'fields = { to = "a | b | c" }'
    assert reason in problems_of(f'[types."a.made"]\n{fields}\ntransitions = {{ kind = "a", {moves} }}')


# ---- declaring


def test_a_declared_type_is_added_and_the_rest_is_kept() -> None:
    text = declare(TYPES, "issue.opened", {"title": "str", "labels": "list[bug|idea] = []"}, 'An "issue".\n')
    assert text.startswith(TYPES)
    types = {info.type: info for info in read_types(text, source="types.toml").types()}
    assert set(types) == {"issue.opened", "workpackage.moved"}
    assert types["issue.opened"].doc == 'An "issue".'
    assert [(f.name, f.type, f.required) for f in types["issue.opened"].fields] == [
        ("title", "str", True),
        ("labels", "list[bug | idea]", False),
    ]


def test_the_first_type_is_added_to_an_empty_file() -> None:
    assert declare("", "day.ended", {"mood": "str = 'fine'"}) == (
        '[types."day.ended"]\nversion = 1\n\n[types."day.ended".fields]\nmood = "str = \\"fine\\""\n'
    )


def test_a_file_without_a_last_newline_is_added_to() -> None:
    text = declare('[types."a.made"]\nversion = 1', "b.made", {})
    assert text == '[types."a.made"]\nversion = 1\n\n[types."b.made"]\nversion = 1\n'


def test_declaring_the_same_again_changes_nothing() -> None:
    fields = {"title": "str", "state": "open|closed", "note": "str=''"}
    once = declare("", "issue.opened", fields)
    assert declare(once, "issue.opened", {"title": " str", "state": "open | closed", "note": 'str = ""'}) == once


def test_declaring_a_known_type_with_other_fields_is_refused() -> None:
    with pytest.raises(InvalidSettings) as refused:
        declare(TYPES, "workpackage.moved", {"came_from": "str"}, source="team/types.toml")
    assert "team/types.toml declares workpackage.moved already" in refused.value.what
    assert "size: int?" in refused.value.why


def test_a_wrong_type_or_field_is_refused_before_anything_is_written() -> None:
    with pytest.raises(InvalidSettings) as refused:
        declare("", "not a type", {"x": "strr"})
    assert "subject.past_tense" in refused.value.why
    assert "field x" in refused.value.why


def test_a_file_to_which_no_block_can_be_added_is_refused() -> None:
    with pytest.raises(InvalidSettings) as refused:
        declare('types = { "a.made" = { version = 1 } }', "b.made", {}, source="types.toml")
    assert "b.made cannot be added" in refused.value.what


def test_a_text_that_toml_cannot_hold_is_refused() -> None:
    with pytest.raises(InvalidSettings):
        declare("", "a.made", {}, "half of a pair: \ud800")


_names = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,9}", fullmatch=True)
_types = st.from_regex(r"[a-z]{1,5}\.[a-z_]{1,5}", fullmatch=True)
_words = st.sampled_from(["str", "int?", "list[int] = [1]", 'a | "b c" = a', "object = {}", "str = 'x\"\\\\y'"])


@given(
    blocks=st.dictionaries(
        _types,
        st.tuples(st.dictionaries(_names, _words, max_size=4), st.text(st.characters(codec="utf-8"), max_size=20)),
        max_size=4,
    )
)
def test_whatever_is_declared_is_read_back(blocks: dict[str, tuple[dict[str, str], str]]) -> None:
    text = ""
    for event_type, (fields, doc) in blocks.items():
        before, text = text, declare(text, event_type, fields, doc)
        assert text.startswith(before)
    parsed: dict[str, Any] = tomllib.loads(text).get("types", {})
    assert {name: block.get("doc", "") for name, block in parsed.items()} == {
        n: doc for n, (_, doc) in blocks.items()
    }
    catalog = read_types(text, source="types.toml")
    assert {info.type: {f.name for f in info.fields} for info in catalog.types()} == {
        event_type: set(fields) for event_type, (fields, _) in blocks.items()
    }
    assert catalog.check() == []


def test_a_declared_type_may_merge_concurrent_changes() -> None:
    found = read_types('[types."door.knocked"]\nfields = { times = "int" }\nmerge = "counter"\n')
    assert (found.merge_of("door.knocked"), found.merge_of("door.painted")) == ("counter", "")
    with pytest.raises(InvalidSettings) as refused:
        read_types('[types."door.knocked"]\nmerge = "sum"\n')
    assert "door.knocked declares merge = 'sum'" in refused.value.why
