"""The positions of each branch, kept for when it is checked out again.

    local/epochs/<epoch>-<branch>.db    the index of an epoch that is not in use; the branch as a hash of its name

Each branch has its own epoch: an event may have another position, or none, on another branch. When git removes lines,
the index in use is stored here, and the one of the branch is used again if everything that it knows is in the files.
Otherwise a new one is built, with a new epoch. The oldest are deleted; the events are in the day files.
"""

from __future__ import annotations

import hashlib
import logging
import re
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

from everlog.errors import EverlogError
from everlog.files import Files
from everlog.stores.jsonl.day_files import Found, day_names, read_from, scan
from everlog.stores.jsonl.folder import Folder
from everlog.stores.jsonl.index.bad_lines import MARKER, code_of
from everlog.stores.jsonl.index.changes import FileChanges
from everlog.stores.jsonl.index.git_state import GitState
from everlog.stores.jsonl.index.record import rows_of
from everlog.stores.jsonl.index.schema import END, HOLE, Index, Unusable, id_of
from everlog.stores.jsonl.lines import EventLine, PurgedLine, PurgeLine

KEPT_MAX = 8
_NAME = re.compile(r"[0-9a-z]+-[0-9a-f]*\.db")
_logger = logging.getLogger("everlog")


@dataclass
class Here:
    """What the day files hold."""

    events: set[str] = field(default_factory=set)
    purged: set[str] = field(default_factory=set)
    purges: set[str] = field(default_factory=set)

    def add(self, found: list[Found]) -> None:
        for each in found:
            match each.line:
                case EventLine():
                    self.events.add(each.line.id)
                case PurgedLine():
                    self.purged.add(each.line.id)
                case PurgeLine():
                    self.purges.add(each.line.id)

    def lacks_purge_of(self, index: Index) -> bool:
        """Return whether a purge of the index, or what it left of an event, is missing from the files. If only the
        event is back, and its purge is still here, it stays purged."""
        purges = {row[0] for row in index.fetch("SELECT purge FROM purges")}
        purged = {row[0] for row in index.fetch("SELECT id FROM purged")}
        return not (purges <= self.purges and purged <= self.purged | self.events)

    def holds(self, index: Index) -> bool:
        """Return whether everything in the index is in the files."""
        events = {id_of(row[0]) for row in index.fetch("SELECT id FROM ids")}
        return events <= self.events | self.purged and not self.lacks_purge_of(index)


def read_here(files: Files, events: Path) -> Here:
    here = Here()
    for name in day_names(files, events):
        here.add(list(scan(read_from(files, events / name))))
    return here


# ---- which lines are missing, and why


def lines_gone(index: Index, folder: Folder, change: FileChanges) -> dict[str, set[str]]:
    """The ids of lines that the index knows and no file has, by the file that they were in."""
    reread = [read.name for read in change.read if not read.start]
    now = {found.line.id for read in change.read for found in read.found if found.line is not None}
    gone: dict[str, set[str]] = {}
    for event_id, *_, name, _at in rows_of(index, [*change.gone, *reread]):
        if event_id not in now:
            gone.setdefault(name, set()).add(event_id)
    for _, event_id, name in index.missing():
        if event_id not in now and not event_id.startswith(HOLE):
            gone.setdefault(name, set()).add(event_id)
    if (reread or change.gone) and index.fetch("SELECT 1 FROM purges LIMIT 1"):
        here = read_here(folder.files, folder.events)
        if here.lacks_purge_of(index):
            for name in (*reread, *change.gone):
                gone.setdefault(name, set())
    return gone


def removed_by_git(git: GitState, folder: Folder, gone: dict[str, set[str]]) -> bool:
    here: dict[str, set[str]] = {}
    damaged = set()
    for name in gone:
        if folder.files.exists(folder.events / name):
            found = list(scan(read_from(folder.files, folder.events / name)))
            here[name] = {each.line.id for each in found if each.line is not None}
            if any(each.line is None and code_of(each.reason) != MARKER for each in found):
                damaged.add(name)
    return git.removed_lines(gone, here, damaged)


# ---- keeping and finding


