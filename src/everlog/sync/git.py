"""Git and a log of day files: telling git how to unite them, and doing it when git asks.

Three things make a plain `git merge` unite the logs of clones:

    .gitattributes   beside the log, in version control: the day files are merged by the driver named everlog
    .gitignore       beside the log: what is local to a clone stays out of git, its origin above all
    merge.everlog    in the repository's own configuration, which git does not clone: what the driver is

A clone that lacks the third merges day files as plain text. That loses nothing, but two clones that appended to the
same day get a conflict; so it is told whenever such a log is opened.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from everlog.errors import InvalidSettings
from everlog.files import Files, replace_file
from everlog.lock_file import FILE_MODE

ATTRIBUTES = ".gitattributes"
ATTRIBUTE = "events/*.jsonl -text merge=everlog"
"""-text: git changes no byte of a line's end, whatever it was told elsewhere."""
IGNORED = ("clock.json", "local/", "*.everlog-tmp")
CONFIG = "merge.everlog.driver"
_TIMEOUT_S = 60

Merge = Callable[[str, bytes, bytes], bytes]
"""(name, ours, theirs) -> both in one."""


# ---- when git asks


def drive(files: Files, merge: Merge, *, ours: Path, theirs: Path, name: str) -> None:
    """Put what both files say into `ours`. If they cannot be united, an error tells why and nothing is changed."""
    united = merge(name, files.read_all(ours), files.read_all(theirs))
    replace_file(files, ours, united)


def driver_command(python: str) -> str:
    """What git is to run. If it cannot run, or refuses, git gets the text merge of both sides and a conflict: with
    `ours` left alone, the next commit would drop what the others recorded."""
    # -P: a folder named everlog in the repository must not stand in for the program.
    program = f"{shlex.quote(python)} -P -m everlog" if python else "everlog"
    escaped = program.replace("%", "%%")
    return (
        f"{escaped} merge-driver %O %A %B %P || {{ git merge-file -q -L ours -L base -L theirs %A %O %B; exit 1; }}"
    )


# ---- telling git


@dataclass
class Installed:
    """What `install` had to change; nothing if all was there."""

    repository: Path
    changed: list[str] = field(default_factory=list)


def find_repository(files: Files, folder: Path) -> Path | None:
    """The working tree that the folder is in."""
    for place in (folder.absolute(), *folder.absolute().parents):
        if files.exists(place / ".git"):
            return place
    return None


def install(files: Files, folder: Path, *, python: str) -> Installed | None:
    """Make a plain `git merge` unite this log with that of other clones; None if it is in no repository.

    Doing it twice does no harm.
    """
    repository = find_repository(files, folder)
    if repository is None:
        return None
    done = Installed(repository)
    if _add_lines(files, folder / ATTRIBUTES, "# Two clones' events are united, not merged as text.", [ATTRIBUTE]):
        done.changed.append(ATTRIBUTES)
    if _add_lines(files, folder / ".gitignore", "# Local to this copy, and derived.", IGNORED):
        done.changed.append(".gitignore")
    command = driver_command(python)
    if registered_driver(folder) != command:
        _git(folder, "config", "--local", "merge.everlog.name", "everlog: the events of both sides")
        _git(folder, "config", "--local", CONFIG, command)
        done.changed.append(CONFIG)
    return done


def _add_lines(files: Files, path: Path, title: str, lines: list[str] | tuple[str, ...]) -> bool:
    text = files.read_all(path).decode(errors="surrogateescape") if files.exists(path) else ""
    there = {line.strip() for line in text.splitlines()}
    missing = [line for line in lines if line not in there]
    if not missing:
        return False
    joined = (f"{text.rstrip()}\n" if text.strip() else "") + "\n".join([title, *missing]) + "\n"
    mode = path.stat().st_mode & 0o777 if text else FILE_MODE
    replace_file(files, path, joined.encode(errors="surrogateescape"), mode=mode)
    return True


# ---- looking whether it was told


@dataclass(frozen=True)
class Finding:
    """Something about a log in git that is not as it should be, and what to type."""

    grave: bool
    what: str
    fix: str


def merges_as_text(files: Files, folder: Path) -> bool:
    """True when the log is meant for git's driver and this clone does not know it. Cheap when it does."""
    if not files.exists(folder / ATTRIBUTES) or ATTRIBUTE.encode() not in files.read_all(folder / ATTRIBUTES):
        return False
    repository = find_repository(files, folder)
    if repository is None:
        return False
    config = repository / ".git" / "config"
    if (repository / ".git").is_dir() and files.exists(config) and b'[merge "everlog"]' in files.read_all(config):
        return False
    return not registered_driver(folder)


def registered_driver(folder: Path) -> str:
    """The command that this clone's git runs, or nothing."""
    done = _run(folder, "config", "--get", CONFIG)
    return done.stdout.strip() if done is not None and done.returncode == 0 else ""


def findings(files: Files, folder: Path) -> list[Finding] | None:
    """What is wrong with the log's place in git; None if it is in no repository."""
    if find_repository(files, folder) is None:
        return None
    found = []
    attributes = files.read_all(folder / ATTRIBUTES) if files.exists(folder / ATTRIBUTES) else b""
    command = registered_driver(folder)
    if ATTRIBUTE.encode() not in attributes:
        found.append(Finding(False, "git merges the day files as plain text", "everlog git install"))
    elif not command:
        found.append(Finding(False, "this clone's git does not know how to unite day files", "everlog git install"))
    elif not _is_runnable(command):
        what = f"git is to unite day files with {shlex.split(command)[0]}, which is not there"
        found.append(Finding(False, what, "everlog git install"))
    tracked = _listed(folder, "ls-files", "--", "local", "clock.json")
    if tracked:
        what = f"{tracked[0]} is in git, so that clones share what must be their own"
        found.append(Finding(True, what, f"git rm -r --cached {folder / 'local'}, and commit"))
    unmerged = _listed(folder, "diff", "--name-only", "--relative", "--diff-filter=U", "--", "events")
    found += [
        Finding(
            True,
            f"{name} has a conflict",
            f"everlog git install, then merge {folder / name} once more (git checkout --merge) and git add it",
        )
        for name in unmerged
    ]
    return found


def _is_runnable(command: str) -> bool:
    program = shlex.split(command.replace("%%", "%"))[0]
    return os.access(program, os.X_OK) if os.sep in program else True


# ---- asking git


def _listed(folder: Path, *arguments: str) -> list[str]:
    done = _run(folder, *arguments)
    return done.stdout.splitlines() if done is not None and done.returncode == 0 else []


def _git(folder: Path, *arguments: str) -> None:
    done = _run(folder, *arguments)
    if done is None or done.returncode != 0:
        why = "there is no program named git" if done is None else done.stderr.strip()
        raise InvalidSettings(
            f"git {arguments[0]} did not work in {folder}", why=why, hint="put it right, then: everlog git install"
        )


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    # A hook of git has variables that would lead to another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        return subprocess.run(
            ["git", "-C", str(folder), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        return None
