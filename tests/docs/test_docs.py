"""The documentation is run: its code, its sessions, its commands, its links. `conftest` says which block is what."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import click
import pytest

from everlog.cli.main import cli, main
from everlog.cli.session import Session

if TYPE_CHECKING:
    from tests.docs.conftest import Block, Page

ROOT = Path(__file__).parents[2]
LANGUAGES = {"python", "output", "toml", "console", "sh", "text", "sql", "json"}
LAUNCHER_COMMANDS = ("test", "check")


# ---- what runs


def test_the_examples_of_a_page_run(page: Page, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(page, place, monkeypatch)


@pytest.mark.parametrize(
    "text",
    [
        "```python\nassert 1 == 2\n```",
        "```python\nprint(1)\n```\n\n```output\n2\n```",
        "```console\n$ everlog no-such-command\nfine\n```",
        "```console\n$ everlog --version\neverlog 0.0.0\n```",
        "```console\n$ everlog --version\n...\n$ echo $?\n3\n```",
        "```toml\n[types]\n```",
        "```python\n# lies/one.py\nTRUTH = 1\n```\n\n```python\nfrom lies.one import TRUTH\n\nassert TRUTH == 2\n```",
    ],
)
def test_a_page_that_lies_is_noticed(
    text: str, written: Callable[[str], Page], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that cannot fail is none."""
    with pytest.raises(AssertionError):
        run_page(written(text), place, monkeypatch)


def run_page(page: Page, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("docs_example")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.syspath_prepend(str(place))
    known = set(sys.modules)
    try:
        run_blocks(page, module, place, monkeypatch)
    finally:
        for name in set(sys.modules) - known:  # what the page wrote is gone with its folder
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(place)):
                del sys.modules[name]


def run_blocks(page: Page, module: ModuleType, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = ""
    for block in page.blocks:
        match block.language:
            case "python" if file_of(block, "py"):
                write_file(block, "py", place)
            case "python":
                printed = run_python(page, block, module)
            case "output":
                assert as_compared(printed, place) == as_compared(block.text, place), f"{page.name}:{block.line}"
            case "toml":
                assert file_of(block, "toml"), "the first line of a TOML block names its file: # .everlog/types.toml"
                write_file(block, "toml", place)
            case "console":
                run_session(page, block, place, monkeypatch)


def run_python(page: Page, block: Block, module: ModuleType) -> str:
    # Empty lines in front, so that a traceback names the page's own lines.
    source = "\n" * (block.line - 1) + block.text
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(source, str(page.path), "exec"), module.__dict__)
    return out.getvalue()


def file_of(block: Block, ending: str) -> str:
    """The file that a block is, if its first line names one."""
    named = re.match(rf"# (\S+\.{ending})\n", block.text)
    return named[1] if named else ""


def write_file(block: Block, ending: str, place: Path) -> None:
    path = place / file_of(block, ending)
    path.parent.mkdir(exist_ok=True)
    path.write_text(block.text, encoding="utf-8")
    importlib.invalidate_caches()


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
        told = f"{page.name}: $ {command}\nprints\n{found}\nbut the page says\n{wanted}"
        assert re.fullmatch(pattern, found), told


