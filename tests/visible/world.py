"""A world in which a command line gives the same answer every time: the clock, the random numbers, the surroundings.

This is the one module of tests/visible that imports the program, and it takes as little of it as it can: the entry
point of the command line, the tree of its commands, and the public errors. Nearly every other name may change.

Two modes of randomness:

    World(random="constant")   what is stored does not depend on how often the program draws: for ids a command draws
                               the same bytes again and again, and a salt is always the same
    World(random="counted")    every draw differs, so that two ids that must differ do; recordings give them names
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import click

from everlog import EverlogError, errors
from everlog.cli.main import cli, main
from everlog.log.write import prepare

BEGIN = datetime(2025, 3, 3, 9, 0, tzinfo=UTC)  # in the past of every machine that runs this
ROOT = Path(__file__).resolve().parents[2]
RECORDED = Path(__file__).parent / "recorded"
LOGS = Path(__file__).parent / "logs"


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)["data"]


class World:
    """A folder, a home, and a clock that moves one second at every command and stands still meanwhile."""

    def __init__(self, place: Path, *, random: str = "constant", begin: datetime = BEGIN) -> None:
        self.place = place
        self.now_ns = int(begin.timestamp()) * 1_000_000_000
        self._counted = random == "counted"
        self._drawn = 0
        prepare._salts._left.clear()  # what another test left of them would be used first
        self._home = place.parent / f"{place.name}.home"
        for folder in (place, self._home):
            folder.mkdir(parents=True, exist_ok=True)

    def run(self, *words: str, stdin: str = "") -> Answer:
        """What a command line answers, in this process."""
        self.now_ns += 1_000_000_000
        out, err = io.StringIO(), io.StringIO()
        with (
            self.inside(),
            mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()))),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = main(list(words))
        return Answer(code, out.getvalue(), err.getvalue())

    def must(self, *words: str, stdin: str = "") -> Answer:
        """As `run`, for a step that has to succeed before anything can be compared."""
        answer = self.run(*words, stdin=stdin)
        assert answer.code == 0, (words, answer.code, answer.err)
        return answer

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """This folder, this clock and these random numbers, for code that is no command line."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("EVERLOG_", "XDG_", "PG")) and name not in ("NO_COLOR", "COLUMNS")
        }
        steered = {
            **kept,
            "HOME": str(self._home),
            "XDG_CONFIG_HOME": str(self._home / "config"),
            "XDG_STATE_HOME": str(self._home / "state"),
            "EVERLOG_PROGRAMS": "agent,community,control,issue,wp",
            "LOGNAME": "ada",
            "TERM": "xterm",
            "TZ": "UTC",
        }
        with (
            mock.patch.dict(os.environ, steered, clear=True),
            mock.patch.object(time, "time_ns", return_value=self.now_ns),
            mock.patch.object(os, "urandom", self._random),
            mock.patch.object(os, "fsync", return_value=None),  # nobody pulls the plug here
            contextlib.chdir(self.place),
            _importable(self.place),
        ):
            yield

    def _random(self, size: int) -> bytes:
        if not self._counted:
            # Salts, of 16 bytes, are drawn many at a time and kept for later commands; ids need less.
            block = sha256(b"salt" if size >= 16 else str(self.now_ns).encode()).digest()[:16]
            return (block * (size // 16 + 1))[:size]
        self._drawn += 1
        blocks = (sha256(f"{self._drawn} {block}".encode()).digest() for block in range(size // 32 + 1))
        return b"".join(blocks)[:size]


@contextlib.contextmanager
def _importable(place: Path) -> Iterator[None]:
    """Python code in the folder can be named by settings, and is forgotten afterwards."""
    sys.modules.pop("own_views", None)  # a test of the command line has one too
    before = set(sys.modules)
    sys.path.insert(0, str(place))
    try:
        yield
    finally:
        sys.path.remove(str(place))
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(place)):
                del sys.modules[name]


# ---- the commands


def commands() -> dict[str, click.Command]:
    """Every command that can be called, by its words. A group that answers when it is called alone is one of them."""

    return {
        name: command
        for name, command in commands_and_groups().items()
        if not isinstance(command, click.Group) or command.invoke_without_command
    }


def commands_and_groups() -> dict[str, click.Command]:
    """Every command and every group, by its words: all that has a page of help."""

    def walk(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
        yield " ".join(path), command
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                assert below is not None, name
                yield from walk(below, (*path, name))

    return dict(walk(cli, ()))


def command_of(words: list[str]) -> str:
    """Which command a command line calls."""
    known = commands()
    for length in range(len(words), -1, -1):
        if " ".join(words[:length]) in known:
            return " ".join(words[:length])
    raise AssertionError(f"{words} call no command")


def error_classes() -> Iterator[tuple[str, str, int, bool]]:
    """(name, code, exit code, retryable) of every public error."""
    for name, found in vars(errors).items():
        if isinstance(found, type) and issubclass(found, EverlogError):
            yield name, found.code, found.exit_code, found.retryable


def make_failing_group(world: World) -> None:
    """A group of consumers that cannot take position 2. There is no command line for a consumer's own work."""
    import everlog
    from everlog.consumers import Group

    def handle(recorded: everlog.Recorded) -> None:
        if recorded.position == 2:
            raise ValueError("no such address")

    world.now_ns += 1_000_000_000
    with (
        world.inside(),
        everlog.open(actor="service:mailer") as log,
        Group(log, "mailer", everlog.Query(kind="note"), partitions=4, attempts_max=2, retry_s=0.0).member(
            "a"
        ) as member,
    ):
        member.run(handle, to_end=True)


# ---- PostgreSQL


class Server:
    """A server for as long as a test lasts, and the rows of the logs on it."""

    def __init__(self, url: str) -> None:
        self._url = url

    def url(self, schema: str) -> str:
        return f"{self._url}{'&' if '?' in self._url else '?'}schema={schema}"

    def rows(self, schema: str) -> dict[str, list[tuple[Any, ...]]]:
        """Every row, without what the server computes and without its own count of transactions."""
        found = {}
        with self._connect(schema) as connection:
            for name in self._tables(connection, schema):
                columns = [
                    column for column in self._columns(connection, schema, name) if not column.endswith("xid8")
                ]
                chosen = ", ".join(column.split()[0] for column in columns)
                found[name] = connection.execute(f'SELECT {chosen} FROM ONLY "{name}"').fetchall()  # noqa: S608
        return found

    def dump(self, schema: str) -> str:
        """Every table with its columns, and every row as COPY writes it. What the server computes is left out."""
        found = []
        with self._connect(schema) as connection:
            for name in self._tables(connection, schema):
                columns = self._columns(connection, schema, name)
                chosen = ", ".join(column.split()[0] for column in columns)
                found.append(f"# {name} ({', '.join(columns)})\n")
                rows = f'SELECT {chosen} FROM ONLY "{name}" ORDER BY {chosen}'  # noqa: S608
                with connection.cursor().copy(f"COPY ({rows}) TO STDOUT") as copy:
                    found += [bytes(part).decode() for part in copy]
        return "".join(found)

    def load_format1(self, schema: str, dump: Path) -> None:
        """Put a log of format 1 in the place of a new one."""
        from tests.upgrade.server import Server as OldServer

        with self._connect(schema) as connection:
            connection.execute(f'DROP SCHEMA "{schema}" CASCADE')
        OldServer(self._url).load(schema, dump)

    def load(self, schema: str, dump: str) -> None:
        """Put the rows of a dump in the place of those of a new log, as its owner and without its triggers."""
        tables = re.findall(r"^# (\w+) \((.*)\)\n((?:(?!# ).*\n)*)", dump, re.MULTILINE)
        with self._connect(schema) as connection, connection.transaction():
            assert [name for name, _, _ in tables] == self._tables(connection, schema), "it has other tables"
            for name, columns, _ in tables:
                assert columns == ", ".join(self._columns(connection, schema, name)), f"{name} has other columns"
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

    def _connect(self, schema: str) -> Any:
        import psycopg

        return psycopg.connect(self._url, autocommit=True, options=f"-c search_path={schema},pg_temp")

    @staticmethod
    def _tables(connection: Any, schema: str) -> list[str]:
        asked = "SELECT tablename FROM pg_tables WHERE schemaname = %s ORDER BY tablename"
        return [name for (name,) in connection.execute(asked, (schema,)).fetchall()]

    @staticmethod
    def _columns(connection: Any, schema: str, table: str) -> list[str]:
        asked = (
            "SELECT column_name || ' ' || data_type FROM information_schema.columns"
            " WHERE table_schema = %s AND table_name = %s AND is_generated = 'NEVER' ORDER BY ordinal_position"
        )
        return [column for (column,) in connection.execute(asked, (schema, table)).fetchall()]


class NoServer(Exception):
    """No PostgreSQL can be started here."""


@contextlib.contextmanager
def postgres() -> Iterator[Server]:
    from everlog.demo import postgres_server

    try:
        server = postgres_server.start_server()
    except postgres_server.NoServer as error:
        raise NoServer(str(error)) from error
    with server:
        yield Server(server.url)
