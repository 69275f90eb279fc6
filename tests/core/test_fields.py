"""Names in an envelope: the same rule for every store. Names of other programs become such names."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlog.core.fields import (
    TAGS_MAX,
    TEXT_CHARS_MAX,
    actor_of,
    kind_of,
    name_of,
    require_shape,
    require_tags,
    require_text,
)
from everlog.errors import InvalidField

GOOD = {
    "type": ["note.added", "community.member.joined", "WPStatusChanged", "a", "a.b_2"],
    "stream": ["workpackage/WP03", "a/b", "note/1", "agent-x/a:b@c+d=e~f.g", "a/" + "x" * 200],
    "actor": ["system", "user:ada", "agent:builder", "service:deploy.er"],
    "scope": ["", "acme", "acme/shop/prod", "/".join("abcdefgh")],
    "tag": ["team", "build.id", "a-b_c"],
}
BAD = {
    "type": ["", ".", "a.", ".a", "a..b", "note added", "nøte.added", "1a", "a" * 65, "a.b.c.d.e.f.g"],
    "stream": ["", "a", "a/", "/b", "A/b", "a/b/c", "a/../x", "a/.x", "a b/c", "a/b\n", "a/" + "x" * 201, "a/ü"],
    "actor": ["", "ada", "user:", ":ada", "User:ada", "user:a b", "systems", "user:ada\n", "user:'; --"],
    "scope": ["/", "a/", "/a", "a//b", "../x", "a/..", "/".join("abcdefghi"), "a b", "ü"],
    "tag": ["", "Team", "1a", "a b", "a" * 65],
}
HOSTILE = ["\x00", "\u2028", "\ufeff", "\ud800", "\u202e", "\r\n", "a\x00b", "\u200b"]


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in GOOD.items() for value in values])
def test_a_name_of_the_right_shape_passes_twice(field: str, value: str) -> None:
    require_shape(field, value)
    require_shape(field, value)  # now from memory


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in BAD.items() for value in values])
def test_a_name_of_the_wrong_shape_is_refused_every_time_with_the_right_one(field: str, value: str) -> None:
    for _ in range(2):
        with pytest.raises(InvalidField) as refusal:
            require_shape(field, value)
        assert refusal.value.details["field"] == field
        assert "such as" in refusal.value.why


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("field", sorted(GOOD))
def test_hostile_characters_are_in_no_name(field: str, value: str) -> None:
    with pytest.raises(InvalidField):
        require_shape(field, value)
    with pytest.raises(InvalidField):
        require_text("request id", value)


@pytest.mark.parametrize("value", [None, 7, 1.5, b"note/1", ["note/1"], {"a": 1}])
def test_what_is_no_text_is_refused_and_not_crashed_on(value: Any) -> None:
    with pytest.raises(InvalidField):
        require_shape("stream", value)
    with pytest.raises(InvalidField):
        require_text("request id", value)


def test_a_name_that_is_right_for_one_field_is_not_thereby_right_for_another() -> None:
    require_shape("stream", "note/1")
    with pytest.raises(InvalidField):
        require_shape("actor", "note/1")


@given(st.text())
def test_text_is_accepted_exactly_when_it_is_short_and_printable(value: str) -> None:
    if len(value) <= TEXT_CHARS_MAX and value.isprintable():
        require_text("request id", value)
        value.encode()  # what passes has a UTF-8 form
    else:
        with pytest.raises(InvalidField):
            require_text("request id", value)


def test_text_may_have_256_characters_and_not_257() -> None:
    require_text("request id", "é" * 256)
    with pytest.raises(InvalidField, match="request id"):
        require_text("request id", "é" * 257)


def test_tags_are_counted_and_each_is_checked() -> None:
    require_tags({f"tag{number}": "x" for number in range(TAGS_MAX)})
    for tags in ({f"tag{number}": "x" for number in range(TAGS_MAX + 1)}, {"Team": "x"}, {"team": "a\nb"}):
        with pytest.raises(InvalidField):
            require_tags(tags)
    with pytest.raises(InvalidField, match="team"):
        require_tags({"team": 5})  # type: ignore[dict-item]


odd = st.text(alphabet=st.sampled_from("ax7~./-_: ü\0"), min_size=1, max_size=6)


@given(odd, odd)
def test_two_names_never_become_one(one: str, other: str) -> None:
    assert (name_of(one) == name_of(other)) == (one == other)


@given(odd)
def test_any_name_becomes_one_that_a_stream_and_an_actor_may_have(name: str) -> None:
    require_shape("stream", f"{kind_of(name)}/{name_of(name)}")
    require_shape("actor", actor_of(name, "agent"))
