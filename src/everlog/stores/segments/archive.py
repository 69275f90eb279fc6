"""Pack old segments: the same bytes in a third of the space, readable without unpacking the file.

The packed file gets its name when it is complete and on the disk; only then is the plain file removed. A crash in
between leaves both, and the plain one counts: it is equal, or a purge has rewritten it since. The next writer
verifies the plain file and removes the packed one, so that a purge reaches every copy.
"""

from __future__ import annotations

from everlog.errors import Damaged
from everlog.files import Files, replace_file
from everlog.stores.segments.format.frame import mark_of
from everlog.stores.segments.format.frames import Gap, TailKind, Walk
from everlog.stores.segments.format.layout import Layout
from everlog.stores.segments.format.source import PlainSource
from everlog.stores.segments.state import LogState


def archive_segment(files: Files, layout: Layout, number: int) -> tuple[int, int]:
    """Pack one segment. Return its size before and after."""
    from everlog.stores.segments.format.archive_source import PIECE_BYTES, member

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


def remove_superseded(files: Files, layout: Layout, state: LogState) -> None:
    """Remove the packed copy of each segment that exists both plain and packed, as a crash can leave it."""
    doubled = layout.doubled(files)
    for segment in state.segments:
        if segment.number not in doubled:
            continue
        path = layout.segment(segment.number)
        assert segment.header is not None  # checked when the writer opened the log
        mark = mark_of(state.identity.log_id, segment.number)
        with state.source(segment) as source:
            walk = Walk(source, mark=mark, start=segment.start, head=segment.header.before, limit=segment.limit)
            whole = not any(isinstance(found, Gap) for found in walk) and walk.tail is TailKind.END
        if not whole:
            raise Damaged(
                f"{path} is damaged, and {layout.archive(segment.number).name} is beside it",
                why="the packed file may be older than a purge, so it is not used instead of the plain one",
                hint="everlog dump shows both; keep the one that is whole, or restore a backup",
            )
        files.unlink(layout.archive(segment.number))
    if doubled:
        files.fsync_dir(layout.segments)
