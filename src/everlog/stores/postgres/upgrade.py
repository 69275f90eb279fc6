"""The schemas of an upgrade: the old one, locked; the draft beside it; and the renaming of both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

from psycopg import sql

from everlog.errors import Conflict, NotFound, Unavailable
from everlog.stores.postgres.address import address_of
from everlog.stores.postgres.connection import Connection, connect, own_errors
from everlog.stores.postgres.migrate import format_of

_TABLES = "identity, state, chains, events, purges, purged, claims, notes, projection_checkpoints, tenants"
_SETTINGS_OF_FUNCTIONS = (
    "SELECT pg_proc.oid::regprocedure::text FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace"
    " WHERE nspname = %s AND proconfig IS NOT NULL"
)
# Roles that may read events, append them, purge, or run views in the old schema: the functions that grant it.
_GRANTS = (
    (
        "grant_reader",
        "SELECT DISTINCT rolname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace,"
        " aclexplode(relacl) AS given JOIN pg_roles ON pg_roles.oid = given.grantee"
        " WHERE nspname = %s AND relname = 'events' AND privilege_type = 'SELECT' AND grantee <> relowner",
    ),
    (
        "grant_writer",
        "SELECT DISTINCT rolname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
        " JOIN pg_attribute ON attrelid = pg_class.oid, aclexplode(attacl) AS given"
        " JOIN pg_roles ON pg_roles.oid = given.grantee"
        " WHERE nspname = %s AND relname = 'events' AND privilege_type = 'INSERT' AND grantee <> relowner",
    ),
    (
        "grant_purger",
        "SELECT DISTINCT rolname FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace,"
        " aclexplode(proacl) AS given JOIN pg_roles ON pg_roles.oid = given.grantee"
        " WHERE nspname = %s AND proname = 'purge' AND grantee <> proowner",
    ),
    (
        "grant_views",
        "SELECT DISTINCT rolname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace,"
        " aclexplode(relacl) AS given JOIN pg_roles ON pg_roles.oid = given.grantee"
        " WHERE nspname = %s AND relname = 'derived' AND privilege_type = 'INSERT' AND grantee <> relowner",
    ),
)


class Schemas:
    """The schema of a log that is upgraded, within the transaction that has it locked."""

    def __init__(self, url: str, connection: Connection) -> None:
        self.address = address_of(url)
        self.connection = connection
        self.kept = f"{self.address.schema}_format1"
        self._draft = f"{self.address.schema}_upgrading"
        self._url = url

    @property
    def draft_url(self) -> str:
        base, _, query = self._url.partition("?")
        others = [part for part in query.split("&") if part and not part.startswith(("schema=", "scope="))]
        return base + "?" + "&".join([*others, f"schema={quote(self._draft)}"])

    def format(self) -> int:
        """Return the format of the log; 0 if there is none."""
        return format_of(self.connection, self.address) if self._exists(self.address.schema) else 0

    def recover(self) -> bool:
        """Remove the draft of an upgrade that was killed; return whether there was one."""
        if not self._exists(self._draft):
            return False
        with own_errors(self.address, "upgrading"), connect(self.address) as other:  # committed by itself
            other.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(self._draft)), prepare=False)
        return True

    def lock(self) -> None:
        """Keep writers out until the transaction ends; readers go on."""
        schema = sql.Identifier(self.address.schema)
        if self._exists(self.kept):
            raise Conflict(
                f"the schema {self.kept} has the tables of an earlier upgrade",
                why="an upgrade keeps the old tables, and never overwrites others",
                hint="everlog upgrade --forget-old, or rename that schema",
            )
        self._require_owner()
        tables = sql.SQL(", ").join(
            sql.SQL("{}.{}").format(schema, sql.Identifier(name)) for name in _TABLES.split(", ")
        )
        self.connection.execute(sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(tables), prepare=False)

    def swap(self) -> None:
        """Rename both schemas. A writer that waited for the old one is refused there."""
        run = self.connection.execute
        old, draft, kept = (sql.Identifier(name) for name in (self.address.schema, self._draft, self.kept))
        run(
            sql.SQL(
                "CREATE TRIGGER log_was_upgraded BEFORE INSERT ON {}.events FOR EACH STATEMENT"
                " EXECUTE FUNCTION {}.refuse('this log was upgraded; open it again')"
            ).format(old, old),
            prepare=False,
        )
        run(sql.SQL("ALTER TABLE {}.events ENABLE ALWAYS TRIGGER log_was_upgraded").format(old), prepare=False)
        run(
            sql.SQL("INSERT INTO {}.projection_checkpoints SELECT * FROM {}.projection_checkpoints").format(
                draft, old
            ),
            prepare=False,
        )
        run(sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(old, kept), prepare=False)
        run(sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(draft, old), prepare=False)
        # Functions keep the name of the schema that they were created in.
        for (name,) in run(_SETTINGS_OF_FUNCTIONS, (self.address.schema,), prepare=False).fetchall():
            run(sql.SQL("ALTER FUNCTION {} SET search_path TO {}, pg_temp").format(sql.SQL(name), old), prepare=False)
        run(sql.SQL("SET LOCAL search_path TO {}, pg_temp").format(old), prepare=False)
        for function, asked in _GRANTS:
            for (role,) in run(asked, (self.kept,), prepare=False).fetchall():
                run(sql.SQL("SELECT {}(%s)").format(sql.Identifier(function)), (role,), prepare=False)
        tenants = sql.SQL(
            "SELECT rolname, tenants.scope FROM {}.tenants JOIN pg_roles ON pg_roles.oid = tenants.role::oid"
        ).format(kept)
        for role, scope in run(tenants, prepare=False).fetchall():
            run("SELECT grant_tenant(%s, %s)", (role, scope), prepare=False)

    def forget(self) -> None:
        if not self._exists(self.kept):
            raise NotFound(
                f"there is no schema {self.kept}",
                why="no upgrade has kept old tables here",
                hint="nothing is to be done",
            )
        self.connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(self.kept)), prepare=False)

    def _exists(self, schema: str) -> bool:
        found = self.connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", (schema,), prepare=False)
        return found.fetchone() is not None

    def _require_owner(self) -> None:
        row = self.connection.execute(
            "SELECT rolname, pg_has_role(nspowner, 'USAGE') FROM pg_namespace JOIN pg_roles"
            " ON pg_roles.oid = nspowner WHERE nspname = %s",
            (self.address.schema,),
            prepare=False,
        ).fetchone()
        if row is not None and not row[1]:
            raise Unavailable(
                f"{self.address} can be upgraded by its owner only",
                why=f"an upgrade creates a schema, and this one belongs to {row[0]}",
                hint=f"run everlog upgrade as {row[0]}",
                owner=row[0],
            )


@contextmanager
def schemas_of(url: str) -> Iterator[Schemas]:
    """Open one transaction on the database of a log; of two upgrades at once, the second one waits."""
    address = address_of(url)
    with own_errors(address, "upgrading"):
        connection = connect(address)
        try:
            with connection.transaction():
                connection.execute("SET LOCAL lock_timeout TO '30s'", prepare=False)
                connection.execute(
                    "SELECT pg_advisory_xact_lock(hashtextextended('everlog upgrade ' || %s, 0))",
                    (address.schema,),
                    prepare=False,
                )
                yield Schemas(url, connection)
        finally:
            connection.close()
