"""Repair the end of a day file that a crash may have left: complete it, flush it, or cut what is torn."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from everlog.stores.jsonl.day_files import OpenDayFile
from everlog.stores.jsonl.folder import Folder
from everlog.stores.jsonl.index.changes import Read, last_write

_logger = logging.getLogger("everlog")


class FileEnds:
    """Only a write cuts a torn tail: a read changes no byte (G11)."""

    def __init__(self, folder: Folder, tail: OpenDayFile) -> None:
        self._folder = folder
        self._tail = tail
        self._may_cut = False
        self._reported = ""
        self.torn = ""
        """The tail that the next write cuts."""

    @contextmanager
    def cutting(self) -> Iterator[None]:
        self._may_cut = True
        try:
            yield
        finally:
            self._may_cut = False

    def repair(self, read: Read, cut: int | None) -> None:
        """Complete a last line that lacks only its newline, flush what is complete, and cut a torn tail if a write is
        open."""
        stamp = self._folder.files.stamp(self._folder.events / read.name)
        is_held = stamp is not None and self._tail.is_open(read.name, stamp.inode)
        if is_held and cut is None and read.data.endswith(b"\n"):
            self._tail.flush()
            return
        self._tail.close()
        self._tail.open(read.name)
        if cut is not None:
            self._cut(read.name, cut, read.start + len(read.data) - cut)
            read.data = read.data[: cut - read.start]
        elif read.data and not read.data.endswith(b"\n") and read.found[-1].line is not None:
            read.data += b"\n"
        begin = last_write(read)
        self._tail.settle(read.data[begin - read.start :], at=begin)

    def _cut(self, name: str, at: int, size: int) -> None:
        path = self._folder.events / name
        if self._may_cut:
            self._tail.cut(at)
            _logger.warning("%s: cut %d bytes of a write that was never finished, at byte %d", path, size, at)
            return
        self.torn = f"{name} {at}"
        if self.torn != self._reported:
            self._reported = self.torn
            _logger.warning(
                "%s: %d bytes of a write that was never finished are ignored, at byte %d; the next write cuts them",
                path,
                size,
                at,
            )
