"""A log in PostgreSQL, a bare connection beside it, and a server that a test may crash."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.support.postgres_schemas import Schemas

from everlog.demo.postgres_server import NoServer, PostgresServer, start_server
from everlog.stores.postgres.store import PostgresStore

Bare = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(postgres_url)
    yield opened
    opened.close()


@pytest.fixture
def owner(store: PostgresStore, postgres_schemas: Schemas, postgres_url: str) -> Iterator[Bare]:
    """A bare connection to the same schema, as the owner of it."""
    with postgres_schemas.connect(postgres_url) as opened:
        yield opened


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that a test may crash."""
    try:
        server = start_server()
    except NoServer as error:
        pytest.skip(f"no PostgreSQL of one's own: {error}")
    with server:
        yield server
