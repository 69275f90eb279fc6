"""The command line for who may read a folder and not write it, or not even read it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run

WRITE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


def bound(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command that file modes bind, also when the tests run as root."""
    command = [sys.executable, "-m", "everlog", *arguments]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may write everywhere, and setpriv (util-linux), which takes that from it, is missing")
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    return subprocess.run(command, capture_output=True, check=False, text=True)


def refusal(*arguments: str) -> dict[str, Any]:
    found = bound(*arguments, "--json")
    assert found.returncode == 7, found
    error: dict[str, Any] = json.loads(found.stderr)["error"]
    assert error["code"] == "read_only"
    return error


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    paths = [folder, *folder.rglob("*")]
    modes = [(path, path.stat().st_mode) for path in paths]
    for path, mode in modes:
        path.chmod(mode & ~WRITE)
    try:
        yield
    finally:
        for path, mode in modes:
            path.chmod(mode)


@pytest.mark.parametrize("store", ["sqlite:log.db", "jsonl:log", "segments:log"])
def test_who_may_not_write_reads_all_that_is_there_and_is_told_who_may_write(
    everlog: Run, place: Path, store: str
) -> None:
    everlog("init", "--store", store)
    everlog("append", "note.added", "-s", "note/1", "text=hello")
    everlog("views", "run", "streams", "--to-end")
    with read_only(place):
        for asked in (["log"], ["tail", "--no-follow"], ["show", "1"], ["verify"], ["doctor"], ["snapshot", "list"]):
            assert bound(*asked).returncode == 0, asked
        listed = {row.split("\t")[0]: row.split("\t")[1] for row in bound("views").stdout.splitlines()}
        assert (listed["streams"], listed["types"]) == ("ok", "never run")
        assert bound("views", "get", "streams", "note/1").stdout.startswith("note/1\t")
        for asked in (
            ["append", "note.added", "-s", "note/1", "text=more"],
            ["purge", "note/1", "--reason", "r", "--confirm", "purge note/1"],
            ["config", "set", "actor", "user:ada"],
            ["snapshot", "create", "streams"],
            ["views", "rebuild", "streams"],
        ):
            look = re.search(r"ls -ld .*?(?= shows (?:its|their) permissions)", refusal(*asked)["hint"])
            assert look is not None, asked
            assert subprocess.run(shlex.split(look[0]), capture_output=True, check=False).returncode == 0, asked
        hint = refusal("views", "get", "types", "note.added")["hint"]
        assert hint.endswith("; this command stores nothing: everlog state types note.added")
        assert bound("state", "types", "note.added").returncode == 0
    assert everlog("verify").code == 0


def test_who_may_not_even_read_is_not_told_that_reading_works(log: Run, place: Path) -> None:
    folder = place / ".everlog"
    folder.chmod(0)
    try:
        error = refusal("log")
        assert error["hint"].startswith(f"ls -ld {folder} ")
        assert error["hint"].endswith(" shows their permissions")
        checks = bound("doctor")
        assert checks.returncode == 8
        assert "cannot be read by this user" in checks.stdout
        assert "reading works" not in checks.stdout
    finally:
        folder.chmod(0o750)


def test_where_no_log_can_be_made_the_folder_is_named_that_is_there(place: Path) -> None:
    with read_only(place):
        assert refusal("init")["hint"] == f"ls -ld {place} shows its permissions"
