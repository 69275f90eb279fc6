"""A log folder made of day files that another format had: for an upgrade, which keeps every position.

The lines are in the files that they were in; the index gets the positions that they had.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from everlog.core.codec import Packed, header_hash, unpack
from everlog.core.event import Purged, Recorded
from everlog.files import Files
from everlog.stores.contract import Encoded, Identity
from everlog.stores.jsonl.folder import Folder
from everlog.stores.jsonl.index.rows import Rows, put_file
from everlog.stores.jsonl.index.schema import Index
from everlog.stores.jsonl.lines import Batch, PurgedLine, event_line, purged_line, read_line

_PIECE_BYTES = 1024 * 1024


class Placed(NamedTuple):
    """A line in a day file. Its position is its place in the sequence."""

    name: str
    at: int
    size: int  # without the newline


def carried_event(slot: Packed, *, via: str, batch: Batch | None, claims: dict[str, int]) -> bytes:
    """Return the line of an event that was recorded before. `via` is the log that wrote the line."""
    recorded: Recorded = unpack(slot)
    sealed = Encoded(recorded.event, slot.header, slot.payload, header_hash(slot.header))
    return event_line(sealed, recorded.received_at, via=via or recorded.event.origin, batch=batch, claims=claims)


def carried_purged(
    slot: Purged,
    *,
    purge: str,
    stream: str,
    sequence: int,
    via: str,
    batch: Batch | None,
    claims: dict[str, int],
) -> bytes:
    """Return the line of what a purge left before."""
    line = PurgedLine(
        hash=slot.hash,
        id=slot.id,
        origin=slot.origin,
        origin_seq=slot.origin_seq,
        previous=slot.previous,
        purge=purge,
        stream=stream,
        sequence=sequence,
        claims=claims,
        via=via,
        lamport=slot.lamport,
        hash_format=slot.hash_format,
    )
    return purged_line(line, batch=batch)


def make_folder(files: Files, path: Path, identity: Identity) -> Path:
    """Create a log folder without events, and return the folder of its day files."""
    folder = Folder(path, files)
    folder.make_parents()
    folder.make(identity, "")
    return folder.events


def make_index(
    files: Files,
    path: Path,
    lines: Iterable[tuple[Placed, bytes]],
    *,
    identity: Identity,
    own: list[str],
    branch: str,
) -> None:
    """Create the index of a folder: each line gets the next position."""
    folder = Folder(path, files)
    index = Index.make(folder.index_file, origin=identity.origin, epoch=identity.epoch, branch=branch)
    try:
        with index.change() as connection:
            rows = Rows(index, connection, own=own)
            known: dict[str, int] = {}
            for placed, text in lines:
                if placed.name not in known:
                    stamp = files.stamp(folder.events / placed.name)
                    assert stamp is not None
                    known[placed.name] = put_file(
                        connection, placed.name, stamp, _checksum(files, folder.events / placed.name)
                    )
                rows.add(known[placed.name], placed.at, placed.size, read_line(text))
            rows.end()
        index.finish()
    finally:
        index.close()


def _checksum(files: Files, path: Path) -> int:
    handle, found, at = files.open(path), 0, 0
    try:
        while data := files.read(handle, _PIECE_BYTES, at=at):
            found, at = crc32(data, found), at + len(data)
    finally:
        files.close(handle)
    return found
