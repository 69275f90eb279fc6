"""Any history leaves the segments store and the reference store in the same state."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.support.examples import examples

from everlog.stores import open_write, staged_group
from everlog.stores.contract import Store
from everlog.stores.segments import groups, writer
from everlog.stores.segments.index import live_part
from everlog.stores.segments.store import SegmentsStore
from everlog.testing.store_machine import StoreMachine


class SegmentsMachine(StoreMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()

    def open_store(self, fresh: bool) -> Store:
        return SegmentsStore(Path(self.folder.name) / "log", create=fresh)

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


class SmallPiecesMachine(SegmentsMachine):
    """The same with groups and blocks of two positions, parts of six events and segments of two kilobytes."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(live_part, "BLOCK_POSITIONS", 2)
        self.patch.setattr(staged_group, "GROUP_MAX", 2)
        self.patch.setattr(open_write, "GROUP_MAX", 2)
        self.patch.setattr(groups, "HELD_PER_RECORD", 1)
        self.patch.setattr(live_part, "PART_EVENTS_MAX", 6)
        self.patch.setattr(writer, "PART_EVENTS_MIN", 1)
        self.patch.setattr(writer, "SPACE_AFTER_FRAMES", 1)

    def open_store(self, fresh: bool) -> Store:
        return SegmentsStore(Path(self.folder.name) / "log", create=fresh, segment_bytes_max=2048, space_bytes=700)

    def teardown(self) -> None:
        super().teardown()
        self.patch.undo()


TestSegmentsMachine: Any = SegmentsMachine.TestCase
TestSegmentsMachine.settings = examples(12, full=20, steps=25)
TestSmallPiecesMachine: Any = SmallPiecesMachine.TestCase
TestSmallPiecesMachine.settings = examples(20, full=50, steps=30)
