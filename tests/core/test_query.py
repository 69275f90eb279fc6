"""What a reader asks for: queries, scopes, cursors as text."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlog.core.event import Position, Recorded, microseconds
from everlog.core.query import Cursor, Page, Query, in_scope, scopes_touch
from everlog.errors import InvalidField
from everlog.testing.builders import NOON, event

RECORD = Recorded(
    Position(7),
    1,
    microseconds(NOON),
    event("note.added", stream="note/1", scope="acme/shop", actor="user:ada", correlation_id="c1"),
)


@pytest.mark.parametrize(
    "query",
    [
        Query(),
        Query(types=frozenset(["note.added", "other"])),
        Query(stream="note/1"),
        Query(kind="note"),
        Query(scope="acme"),
        Query(scope="acme/shop"),
        Query(actor="user:ada"),
        Query(correlation_id="c1"),
        Query(since=NOON),
        Query(until=NOON + timedelta(microseconds=1)),
        Query(types=frozenset(["note.added"]), stream="note/1", scope="acme", actor="user:ada", since=NOON),
    ],
)
def test_a_query_lets_through_what_fits_every_part(query: Query) -> None:
    assert query.matches(RECORD)


@pytest.mark.parametrize(
    "query",
    [
        Query(types=frozenset(["other"])),
        Query(stream="note/2"),
        Query(kind="not"),
        Query(scope="acme/sho"),
        Query(scope="acme/shop/prod"),
        Query(actor="user:bob"),
        Query(correlation_id="c2"),
        Query(since=NOON + timedelta(microseconds=1)),
        Query(until=NOON),
        Query(stream="note/1", actor="user:bob"),
    ],
)
def test_one_part_that_does_not_fit_is_enough_to_keep_it_out(query: Query) -> None:
    assert not query.matches(RECORD)


def test_a_scope_covers_itself_and_what_is_below_and_no_namesake() -> None:
    assert in_scope("acme", "acme")
    assert in_scope("acme/shop", "acme")
    assert in_scope("anything", "")
    assert not in_scope("acmecorp", "acme")
    assert not in_scope("acme", "acme/shop")
    assert not in_scope("", "acme")


def test_scopes_touch_when_one_lies_within_the_other() -> None:
    assert scopes_touch("acme", "acme/shop")
    assert scopes_touch("acme/shop", "acme")
    assert not scopes_touch("acme/shop", "acme/bank")


@given(
    st.integers(0, 10**16 - 1), st.integers(0, 10**16 - 1), st.text("0123456789abcdefghjkmnpqrstvwxyz", max_size=26)
)
def test_a_cursor_comes_back_from_its_text(position: int, knows: int, epoch: str) -> None:
    cursor = Cursor(Position(position), Position(knows if knows > position else 0), epoch)
    assert Cursor.of(str(cursor)) == cursor
    assert Cursor.of(cursor) is cursor


def test_a_plain_position_is_a_cursor() -> None:
    assert Cursor.of(12) == Cursor.of("12") == Cursor.of("#12") == Cursor(Position(12))
    assert str(Cursor(Position(12), Position(30), "abc")) == "12~30@abc"
    assert str(Cursor(Position(12), Position(3), "abc")) == "12@abc"


@pytest.mark.parametrize("text", ["", "-1", "1.5", "x", "1~", "1@", "1~2~3", "1\n", "1@a b", "9" * 17, "1@a;--"])
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidField, match="cursor"):
        Cursor.of(text)


def test_numbers_that_are_no_position_are_refused() -> None:
    for number in (-1, True):
        with pytest.raises(InvalidField):
            Cursor.of(number)


def test_a_page_knows_whether_there_was_more_to_look_at() -> None:
    assert Page((), Cursor(Position(5)), Position(5)).at_head
    assert not Page((), Cursor(Position(4)), Position(5)).at_head
