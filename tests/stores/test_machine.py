"""Any history leaves the SQLite store and the reference store in the same state."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from everlog.stores.contract import Store
from everlog.stores.sqlite import checks, insert, queries
from everlog.stores.sqlite.store import SqliteStore
from everlog.testing.store_machine import StoreMachine


class SqliteMachine(StoreMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()

    def open_store(self, fresh: bool) -> Store:
        return SqliteStore(Path(self.folder.name) / "log.db", create=fresh)

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


class SmallPagesMachine(SqliteMachine):
    """The same with pages of two rows, blocks of four positions and two blocks at once, so that every seam is met."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(queries, "PAGE_ROWS", 2)
        self.patch.setattr(checks, "PAGE_ROWS", 2)
        self.patch.setattr(queries, "_BLOCKS_AT_ONCE", 2)
        for module in (queries, insert, checks):
            self.patch.setattr(module, "BLOCK", 4)
        self.patch.setattr(queries, "_BLOCK_OF_ID", queries._BLOCK_OF_ID.replace("128", "4").replace("127", "3"))

    def teardown(self) -> None:
        super().teardown()
        self.patch.undo()


TestSqliteMachine: Any = SqliteMachine.TestCase
TestSqliteMachine.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestSmallPagesMachine: Any = SmallPagesMachine.TestCase
TestSmallPagesMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
