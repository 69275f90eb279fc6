from __future__ import annotations

from everlog.core.words import WORD_CHARS_MAX, words


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
