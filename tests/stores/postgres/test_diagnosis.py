"""What a refusal of the server says that a role lacks, and who grants it."""

from __future__ import annotations

import pytest

from everlog.stores.postgres.diagnosis import _missing


@pytest.mark.parametrize(
    ("kind", "name", "to_read", "to_write"),
    [
        ("schema", "log", ("USAGE", "grant_reader"), ("USAGE", "grant_writer")),
        ("database", "data", ("CREATE", ""), ("CREATE", "")),
        ("function", "purge", ("EXECUTE", "grant_purger"), ("EXECUTE", "grant_purger")),
        ("function", "append", ("EXECUTE", "grant_writer"), ("EXECUTE", "grant_writer")),
        ("table", "derived", *[("SELECT, INSERT, UPDATE and DELETE", "grant_views")] * 2),
        ("table", "purges", ("SELECT", "grant_reader"), ("INSERT", "")),
        ("table", "chains", ("SELECT", "grant_reader"), ("INSERT", "")),
        ("table", "state", ("SELECT", "grant_reader"), ("UPDATE", "grant_writer")),
        ("table", "events", ("SELECT", "grant_reader"), ("INSERT", "grant_writer")),
    ],
)
def test_a_refusal_names_the_privilege_and_the_function_that_grants_it(
    kind: str, name: str, to_read: tuple[str, str], to_write: tuple[str, str]
) -> None:
    assert _missing(kind, name, reading=True) == to_read
    assert _missing(kind, name, reading=False) == to_write
