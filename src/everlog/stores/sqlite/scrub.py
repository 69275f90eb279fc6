"""Remove the bytes that a purge leaves in the write-ahead log."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

from everlog.errors import WriterStopped
from everlog.stores.open_write import OpenWrite
from everlog.stores.sqlite import connection

_WAIT_MS = 1_000

_logger = logging.getLogger("everlog")


class Scrub:
    """Whether purged bytes are left, and their removal.

    A reader of another program may keep the write-ahead log in use; then removal is retried after every write and
    when the log is closed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.left = False

    def owed_after(self, staged: OpenWrite) -> bool:
        """Return whether purged bytes are in the write-ahead log once this write is committed."""
        derived = staged.state_changes is not None and staged.state_changes.scrub
        return bool(staged.staged_purges or staged.erasures or staged.scrubs) or derived or self.left

    def empty_journal(self, writer: sqlite3.Connection, *, wait: bool = False) -> WriterStopped | None:
        """Empty the write-ahead log. Return a failure after which nothing may be written, if there was one.

        It waits for readers the first time, and each time that the caller asks for it.
        """
        reported, self.left = self.left, True
        stopped = None
        try:
            self.left = not connection.empty_journal(writer, wait_ms=_WAIT_MS if wait or not reported else 0)
        except sqlite3.Error as error:  # the purge itself is committed and must not be reported as failed
            _logger.warning("the write-ahead log of %s could not be emptied: %s", self._path, error)
            failure = connection.translated(error, self._path, "emptying the write-ahead log of")
            stopped = failure if isinstance(failure, WriterStopped) else None
        if self.left and not reported:
            _logger.warning(
                "the purged events are gone from %s, but their bytes are still in %s-wal: a program holds it open for"
                " reading. They are removed when it stops, with the next write or when the log is closed",
                self._path,
                self._path.name,
            )
        return stopped
