"""Which error of everlog stands for which error of SQLite."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from everlog.errors import Busy, Damaged, EverlogError, ReadOnly, StorageFull, Unavailable, WriterStopped
from everlog.stores.sqlite.connection import translated


def failure(name: str, text: str = "as SQLite says") -> sqlite3.Error:
    error = sqlite3.OperationalError(text)
    if name:
        error.sqlite_errorname = name
    return error


@pytest.mark.parametrize(
    ("error", "doing", "kind", "hint"),
    [
        (failure("SQLITE_FULL"), "writing", StorageFull, "free some space"),
        (failure("SQLITE_BUSY_SNAPSHOT"), "writing", Busy, "try again"),
        (failure("SQLITE_LOCKED"), "reading", Busy, "try again"),
        (failure("SQLITE_READONLY_DBMOVED"), "writing", ReadOnly, "check the permissions"),
        (failure("SQLITE_CANTOPEN"), "reading", ReadOnly, "check the permissions"),
        (failure("SQLITE_AUTH"), "reading", ReadOnly, "check the permissions"),
        (failure("SQLITE_CORRUPT_INDEX"), "reading", Damaged, "everlog verify"),
        (failure("SQLITE_NOTADB"), "opening", Damaged, ".recover"),
        (failure("SQLITE_CONSTRAINT_UNIQUE"), "writing", Damaged, "everlog verify"),
        (failure("", "Could not decode to UTF-8 column"), "reading", Damaged, "everlog verify"),
        (failure("SQLITE_IOERR_SHORT_READ"), "reading", Damaged, "everlog verify"),
        (failure("SQLITE_IOERR_READ"), "reading", Unavailable, "nothing was written"),
        (failure("SQLITE_IOERR_READ"), "checking", Unavailable, "nothing was written"),
        (failure("SQLITE_IOERR_READ"), "opening", Unavailable, "nothing was written"),
        (failure("SQLITE_IOERR_FSYNC"), "writing", WriterStopped, "open the log again"),
        (failure("SQLITE_MISUSE"), "reading", EverlogError, "everlog doctor"),
        (failure("", "something else"), "reading", EverlogError, "everlog doctor"),
    ],
)
def test_an_error_of_sqlite_says_what_to_do(
    tmp_path: Path, error: sqlite3.Error, doing: str, kind: type[EverlogError], hint: str
) -> None:
    path = tmp_path / "log.db"
    path.touch()
    found = translated(error, path, doing)
    assert type(found) is kind
    assert hint in found.hint
    assert found.what == f"{doing} {path} failed"
    assert found.details["path"] == str(path)


@pytest.mark.parametrize("gone", ["the file", "its folder"])
def test_a_file_that_is_gone_is_damage(tmp_path: Path, gone: str) -> None:
    path = tmp_path / "log.db" if gone == "the file" else tmp_path / "folder" / "log.db"
    found = translated(failure("SQLITE_CANTOPEN"), path, "reading")
    assert type(found) is Damaged
    assert found.what == f"{path} is gone"
