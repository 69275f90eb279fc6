"""What the Tab key offers: commands and options, and the names of the log here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Run, clean_environment

import everlog as library
from everlog import Draft


def offered(place: Path, typed: str, shell: str = "bash") -> list[str]:
    """Return what is offered for the last word; a blank at the end begins a new one."""
    words = ["everlog", *typed.split(), *([""] if typed.endswith(" ") else [])]
    asked = {
        "_EVERLOG_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    if shell == "fish":  # the words before, and the word that is typed
        asked |= {"COMP_WORDS": " ".join(words[:-1]), "COMP_CWORD": words[-1]}
    environment = {**clean_environment(place.parent / "home"), **asked}
    environment.pop("EVERLOG_PROGRAMS", None)
    found = subprocess.run(
        [sys.executable, "-P", "-m", "everlog"],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stderr == ""
    lines = found.stdout.split("\n")
    if shell == "zsh":  # three lines each: kind, value, help
        return [value for kind, value in zip(lines[::3], lines[1::3], strict=False) if kind == "plain"]
    return [line.partition(",")[2].partition("\t")[0] for line in lines if line.startswith("plain,")]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("store", ["sqlite:log.db", "jsonl:."])
def test_streams_types_and_views_are_completed(everlog: Run, place: Path, shell: str, store: str) -> None:
    assert everlog("init", "--store", store, "--program", "wp").code == 0
    for stream in ("note/1", "note/2", "memo/1"):
        assert everlog("append", "note.added", "-s", stream, "text=hello").code == 0
    assert everlog("schema", "add", "deploy.finished", "service:str").code == 0

    assert offered(place, "log -s ", shell) == ["memo/1", "note/1", "note/2"]
    assert offered(place, "why no", shell) == ["note/1", "note/2"]
    assert offered(place, "append de", shell) == ["deploy.finished"]
    assert offered(place, "log --type WPC", shell) == ["WPClaimed", "WPCreated"]
    assert offered(place, "views get w", shell)[:1] == ["workpackages.board"]
    assert offered(place, "views get str", shell) == ["streams"]


def test_ids_settings_topics_and_subjects_of_programs_are_completed(everlog: Run, place: Path) -> None:
    assert everlog("init", "--program", "wp").code == 0
    for name in ("WP01", "WP02"):
        assert everlog("wp", "create", name, "A title").code == 0
    ids = everlog("log", "-q").out.split()

    assert offered(place, "show ") == ids[::-1]
    assert offered(place, f"show {ids[0].lower()[:-1]}") == ids[:1]
    assert offered(place, "wp status WP") == ["WP01", "WP02"]
    assert offered(place, "config get pro") == ["programs"]
    assert offered(place, "help age") == ["agents", "agent"]
    assert offered(place, "verif") == ["verify"]
    assert "--stream" in offered(place, "log --st")


def test_all_streams_are_offered_when_the_index_of_streams_has_some(everlog: Run, place: Path) -> None:
    assert everlog("init").code == 0
    with library.open(f"sqlite:{place}/.everlog/log.db") as found:
        found.append_batch([Draft("note.added", f"note/{number:04}", {"text": "x"}) for number in range(1500)])
    assert everlog("append", "note.added", "-s", "note/9999", "text=x").code == 0
    assert offered(place, "log -s note/00")[:2] == ["note/0000", "note/0001"]
    assert offered(place, "log -s note/149")[-1] == "note/1499"
    assert offered(place, "log -s note/99") == ["note/9999"]


def test_nothing_is_offered_and_nothing_is_said_where_there_is_no_log(place: Path) -> None:
    assert offered(place, "log -s ") == []
    (place / ".everlog").mkdir()
    (place / ".everlog" / "everlog.toml").write_text("store = 'sqlite:log.db'\nunknown = 1\n")
    assert offered(place, "log -s ") == []


def test_completing_a_name_loads_no_store(place: Path, log: Run) -> None:
    """What makes it fast: the log itself takes as long to import as all the rest together."""
    code = (
        "import sys; from pathlib import Path; from everlog.application.folder.completion import completions;"
        "completions(Path(), '', lambda names: names.streams(''));"
        "print([name for name in sys.modules if name.startswith(('everlog.log', 'everlog.wiring', 'nacl'))])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=place,
        env={**os.environ, "PYTHONPATH": clean_environment(place)["PYTHONPATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "[]\n"
