"""The public names: what is public is listed, documented and loads, and importing everlog is fast."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import everlog
from everlog import programs

SOURCE = Path(everlog.__file__)
NOT_LOADED = (
    *("pyspark", "psycopg", "starlette", "click", "rich", "sqlite3", "asyncio", "msgspec", "pydantic"),
    "tomlkit",
)
IMPORT_MS_MAX = 80


def test_every_listed_name_loads() -> None:
    for name in everlog.__all__:
        assert getattr(everlog, name) is not None


def test_the_list_is_what_is_public() -> None:
    assert everlog.__all__ == sorted(set(everlog.__all__))
    assert dir(everlog) == everlog.__all__
    lazy = {*everlog._HOMES, *everlog._MODULES, "__version__"}
    assert lazy == set(everlog.__all__)


def test_type_checkers_see_the_same_names() -> None:
    """The names stand once for people at run time and once for type checkers; the two must not drift apart."""
    assert names_for_checkers(SOURCE) == {**everlog._HOMES, **dict.fromkeys(everlog._MODULES, "everlog")}
    assert names_for_checkers(Path(programs.__file__)) == programs._HOMES


def names_for_checkers(source: Path) -> dict[str, str | None]:
    tree = ast.parse(source.read_text(encoding="utf-8"))
    (checked,) = [node for node in tree.body if isinstance(node, ast.If)]
    return {
        alias.asname: node.module
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }


def test_every_public_name_is_on_the_api_page_and_nothing_else() -> None:
    assert sorted(listed("# The Python API") | {"__version__"}) == everlog.__all__


def test_the_names_for_a_program_are_on_the_api_page_and_nothing_else() -> None:
    assert sorted(listed("## everlog.programs")) == programs.__all__ == sorted(programs._HOMES)
    for name, home in programs._HOMES.items():
        assert getattr(programs, name) is getattr(import_module(home), name)


def test_every_member_of_a_log_is_on_the_api_page_and_nothing_else() -> None:
    with everlog.open("memory:") as log:
        members = {name for name in dir(log) if not name.startswith("_")}
    assert listed("## Log") == members


def listed(heading: str) -> set[str]:
    """Return the names in the first column of the tables below a heading of the API page."""
    text = (SOURCE.parents[2] / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    section = text.split(f"\n{heading}\n")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"^ `(?:everlog\.)?(\w+)", cell)}


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(everlog, "no_such_name")


def test_star_import_brings_exactly_the_list() -> None:
    found: dict[str, object] = {}
    exec("from everlog import *", found)
    found.pop("__builtins__")
    assert sorted(found) == everlog.__all__


def child(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(SOURCE.parent.parent), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


def test_importing_loads_nothing_heavy() -> None:
    loaded = child(f"import sys, everlog; print([name for name in {NOT_LOADED!r} if name in sys.modules])")
    assert loaded == "[]"


def test_a_log_in_memory_needs_neither_a_database_nor_a_loop() -> None:
    program = (
        "import sys, everlog\n"
        "log = everlog.open('memory:')\n"
        "log.append('note.added', stream='note/1', payload={'text': 'x'})\n"
        "list(log.read())\n"
        "print([name for name in ('sqlite3', 'asyncio', 'click', 'rich', 'pydantic') if name in sys.modules])"
    )
    assert child(program) == "[]"


def test_importing_is_quick() -> None:
    """In processor time: a delay may have its cause elsewhere on the machine."""
    program = "import time; begun = time.process_time(); import everlog; print((time.process_time() - begun) * 1000)"
    best_ms = min(float(child(program)) for _ in range(5))
    assert best_ms < IMPORT_MS_MAX
