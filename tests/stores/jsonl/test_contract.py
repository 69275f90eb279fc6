"""The JSONL store keeps the whole contract, and any history leaves it in the same state as the reference store."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.support.examples import examples

from everlog.stores.contract import Store
from everlog.stores.jsonl.index import read
from everlog.stores.jsonl.store import JsonlStore
from everlog.testing.chain_contract import ChainContract
from everlog.testing.erase_contract import EraseContract
from everlog.testing.group_contract import GroupContract
from everlog.testing.store_contract import OpenStore, StoreContract
from everlog.testing.store_machine import StoreMachine


class TestJsonlStore(StoreContract, ChainContract, EraseContract, GroupContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        return lambda: JsonlStore(tmp_path / "log")


class JsonlMachine(StoreMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(read, "PAGE_ROWS", 2)

    def open_store(self, fresh: bool) -> Store:
        return JsonlStore(Path(self.folder.name) / "log", create=fresh)

    def teardown(self) -> None:
        super().teardown()
        self.patch.undo()
        self.folder.cleanup()


class NoIndexMachine(JsonlMachine):
    """The same without an index file: at every opening all is made from the day files."""

    def open_store(self, fresh: bool) -> Store:
        return JsonlStore(Path(self.folder.name) / "log", create=fresh, index_in_memory=True)


TestJsonlMachine: Any = JsonlMachine.TestCase
TestJsonlMachine.settings = examples(25, full=40, steps=25)
TestNoIndexMachine: Any = NoIndexMachine.TestCase
TestNoIndexMachine.settings = examples(15, full=30, steps=25)
