"""The two stores that live in files, opened on a disk in memory and made small, so that everything happens soon."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from everlog.files import Files
from everlog.stores import open_write, staged_group
from everlog.stores.contract import Identity, Store
from everlog.stores.jsonl.store import JsonlStore
from everlog.stores.segments import writer
from everlog.stores.segments.index import live_part
from everlog.stores.segments.store import SegmentsStore

FOLDER = Path("/logs")
ROOT = FOLDER / "log"
DAY_US = 86_400_000_000
NOON_US = 1_800_000_000_000_000


class Clock:
    """A clock that is moved by hand."""

    def __init__(self, us: int = NOON_US) -> None:
        self.us = us

    def __call__(self) -> int:
        return self.us


@dataclass(frozen=True)
class Subject:
    """A store, and how to open one: `rotating` begins a new file after a few writes, or with every half day."""

    name: str
    _open: Callable[..., Store]

    def open(
        self,
        files: Files,
        path: Path = ROOT,
        *,
        clock: Clock | None = None,
        rotating: bool = False,
        create: bool = True,
        identity: Identity | None = None,
    ) -> Store:
        return self._open(files, path, clock or Clock(), rotating, create, identity)


def _jsonl(
    files: Files, path: Path, clock: Clock, rotating: bool, create: bool, identity: Identity | None
) -> JsonlStore:
    # The index is an SQLite file, which is derived: what becomes of that one is looked at apart (`derived`).
    return JsonlStore(path, files=files, index_in_memory=True, now_us=clock, create=create, identity=identity)


def _segments(
    files: Files, path: Path, clock: Clock, rotating: bool, create: bool, identity: Identity | None
) -> SegmentsStore:
    return SegmentsStore(
        path,
        files=files,
        create=create,
        now_us=clock,
        identity=identity,
        segment_bytes_max=700 if rotating else 3000,
        space_bytes=600,
    )


SUBJECTS = {"jsonl": Subject("jsonl", _jsonl), "segments": Subject("segments", _segments)}


@contextmanager
def small_and_quiet() -> Iterator[None]:
    """Small groups and pieces of segments, and no line in the program's log for each of thousands of torn tails."""
    logger = logging.getLogger("everlog")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with ExitStack() as stack:
            for module, name, value in (
                (staged_group, "GROUP_MAX", 2),
                (open_write, "GROUP_MAX", 2),
                (live_part, "BLOCK_POSITIONS", 2),
                (live_part, "PART_EVENTS_MAX", 8),
                (writer, "PART_EVENTS_MIN", 1),
                (writer, "SPACE_AFTER_FRAMES", 2),
            ):
                stack.enter_context(mock.patch.object(module, name, value))
            yield
    finally:
        logger.setLevel(level)
