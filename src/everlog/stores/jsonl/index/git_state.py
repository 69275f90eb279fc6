"""The state of git around a log: which branch is checked out, and whether git removed lines.

Usually only `.git/HEAD` is read. The program git is run when lines are missing, which is rare. If there is no git, or
it fails, the lines count as not removed by git.

Missing lines were removed by git if this holds for each file that they were in:

    file missing           git does not track it: it is in no commit of this branch, or was removed by git clean
    as git wrote it        `git diff-files` finds it unchanged, and this version is in a commit, in the reflog or in a
                           stash: checkout, switch, reset, stash, rebase, merge
    more lines             all lines of git's own version and of HEAD exist, and the missing ones are in another
                           commit, in the reflog or in a stash

A file with an unreadable line was damaged otherwise, and so was a file without a line that git has.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path

from everlog.errors import EverlogError
from everlog.files import Stamp
from everlog.stores.jsonl.day_files import scan
from everlog.stores.jsonl.folder import Folder

_TIMEOUT_S = 60
_BLOB = re.compile(rb"^[0-9a-f]{40,64}$")
_NO_BLOB = re.compile(rb"^0+$")


class GitState:
    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._files = folder.files
        self._place = _git_folder(folder)
        self._head_stamp: Stamp | None = None
        self._branch = ""

    @property
    def inside(self) -> bool:
        """Whether the log is in a working tree of git."""
        return self._place is not None

    def branch(self) -> str:
        """Return the branch that is checked out; nothing during a rebase or if there is no git."""
        if self._place is None:
            return ""
        head = self._place / "HEAD"
        stamp = self._files.stamp(head)
        if stamp != self._head_stamp:
            self._head_stamp = stamp
            text = b"" if stamp is None else self._files.read_all(head)
            self._branch = text.decode("utf-8", "replace").strip().removeprefix("ref: refs/heads/")
            if not text.startswith(b"ref: "):
                self._branch = ""
        return self._branch

    def stamps(self) -> object:
        """Return the stamps of the files that git changes with every operation on the working tree."""
        if self._place is None:
            return None
        return [self._files.stamp(self._place / name) for name in ("HEAD", "index", "logs/HEAD")]

    def commit(self) -> str:
        """Return the commit that is checked out, or nothing."""
        return _text(self._run("rev-parse", "--verify", "-q", "HEAD"))

    def removed_lines(
        self, gone: Mapping[str, Collection[str]], here: Mapping[str, Collection[str]], damaged: Collection[str]
    ) -> bool:
        """Return whether git removed all missing lines.

        `gone` has their ids by file, `here` the ids that each existing file has now, and `damaged` the files with
        unreadable lines.
        """
        if self._place is None or any(name in damaged for name in gone):
            return False
        listed = self._run("ls-files", "--stage", "--debug", "-z", "--", "log.json", "events")
        changed = self._run("diff-files", "--relative", "--name-only", "-z", "--", "events")
        if listed is None or changed is None:
            return False
        blobs, moments = _tracked(listed)
        if "log.json" not in blobs and self._folder.is_log():
            return False  # git does not track the log
        dirty = set(changed.decode("utf-8", "surrogateescape").split("\0"))
        for name, ids in gone.items():
            path = f"events/{name}"
            if name not in here:
                if path in blobs:
                    return False
            elif (
                path in blobs
                and path not in dirty
                and self._wrote(path, moments.get(path))
                and self._is_committed(path, blobs[path])
            ):
                continue
            elif not self._explains(path, blobs.get(path), ids, here[name]):
                return False
        return True

    def _wrote(self, path: str, moment: tuple[int, int] | None) -> bool:
        """Return whether the file has the time at which git wrote it: diff-files compares only whole seconds."""
        stamp = self._files.stamp(self._folder.path / path)
        if stamp is None or moment is None:
            return stamp is not None
        seconds, rest = moment
        return stamp.changed_ns == seconds * 1_000_000_000 + rest or (rest == 0 and stamp.size > 0)

    def _explains(self, path: str, blob: str | None, gone: Collection[str], here: Collection[str]) -> bool:
        """Return whether a file with lines that git has not written lacks only lines of another commit or stash."""
        known = [each for each in (blob, self._head_blob(path)) if each]
        if not self._ids(known) <= set(here):
            return False
        return set(gone) <= self._ids(self._versions(path))

    def _is_committed(self, path: str, blob: str) -> bool:
        """Return whether git has this version from a commit or a stash, and not from `git add`."""
        return blob == self._head_blob(path) or blob in self._versions(path)

    def _head_blob(self, path: str) -> str:
        return _text(self._run("rev-parse", "--verify", "-q", f"HEAD:./{path}"))

    def _versions(self, path: str) -> list[str]:
        """Return every version of a file in a commit, in the reflog or in a stash."""
        log = self._run("log", "--all", "--reflog", "-m", "--raw", "--no-abbrev", "--format=", "--", path)
        blobs = {field for line in (log or b"").splitlines() for field in line.split()[2:4] if _BLOB.match(field)}
        return [each.decode() for each in blobs if not _NO_BLOB.match(each)]

    def _ids(self, blobs: list[str]) -> set[str]:
        """Return the ids of the lines of several versions of a file."""
        ids: set[str] = set()
        for blob in blobs:
            data = self._run("cat-file", "blob", blob)
            ids |= {found.line.id for found in scan(data or b"") if found.line is not None}
        return ids

    def _run(self, *arguments: str) -> bytes | None:
        """Return the output of git, or None if it fails."""
        # A git hook sets variables that could select another repository.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        environment["GIT_OPTIONAL_LOCKS"] = "0"
        try:
            done = subprocess.run(
                ["git", "-C", str(self._folder.path), *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None  # no git, or it does not respond: then git is not known to have removed them
        return done.stdout if done.returncode == 0 else None


def _git_folder(folder: Folder) -> Path | None:
    """Return the git folder of this working tree: `.git`, or in a linked tree the folder that `.git` names."""
    path = folder.path.absolute()
    for place in (path, *path.parents):
        found = place / ".git"
        try:
            if folder.files.exists(found / "HEAD"):
                return found
            if folder.files.exists(found):
                text = folder.files.read_all(found).decode("utf-8", "surrogateescape")
                if text.startswith("gitdir: "):
                    return place / text.removeprefix("gitdir: ").strip()
        except (OSError, EverlogError):
            continue
    return None


_ENTRY = re.compile(rb"\d+ ([0-9a-f]{40,64}) ([0-3])\t([^\0]*)\0(?:\s+ctime: \d+:\d+\s+mtime: (\d+):(\d+))?")


def _tracked(listed: bytes) -> tuple[dict[str, str], dict[str, tuple[int, int]]]:
    """Return the version of each file in git's index, in a conflict our side, and when git wrote the file."""
    blobs: dict[str, str] = {}
    moments: dict[str, tuple[int, int]] = {}
    for blob, stage, name, seconds, rest in _ENTRY.findall(listed):
        path = name.decode("utf-8", "surrogateescape")
        if stage in b"02" or path not in blobs:
            blobs[path] = blob.decode()
            if seconds:
                moments[path] = (int(seconds), int(rest))
    return blobs, moments


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace").strip()
