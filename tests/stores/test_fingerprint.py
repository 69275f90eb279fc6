"""What is stored has a fingerprint: a change of a table, a frame or a line needs another number of the format."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from importlib.resources import files as package_files
from typing import Any

import msgspec
import pytest

from everlog.core.chain import Chain, Fork, Run
from everlog.core.event import Event, Header, Purge, Purged, Recorded
from everlog.core.group import GroupFacts
from everlog.stores.formats import FINGERPRINT, FORMAT
from everlog.stores.jsonl import lines, notes
from everlog.stores.segments.format import frame, header

STRUCTS: tuple[type[msgspec.Struct], ...] = (
    Header, Event, Recorded, Purge, Purged,
    frame.Frame, frame.Rest, header.SegmentHeader, header.StartState, header.End,
    lines.EventLine, lines.PurgedLine, lines.PurgeLine, notes._Line, notes._End,
    GroupFacts, Chain, Run, Fork,
)  # fmt: skip


def tables() -> str:
    text = (package_files("everlog.stores.sqlite") / "schema.sql").read_text(encoding="utf-8")
    connection = sqlite3.connect(":memory:")
    connection.executescript(text)
    rows = connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name").fetchall()
    connection.close()
    return "\n".join(_plain(row[0]) for row in rows)


def migrations() -> str:
    folder = package_files("everlog.stores.postgres") / "migrations"
    found = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return "\n".join(_plain((folder / name).read_text(encoding="utf-8")) for name in found)


def structs() -> str:
    return json.dumps([[kind.__name__, *map(list, fields(kind))] for kind in STRUCTS])


def fields(kind: type[msgspec.Struct]) -> list[tuple[str, str]]:
    """Return the fields with their types as the source has them, which does not depend on the version of Python."""
    hints: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        hints.update(vars(base).get("__annotations__", {}))
    return [(name, str(hints[name])) for name in kind.__struct_fields__]


def _plain(text: str) -> str:
    """SQL without comments and without its layout."""
    return re.sub(r"\s+", " ", re.sub(r"--.*", "", text)).strip()


def fingerprint() -> str:
    parts = (tables(), migrations(), structs())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def test_what_is_stored_changes_only_with_the_number_of_the_format() -> None:
    """If this fails, the stored form has changed. A released format needs a new number, a reader of the old one in
    `everlog.transfer.upgrade`, and its fingerprint in `everlog.stores.formats`."""
    assert (FORMAT, fingerprint()) == (FORMAT, FINGERPRINT)


@pytest.mark.parametrize(
    "statement", ["ALTER TABLE groups ADD COLUMN more TEXT", "CREATE INDEX more ON groups (origin)"]
)
def test_a_new_column_is_noticed(statement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = sqlite3.connect(":memory:")
    connection.executescript((package_files("everlog.stores.sqlite") / "schema.sql").read_text(encoding="utf-8"))
    connection.execute(statement)
    rows = connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name").fetchall()
    connection.close()
    changed = "\n".join(_plain(row[0]) for row in rows)
    monkeypatch.setitem(globals(), "tables", lambda: changed)
    assert fingerprint() != FINGERPRINT


def test_a_new_field_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    more = msgspec.defstruct("Purged", [*[(name, Any) for name in Purged.__struct_fields__], ("more", int, 0)])
    monkeypatch.setitem(globals(), "STRUCTS", (*STRUCTS[:4], more, *STRUCTS[5:]))
    assert fingerprint() != FINGERPRINT
