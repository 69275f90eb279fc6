from __future__ import annotations

import pytest

from everlog.core.text import WORD_CHARS_MAX, counted, words


@pytest.mark.parametrize(
    ("count", "expected"), [(0, "0 events"), (1, "1 event"), (2, "2 events"), (12345, "12,345 events")]
)
def test_only_one_has_no_plural_s(count: int, expected: str) -> None:
    assert counted(count, "event") == expected


def test_an_irregular_plural_is_given() -> None:
    assert counted(1, "line is", "lines are") == "1 line is"
    assert counted(3, "line is", "lines are") == "3 lines are"


def test_words_are_distinct_in_order_and_without_case() -> None:
    assert words("Fix the login-page; FIX it!") == ("fix", "it", "login", "page", "the")
    assert words("snake_case and v2.0") == ("0", "and", "case", "snake", "v2")
    assert words(" \n\t…!") == ()


def test_forms_that_only_look_other_are_the_same_word() -> None:
    assert words("Straße") == words("STRASSE")
    assert words("ﬁle") == words("file")
    assert words("caf\u0065\u0301") == words("café")


def test_words_of_any_script_are_words() -> None:
    assert words("日本語 тест") == ("тест", "日本語")


def test_a_word_is_cut_where_no_store_could_take_it() -> None:
    assert words("x" * 5000) == ("x" * WORD_CHARS_MAX,)
