"""Connect to PostgreSQL with the settings that a log needs, and convert its errors to everlog's."""

from __future__ import annotations

import ctypes
import logging
import re
import threading
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg import sql

from everlog.errors import (
    Busy,
    ClockJump,
    Conflict,
    Damaged,
    EverlogError,
    InvalidSettings,
    NotALog,
    NotFound,
    ReadOnly,
    StorageFull,
    Unavailable,
)
from everlog.stores.postgres.address import Address
from everlog.stores.postgres.diagnosis import READING, holders, lack

Connection = psycopg.Connection[tuple[Any, ...]]

LOCK_TIMEOUT_MS = 30_000
CONNECT_TIMEOUT_S = 10
READERS_MAX = 8

_logger = logging.getLogger("everlog")


def connect(address: Address) -> Connection:
    """Return a connection in autocommit mode: transactions are started and ended explicitly."""
    try:
        options = psycopg.conninfo.conninfo_to_dict(address.conninfo)
    except psycopg.ProgrammingError as error:
        raise InvalidSettings(
            f"{address} is not the URL of a log",
            why=_reason(error),
            hint="postgresql://host/database?schema=everlog",
        ) from error
    options.setdefault("connect_timeout", CONNECT_TIMEOUT_S)
    options.setdefault("application_name", "everlog")
    options["client_encoding"] = "UTF8"
    connection: Connection = psycopg.connect(**options, autocommit=True)  # type: ignore[arg-type]
    # Every statement here is repeated, so it is prepared at its first use.
    connection.prepare_threshold = 0
    try:
        _configure(connection, address)
    except BaseException:
        connection.close()
        raise
    return connection


def _configure(connection: Connection, address: Address) -> None:
    connection.execute(
        sql.SQL(
            "SET search_path TO {}, pg_temp; SET default_transaction_isolation TO 'read committed';"
            " SET default_transaction_read_only TO off; SET timezone TO 'UTC'; SET lock_timeout TO {};"
            " SET statement_timeout TO 0; SET jit TO off"
        ).format(sql.Identifier(address.schema), sql.Literal(LOCK_TIMEOUT_MS)),
        prepare=False,
    )
    if address.scope:
        connection.execute("SELECT set_config('everlog.scope', %s, false)", (address.scope,), prepare=False)
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise InvalidSettings(
            f"{address} cannot hold a log",
            why=f"the database is in {encoding}, which cannot represent every character",
            hint="CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
        )
    _require_flushes(connection, address)


def _require_flushes(connection: Connection, address: Address) -> None:
    """Make commits wait for the disk (G1). A setting that cannot be corrected is reported."""
    row = connection.execute(
        "SELECT current_setting('synchronous_commit'), current_setting('fsync')", prepare=False
    ).fetchone()
    assert row is not None
    if row[0] == "off":
        connection.execute("SET synchronous_commit TO on", prepare=False)
    if row[1] == "off":
        _logger.warning("%s: the server runs with fsync = off and may lose what it acknowledged", address)


class Pool:
    """A small pool of connections for reading. A broken one is not kept."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: list[Connection] = []
        self._free = threading.BoundedSemaphore(READERS_MAX)
        self._closed = False

    def borrow(self) -> Borrowed:
        return Borrowed(self)

    def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def abandon(self) -> list[Connection]:
        """Leave the parent's connections alone, in a forked child."""
        inherited, self._idle = self._idle, []
        self._closed = True
        return inherited

    def take(self) -> Connection:
        self._free.acquire()
        try:
            while self._idle:
                connection = self._idle.pop()
                if not connection.broken and not connection.closed:
                    return connection
            return connect(self._address)
        except BaseException:
            self._free.release()
            raise

    def give_back(self, connection: Connection) -> None:
        idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        if self._closed or not idle:
            connection.close()
        else:
            self._idle.append(connection)
        self._free.release()


class Borrowed:
    """A connection of the pool for the duration of a `with`."""

    __slots__ = ("_connection", "_pool")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def __enter__(self) -> Connection:
        self._connection = self._pool.take()
        return self._connection

    def __exit__(self, kind: object, error: object, where: object) -> None:
        self._pool.give_back(self._connection)


def keep_for_ever(connection: Connection | None) -> None:
    """Keep a connection open in a forked child: closing it would end the parent's session on the shared socket."""
    if connection is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


class own_errors:  # noqa: N801 - used as a verb: with own_errors(address, "reading")
    """Convert PostgreSQL's errors to everlog's."""

    __slots__ = ("_address", "_doing")

    def __init__(self, address: Address, doing: str) -> None:
        self._address = address
        self._doing = doing

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        if isinstance(error, psycopg.Error):
            raise translated(error, self._address, self._doing) from error


