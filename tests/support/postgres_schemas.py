"""A schema for each test, on one server for all tests of a process; `tests/conftest.py` takes the fixtures here."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from tests.places import in_memory

from everlog.demo.postgres_server import NoServer, start_server


class Schemas:
    """Gives out URLs of logs that are not there yet, and drops what was made of them."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._made: list[str] = []

    def new(self) -> str:
        name = f"test_{os.getpid()}_{secrets.token_hex(4)}"
        self._made.append(name)
        return self._url_of(name)

    def drop(self, url: str) -> None:
        name = url.rpartition("=")[2]
        self._made.remove(name)
        self._drop([name])

    def drop_all(self) -> None:
        self._drop(self._made)
        self._made.clear()

    def rows(self, url: str) -> dict[str, list[tuple[object, ...]]]:
        """Every row of every table of a log, for `reset`."""
        with self.connect(url) as connection:
            return {
                name: connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(name))).fetchall()
                for name in self._tables(connection, url)
            }

    def reset(self, url: str, rows: dict[str, list[tuple[object, ...]]]) -> None:
        """Put a log back to these rows, as its owner and without its triggers: much cheaper than making another.

        In one round trip, and with DELETE: TRUNCATE would make every table and every index a new file.
        """
        with self.connect(url) as connection:
            triggers = connection.execute(
                "SELECT relname, tgname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid"
                " JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE NOT tgisinternal AND nspname = %s",
                (url.rpartition("=")[2],),
            ).fetchall()
            script: list[sql.Composable] = [sql.SQL("BEGIN")]
            disable, empty = sql.SQL("ALTER TABLE {} DISABLE TRIGGER USER"), sql.SQL("DELETE FROM {}")
            script += [disable.format(sql.Identifier(name)) for name in {str(table) for table, _ in triggers}]
            script += [empty.format(sql.Identifier(name)) for name in self._tables(connection, url)]
            for name, kept in rows.items():
                for row in kept:
                    values = sql.SQL(", ").join(map(sql.Literal, row))
                    script.append(sql.SQL("INSERT INTO {} VALUES ({})").format(sql.Identifier(name), values))
            for table, trigger in triggers:
                enable = sql.SQL("ALTER TABLE {} ENABLE ALWAYS TRIGGER {}")
                script.append(enable.format(sql.Identifier(str(table)), sql.Identifier(str(trigger))))
            connection.execute(sql.SQL("; ").join([*script, sql.SQL("COMMIT")]))

    @staticmethod
    def _tables(connection: psycopg.Connection[tuple[object, ...]], url: str) -> list[str]:
        asked = "SELECT tablename FROM pg_tables WHERE schemaname = %s ORDER BY tablename"
        return [str(name) for (name,) in connection.execute(asked, (url.rpartition("=")[2],)).fetchall()]

    def connect(self, url: str = "") -> psycopg.Connection[tuple[object, ...]]:
        """A bare connection, as the owner, that finds the tables of a log without their schema."""
        connection = psycopg.connect(self._url, autocommit=True)
        if url:
            name = sql.Identifier(url.rpartition("=")[2])
            connection.execute(sql.SQL("SET search_path TO {}, pg_temp").format(name))
        return connection

    def _url_of(self, name: str) -> str:
        return f"{self._url}{'&' if '?' in self._url else '?'}schema={name}"

    def _drop(self, names: list[str]) -> None:
        if not names:
            return
        with psycopg.connect(self._url, autocommit=True) as connection:
            for name in names:
                statement = sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(name))
                connection.execute("SET client_min_messages TO warning")
                connection.execute(statement)


@pytest.fixture(scope="session")
def postgres_schemas() -> Iterator[Schemas]:
    """A PostgreSQL to make logs in: EVERLOG_TEST_PG_DSN, or one that is started for this run and ends with it."""
    given = os.environ.get("EVERLOG_TEST_PG_DSN")
    if given:
        yield from _schemas_of(given)
        return
    try:
        server = start_server(where=in_memory(), max_connections="400")
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
