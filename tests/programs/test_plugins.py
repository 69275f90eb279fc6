"""Programs as plugins: on, off, missing, broken; `everlog-NAME` on the path; the template of `program new`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Run, clean_environment, everlog, place

from everlog.programs import GROUPS, TYPES

__all__ = ["everlog", "place"]  # fixtures


@pytest.fixture
def off(everlog: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line in a folder with an empty log in which no program is on."""
    monkeypatch.delenv("EVERLOG_PROGRAMS")
    assert everlog("init").code == 0
    return everlog


def installed(site: Path, word: str, code: str, *, point: str = "") -> None:
    """Put a distribution with a plugin into a folder, as an installer does."""
    (site / f"{word}_module.py").write_text(code)
    info = site / f"{word}_everlog-1.5.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {word}-everlog\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(f"[everlog.programs]\n{word} = {point or f'{word}_module:PROGRAM'}\n")


@pytest.fixture
def site(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = place / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def template(everlog: Run, site: Path, word: str) -> str:
    assert everlog("program", "new", word, str(site / "source")).code == 0
    text = (site / "source" / f"{word}.py").read_text()
    for file in (site / "source").iterdir():
        file.unlink()
    return text


WORDS = {
    "agent": ("agent", "list"),
    "community": ("community", "members"),
    "control": ("control", "list"),
    "issue": ("issue", "list"),
    "wp": ("wp", "board"),
}


@pytest.mark.parametrize("word", GROUPS)
def test_a_program_that_is_not_on_is_refused_with_how_to_switch_it_on(off: Run, word: str) -> None:
    refused = off(*WORDS[word], "--json")
    assert (refused.code, refused.error["code"]) == (2, "invalid_settings")
    assert f"{word!r}" in refused.error["message"]
    assert refused.error["hint"] == f"everlog config set programs {word}"
    assert off(*refused.error["hint"].split()[1:]).code == 0
    assert off(*WORDS[word]).code in (0, 4)  # a community must be created first
    assert f"Programs: {word}" in off("--help").out


def test_init_switches_programs_on_and_adds_to_those_that_are(off: Run, place: Path) -> None:
    assert off("init", "--program", "wp").code == 0
    assert off("init", "--program", "issue", "--program", "wp").code == 0
    assert 'programs = ["wp", "issue"]' in (place / ".everlog/everlog.toml").read_text()
    assert off("config", "get", "programs").out.strip() == "wp,issue"
    assert (off("wp", "board").code, off("issue", "list").code, off("agent", "list").code) == (0, 0, 2)
    assert off("init", "elsewhere", "--program", "nope").code == 2
    assert not (place / "elsewhere").exists()


def test_a_log_that_has_events_of_a_program_needs_no_setting(off: Run) -> None:
    assert off("append", "issue.created", "-s", "issue/x", "title=x").code == 3  # its rules hold all the same
    assert off("issue", "create", "x").code == 2
    off("config", "set", "programs", "issue")
    assert off("issue", "create", "the door").code == 0
    off("config", "set", "programs", "")
    assert "the door" in off("issue", "list").out
    assert off("wp", "board").code == 2


def test_a_plugin_from_the_template_is_on_guarded_and_gone(off: Run, site: Path) -> None:
    installed(site, "barn", template(off, site, "barn"))
    refused = off("barn", "list", "--json").error
    assert "barn-everlog 1.5" in refused["why"]
    assert refused["hint"] == "everlog config set programs barn"
    assert off("config", "set", "programs", "barn").code == 0
    assert ["barn", "on", "barn-everlog 1.5"] in off("program", "list").rows
    assert "Programs: barn" in off("--help").out
    assert off("barn", "add", "1", "--text", "water").code == 0
    assert off("append", "barn.item.added", "-s", "barn/1", "text=again").code == 3
    for file in site.rglob("*"):
        if file.is_file():
            file.unlink()
    sys.modules.pop("barn_module")
    listed = off("log")
    assert (listed.code, len(listed.rows)) == (0, 1)
    assert "'barn' cannot be loaded, and is left out" in listed.err
    assert off("append", "barn.item.finished", "-s", "barn/1").code == 3  # without its rules nobody records its types
    assert off("verify").code == 0
    assert off("barn", "list").code == 2


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("PROGRAM = 3", "it must have an attribute PROGRAM"),
        (
            "from everlog import Catalog\nfrom everlog.programs import Program\n"
            "PROGRAM = Program(name='issues', types=Catalog())",
            "everlog has a built-in program 'issues'",
        ),
        ("TYPE issue.created", "the built-in program 'issues' has it"),
        ("TYPE note.added", "everlog itself has it"),
    ],
)
def test_a_plugin_that_cannot_be_used_is_named_with_its_distribution(
    off: Run, site: Path, monkeypatch: pytest.MonkeyPatch, code: str, why: str
) -> None:
    if code.startswith("TYPE"):
        code = template(off, site, "odd").replace("odd.item.added", code.split()[1])
    installed(site, "odd", code)
    sys.modules.pop("odd_module", None)
    monkeypatch.setenv("EVERLOG_PROGRAMS", "wp,odd")
    found = off("log")
    assert found.code == 0
    assert "'odd'" in found.err or "'issues'" in found.err
    assert why in found.err
    assert "odd-everlog 1.5" in found.err
    assert off("wp", "board").code == 0
    assert off("append", "note.added", "-s", "note/1", "text=x").code == 0


def test_a_program_on_the_path_runs_as_with_git(place: Path) -> None:
    (place / "below").mkdir()
    script = place / "everlog-hello"
    script.write_text('#!/bin/sh\necho "$@" in "$PWD"\nexit 9\n')
    script.chmod(0o755)
    environment = {**clean_environment(place), "PATH": f"{place}:{os.environ['PATH']}"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "everlog", *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    found = run("-C", str(place / "below"), "hello", "--help", "x y")
    assert (found.returncode, found.stdout) == (9, f"--help x y in {place / 'below'}\n")
    assert run("--json", "hello").returncode == 2
    assert json.loads(run("hullo", "--json").stderr)["error"]["code"] == "usage"


def test_the_template_passes_the_suite_of_the_programs_of_everlog(off: Run, place: Path) -> None:
    assert off("program", "new", "barn").code == 0
    assert off("program", "new", "barn").code == 5
    for taken in ("wp", "log", "issues", "Barn", "class", "a-b"):
        assert off("program", "new", taken).code == 3, taken
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"],
        cwd=place / "barn",
        env=clean_environment(place),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout
    assert "8 passed" in ran.stdout


def test_no_entry_point_is_looked_at_by_a_command_that_needs_none(off: Run, place: Path) -> None:
    """The programs of everlog are found without the metadata of what is installed, and none is imported."""
    off("append", "note.added", "-s", "note/1", "text=x")
    code = (
        "import sys; from everlog.cli.main import main; main(['log', '-n', '5']);"
        "bad = [m for m in sys.modules if m.startswith(('importlib.metadata', 'everlog.programs.'))"
        f" and m.partition('everlog.programs.')[2].partition('.')[0] in {['', *TYPES]!r}];"
        "sys.exit(bool(bad) and str(bad))"
    )
    environment = {**clean_environment(place), "EVERLOG_PROGRAMS": ",".join(GROUPS)}
    ran = subprocess.run([sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.count("note.added") == 1
