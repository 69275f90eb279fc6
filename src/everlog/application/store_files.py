"""The files that some stores have: segments, which can be shown and compressed, and the index of day files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from everlog import wiring
from everlog.application.folder.open import Location
from everlog.core.event import Recorded
from everlog.errors import InvalidSettings
from everlog.log.log import Log
from everlog.stores.contract import Archiving, Indexed


class SegmentEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a segment file: its head, a frame with its events, bytes that are not a frame, or its end."""

    file: Path
    start: int
    end: int
    kind: str
    text: str
    records: Sequence[Recorded]

    @property
    def is_damaged(self) -> bool:
        return self.kind == "damaged"


class ArchivedSegment(msgspec.Struct, frozen=True, kw_only=True):
    """A segment that was compressed."""

    columns: ClassVar[tuple[str, ...]] = ("segment", "bytes", "packed_bytes")

    segment: int
    bytes: int
    packed_bytes: int


class RebuiltIndex(msgspec.Struct, frozen=True, kw_only=True):
    """The number of events in a rebuilt index, and the new epoch, which resets existing cursors."""

    events: int
    epoch: str


def segment_files(location: Location) -> list[Path]:
    """Return the segment files of a log, which is not opened."""
    return wiring.segment_files(
        location.settings().settings.store, base=location.directory if location.url else location.folder()
    )


def segment_entries(files: Sequence[Path]) -> Iterator[SegmentEntry]:
    """Yield the content of segment files as they are, damaged or not."""
    for path in files:
        for one in wiring.segment_entries(path):
            yield SegmentEntry(
                file=path, start=one.start, end=one.end, kind=one.kind, text=one.text, records=one.records
            )


def archive_segments(log: Log, *, days: int) -> list[ArchivedSegment]:
    """Compress the segments that are older than this. They stay in place and can be read as before."""
    store: object = log.stored
    if not isinstance(store, Archiving):
        raise InvalidSettings(
            "this log has no segments",
            why="only a segments: log stores its events in segment files",
            hint="everlog copy copies a log into another store",
        )
    return [
        ArchivedSegment(segment=number, bytes=before, packed_bytes=after)
        for number, before, after in store.archive(days=days)
    ]


def rebuild_index(log: Log, *, accept_missing: bool = False) -> RebuiltIndex:
    """Rebuild the index of a log in text files from those files."""
    store: object = log.stored
    if not isinstance(store, Indexed):
        raise InvalidSettings(
            "this log has no index to rebuild",
            why="only a jsonl: log stores its events in text files with a separate index",
            hint="everlog verify checks this log from its bytes",
        )
    events = store.rebuild_index(accept_missing=accept_missing)
    return RebuiltIndex(events=events, epoch=log.identity.epoch)
