"""The bytes that a purge leaves in the write-ahead log, until it is emptied."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

from everlog.errors import WriterStopped
from everlog.stores.sqlite import connection
from everlog.stores.staging import Staged

_WAIT_MS = 1_000

_logger = logging.getLogger("everlog")


class Scrub:
    """Whether purged bytes are left, and their removal.

    A reader of another program may hold on to the write-ahead log; then it is tried again after every write and when
    closing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.left = False

    def owed_after(self, staged: Staged) -> bool:
        """True when bytes that nobody may find any more lie in the write-ahead log once this write is committed."""
        derived = staged.shelved is not None and staged.shelved.scrub
        return bool(staged.staged_purges) or derived or self.left

    def empty_journal(self, writer: sqlite3.Connection) -> WriterStopped | None:
        """Empty the write-ahead log; the failure, if it is one after which nothing may be written."""
        told, self.left = self.left, True
        stopped = None
        try:
            self.left = not connection.empty_journal(writer, wait_ms=0 if told else _WAIT_MS)
        except sqlite3.Error as error:  # the purge itself is committed: that it stands must not be told as a failure
            _logger.warning("the write-ahead log of %s could not be emptied: %s", self._path, error)
            failure = connection.translated(error, self._path, "emptying the write-ahead log of")
            stopped = failure if isinstance(failure, WriterStopped) else None
        if self.left and not told:
            _logger.warning(
                "the purged events are gone from %s, but their bytes are still in %s-wal: a program holds it open for"
                " reading. They go when it lets go, with the next write or when the log is closed",
                self._path,
                self._path.name,
            )
        return stopped
