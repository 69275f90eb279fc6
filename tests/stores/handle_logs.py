"""Logs that several handles are opened on, made small, so that everything happens soon.

A process that opens them imports this module: what is made small here is small there, too. The process that they are
forked from imports everything that a store needs: imported later, it would be imported by every one of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import rfc8785  # noqa: F401 - the codec imports it when it meets a number that is not whole
from tests.support.handles import CATALOG, SteeredFiles

from everlog.log.log import Log
from everlog.stores import open_write, staged_group
from everlog.stores.contract import Store
from everlog.stores.jsonl.index import pending
from everlog.stores.jsonl.store import JsonlStore
from everlog.stores.postgres.store import PostgresStore
from everlog.stores.segments import open_log as segments_log
from everlog.stores.segments import writer
from everlog.stores.segments.index import live_part
from everlog.stores.segments.store import SegmentsStore
from everlog.stores.sqlite.store import SqliteStore
from everlog.views.registry import Views


def open_log(place: str, files: SteeredFiles) -> Log:
    kind, _, path = place.partition(":")
    store: Store
    if kind == "sqlite":
        store = SqliteStore(Path(path))
    elif kind == "jsonl":
        store = JsonlStore(Path(path), files=files)
    elif kind == "segments":
        store = SegmentsStore(Path(path), files=files, segment_bytes_max=6000, space_bytes=900)
    else:
        store = PostgresStore(place)
    return Log(store, CATALOG, make_views=Views)


def make_small(patch: pytest.MonkeyPatch) -> None:
    """Groups of two events, parts of six, and a writer that is refused at once."""
    patch.setattr(segments_log, "LOCK_WAIT_S", 0.02)
    patch.setattr(staged_group, "GROUP_MAX", 2)
    patch.setattr(open_write, "GROUP_MAX", 2)
    patch.setattr(live_part, "BLOCK_POSITIONS", 2)
    patch.setattr(live_part, "PART_EVENTS_MAX", 6)
    patch.setattr(writer, "PART_EVENTS_MIN", 1)
    patch.setattr(writer, "SPACE_AFTER_FRAMES", 1)
    patch.setattr(pending, "PENDING_MAX", 4)


def open_small(place: str, files: SteeredFiles) -> Log:
    """For a process of its own, where nobody puts it back."""
    make_small(pytest.MonkeyPatch())
    return open_log(place, files)
