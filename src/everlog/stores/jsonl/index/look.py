"""Whether anything has changed since the last look, at the cost of three `stat` calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from everlog.files import Stamp
from everlog.stores.jsonl.day_files import day_name, day_names, open_names
from everlog.stores.jsonl.folder import Folder

_DAY_US = 86_400_000_000
_RACY_NS = 50_000_000


class Fingerprint(NamedTuple):
    """The folder, its newest files, the index, and where lines are missing the state of git."""

    folder: Stamp | None
    newest: dict[str, Stamp | None]
    index_inode: tuple[int, int] | None
    git: object
    version: int

    def after_write(self, name: str, stamp: Stamp) -> Fingerprint | None:
        """Return the fingerprint after an append to a file, or None if more than that changed."""
        if self.newest.get(name) is None:
            return None
        return self._replace(newest={**self.newest, name: stamp})


class Look:
    """Takes the stamps of the folder and of its newest files."""

    def __init__(self, folder: Folder, now_us: Callable[[], int]) -> None:
        self._files, self._events = folder.files, folder.events
        self._now_us = now_us
        self._folder_seen: object = ()
        self._newest: list[str] = []

    def today(self) -> str:
        return day_name(self._now_us())

    def take(self, index: Path | None, *, git: object, version: int) -> Fingerprint:
        files, events = self._files, self._events
        folder = files.stamp(events)
        day = self._now_us() // _DAY_US
        if (folder, day) != self._folder_seen:
            self._folder_seen = (folder, day)
            self._newest = open_names(day_names(files, events), self.today())
        looked_at = self._newest
        if folder is not None and 0 <= time.time_ns() - folder.changed_ns < _RACY_NS:
            # Within one tick of the clock the folder may change twice and keep its time, as git has it with files,
            # too.
            looked_at = day_names(files, events)
        newest = {name: files.stamp(events / name) for name in looked_at}
        return Fingerprint(folder, newest, None if index is None else files.inode(index), git, version)
