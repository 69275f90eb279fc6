"""The SQL statements of this store, by name, from the `.sql` files beside this module."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files as package_files

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n?", re.MULTILINE)
_PACKAGE = "everlog.stores.postgres"


@cache
def statements(name: str) -> dict[str, str]:
    """The statements of one file of `queries`, with `-- name: …` before each."""
    parts = _NAME.split((package_files(_PACKAGE) / "queries" / f"{name}.sql").read_text(encoding="utf-8"))
    return {name: _COMMENT.sub("", text).strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}


@cache
def migrations() -> tuple[tuple[int, str, str], ...]:
    """Every migration in order: its number, its name and its text."""
    folder = package_files(_PACKAGE) / "migrations"
    found = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple(
        (
            int(name[:4]),
            name.removesuffix(".sql"),
            (package_files(_PACKAGE) / "migrations" / name).read_text(encoding="utf-8"),
        )
        for name in found
    )
