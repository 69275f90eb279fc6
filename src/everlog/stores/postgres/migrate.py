"""Create a log in a schema, or migrate an older one: numbered files, each applied once, in order, and recorded."""

from __future__ import annotations

import hashlib
from typing import Any

from psycopg import sql

from everlog.errors import Damaged, NewerFormat, NotALog, NotFound, Unavailable
from everlog.stores.contract import Identity
from everlog.stores.formats import FORMAT, refuse_other_format
from everlog.stores.postgres.address import Address
from everlog.stores.postgres.connection import Connection, denied
from everlog.stores.postgres.statements import migrations, statements

_MIGRATIONS = """
CREATE TABLE migrations (
    number     integer PRIMARY KEY,
    name       text NOT NULL,
    digest     bytea NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
"""


def open_log(
    connection: Connection, address: Address, *, create: bool, identity: Identity, stays: bool = False
) -> Identity:
    """Return the identity of the log in a schema. Create the log with the given identity if it is missing and
    allowed. It records its place if it `stays` there; a copy does so with its first own event."""
    applied = _applied(connection, address)
    wanted = migrations()
    if applied:
        refuse_other_format(str(address), format_of(connection, address))
    _refuse_newer(applied, address)
    if len(applied) < len(wanted):
        if not applied and not create:
            raise NotFound(
                f"there is no log in {address}", why=f"the schema {address.schema} has none", hint="everlog init"
            )
        if applied:
            _require_owner(connection, address, have=len(applied), need=len(wanted))
        _migrate(connection, address, identity, stays=stays)
    rows = connection.execute(statements("write")["identity"].encode(), prepare=False).fetchall()
    return identity_of(rows, address)


def identity_of(rows: list[tuple[Any, ...]], address: Address) -> Identity:
    if not rows:
        raise Damaged(f"{address} has lost its identity", why="the table identity is empty", hint="restore a backup")
    log_id, origin, epoch, created_us, former, heads = rows[0]
    lives = tuple(zip(heads, (*former, origin)[1:], strict=True))
    return Identity(log_id, origin, epoch, created_us, tuple(former), lives)


def _applied(connection: Connection, address: Address) -> dict[int, bytes]:
    """Return the applied migrations by number, each with the digest of its text."""
    found = connection.execute(
        "SELECT relname = 'migrations', has_schema_privilege(nspname, 'USAGE')"
        " FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
        " WHERE nspname = %s AND relkind IN ('r', 'p', 'v', 'm', 'S') ORDER BY 1 DESC LIMIT 1",
        (address.schema,),
        prepare=False,
    ).fetchone()
    if found is None:
        return {}
    if not found[0]:
        raise NotALog(
            f"{address} is not an everlog log",
            why=f"the schema {address.schema} holds tables of another program",
            hint="name another schema: …?schema=everlog",
        )
    if not found[1]:
        # Without this privilege the server reports that the tables do not exist.
        raise denied(
            f"opening {address} failed", f"permission denied for schema {address.schema}", address, "opening"
        )
    return dict(connection.execute("SELECT number, digest FROM migrations ORDER BY number", prepare=False).fetchall())


def format_of(connection: Connection, address: Address) -> int:
    """Return the format of a log. Its number is in the table identity since format 2."""
    found = connection.execute(
        "SELECT EXISTS (SELECT FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid JOIN pg_namespace ON"
        " pg_namespace.oid = relnamespace WHERE nspname = %s AND relname = 'identity' AND attname = 'format')",
        (address.schema,),
        prepare=False,
    ).fetchone()
    row = connection.execute("SELECT format FROM identity", prepare=False).fetchone() if found == (True,) else (1,)
    return FORMAT if row is None else int(row[0])


def _refuse_newer(applied: dict[int, bytes], address: Address) -> None:
    known = migrations()[-1][0]
    newest = max(applied, default=0)
    if newest > known:
        raise NewerFormat(
            f"{address} has format {newest}, this everlog reads up to {known}",
            why="it was migrated by a newer everlog",
            hint="upgrade everlog; the database was not touched",
            format=newest,
        )
    for number, name, text in migrations():
        if number in applied and applied[number] != _digest(text):
            raise NotALog(
                f"{address} was made by something else",
                why=f"its migration {name} is not the one that this everlog has",
                hint="use the everlog version that created it",
            )


def _require_owner(connection: Connection, address: Address, *, have: int, need: int) -> None:
    """Only the owner of a log can migrate it; another role is refused before any statement fails."""
    row = connection.execute(
        "SELECT rolname, pg_has_role(nspowner, 'USAGE') FROM pg_namespace JOIN pg_roles ON pg_roles.oid = nspowner"
        " WHERE nspname = %s",
        (address.schema,),
        prepare=False,
    ).fetchone()
    assert row is not None
    owner, may = row
    if not may:
        raise Unavailable(
            f"{address} must be migrated before it can be used",
            why=f"it has format {have}, this everlog needs {need}, and only its owner, {owner}, can migrate it",
            hint=f"open the log once as {owner}, for example with everlog doctor",
            format=have,
            needed=need,
            owner=owner,
        )


def _migrate(connection: Connection, address: Address, identity: Identity, *, stays: bool) -> None:
    schema = sql.Identifier(address.schema)
    with connection.transaction():
        # Of two processes at once, the second finds everything done. The commit releases the lock.
        connection.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('everlog ' || %s, 0))", (address.schema,), prepare=False
        )
        there = connection.execute("SELECT to_regnamespace(quote_ident(%s))", (address.schema,), prepare=False)
        if there.fetchone() == (None,):
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(schema), prepare=False)
        applied = _applied(connection, address)
        if not applied:
            connection.execute(_MIGRATIONS, prepare=False)
        for number, name, text in migrations():
            if number not in applied:
                connection.execute(text.encode(), prepare=False)
                connection.execute(
                    "INSERT INTO migrations (number, name, digest) VALUES (%s, %s, %s)",
                    (number, name, _digest(text)),
                    prepare=False,
                )
        if not applied:
            connection.execute(
                "INSERT INTO identity (log_id, origin, epoch, created_us, format) VALUES (%s, %s, %s, %s, %s)",
                (identity.log_id, identity.origin, identity.epoch, identity.created_us, FORMAT),
                prepare=False,
            )
            if stays:
                connection.execute("SELECT settle(%s)", (identity.origin,), prepare=False)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
