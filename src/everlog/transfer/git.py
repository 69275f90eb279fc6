"""Git and a log of day files: configure git to merge them, and merge them when git asks.

Three things make a plain `git merge` merge the logs of clones:

    .gitattributes   beside the log, in version control: the day files are merged by the driver named everlog
    .gitignore       beside the log: what is local to a clone, such as its origin, stays out of git
    merge.everlog    in the repository's own configuration, which git does not clone: what the driver is

A clone that lacks the third merges day files as plain text. That loses nothing, but two clones that appended to the
same day get a conflict, so opening such a log reports it.
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
"""-text: git never converts line ends, whatever else is configured."""
IGNORED = ("clock.json", "local/", "*.everlog-tmp")
CONFIG = "merge.everlog.driver"
_TIMEOUT_S = 60

Merge = Callable[[str, bytes, bytes], bytes]
"""(name, ours, theirs) -> the merged file."""


# ---- when git asks


def drive(files: Files, merge: Merge, *, ours: Path, theirs: Path, name: str) -> None:
    """Merge both files into `ours`. If they cannot be merged, raise an error with the reason and change nothing."""
    united = merge(name, files.read_all(ours), files.read_all(theirs))
    replace_file(files, ours, united)


def driver_command(python: str) -> str:
    """Return the command that git runs. If it cannot run, or refuses, git gets the text merge of both sides and a
    conflict: if `ours` were left alone, the next commit would drop what the other clone recorded."""
    # -P: a folder named everlog in the repository must not replace the program.
    program = f"{shlex.quote(python)} -P -m everlog" if python else "everlog"
    escaped = program.replace("%", "%%")
    return (
        f"{escaped} merge-driver %O %A %B %P || {{ git merge-file -q -L ours -L base -L theirs %A %O %B; exit 1; }}"
    )


# ---- configuring git


@dataclass
class Installed:
    """What `install` changed; empty if nothing was missing."""

    repository: Path
    changed: list[str] = field(default_factory=list)


def find_repository(files: Files, folder: Path) -> Path | None:
    """Return the working tree that contains the folder."""
    for place in (folder.absolute(), *folder.absolute().parents):
        if files.exists(place / ".git"):
            return place
    return None


def install(files: Files, folder: Path, *, python: str) -> Installed | None:
    """Make a plain `git merge` merge this log with that of other clones; return None outside of a repository.

    Doing it twice does no harm.
    """
    repository = find_repository(files, folder)
    if repository is None:
        return None
    done = Installed(repository)
    if _add_lines(
        files, folder / ATTRIBUTES, "# Events of two clones are merged by everlog, not as text.", [ATTRIBUTE]
    ):
        done.changed.append(ATTRIBUTES)
    if _add_lines(files, folder / ".gitignore", "# Local to this clone, and derived.", IGNORED):
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


# ---- checking the configuration


@dataclass(frozen=True)
class Finding:
    """A problem of a log in git, and the command that fixes it."""

    grave: bool
    what: str
    fix: str


def merges_as_text(files: Files, folder: Path) -> bool:
    """Return True when the log needs the merge driver and this clone does not have it. Fast when it has."""
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
    """Return the command that the git of this clone runs, or an empty text."""
    done = _run(folder, "config", "--get", CONFIG)
    return done.stdout.strip() if done is not None and done.returncode == 0 else ""


def findings(files: Files, folder: Path) -> list[Finding] | None:
    """Return the problems of the log in git; None outside of a repository."""
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


# ---- calling git


def _listed(folder: Path, *arguments: str) -> list[str]:
    done = _run(folder, *arguments)
    return done.stdout.splitlines() if done is not None and done.returncode == 0 else []


def _git(folder: Path, *arguments: str) -> None:
    done = _run(folder, *arguments)
    if done is None or done.returncode != 0:
        why = "there is no program named git" if done is None else done.stderr.strip()
        raise InvalidSettings(
            f"git {arguments[0]} did not work in {folder}", why=why, hint="correct that, then: everlog git install"
        )


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    # A git hook has variables that point to another repository.
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
