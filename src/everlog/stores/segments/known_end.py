"""Where the live segment ends, in a small file of its own: written after every commit, and when the log is closed.

Whole frames that vanish from the end of a file leave no trace in it: the frame before them is a good end. This file
remembers a later one. It is derived and never flushed, which is safe: what it speaks of was flushed before it was
written, so that a power cut makes it older than the segment and never newer, and a kill leaves it as it is. If it is
not there, nothing is missed.

While it says `closed`, nothing was written behind that end. A writer takes the word back, and flushes that, before
its first frame: so whoever is killed later leaves an end that is known to have been reached, and no promise that it
is the last one. A file of an earlier version makes no such promise.
"""

from __future__ import annotations

import logging

import msgspec
from msgspec.structs import replace

from everlog.core.event import Position
from everlog.errors import EverlogError, WriterStopped
from everlog.files import Files, Handle
from everlog.stores.segments.frame import enclose, open_body
from everlog.stores.segments.layout import Layout

_logger = logging.getLogger("everlog")


class KnownEnd(msgspec.Struct, frozen=True, array_like=True):
    log_id: str
    number: int
    end: int
    head: Position
    closed: bool = False  # nothing was written behind it


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(KnownEnd).decode


class EndFile:
    """The file, kept open by the writer. What fails here costs only the knowledge of the end."""

    def __init__(self, files: Files, layout: Layout) -> None:
        self._files = files
        self._layout = layout
        self._handle: Handle | None = None
        self._failed = False

    def save(self, known: KnownEnd) -> None:
        if self._failed:
            return
        try:
            if self._handle is None:
                if not self._files.exists(self._layout.index):
                    self._files.make_dir(self._layout.index)
                self._handle = self._files.open(self._layout.end, write=True, create=True)
            self._files.write_all(self._handle, enclose(_encode(known)), at=0)
        except WriterStopped:
            raise
        except (OSError, EverlogError) as error:
            self._failed = True
            _logger.warning("the end of the log could not be kept in %s: %s", self._layout.end, error)

    def close(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            self._files.close(handle)


def take_back_closed(files: Files, layout: Layout, *, log_id: str) -> None:
    """Something is about to be written behind the known end: when this returns, no crash brings `closed` back."""
    if not files.exists(layout.end):  # somebody may have removed it, and it must not be there again
        files.fsync_dir(layout.index if files.exists(layout.index) else layout.root)
        return
    known = read_end(files, layout, log_id=log_id)
    handle = files.open(layout.end, write=True)
    try:
        if known is not None and known.closed:
            files.write_all(handle, enclose(_encode(replace(known, closed=False))), at=0)
        files.fsync(handle)  # also if it says so already: whoever wrote that may have been killed before the flush
    finally:
        files.close(handle)


def read_end(files: Files, layout: Layout, *, log_id: str) -> KnownEnd | None:
    """What was kept for this log, or None if it is not there or not what was written."""
    if not files.exists(layout.end):
        return None
    try:
        body = open_body(memoryview(files.read_all(layout.end)))
        known = None if body is None else _decode(body)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return known if known is not None and known.log_id == log_id else None
