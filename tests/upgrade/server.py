"""A PostgreSQL server, and format 1 schemas on it that are made from the text of a dump."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from everlog.transfer.upgrade.format1.postgres import PostgresLog

SCHEMA = Path(__file__).parent / "logs" / "postgres.sql"


class Server:
    def __init__(self, url: str) -> None:
        self.url = url

    def connect(self) -> Any:
        import psycopg

        return psycopg.connect(self.url, autocommit=True)

    def load(self, schema: str, dump: Path) -> None:
        """Make a schema as format 1 had it, with the rows of a dump."""
        tables = re.findall(r"^# (\w+) \((.*)\)\n((?:(?!# ).*\n)*)", dump.read_text(encoding="utf-8"), re.MULTILINE)
        with self.connect() as connection, connection.transaction():
            connection.execute(f'CREATE SCHEMA "{schema}"')
            connection.execute(f'SET LOCAL search_path TO "{schema}", pg_temp')
            connection.execute(SCHEMA.read_bytes(), prepare=False)
            for name, _, _ in tables:
                connection.execute(f'ALTER TABLE "{name}" DISABLE TRIGGER USER')
            connection.execute("TRUNCATE " + ", ".join(name for name, _, _ in tables))
            for name, columns, rows in tables:
                chosen = ", ".join(column.split()[0] for column in columns.split(", "))
                with connection.cursor().copy(f'COPY "{name}" ({chosen}) FROM STDIN') as copy:
                    copy.write(rows)
            asked = (
                "SELECT tgrelid::regclass::text, tgname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid"
                " JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE NOT tgisinternal AND nspname = %s"
            )
            for table, trigger in connection.execute(asked, (schema,)).fetchall():
                connection.execute(f'ALTER TABLE {table} ENABLE ALWAYS TRIGGER "{trigger}"')

    @contextmanager
    def opened(self, schema: str, dump: Path) -> Iterator[PostgresLog]:
        """Return the frozen reader of a new schema with the rows of a dump."""
        self.load(schema, dump)
        with self.connect() as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield PostgresLog(connection, schema)


def postgres_server() -> Iterator[Server]:
    """Yield a server for the tests of a module; they are skipped where none can be started."""
    from everlog.demo import postgres_server as servers

    try:
        server = servers.start_server()
    except servers.NoServer as error:
        pytest.skip(f"no PostgreSQL: {error}")
    with server:
        yield Server(server.url)
