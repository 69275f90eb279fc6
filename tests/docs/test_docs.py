"""The documentation is run: its code, its commands, its tables and its links are compared with the program.

```python     runs, in order within a page, in an empty folder; an ```output block after it is what it prints
```toml       is written to the file that its first line names, for the blocks after it
```console    a session: every `$ everlog ...` runs, as on a terminal, and must print what is shown
```sh         is only parsed: commands and options must exist
```text       is for the eye
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import shlex
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.resources import files as package_files
from pathlib import Path
from types import ModuleType

import click
import pytest

import everlog
from everlog import settings
from everlog._version import __version__
from everlog.catalog.builtin import BUILT_IN
from everlog.cli.main import cli, main
from everlog.core.canonical import canonical
from everlog.core.codec import (
    HEADER_FIELDS,
    assemble,
    event_from_object,
    event_object,
    from_msgpack,
    header_bytes,
    to_msgpack,
)
from everlog.core.ids import id_uuid
from everlog.errors import EverlogError
from everlog.stores.sqlite.checks import _TRIGGERS as CHECKED_TRIGGERS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"python", "output", "toml", "console", "sh", "text", "sql", "json"}
LAUNCHER_COMMANDS = {"test", "check"}


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int


@dataclass(frozen=True)
class Page:
    path: Path
    text: str
    blocks: list[Block] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def prose(self) -> str:
        return FENCE.sub("", self.text)

    def of(self, language: str) -> list[Block]:
        return [block for block in self.blocks if block.language == language]

    def rows(self, heading: str) -> list[list[str]]:
        """The table rows below a heading, without their header; backquotes are left out."""
        section = re.split(r"^#+ ", self.text.split(f"{heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
        lines = [line for line in section.splitlines() if line.startswith("|")]
        cells = [re.split(r"(?<!\\)\|", line.strip("| ")) for line in lines[2:]]
        return [[cell.strip().replace("`", "").replace("\\|", "|") for cell in row] for row in cells]


def read_page(path: Path) -> Page:
    text = path.read_text()
    blocks = [Block(m[1], m[2], text.count("\n", 0, m.start()) + 2) for m in FENCE.finditer(text)]
    return Page(path, text, blocks)


PAGES = [read_page(ROOT / name) for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
PAGES += [read_page(path) for path in sorted(DOCS.rglob("*.md"))]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def page_named(name: str) -> Page:
    return next(page for page in PAGES if page.name == name)


# ---- what runs


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to be in, somebody to be, and a terminal of a known width."""
    home = tmp_path / "shop"
    home.mkdir()
    monkeypatch.chdir(home)
    for name, value in {"EVERLOG_ACTOR": "user:ada", "NO_COLOR": "1", "COLUMNS": "200", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    logger = logging.getLogger("everlog")
    before = (logger.handlers, logger.propagate)
    yield home
    logger.handlers, logger.propagate = before


@each_page
def test_the_examples_of_a_page_run(page: Page, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(page, place, monkeypatch)


def run_page(page: Page, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("docs_example")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    printed = ""
    for block in page.blocks:
        match block.language:
            case "python":
                printed = run_python(page, block, module)
            case "output":
                assert as_compared(printed, place) == as_compared(block.text, place), f"{page.name}:{block.line}"
            case "toml":
                write_toml(block, place)
            case "console":
                run_session(page, block, place, monkeypatch)


def run_python(page: Page, block: Block, module: ModuleType) -> str:
    # Empty lines in front, so that a traceback names the page's own lines.
    source = "\n" * (block.line - 1) + block.text
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(source, str(page.path), "exec"), module.__dict__)
    return out.getvalue()


def write_toml(block: Block, place: Path) -> None:
    named = re.match(r"# (\S+\.toml)\n", block.text)
    assert named is not None, "the first line of a TOML block names its file, as in # .everlog/types.toml"
    (place / named[1]).parent.mkdir(exist_ok=True)
    (place / named[1]).write_text(block.text)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run_session(page: Page, block: Block, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command of a session and what it prints. A line `...` stands for any number of lines."""
    code = 0
    for command, expected in sessions(block.text):
        if command == "echo $?":
            assert expected.strip() == str(code), f"{page.name}: {command}"
            continue
        out = Terminal()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", out)
            code = main(everlog_arguments(command))
        found, wanted = as_compared(out.getvalue(), place), as_compared(expected, place)
        pattern = "".join(
            r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line) + r"\n" for line in wanted.splitlines()
        )
        assert re.fullmatch(pattern, found), f"{page.name}: $ {command}\nprints\n{found}\nbut the page says\n{wanted}"


def sessions(text: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^\$ ", text.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command.strip(), output


def everlog_arguments(command: str) -> list[str]:
    program, *arguments = shlex.split(command, comments=True)
    assert program in ("everlog", "./everlog"), f"{command!r} cannot be run here; use a block of sh"
    return arguments


VARIES = [
    (re.compile(r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b"), "ID"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"\b(\d{4}-)?\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?\b"), "TIME"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "HASH"),
    (re.compile(r"@[0-9a-z]{8}\b"), "@EPOCH"),
    (re.compile(r"\b[\d,.]+ (µs|ms|s|kB|MB|KiB|MiB|events/s)(?=\W|$)"), r"N \1"),
]


def as_compared(text: str, place: Path) -> str:
    """The text without what differs from run to run, and without spaces at the ends of lines."""
    text = text.replace(str(place), "~/shop")
    for pattern, name in VARIES:
        text = pattern.sub(name, text)
    return "".join(line.rstrip() + "\n" for line in text.rstrip().splitlines())


# ---- what is only parsed


def shell_commands() -> Iterator[tuple[str, list[str]]]:
    for page in PAGES:
        for block in page.of("sh"):
            for line in block.text.replace("\\\n", " ").splitlines():
                words = shlex.shlex(line, posix=True, punctuation_chars=True)
                words.whitespace_split = True
                command: list[str] = []
                for word in [*words, ";"]:
                    if word not in ("|", "||", "&&", ";", ">", ">>", "<"):
                        command.append(word)
                        continue
                    if command and command[0] in ("everlog", "./everlog"):
                        yield f"{page.name}: {line}", command[1:]
                    command = []


@pytest.mark.parametrize(("told", "arguments"), list(shell_commands()))
def test_a_command_that_is_shown_exists_with_its_options(told: str, arguments: list[str]) -> None:
    if arguments[:1] and arguments[0] in LAUNCHER_COMMANDS:
        return
    parse(arguments)


def parse(arguments: list[str]) -> None:
    """Read a command line as the program would, down to the last subcommand, and run nothing."""
    from everlog.cli.session import Session

    command: click.Command = cli
    context = command.make_context("everlog", list(arguments), obj=Session())
    while isinstance(command, click.Group):
        left = [*context._protected_args, *context.args]
        if not left:
            return
        name, found, rest = command.resolve_command(context, left)
        assert found is not None
        command, context = found, found.make_context(name, rest, parent=context)


# ---- what is complete


def every_command() -> Iterator[tuple[str, click.Command]]:
    waiting: list[tuple[str, click.Command]] = [("everlog", cli)]
    while waiting:
        path, command = waiting.pop()
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                assert found is not None
                waiting.append((f"{path} {name}", found))
        if command is not cli:
            yield path, command


@pytest.mark.parametrize(("path", "command"), [pytest.param(p, c, id=p) for p, c in every_command()])
def test_every_command_is_documented_with_an_example_and_its_options(path: str, command: click.Command) -> None:
    page = page_named("docs/commands.md")
    section = re.search(rf"^#+ {re.escape(path)}\n(.*?)(?=^#+ |\Z)", page.text, re.MULTILINE | re.DOTALL)
    assert section is not None, f"docs/commands.md has no heading {path!r}"
    if isinstance(command, click.Group):
        return
    common = page.text.split("## Every command", 1)[1].split("\n## ", 1)[0]
    assert re.search(rf"^(\$ )?(\./)?{re.escape(path)}\b", section[1], re.MULTILINE), f"{path} has no example"
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            name = max(parameter.opts, key=len)
            assert f"`{name}" in section[1] + common, f"{path} {name} is not documented"


def test_every_error_code_is_documented_with_its_exit_code() -> None:
    page = page_named("docs/errors.md")
    documented = {row[0]: (int(row[1]), row[2] == "yes") for row in page.rows("## The codes")}
    actual = {kind.code: (kind.exit_code, kind.retryable) for kind in every_error(EverlogError)}
    assert documented == actual


def every_error(kind: type[EverlogError]) -> Iterator[type[EverlogError]]:
    """The tree of errors.py; what other modules add for themselves is documented in their own words."""
    if kind.__module__ == "everlog.errors":
        yield kind
        for below in kind.__subclasses__():
            yield from every_error(below)


def test_every_setting_is_documented() -> None:
    documented = {row[0]: (row[1], row[2], row[3]) for row in page_named("docs/settings.md").rows("## The settings")}
    defaults = settings.Settings()
    assert documented == {
        name: (str(getattr(defaults, name)).lower() or "empty", f"EVERLOG_{name.upper()}", text)
        for name, text in settings.DOCS.items()
    }


def test_every_built_in_event_type_is_documented() -> None:
    rows = page_named("docs/schema-evolution.md").rows("## The built-in types")
    assert {row[0]: int(row[1]) for row in rows} == {info.type: info.version for info in BUILT_IN.types()}


def test_every_public_name_is_in_the_docs() -> None:
    text = "\n".join(page.text for page in PAGES)
    assert [name for name in everlog.__all__ if not re.search(rf"\beverlog\.{name}\b|`{name}\b", text)] == []


def test_the_changelog_has_this_version() -> None:
    assert f"\n## {__version__}" in page_named("CHANGELOG.md").text


# ---- what must be true of the formats


def test_the_documented_header_is_the_one_that_is_hashed() -> None:
    rows = page_named("docs/formats.md").rows("## The header")
    assert [row[1] for row in rows] == list(HEADER_FIELDS)
    assert [int(row[0]) for row in rows] == list(range(len(HEADER_FIELDS)))


def test_the_documented_tables_are_those_of_a_new_log() -> None:
    connection = sqlite3.connect(":memory:")
    connection.executescript((package_files("everlog.stores.sqlite") / "schema.sql").read_text())
    page = page_named("docs/formats.md")
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    documented = re.findall(r"^#### (\w+)$", page.text, re.MULTILINE)
    assert sorted(documented) == sorted(tables)
    for table in tables:
        columns = [(row[1], row[2]) for row in connection.execute(f"PRAGMA table_info({table})")]
        assert [(row[0], row[1]) for row in page.rows(f"#### {table}")] == columns
    triggers = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")}
    connection.close()
    assert {row[0] for row in page.rows("### The triggers")} == triggers
    assert triggers == CHECKED_TRIGGERS, "verify asks for the triggers that a new log has"


def test_the_worked_example_holds_by_its_own_text() -> None:
    """Every hash computed again from what the page shows, and the whole read by the program."""
    (block,) = [block for block in page_named("docs/formats.md").of("text") if block.text.startswith("event 1\n")]
    previous = b""
    for part in block.text.split("\n\n"):
        shown = dict(line.split(None, 1) for line in part.strip().splitlines()[1:])
        header, payload, salt = shown["header"].encode(), shown["payload"].encode(), bytes.fromhex(shown["salt"])
        event = assemble(header, payload, salt)

        assert sha256(salt + payload).hexdigest() == shown["commitment"] == event.commitment.hex()
        assert sha256(header).hexdigest() == shown["hash"]
        assert (event.previous, event.id, str(id_uuid(event.id))) == (previous, shown["id"], shown["uuid"])
        assert (header_bytes(event), canonical(event.payload)) == (header, payload)
        assert canonical(json.loads(header)) == header, "a header is RFC 8785 too"
        assert event_from_object(event_object(event)) == event == from_msgpack(to_msgpack(event))
        previous = bytes.fromhex(shown["hash"])


# ---- what every page keeps to


@each_page
def test_every_link_leads_somewhere(page: Page) -> None:
    for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", page.prose):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        path = (page.path.parent / name).resolve() if name else page.path
        assert path.exists(), f"{page.name} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", FENCE.sub("", path.read_text()), re.MULTILINE)
            assert anchor in {slug(heading) for heading in headings}, f"{page.name} links to {target}"


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@each_page
def test_files_and_tests_that_are_named_are_there(page: Page) -> None:
    """A path in backquotes is a file of this tree, and a test that is cited is one that runs."""
    for name in re.findall(r"`((?:src|tests|docs|benchmarks|\.ci)/[\w./*-]+)`", page.prose):
        assert list(ROOT.glob(name.rstrip("/"))), f"{page.name} names {name}"
    for name in re.findall(r"`(test_\w+)`", page.prose):
        assert f"def {name}(" in all_tests(), f"{page.name} cites {name}"


def all_tests() -> str:
    if not _sources:
        _sources.extend(path.read_text() for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.py"))
    return "\n".join(_sources)


_sources: list[str] = []


@each_page
def test_a_page_names_no_machine_and_marks_its_blocks(page: Page) -> None:
    assert not re.search(r"(?<![\w.~])/(home|root|Users|work|tmp)/\w", page.text)
    assert {block.language for block in page.blocks} <= LANGUAGES
    assert page.text.count("```") == 2 * len(page.blocks), "a fence is open, or not at the start of its line"


@each_page
def test_the_examples_use_only_public_ways(page: Page) -> None:
    """What a reader copies must not reach for a private name."""
    for block in page.of("python"):
        assert not re.search(r"\._[a-z]|import _", block.text), f"{page.name}:{block.line}"


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("python", "assert 1 == 2\n"),
        ("console", "$ everlog no-such-command\nfine\n"),
        ("console", "$ everlog --version\neverlog 0.0.0\n"),
        ("output", "what nothing printed\n"),
        ("toml", "[types]\n"),
    ],
)
def test_a_page_that_lies_is_noticed(language: str, text: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that cannot fail is none."""
    page = Page(DOCS / "planted.md", text, [Block(language, text, 1)])
    with pytest.raises(AssertionError):
        run_page(page, place, monkeypatch)


@pytest.mark.parametrize("arguments", [["no-such-command"], ["log", "--no-such-option"], ["schema", "no-such"]])
def test_a_command_that_does_not_exist_is_noticed(arguments: list[str]) -> None:
    with pytest.raises(click.ClickException):
        parse(arguments)
