"""What an error of PostgreSQL omits: the sessions that hold the lock, and the privilege that a role lacks."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, NamedTuple

import psycopg

# A write locks a row of "state". Nearly every other wait is for a lock on a whole table.
_HOLDERS = """
SELECT DISTINCT activity.pid, activity.usename, activity.application_name, activity.xact_start
FROM pg_locks AS held JOIN pg_stat_activity AS activity USING (pid), (
    SELECT to_regnamespace(quote_ident(%(schema)s)) AS schema,
        hashtextextended('everlog ' || %(schema)s, 0) AS migrating
) AS log
WHERE held.granted AND held.pid <> pg_backend_pid() AND activity.datname = current_database()
    AND NOT EXISTS (SELECT FROM pg_locks AS waiting WHERE waiting.pid = held.pid AND NOT waiting.granted)
    AND (
        held.locktype = 'advisory' AND (held.classid::bigint << 32 | held.objid::bigint) = migrating
        OR held.relation IN (SELECT oid FROM pg_class WHERE relnamespace = log.schema AND relname = 'state')
            AND held.mode IN ('RowShareLock', 'RowExclusiveLock')
        OR held.relation IN (SELECT oid FROM pg_class WHERE relnamespace = log.schema)
            AND held.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
    )
ORDER BY activity.xact_start NULLS LAST, activity.pid
"""
_ROLES = """
SELECT current_user, (SELECT rolname FROM pg_namespace JOIN pg_roles ON pg_roles.oid = nspowner WHERE nspname = %s)
"""
_DENIED = re.compile(r"permission denied for (\w+) (\S+)|must be owner of (\w+) (\S+)")
READING = ("opening", "reading", "checking")


class Holder(NamedTuple):
    """A session that blocks other writers. The server shows the times of other roles' sessions only to some roles."""

    pid: int
    role: str
    application_name: str
    since: datetime | None

    def __str__(self) -> str:
        named = f" ({self.application_name})" if self.application_name else ""
        since = (
            f", in a transaction since {self.since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
            if self.since is not None
            else ""
        )
        return f"process {self.pid} of the role {self.role}{named}{since}"


def holders(connection: psycopg.Connection[tuple[Any, ...]], schema: str) -> list[Holder]:
    """Return the sessions that hold the log now, oldest first."""
    return [Holder(*row) for row in connection.execute(_HOLDERS, {"schema": schema}, prepare=False).fetchall()]


class Lack(NamedTuple):
    """A privilege that a role lacks, and the function by which the owner grants it, if there is one."""

    role: str
    owner: str
    privilege: str
    grant: str


def lack(connection: psycopg.Connection[tuple[Any, ...]], schema: str, message: str, doing: str) -> Lack | None:
    """Return what is missing, from the text of the server's refusal; None if it is about something else."""
    found = _DENIED.search(message)
    if found is None:
        return None
    row = connection.execute(_ROLES, (schema,), prepare=False).fetchone()
    assert row is not None
    kind, name = found[1] or found[3], found[2] or found[4]
    privilege, grant = _missing(kind, name, reading=doing in READING)
    return Lack(row[0], row[1] or "", f"{privilege} on the {kind} {name}", grant)


def _missing(kind: str, name: str, *, reading: bool) -> tuple[str, str]:
    writer = "grant_reader" if reading else "grant_writer"
    match kind, name:
        case "schema", _:
            return "USAGE", writer
        case "database", _:
            return "CREATE", ""
        case "function", "purge":
            return "EXECUTE", "grant_purger"
        case "function", _:
            return "EXECUTE", "grant_writer"
        case _, "derived":
            return "SELECT, INSERT, UPDATE and DELETE", "grant_views"
        case _, "purged" | "purges" | "chains" if not reading:
            return "INSERT", ""  # a copy of another log: only the owner can make one
        case _, "state" if not reading:
            return "UPDATE", "grant_writer"
    return ("SELECT" if reading else "INSERT"), writer
