"""Logs of every store that can be copied and put back, as people do it."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from tests.conftest import CATALOG
from tests.support.postgres_schemas import Schemas

from everlog.log.log import Log
from everlog.views.registry import Views
from everlog.wiring import open_store

KINDS = ["sqlite", "jsonl", "segments", "postgres"]


class Place:
    """A log that can be copied and put back in the ways that people use."""

    def __init__(self, kind: str, folder: Path, url: str = "") -> None:
        self.kind = kind
        self.folder = folder / "here"
        self.folder.mkdir(parents=True)
        self._backup = folder / "backup"
        name = "log.db" if kind == "sqlite" else "log"
        self.url = url or f"{kind}:{self.folder / name}"
        self.ways = {
            "sqlite": ["cp -r", "cp -a", "moved", "overwritten"],
            "postgres": ["dump"],
        }.get(kind, ["cp -r", "cp -a"])

    def way(self, chance: random.Random) -> str:
        return chance.choice(self.ways)

    def open(self) -> Log:
        return Log(open_store(self.url, base=Path()), CATALOG, actor="user:ada", make_views=Views)

    def back_up(self, way: str) -> None:
        """Copy the log. Only a dump and SQLite's own copy may be made while it is open."""
        if self._backup.is_dir():
            shutil.rmtree(self._backup)
        self._backup.unlink(missing_ok=True)
        if way == "dump":
            self._run("pg_dump", "--schema", self._schema, "--file", str(self._backup), self._server)
        elif way in ("moved", "overwritten"):
            with (
                closing(sqlite3.connect(self.folder / "log.db")) as source,
                closing(sqlite3.connect(self._backup)) as copy,
            ):
                source.backup(copy)
        else:
            self._run("cp", way[3:], str(self.folder), str(self._backup))

    def put_back(self, way: str) -> None:
        if way == "dump":
            with psycopg.connect(self._server, autocommit=True) as connection:
                connection.execute(f"DROP SCHEMA {self._schema} CASCADE".encode())
            self._run("psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--file", str(self._backup), self._server)
        elif way in ("moved", "overwritten"):
            for side in ("log.db-wal", "log.db-shm"):
                (self.folder / side).unlink(missing_ok=True)
            if way == "overwritten":
                shutil.copyfile(self._backup, self.folder / "log.db")
            else:
                shutil.copy(self._backup, self.folder / "copy.db")
                (self.folder / "copy.db").rename(self.folder / "log.db")
        else:
            shutil.rmtree(self.folder)
            self._run("cp", way[3:], str(self._backup), str(self.folder))

    @property
    def _schema(self) -> str:
        return self.url.rpartition("=")[2]

    @property
    def _server(self) -> str:
        return self.url.rpartition("schema=")[0].rstrip("?&")

    @staticmethod
    def _run(*command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def places(kind: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    if kind != "postgres":
        yield Place(kind, folder)
        return
    schemas: Schemas = request.getfixturevalue("postgres_schemas")
    url = schemas.new()
    yield Place(kind, folder, url)
    schemas.drop(url)
