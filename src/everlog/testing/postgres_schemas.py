"""A schema for each test, on one server."""

from __future__ import annotations

import os
import secrets

import psycopg
from psycopg import sql


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
