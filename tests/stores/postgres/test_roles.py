"""Who may do what in PostgreSQL: the application appends and nothing else, a tenant sees its own scope (G9, S16)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from everlog.catalog.catalog import Catalog
from everlog.core.query import Query
from everlog.errors import EverlogError, ReadOnly
from everlog.log.log import Log
from everlog.stores.postgres.store import PostgresStore
from everlog.testing.builders import Chain
from everlog.testing.filling import append, positions
from everlog.testing.postgres_schemas import Schemas

Bare = psycopg.Connection[tuple[Any, ...]]
SCOPES = ["acme", "acme/shop", "acme/shop/prod", "acmecorp", "other", ""]


class Roles:
    """Roles that exist for one test, and URLs to come in by."""

    def __init__(self, owner: Bare, url: str) -> None:
        self._owner = owner
        self._url = url
        self._made: list[str] = []

    def make(self, grant: str, *arguments: str) -> str:
        name = f"{grant.rpartition('_')[2]}-{secrets.token_hex(4)}"  # a hyphen: names must be quoted on their way
        self._made.append(name)
        self._owner.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
        if grant != "none":
            call = sql.SQL("SELECT {}({})").format(
                sql.Identifier(grant), sql.SQL(", ").join([sql.Literal(name), *map(sql.Literal, arguments)])
            )
            self._owner.execute(call)
        return name

    def url(self, role: str, scope: str = "") -> str:
        return self._url.replace("postgres@", f"{role}@") + (f"&scope={scope}" if scope else "")

    def connect(self, role: str) -> Bare:
        base, _, schema = self.url(role).rpartition("schema=")
        bare = psycopg.connect(base.rstrip("?&"), autocommit=True)
        bare.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(schema)))
        return bare

    def drop_all(self) -> None:
        for name in self._made:
            role = sql.Identifier(name)
            self._owner.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(role))
            self._owner.execute(sql.SQL("DROP ROLE {}").format(role))


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(postgres_url)
    chain = Chain()
    append(opened, *[chain.next(stream=f"note/{n}", scope=scope) for n, scope in enumerate(SCOPES)])
    yield opened
    opened.close()


@pytest.fixture
def roles(store: PostgresStore, postgres_schemas: Schemas, postgres_url: str) -> Iterator[Roles]:
    if "postgres@" not in postgres_url:
        pytest.skip("needs a server that roles can be made in: EVERLOG_TEST_PG_DSN=postgresql://postgres@…")
    with postgres_schemas.connect(postgres_url) as owner:
        made = Roles(owner, postgres_url)
        yield made
        made.drop_all()


# ---- the application


def test_a_writer_appends_and_reads_and_follows_the_chain(
    roles: Roles, store: PostgresStore, catalog: Catalog
) -> None:
    log = Log(PostgresStore(roles.url(roles.make("grant_writer"))), catalog)
    for size in (1, 3, 60):
        drafts = [("thing.said", f"thing/{n}") for n in range(size)]
        for kind, stream in drafts:
            log.append(kind, stream=stream, key=f"{size}-{stream}")
    log.append("thing.said", stream="thing/0", key="1-thing/0")
    assert log.head() == len(SCOPES) + 64
    assert log.verify().ok
    log.close()


def test_a_writer_uses_copy(roles: Roles) -> None:
    """Row-level security must not stand in the way of the quick path."""
    writer = PostgresStore(roles.url(roles.make("grant_writer")))
    chain = Chain("01TESTFREE0000000000000001")
    append(writer, *[chain.next() for _ in range(500)])
    assert writer.head() == len(SCOPES) + 500
    writer.close()


COLUMNS = "position, id, stream, sequence, type, scope, received_us, header, payload, salt, signature, path"
ROW = "gen_random_uuid(), 'note/9', 1, 'note.added', '', 1, '[]', '{}', '', '', ''"

# What an application could try to change history with, by SQL alone.
WAYS = {
    "update": "UPDATE events SET payload = '{}' WHERE position = 1",
    "delete": "DELETE FROM events WHERE position = 1",
    "truncate": "TRUNCATE events",
    "a position of its own": f"INSERT INTO events ({COLUMNS}) VALUES (999999, {ROW})",
    "a position that is taken": f"INSERT INTO events ({COLUMNS}) VALUES (1, {ROW})",
    "overriding": f"INSERT INTO events ({COLUMNS}) OVERRIDING SYSTEM VALUE VALUES (999999, {ROW})",
    "upsert": f"INSERT INTO events ({COLUMNS}) VALUES (1, {ROW}) ON CONFLICT (position) DO UPDATE SET type = 'x'",
    "the derived column": "INSERT INTO events (position, body) VALUES (7, '{}')",
    "merge": "MERGE INTO events USING (SELECT 1) AS one ON position = 1 WHEN MATCHED THEN DELETE",
    "triggers off": "ALTER TABLE events DISABLE TRIGGER ALL",
    "replica": "SET session_replication_role TO replica",
    "drop": "DROP TABLE events",
    "head back": "UPDATE state SET head = 0",
    "clock back": "UPDATE state SET clock = 0",
    "purge": "SELECT * FROM purge('note/1', 'system', 'no', 1)",
    "record of a purge": "INSERT INTO purged VALUES (1, 1, gen_random_uuid(), '', 1, '', '', 1)",
    "through the scoped table": "DELETE FROM scoped_events WHERE position = 1",
    "another trigger function": "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE sql AS ''",
    "rights of its own": "SELECT grant_purger(current_user)",
    "identity": "UPDATE identity SET epoch = 'x'",
    "migrations": "DELETE FROM migrations",
}


@pytest.mark.parametrize("way", WAYS)
def test_the_application_cannot_change_history(way: str, roles: Roles, store: PostgresStore) -> None:
    before = list(store.packed())
    with roles.connect(roles.make("grant_writer")) as bare, pytest.raises(psycopg.Error):
        bare.execute(WAYS[way].encode())
    assert (list(store.packed()), list(store.check())) == (before, [])


def test_copy_cannot_choose_positions_either(roles: Roles, store: PostgresStore) -> None:
    row = (99, "00000000-0000-0000-0000-000000000001", "n/1", 1, "t", "", 1, "[]", "{}", b"", b"", b"")
    with (
        roles.connect(roles.make("grant_writer")) as bare,
        pytest.raises(psycopg.Error),
        bare.cursor() as cursor,
        cursor.copy(f"COPY events ({COLUMNS}) FROM STDIN".encode()) as copy,
    ):
        copy.write_row(row)
    assert store.head() == len(SCOPES)


OWNER_WAYS = ["update", "delete", "truncate", "a position of its own", "overriding", "upsert", "merge", "head back"]


@pytest.mark.parametrize("way", OWNER_WAYS)
def test_not_even_the_owner_changes_history_by_a_slip(
    way: str, store: PostgresStore, postgres_schemas: Schemas, postgres_url: str
) -> None:
    """The triggers hold for everybody, also where replication would switch them off."""
    before = list(store.packed())
    with postgres_schemas.connect(postgres_url) as owner:
        for role in ("origin", "replica"):
            owner.execute(sql.SQL("SET session_replication_role TO {}").format(sql.Identifier(role)))
            with pytest.raises(psycopg.Error):
                owner.execute(WAYS[way].encode())
    assert list(store.packed()) == before


def test_a_hole_that_a_purge_left_cannot_be_filled(roles: Roles, store: PostgresStore) -> None:
    with store.write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")
    with roles.connect(roles.make("grant_writer")) as bare:
        for position in (2, 7):
            with pytest.raises(psycopg.Error):
                bare.execute(f"INSERT INTO events ({COLUMNS}) VALUES ({position}, {ROW})".encode())


# ---- the other roles


def test_a_writer_without_the_right_cannot_purge_and_is_told_who_can_grant_it(
    roles: Roles, store: PostgresStore
) -> None:
    writer = PostgresStore(roles.url(roles.make("grant_writer")))
    with pytest.raises(ReadOnly) as refusal, writer.write() as open_write:
        open_write.purge("note/1", actor="user:ada", reason="asked to")
    assert "grant_" in refusal.value.hint
    assert store.purges() == []
    writer.close()


def test_a_purger_purges(roles: Roles, store: PostgresStore) -> None:
    purger = PostgresStore(roles.url(roles.make("grant_purger")))
    with purger.write() as writer:
        purge = writer.purge("note/1", actor="user:ada", reason="asked to")
    assert store.purges() == [purge]
    assert list(store.check()) == []
    purger.close()


def test_a_reader_reads_everything_and_writes_nothing(roles: Roles, store: PostgresStore) -> None:
    reader = PostgresStore(roles.url(roles.make("grant_reader")))
    assert list(reader.packed()) == list(store.packed())
    assert list(reader.check()) == []
    with pytest.raises(ReadOnly):
        append(reader, Chain("01TESTFREE0000000000000001").next())
    reader.close()


def test_a_stranger_sees_nothing(roles: Roles) -> None:
    with pytest.raises(EverlogError):
        PostgresStore(roles.url(roles.make("none")))


# ---- tenants


def seen(store: PostgresStore, query: Query | None = None) -> list[str]:
    return [record.event.scope for record in store.read(query or Query())]


def test_a_tenant_sees_its_scope_and_what_lies_below(roles: Roles, store: PostgresStore) -> None:
    tenant = PostgresStore(roles.url(roles.make("grant_tenant", "acme")))
    below = ["acme", "acme/shop", "acme/shop/prod"]
    assert seen(tenant) == below
    for query, expected in (
        (Query(scope="acme"), below),
        (Query(scope="acme/shop"), below[1:]),
        (Query(scope="other"), []),
        (Query(types=frozenset(["note.added"])), below),
        (Query(stream="note/1"), ["acme/shop"]),
        (Query(stream="note/4"), []),
    ):
        assert seen(tenant, query) == expected, query
    hidden = next(store.read(Query(scope="other"))).event.id
    assert tenant.get(hidden) is None
    assert positions(tenant.read(newest_first=True)) == [3, 2, 1]
    tenant.close()


def test_a_tenant_reads_only_through_the_filter(roles: Roles, store: PostgresStore) -> None:
    tenant = roles.make("grant_tenant", "acme")
    with roles.connect(tenant) as bare:
        for table in ("events", "purged", "purges", "claims", "notes", "chains", "tenants"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                bare.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table)))
        bare.execute("SET everlog.scope TO 'other'")
        assert bare.execute("SELECT count(*) FROM scoped_events").fetchone() == (0,)
        bare.execute("SET everlog.scope TO ''")
        assert bare.execute("SELECT count(*) FROM scoped_events").fetchone() == (3,)
        assert bare.execute("SELECT scope FROM own_scopes").fetchall() == [("acme",)]
    opened = PostgresStore(roles.url(tenant))
    with pytest.raises(ReadOnly):
        append(opened, Chain("01TESTFREE0000000000000001").next())
    opened.close()


def test_a_role_that_serves_many_sees_what_its_session_says_and_nothing_before(
    roles: Roles, store: PostgresStore
) -> None:
    role = roles.make("grant_tenant", "")
    for scope, expected in (("", []), ("acme/shop", ["acme/shop", "acme/shop/prod"]), ("other", ["other"])):
        tenant = PostgresStore(roles.url(role, scope))
        assert seen(tenant) == expected
        tenant.close()


def test_a_tenant_hears_of_purges_in_its_scope_only(roles: Roles, store: PostgresStore, catalog: Catalog) -> None:
    """G8: the reset comes to those whose events went."""
    for stream in ("note/1", "note/4"):
        with store.write() as writer:
            writer.purge(stream, actor="user:ada", reason="asked to")
    tenant = Log(PostgresStore(roles.url(roles.make("grant_tenant", "acme"))), catalog)
    assert [purge.stream for purge in tenant.purges()] == ["note/1"]
    page = tenant.page_after(1, Query(scope="acme"))
    assert page.reset is not None
    assert page.reset.reason == "purged"
    tenant.close()
