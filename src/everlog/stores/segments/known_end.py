"""Where the live segment ended when the log was closed, in a small file of its own.

Whole frames that vanish from the end of a file leave no trace in it: the frame before them is a good end. This file
remembers a later one. It is derived and not flushed when the log is closed, which is safe: what it speaks of was
flushed before it was written, so that a crash makes it older than the segment and never newer. If it is not there,
nothing is missed.

While it says `closed`, nothing was written behind that end. A writer takes the word back, and flushes that, before
its first frame: so whoever is killed later leaves an end that is known to have been reached, and no promise that it
is the last one. A file of an earlier version makes no such promise.
"""

from __future__ import annotations

import logging

import msgspec
from msgspec.structs import replace

from everlog.core.event import Position
from everlog.errors import EverlogError
from everlog.files import Files
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


def save_end(files: Files, layout: Layout, known: KnownEnd) -> None:
    try:
        if not files.exists(layout.index):
            files.make_dir(layout.index)
        handle = files.open(layout.end, write=True, create=True)
        try:
            files.write_all(handle, enclose(_encode(known)), at=0)
        finally:
            files.close(handle)
    except (OSError, EverlogError) as error:
        _logger.warning("the end of the log could not be kept in %s: %s", layout.end, error)


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
