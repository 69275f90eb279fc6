"""Wishes about the source that are cheap to check: who may touch files, names of modules, and their length."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "everlog"
TESTS = ROOT / "tests"
LINES_MAX = 600
VAGUE = {"utils", "util", "helpers", "helper", "common", "base", "manager", "managers", "misc"}

# Whoever touches a file behind the back of `files.py` is not covered by the crash tests. A directory ends in "/".
MAY_TOUCH_FILES = {
    "files.py": "the file layer itself",
    "lock_file.py": "the file layer's lock",
    "demo/two_laptops.py": "two folders in a temporary directory, and a search through their files",
    "demo/postgres_server.py": "a PostgreSQL server in a temporary directory",
    "cli/pipeline/migrate.py": "a temporary directory for what Spark stages; the log itself is written by a store",
    "pipeline/lake/lake.py": "a temporary directory for Spark's files, where the lake is in a bucket",
    "pipeline/lake/parquet_files.py": "a temporary directory for a file on its way to a bucket",
    "pipeline/stream_run.py": "a temporary directory for a stream's files, where the lake is in a bucket",
    "server/observe/metrics.py": "the memory of this process, which Linux shows as a file",
    "cli/programs/elsewhere.py": "a search of the path for a program, as the shell does it",
    "transfer/upgrade/swap.py": "a second name for the old database, and the removal of old files on request",
    "log/verify/spill.py": "a temporary file for what verify sorts; nothing of the log is in it but ids and names",
}

OS_CALLS = {
    "open",
    "fdopen",
    "write",
    "pwrite",
    "writev",
    "fsync",
    "fdatasync",
    "rename",
    "renames",
    "replace",
    "unlink",
    "remove",
    "removedirs",
    "rmdir",
    "link",
    "symlink",
    "truncate",
    "ftruncate",
    "mkdir",
    "makedirs",
}
PATH_CALLS = {
    "write_text",
    "write_bytes",
    "read_text",
    "read_bytes",
    "unlink",
    "mkdir",
    "rmdir",
    "touch",
    "symlink_to",
    "hardlink_to",
}
# Methods that other types have as well: counted only on what is plainly a path (see _looks_like_a_path).
SHARED_CALLS = {"open", "rename", "replace"}
WHOLE_MODULES = {"shutil", "tempfile"}


def file_calls(source: str) -> Iterator[tuple[int, str]]:
    """(line, call) of everything in this source that reaches for a file by itself.

    What it cannot see is a path hidden behind a plain name (`target.replace(...)`): it looks at words, not at types.
    """
    tree = ast.parse(source)
    imported = _imported_names(tree)
    paths = _names_of_paths(tree)
    package_data = _names_for_package_data(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in ("os", "io", *WHOLE_MODULES):
            for alias in node.names:
                if node.module in WHOLE_MODULES or (node.module == "os" and alias.name in OS_CALLS):
                    yield node.lineno, f"from {node.module} import {alias.name}"
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Name(id="open"):
                yield node.lineno, "open()"
            case ast.Attribute(value=ast.Name(id=name), attr=called) if name in imported:
                module = imported[name]
                if module in WHOLE_MODULES or (module == "os" and called in OS_CALLS):
                    yield node.lineno, f"{module}.{called}()"
                elif module in ("io", "codecs", "gzip", "lzma", "bz2") and called == "open":
                    yield node.lineno, f"{module}.open()"
            case ast.Attribute(value=value, attr=called):
                # The file layer has methods of the same names; `files.unlink(path)` is how it should be done.
                if _is_the_file_layer(value) or _calls_one_of(value, package_data):
                    continue
                if called in PATH_CALLS or (called in SHARED_CALLS and _looks_like_a_path(value, paths)):
                    yield node.lineno, f".{called}()"


def _imported_names(tree: ast.AST) -> dict[str, str]:
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.split(".")[0]] = alias.name.split(".")[0]
    return found


def _names_for_package_data(tree: ast.AST) -> set[str]:
    """What importlib.resources.files is called here: a program may read what it was installed with."""
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "importlib.resources"
        for alias in node.names
    }


def _calls_one_of(value: ast.expr, names: set[str]) -> bool:
    return any(isinstance(node, ast.Call) and _last_name(node.func) in names for node in ast.walk(value))


def _names_of_paths(tree: ast.AST) -> set[str]:
    """Names and attributes that are annotated as Path, or assigned from Path(...)."""
    found: set[str] = set()
    for node in [*ast.walk(tree)] * 2:  # twice: a walk meets an assignment before the argument that it uses
        match node:
            case ast.arg(arg=name, annotation=annotation) if annotation and _mentions_path(annotation):
                found.add(name)
            case ast.AnnAssign(target=target, annotation=annotation) if _mentions_path(annotation):
                found.add(_last_name(target))
            case ast.Assign(targets=[target], value=value) if _looks_like_a_path(value, found):
                found.add(_last_name(target))
    return found - {""}


def _mentions_path(annotation: ast.expr) -> bool:
    # Path and Path | None, but not dict[Path, …] or Callable[[Path], …].
    match annotation:
        case ast.BinOp(left=left, right=right):
            return _mentions_path(left) or _mentions_path(right)
        case ast.Constant(value=str(text)):
            return text.split("|")[0].strip() == "Path"
    return _last_name(annotation) == "Path"


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _looks_like_a_path(node: ast.expr, paths: set[str]) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="Path") | ast.Attribute(attr="with_name" | "with_suffix" | "resolve")):
            return True
        case ast.BinOp(left=left, op=ast.Div()):
            return _looks_like_a_path(left, paths)
        case ast.Attribute(attr="parent", value=value):
            return _looks_like_a_path(value, paths)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="Path"))):
            return True
    return _last_name(node) in paths


def _is_the_file_layer(node: ast.expr) -> bool:
    return _last_name(node).lstrip("_") in ("files", "disk")


def modules(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*.py") if "__pycache__" not in path.parts)


def allowed(relative: str) -> bool:
    return relative in MAY_TOUCH_FILES


# --- the tree ---------------------------------------------------------------------------------------------


def test_only_the_file_layer_touches_files() -> None:
    offences = [
        f"src/everlog/{relative}:{line}: {call}"
        for path in modules(SOURCE)
        if not allowed(relative := path.relative_to(SOURCE).as_posix())
        for line, call in file_calls(path.read_text(encoding="utf-8"))
    ]
    assert offences == [], "take a `Files` (everlog.files), or give a reason in MAY_TOUCH_FILES:\n" + "\n".join(
        offences
    )


def test_every_exception_to_that_still_exists() -> None:
    gone = [entry for entry in MAY_TOUCH_FILES if not (SOURCE / entry).exists()]
    assert gone == []


def test_modules_are_named_after_what_is_in_them() -> None:
    vague = [str(path.relative_to(ROOT)) for path in modules(SOURCE) if {path.stem, path.parent.name} & VAGUE]
    assert vague == []


def test_no_module_has_grown_too_long(record_property: Callable[[str, object], None]) -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in (*modules(SOURCE), *modules(TESTS))
    }
    longest = sorted(lengths.items(), key=lambda item: -item[1])[:10]
    for name, lines in longest:
        print(f"{lines:5} {name}")
    record_property("longest_files", longest)
    lengths.pop("src/everlog/errors.py")  # one list of small classes: every error with its meaning and what to do
    too_long = {name: lines for name, lines in lengths.items() if lines > LINES_MAX and name.startswith("src")}
    assert too_long == {}, "look for the second idea in it"


# --- the linter itself ------------------------------------------------------------------------------------

CAUGHT = {
    "open()": "with open('x') as f: pass",
    "os.open": "import os\nos.open('x', 0)",
    "os.write": "import os\nos.write(1, b'')",
    "os.fsync": "import os\nos.fsync(1)",
    "os.rename": "import os\nos.rename('a', 'b')",
    "os.replace": "import os as system\nsystem.replace('a', 'b')",
    "os.unlink": "import os\nos.unlink('a')",
    "os.remove": "import os\ndef f():\n    os.remove('a')",
    "os.truncate": "import os\nos.truncate('a', 1)",
    "os.mkdir": "import os\nos.mkdir('a')",
    "os.makedirs": "import os\nos.makedirs('a')",
    "from os": "from os import fsync\nfsync(1)",
    "write_text": "def f(p): p.write_text('x')",
    "write_bytes": "def f(p): p.parent.write_bytes(b'x')",
    "read_text": "def f(p): return p.read_text()",
    "read_bytes": "def f(p): return p.read_bytes()",
    "path.open": "from pathlib import Path\nPath('x').open()",
    "argument.open": "from pathlib import Path\ndef f(p: Path | None): p.open()",
    "attribute.replace": "class A:\n    place: Path\n    def f(self): self.place.replace('x')",
    "joined.rename": "def f(home: Path): (home / 'a').rename('b')",
    "assigned.rename": "def f(home: Path):\n    a = home / 'a'\n    a.rename('b')",
    "home.open": "(Path.home() / 'x').open()",
    "unlink": "def f(p): p.unlink()",
    "mkdir": "def f(p): p.mkdir()",
    "touch": "def f(p): p.touch()",
    "shutil": "import shutil\nshutil.rmtree('x')",
    "from shutil": "from shutil import copy",
    "tempfile": "import tempfile\ntempfile.mkdtemp()",
    "gzip": "import gzip\ngzip.open('x')",
}

PASSED = {
    "the file layer": "def f(files, p): files.open(p); files.unlink(p); files.rename(p, p)",
    "its attribute": "class A:\n    def f(self, p): self._files.open(p); self.files.unlink(p)",
    "a store": "import everlog\neverlog.open('memory:')",
    "text": "'a'.replace('a', 'b')",
    "a clock": "now = now.replace(tzinfo=None)",
    "SQLite": "import sqlite3\nsqlite3.connect('x')",
    "a path looked at": "from pathlib import Path\nPath('x').name; Path('x').exists()",
    "a description": "'''open('x') and os.unlink'''",
    "paths inside": "def f(by_name: dict[Path, str]): by_name.copy().replace(1)",
    "package data": "from importlib.resources import files as own\n(own('x') / 'schema.sql').read_text()",
    "environment": "import os\nos.environ.get('x'); os.getpid()",
}


@pytest.mark.parametrize("source", CAUGHT.values(), ids=CAUGHT.keys())
def test_a_planted_file_call_is_caught(source: str) -> None:
    assert list(file_calls(source))


@pytest.mark.parametrize("source", PASSED.values(), ids=PASSED.keys())
def test_harmless_code_passes(source: str) -> None:
    assert list(file_calls(source)) == []


def test_an_exception_covers_what_it_names_and_no_more() -> None:
    assert allowed("files.py")
    assert not allowed("stores/files.py")
    assert not allowed("my_files.py")
