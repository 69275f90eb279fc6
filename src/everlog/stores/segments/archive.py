"""Packing old segments: the same bytes in a third of the room, read where they are.

The packed file gets its name when it is whole and on the disk, and only then the plain one goes. A crash between
leaves both, which is the plain one.
"""

from __future__ import annotations

from everlog.files import Files, replace_file
from everlog.stores.segments.layout import Layout
from everlog.stores.segments.source import PIECE_BYTES, PlainSource, member


def archive_segment(files: Files, layout: Layout, number: int) -> tuple[int, int]:
    """Pack one segment; its size before and after."""
    source = PlainSource(files, layout.segment(number))
    packed = bytearray()
    try:
        size = source.size
        for at in range(0, size, PIECE_BYTES):
            packed += member(source.read(at, PIECE_BYTES))
    finally:
        source.close()
    replace_file(files, layout.archive(number), bytes(packed))
    files.unlink(layout.segment(number))
    files.fsync_dir(layout.segments)
    return size, len(packed)
