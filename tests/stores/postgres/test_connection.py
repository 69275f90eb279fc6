"""Which error of everlog stands for which error of the server."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors as pg

from everlog.errors import (
    Busy,
    ClockJump,
    Conflict,
    Damaged,
    EverlogError,
    NotALog,
    NotFound,
    ReadOnly,
    StorageFull,
    Unavailable,
)
from everlog.stores.postgres.address import address_of
from everlog.stores.postgres.connection import denied, lost, translated

ADDRESS = address_of("postgresql://ada:hunter2@127.0.0.1:1/db?schema=everlog")


def raised(state: str) -> psycopg.Error:
    """Return an error with a code that only the functions of the log raise."""

    class Raised(psycopg.DatabaseError):
        sqlstate = state

    return Raised("as the server says")


@pytest.mark.parametrize(
    ("error", "kind", "hint"),
    [
        (pg.ReadOnlySqlTransaction("x"), ReadOnly, "primary"),
        (pg.UndefinedTable("x"), NotALog, "a table of the log is missing"),
        (pg.UndefinedFunction("x"), NotALog, "a table of the log is missing"),
        (pg.DiskFull("x"), StorageFull, "free some space there"),
        (pg.LockNotAvailable("x"), Busy, "try again"),
        (pg.TooManyConnections("x"), Busy, "try again"),
        (pg.DeadlockDetected("x"), Busy, "try again"),
        (pg.SerializationFailure("x"), Busy, "try again"),
        (raised("EV004"), Conflict, "nothing of this write was kept"),
        (raised("EV005"), ClockJump, "only the owner"),
        (raised("EV006"), ReadOnly, "role that owns the log"),
        (raised("EV001"), Damaged, "everlog verify"),
        (pg.UniqueViolation("x"), Damaged, "everlog verify"),
        (pg.DataCorrupted("x"), Damaged, "everlog verify"),
        (psycopg.OperationalError('database "db" does not exist'), NotFound, "createdb"),
        (psycopg.OperationalError('role "ada" does not exist'), Unavailable, "user and password"),
        (pg.InvalidPassword("x"), Unavailable, "user and password"),
        (pg.AdminShutdown("x"), Unavailable, "server runs"),
        (psycopg.OperationalError("connection refused"), Unavailable, "server runs"),
        (pg.DivisionByZero("x"), EverlogError, "everlog doctor"),
    ],
)
def test_an_error_of_the_server_says_what_to_do(error: psycopg.Error, kind: type[EverlogError], hint: str) -> None:
    found = translated(error, ADDRESS, "writing")
    assert type(found) is kind
    assert hint in found.hint
    assert "writing postgresql://" in found.what
    assert "hunter2" not in f"{found.what} {found.why} {found.hint}"


def test_only_a_server_that_is_gone_is_asked_again() -> None:
    assert lost(psycopg.OperationalError("the connection is closed"))
    assert lost(pg.AdminShutdown("x"))
    assert lost(pg.ConnectionFailure("x"))
    assert not lost(pg.DiskFull("x"))
    assert not lost(psycopg.DatabaseError("x"))
    assert not lost(None)


def test_a_reason_has_one_line_and_no_password() -> None:
    found = translated(psycopg.OperationalError("failed: //ada:hunter2@db\nmore"), ADDRESS, "reading")
    assert found.why == "failed: //db"
    assert translated(psycopg.DatabaseError(), ADDRESS, "reading").why == "the server gave no reason"


@pytest.mark.parametrize(
    ("doing", "kind"), [("reading", Unavailable), ("opening", Unavailable), ("writing to", ReadOnly)]
)
def test_a_missing_privilege_that_the_server_does_not_tell_more_of(doing: str, kind: type[EverlogError]) -> None:
    """Nobody listens at this address."""
    error = denied("it failed", "permission denied", ADDRESS, doing)
    assert type(error) is kind
    assert error.why.startswith("permission denied; the server could not be asked for more: ")
    assert error.hint == "docs/how-to/postgres.md lists the roles and what each may do"
    assert "hunter2" not in f"{error} {error.why}"