def test_the_readme_shows_what_the_demo_prints(
    pages: dict[str, Page], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Terminal()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        assert main(["demo", "--no-spark"]) == 0
    printed = as_compared(out.getvalue(), place).splitlines()
    shown = next(block for block in pages["README.md"].of("text") if block.text.startswith("ok "))
    assert [line for line in as_compared(shown.text, place).splitlines() if line not in printed] == []


def sessions(text: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^\$ ", text.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command.strip(), output


def everlog_arguments(command: str) -> list[str]:
    program, *arguments = shlex.split(command, comments=True)
    assert program in ("everlog", "./everlog"), f"{command!r} cannot be run here; use a block of sh"
    return arguments


VARIES = [
    (re.compile(r"\bz6Mk[1-9A-HJ-NP-Za-km-z]{44}\b"), "KEY"),
    (re.compile(r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b"), "ID"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"\b(\d{4}-)?\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z?\b"), "TIME"),
    (re.compile(r"\b[0-9a-f]{64}\b"), "HASH"),
    (re.compile(r"@[0-9a-z]{8}(?:\.[0-9a-f]{12})?\b"), "@EPOCH"),
    (re.compile(r" *\b\d+\.\d\d s\b|\b[\d,]+ per second\b|\b[0-9a-f]{8}\.\.\."), "FIGURE"),
]


def as_compared(text: str, place: Path) -> str:
    """The text without what differs from run to run, and without spaces at the ends of lines."""
    text = text.replace(str(place), "~/shop")
    for pattern, name in VARIES:
        text = pattern.sub(name, text)
    return "".join(line.rstrip() + "\n" for line in text.rstrip().splitlines())


# ---- what is parsed


def test_the_commands_of_a_page_exist_with_their_options(page: Page) -> None:
    for line, arguments in shell_commands(page):
        try:
            parse(arguments)
        except click.ClickException as error:
            pytest.fail(f"{page.name}: {line}: {error.format_message()}")


@pytest.mark.parametrize("arguments", [["no-such-command"], ["log", "--no-such-option"], ["schema", "no-such"]])
def test_a_command_that_does_not_exist_is_noticed(arguments: list[str]) -> None:
    with pytest.raises(click.ClickException):
        parse(arguments)


def shell_commands(page: Page) -> Iterator[tuple[str, list[str]]]:
    """Every call of everlog in the shell lines of a page, also behind a pipe."""
    for block in page.of("sh"):
        for line in block.text.replace("\\\n", " ").splitlines():
            words = shlex.shlex(line, posix=True, punctuation_chars=True)
            words.whitespace_split = True
            command: list[str] = []
            for word in [*words, ";"]:
                if word not in ("|", "||", "&&", ";", ">", ">>", "<"):
                    command.append(word)
                    continue
                if command[:1] in (["everlog"], ["./everlog"]):
                    yield line, command[1:]
                command = []


def parse(arguments: list[str]) -> None:
    """Read a command line as the program would, down to the last subcommand, and run nothing."""
    if arguments[:1] and arguments[0] in LAUNCHER_COMMANDS:
        return
    command: click.Command = cli
    context = command.make_context("everlog", list(arguments), obj=Session())
    while isinstance(command, click.Group):
        left = [*context._protected_args, *context.args]
        if not left:
            return
        name, found, rest = command.resolve_command(context, left)
        assert found is not None
        command, context = found, found.make_context(name, rest, parent=context)


# ---- what every page keeps to


def test_every_link_leads_somewhere(page: Page, pages: dict[str, Page]) -> None:
    for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", page.prose):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        path = (page.path.parent / name).resolve() if name else page.path
        assert path.exists(), f"{page.name} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", pages[str(path.relative_to(ROOT))].prose, re.MULTILINE)
            assert anchor in {slug(heading) for heading in headings}, f"{page.name} links to {target}"


def slug(heading: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_every_page_is_two_clicks_from_the_index(pages: dict[str, Page]) -> None:
    reached = {"docs/README.md"}
    for _ in range(2):
        reached |= {name for start in reached & set(pages) for name in links_of(pages[start])}
    assert [name for name in pages if name.startswith("docs/") and name not in reached] == []


def links_of(page: Page) -> Iterator[str]:
    for target in re.findall(r"\[[^\]]*\]\(([^)\s#]+)", page.prose):
        path = (page.path.parent / target).resolve()
        if path.is_relative_to(ROOT):
            yield str(path.relative_to(ROOT))


@pytest.fixture(scope="session")
def sources() -> str:
    return "\n".join(
        path.read_text(encoding="utf-8") for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.py")
    )


def test_files_and_tests_that_are_named_are_there(page: Page, sources: str) -> None:
    """A path in backquotes is a file of this tree, and a test that is cited is one that runs."""
    for name in re.findall(r"`((?:src|tests|docs|benchmarks|\.ci)/[\w./*-]+)`", page.prose):
        assert list(ROOT.glob(name.rstrip("/"))), f"{page.name} names {name}"
    for name in re.findall(r"`(test_\w+)`", page.prose):
        assert f"def {name}(" in sources, f"{page.name} cites {name}"


def test_a_page_names_no_machine_and_marks_its_blocks(page: Page) -> None:
    assert not re.search(r"(?<![\w.~])/(home|root|Users|work|tmp)/\w", page.text)
    assert {block.language for block in page.blocks} <= LANGUAGES
    assert page.text.count("```") == 2 * len(page.blocks), "a fence is open, or not at the start of its line"


def test_the_examples_use_only_public_ways(page: Page) -> None:
    """What a reader copies must not reach for a private name."""
    for block in page.of("python"):
        assert not re.search(r"\._[a-z]|import _", block.text), f"{page.name}:{block.line}"
