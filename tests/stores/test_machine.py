"""Any history leaves the SQLite store and the reference store in the same state."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings

from everlog.stores.contract import Store
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


TestSqliteMachine: Any = SqliteMachine.TestCase
TestSqliteMachine.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
