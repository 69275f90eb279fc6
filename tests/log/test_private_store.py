"""The store of a log is private: everything outside `everlog.log` uses the named members of `Log`."""

from __future__ import annotations

import ast
from pathlib import Path

import everlog

SOURCE = Path(everlog.__file__).parent


def uses_of_the_store(path: Path) -> list[int]:
    """The lines that read `_store` of anything but `self`."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr == "_store"
        and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    ]


def test_no_module_outside_the_log_uses_its_store() -> None:
    used = {
        f"{path.relative_to(SOURCE)}:{line}"
        for path in SOURCE.rglob("*.py")
        if path.relative_to(SOURCE).parts[0] != "log"
        for line in uses_of_the_store(path)
    }
    assert used == set()


def test_such_a_use_is_found(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("def look(log):\n    return log._store.head()\n")
    assert uses_of_the_store(tmp_path / "one.py") == [2]
