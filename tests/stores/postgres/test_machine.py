"""Any history leaves the PostgreSQL store and the reference store in the same state."""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis.stateful import run_state_machine_as_test
from tests.support.examples import examples
from tests.support.postgres_schemas import Schemas

from everlog.stores.contract import Store
from everlog.stores.postgres import check, insert, queries
from everlog.stores.postgres.store import PostgresStore
from everlog.testing.store_machine import StoreMachine


class PostgresMachine(StoreMachine):
    schemas: ClassVar[Schemas]
    url = ""

    def open_store(self, fresh: bool) -> Store:
        if fresh:
            self.url = self.schemas.new()
        return PostgresStore(self.url, create=fresh)

    def teardown(self) -> None:
        super().teardown()
        if self.url:
            self.schemas.drop(self.url)


@pytest.fixture(autouse=True)
def _server(postgres_schemas: Schemas) -> None:
    PostgresMachine.schemas = postgres_schemas


@pytest.fixture
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of two rows and COPY from two rows on, so that every seam is met."""
    monkeypatch.setattr(queries, "PAGE_ROWS", 2)
    monkeypatch.setattr(check, "PAGE_ROWS", 2)
    monkeypatch.setattr(insert, "_COPY_ROWS_MIN", 2)


def test_any_history_is_the_same_as_in_memory() -> None:
    run_state_machine_as_test(PostgresMachine, settings=examples(6, full=12, steps=25))


@pytest.mark.usefixtures("_small_pages")
def test_any_history_is_the_same_across_small_pages() -> None:
    run_state_machine_as_test(PostgresMachine, settings=examples(12, full=20, steps=30))