def lost(error: BaseException | None) -> bool:
    """Return whether the server is gone or is shutting down."""
    return isinstance(error, psycopg.OperationalError) and (
        error.sqlstate is None or error.sqlstate.startswith(("08", "57P"))
    )


# While connecting, a refusal of the server has no error code, only its text.
_NO_DATABASE = re.compile(r'database ".*" does not exist')
_NOT_LET_IN = re.compile(r'password|role ".*" does not exist|pg_hba\.conf|authentication')
_USER_AND_PASSWORD = re.compile(r"//[^@/\s]*@")


def _reason(error: psycopg.Error) -> str:
    """Return the first line of the driver's message, without parts of the URL."""
    lines = str(error).strip().splitlines()
    return _USER_AND_PASSWORD.sub("//", lines[0]) if lines else "the server gave no reason"


def translated(error: psycopg.Error, address: Address, doing: str) -> EverlogError:
    what, why = f"{doing} {address} failed", _reason(error)
    state = error.sqlstate or ""
    match error:
        case pg.InsufficientPrivilege():
            return denied(what, why, address, doing)
        case pg.ReadOnlySqlTransaction():
            return ReadOnly(what, why=why, hint="connect to the primary server, which takes writes")
        case pg.UndefinedTable() | pg.InvalidSchemaName() | pg.UndefinedColumn() | pg.UndefinedFunction():
            return NotALog(what, why=why, hint="everlog verify; a table of the log is missing or was changed")
        case pg.DiskFull():
            return StorageFull(
                what,
                why="the server's disk is full; nothing of this write was kept",
                hint="free some space there and try again; reading still works",
            )
        case pg.LockNotAvailable():
            return _locked(what, why, address)
        case pg.TooManyConnections() | pg.SerializationFailure() | pg.DeadlockDetected():
            return Busy(what, why=why, hint="try again")
    match state:
        case "EV004":
            return Conflict(what, why=why, hint="everlog verify; nothing of this write was kept")
        case "EV005":
            return ClockJump(what, why=why, hint="only the owner of the log may accept a clock that far ahead")
        case "EV006":
            return ReadOnly(what, why=why, hint="do this as the role that owns the log")
    if state.startswith(("23", "XX", "EV")):
        return Damaged(what, why=why, hint="everlog verify")
    if _NO_DATABASE.search(why):
        return NotFound(what, why=why, hint="createdb, or name an existing database")
    if state.startswith("28") or _NOT_LET_IN.search(why):
        return Unavailable(what, why=why, hint="check the user and password of the URL, or ~/.pgpass")
    if lost(error) or isinstance(error, psycopg.OperationalError):
        return Unavailable(what, why=why, hint="check that the server runs and can be reached, then try again")
    return EverlogError(what, why=why, hint="everlog doctor")


def denied(what: str, why: str, address: Address, doing: str) -> EverlogError:
    """Return an error that names the role, the missing privilege, and the role that can grant it."""
    hint, details = "docs/how-to/postgres.md lists the roles and what each may do", {}
    try:
        with connect(address) as connection:
            missing = lack(connection, address.schema, why, doing)
    except (psycopg.Error, EverlogError) as error:
        missing, why = None, f"{why}; the server could not be asked for more: {error}"
    if missing is not None:
        why = f"the role {missing.role} lacks {missing.privilege}"
        details = {"role": missing.role, "privilege": missing.privilege, "owner": missing.owner}
        owner = f"the owner, {missing.owner}," if missing.owner else "the owner of the database"
        if missing.grant:
            call = f"SELECT {address.schema}.{missing.grant}('{missing.role}')"
            hint = f"{owner} may grant it: {call}; docs/how-to/postgres.md lists the roles"
        else:
            hint = f"only {owner} may do this"
    kind = Unavailable if doing in READING else ReadOnly
    return kind(what, why=why, hint=hint, **details)


def _locked(what: str, why: str, address: Address) -> Busy:
    """Return the error of a wait that took too long, with the sessions that hold the log."""
    try:
        with connect(address) as connection:
            found = holders(connection, address.schema)
    except (psycopg.Error, EverlogError) as error:
        return Busy(what, why=f"{why}; the sessions that hold the log could not be read: {error}", hint="try again")
    if not found:
        return Busy(what, why=f"{why}; no session holds the log any more", hint="try again")
    listed = "; ".join(map(str, found))
    return Busy(
        what,
        why=f"{why}; the log is held by {listed}",
        hint="let that program finish its transaction, or end it, and try again",
        holders=[
            {**holder._asdict(), "since": None if holder.since is None else holder.since.isoformat()}
            for holder in found
        ],
    )
