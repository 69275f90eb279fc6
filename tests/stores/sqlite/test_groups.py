"""Rows of the table `groups`: whatever a damaged one holds, it is reported as damage."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.stores.sqlite.own import own_event

from everlog.stores.sqlite.groups import COLUMNS, BadRow, StoredGroup, claimed_places
from everlog.stores.sqlite.store import SqliteStore
from everlog.stores.sqlite.stored import read_groups

NAMES = ("first", "last", "kept", "received_us", "origin", "first_seq", "count", "previous", "hash", "signature")


@pytest.mark.parametrize("other", [None, -1, 2**40, 0.5, "x", b"x"])
@pytest.mark.parametrize("column", range(len(NAMES) + 3))
def test_a_value_of_another_type_or_content_is_damage(column: int, other: Any, tmp_path: Path) -> None:
    """One flipped bit in the header of an SQLite record turns a value into NULL, or a number into text."""
    store = SqliteStore(tmp_path / "log.db")
    own_event(store)
    store.close()
    database = sqlite3.connect(tmp_path / "log.db")
    (row,) = database.execute(f"SELECT {COLUMNS} FROM groups").fetchall()  # noqa: S608
    database.close()
    assert StoredGroup(row).records()
    changed = [*row]
    changed[column] = other
    with pytest.raises(BadRow):
        StoredGroup(changed)


def test_the_places_of_a_damaged_row_are_numbers() -> None:
    assert claimed_places((15, 20)) == (15, 20)
    assert claimed_places((15, None)) == (15, 15)


def test_a_read_of_some_groups_takes_no_rows_beyond_them(tmp_path: Path) -> None:
    """A page of one event over HTTP took 1,000 positions, with 8 MB of payloads."""
    store = SqliteStore(tmp_path / "log.db")
    for _ in range(20):
        own_event(store)
    store.close()
    with closing(sqlite3.connect(tmp_path / "log.db")) as database:
        taken: list[Any] = []

        def fetch(sql: str, values: tuple[Any, ...]) -> list[Any]:
            rows = database.execute(sql, values).fetchall()
            taken.extend(rows if "FROM groups WHERE" in sql else [])
            return rows

        assert [one.first for one in read_groups(fetch, 3, 5) if isinstance(one, StoredGroup)] == [4, 5]
    assert len(taken) == 2
