"""The words of rows in SQLite: found, removed, and after a purge in no byte any more."""

from __future__ import annotations

import sqlite3

import pytest

from everlog.stores.text_rows import write_texts
from everlog.stores.texts import Text

REBUILD = "INSERT INTO derived_words (derived_words) VALUES ('rebuild')"


@pytest.mark.parametrize(
    ("scrub", "texts", "cleared", "rebuilt"),
    [
        (False, {"space": {"a": None}}, (), False),
        (False, {}, ("space",), False),
        (True, {}, (), False),
        (True, {"space": {"a": None}}, (), True),
        (True, {}, ("space",), True),
    ],
)
def test_the_words_are_rebuilt_after_a_purge_that_removed_some_and_at_no_other_time(
    scrub: bool, texts: dict[str, dict[str, Text | None]], cleared: tuple[str, ...], rebuilt: bool
) -> None:
    connection = sqlite3.connect(":memory:")
    write_texts(connection, {"space": {"a": Text("", ("one",), ("two",))}}, (), scrub=False)
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    write_texts(connection, texts, cleared, scrub=scrub)
    assert (REBUILD in statements) == rebuilt
    connection.close()