class Kept:
    """The stored indexes of epochs that are not in use."""

    def __init__(self, folder: Folder) -> None:
        self._files = folder.files
        self._path = folder.local / "epochs"

    def put(self, index: Index) -> None:
        """Store a copy of an index. A log works without it, so a failure is only logged."""
        if index.damage(0, END) is not None:
            return
        name = f"{index.epoch}-{_hash(index.branch)}.db"
        draft = self._path / f"{name}.new"
        try:
            self._files.make_dir(self._path)
            for old in self._files.names(self._path):
                if old.startswith(f"{index.epoch}-") or old.endswith(".new"):
                    self._files.unlink(self._path / old)
            index.copy_to(draft)
            self._files.rename(draft, self._path / name)
            self._prune()
        except (OSError, EverlogError, sqlite3.Error) as error:
            _logger.warning("the positions of branch %s could not be kept: %s", index.branch or "(none)", error)

    def remove(self, epoch: str) -> None:
        """Remove the copy of an epoch that is in use again: nobody else may continue with it."""
        for name in self._names():
            if name.startswith(f"{epoch}-"):
                self._files.unlink(self._path / name)

    def epochs(self) -> set[str]:
        return {name.partition("-")[0] for name in self._names()}

    def has(self, branch: str) -> bool:
        return any(name.endswith(f"-{_hash(branch)}.db") for name in self._names())

    def best(self, here: Here, branch: str, *, only_branch: bool, in_use: str) -> Index | None:
        """The kept index that knows the most of what is in the files and nothing else, one of the branch first.

        What a crash left of the epoch that is in use is older, and does not count."""
        suffix = f"-{_hash(branch)}.db"
        best: Index | None = None
        best_worth = (False, -1)
        for name in self._names():
            of_branch = bool(branch) and name.endswith(suffix)
            if (only_branch and not of_branch) or name.startswith(f"{in_use}-"):
                continue
            try:
                index = Index.open_as_it_stands(self._path / name)
            except Unusable as error:
                _logger.warning("%s is not used: %s", self._path / name, error)
                continue
            worth = (of_branch, int(index.head()))
            if worth > best_worth and here.holds(index):
                best, best_worth, index = index, worth, best or index
            if index is not best:
                index.close()
        return best

    def _names(self) -> list[str]:
        if not self._files.exists(self._path):
            return []
        return [name for name in self._files.names(self._path) if _NAME.fullmatch(name)]

    def _prune(self) -> None:
        stamps = [(self._files.stamp(self._path / name), name) for name in self._names()]
        newest_last = sorted((stamp.changed_ns, name) for stamp, name in stamps if stamp is not None)
        for _, name in newest_last[:-KEPT_MAX]:
            self._files.unlink(self._path / name)


def _hash(branch: str) -> str:
    return hashlib.sha256(branch.encode("utf-8", "replace")).hexdigest()[:12] if branch else ""


# ---- which epoch to use


@dataclass(frozen=True)
class Following:
    """The index to use for what is checked out: a kept one; or, if `may_go_on`, a copy of the current one with a new
    epoch; or a rebuilt one."""

    branch: str
    kept: Index | None
    may_go_on: bool


def follow_git(index: Index, folder: Folder, git: GitState, kept: Kept, change: FileChanges) -> Following | None:
    """Return which epoch to use, if git removed lines or another branch is checked out; None to keep the current
    one."""
    branch = git.branch()
    other = bool(branch and index.branch and branch != index.branch)
    if change.appended_only and not other and not index.missing():
        return None
    gone = lines_gone(index, folder, change)
    if gone and not removed_by_git(git, folder, gone):
        return None  # damage
    if gone or other:
        return find_epoch(index, folder, kept, branch, may_go_on=not gone)
    if branch and kept.has(branch):
        found = find_epoch(index, folder, kept, branch, may_go_on=True)
        if found.kept is not None and found.kept.head() > index.head():
            return found  # what a stash or a reset removed is back
    return None


def find_epoch(index: Index, folder: Folder, kept: Kept, branch: str, *, may_go_on: bool) -> Following:
    here = read_here(folder.files, folder.events)
    return Following(branch, kept.best(here, branch, only_branch=may_go_on, in_use=index.epoch), may_go_on)
