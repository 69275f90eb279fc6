"""Any history leaves the SQLite store and the reference store in the same state."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis.stateful import rule
from tests.support.examples import examples

from everlog.stores.contract import Store
from everlog.stores.sqlite import check, claims, insert, queries, scan, tail
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
    """The same with windows of two positions, blocks of four, two blocks at once, a tail of three events, and claims
    that are sorted at once, so that every seam is met."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(scan, "WINDOW_MAX", 2)
        self.patch.setattr(queries, "_PLACES_AT_ONCE", 2)
        self.patch.setattr(check, "_ROWS_AT_ONCE", 2)
        self.patch.setattr(insert, "_REWRITTEN_AT_ONCE", 2)
        for bound, few in (("_RUNS_MAX", 2), ("_RUN_CLAIMS_MIN", 3), ("_ROWS_AT_ONCE", 2), ("_WRITES_ALONE_MIN", 3)):
            self.patch.setattr(claims, bound, few)
        self.patch.setattr(tail, "TAIL_MAX", 3)
        self.patch.setattr(tail, "_LEARNT_AT_ONCE_MAX", 5)
        self.patch.setattr(queries, "_BLOCKS_AT_ONCE", 2)
        for module in (queries, insert, check):
            self.patch.setattr(module, "BLOCK", 4)
        self.patch.setattr(queries, "_BLOCK_OF_ID", queries._BLOCK_OF_ID.replace("128", "4").replace("127", "3"))

    def teardown(self) -> None:
        super().teardown()
        self.patch.undo()


class TwoHandlesMachine(SmallPagesMachine):
    """The same again with two open stores that take turns, as two processes would: each must notice the other."""

    other: Store | None = None

    @rule()
    def take_turns(self) -> None:
        mine, self.store = self.store, self.other or self.open_store(False)
        self.other = mine

    def teardown(self) -> None:
        if self.other is not None:
            self.other.close()
        super().teardown()


TestSqliteMachine: Any = SqliteMachine.TestCase
TestSqliteMachine.settings = examples(15, full=30, steps=25)
TestSmallPagesMachine: Any = SmallPagesMachine.TestCase
TestSmallPagesMachine.settings = examples(20, full=60, steps=30)
TestTwoHandlesMachine: Any = TwoHandlesMachine.TestCase
TestTwoHandlesMachine.settings = examples(40, full=60, steps=40)
