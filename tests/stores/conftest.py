"""Servers and schemas for the tests of the stores that need them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.postgres_schemas import Schemas

from everlog.demo.postgres_server import NoServer, start_server

RAM = Path("/dev/shm")
RAM_BYTES_MIN = 2 * 1024**3


@pytest.fixture(scope="session")
def postgres_schemas() -> Iterator[Schemas]:
    """A PostgreSQL to make logs in: EVERLOG_TEST_PG_DSN, or one that is started for this run and ends with it."""
    given = os.environ.get("EVERLOG_TEST_PG_DSN")
    if given:
        yield from _schemas_of(given)
        return
    try:
        server = start_server(where=_in_memory())
    except NoServer as error:
        pytest.skip(f"no PostgreSQL: {error}")
    with server:
        yield from _schemas_of(server.url)


def _in_memory() -> Path | None:
    """A folder where a flush costs nothing, if there is one with room enough."""
    return RAM if RAM.is_dir() and shutil.disk_usage(RAM).free >= RAM_BYTES_MIN else None


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
