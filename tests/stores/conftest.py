"""Servers and schemas for the tests of the stores that need them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from everlog.testing.postgres_schemas import Schemas
from everlog.testing.postgres_server import NoServer, start_server


@pytest.fixture(scope="session")
def postgres_schemas() -> Iterator[Schemas]:
    """A PostgreSQL to make logs in: EVERLOG_TEST_PG_DSN, or one that is started for this run and ends with it."""
    given = os.environ.get("EVERLOG_TEST_PG_DSN")
    if given:
        yield from _schemas_of(given)
        return
    try:
        server = start_server()
    except NoServer as error:
        pytest.skip(f"no PostgreSQL: {error}")
    with server:
        yield from _schemas_of(server.url)


def _schemas_of(url: str) -> Iterator[Schemas]:
    schemas = Schemas(url)
    try:
        yield schemas
    finally:
        schemas.drop_all()


@pytest.fixture
def postgres_url(postgres_schemas: Schemas) -> Iterator[str]:
    """The URL of a log that is not there yet; whatever is made there is dropped after the test."""
    url = postgres_schemas.new()
    yield url
    postgres_schemas.drop(url)
