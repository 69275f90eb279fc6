"""Who may do what in PostgreSQL: the application appends and nothing else, a tenant sees its own scope (G9, S16)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from tests.stores.postgres.roles import SCOPES, Roles
from tests.support.postgres_schemas import Schemas

from everlog.catalog.catalog import Catalog
from everlog.core.event import Position
from everlog.core.query import Query
from everlog.errors import Busy, ClockJump, EverlogError, ReadOnly
from everlog.log.log import Log
from everlog.stores.postgres import connection, queries
from everlog.stores.postgres.queries import Reading
from everlog.stores.postgres.store import PostgresStore
from everlog.testing.builders import Chain
from everlog.testing.filling import append, positions


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
    "half an erasure": "UPDATE events SET payload = '', erased_by = 'x' WHERE position = 1",
    "an erasure and more": "UPDATE events SET payload = '', salt = '', erased_by = 'x', type = 'x'",
    "an erasure": "UPDATE events SET payload = '', salt = '', erased_by = 'x' WHERE position = 1",
    "erase": "SELECT erase(ARRAY(SELECT id FROM events), ARRAY(SELECT 'x' FROM events))",
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
    before = list(store.slots())
    with roles.connect(roles.make("grant_writer")) as bare, pytest.raises(psycopg.Error):
        bare.execute(WAYS[way].encode())
    assert (list(store.slots()), list(store.check())) == (before, [])


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


OWNER_WAYS = [
    "update",
    "half an erasure",
    "an erasure and more",
    "delete",
    "truncate",
    "a position of its own",
    "overriding",
    "upsert",
    "merge",
    "head back",
]


@pytest.mark.parametrize("way", OWNER_WAYS)
def test_not_even_the_owner_changes_history_by_a_slip(
    way: str, store: PostgresStore, postgres_schemas: Schemas, postgres_url: str
) -> None:
    """The triggers hold for everybody, also where replication would switch them off."""
    before = list(store.slots())
    with postgres_schemas.connect(postgres_url) as owner:
        for role in ("origin", "replica"):
            owner.execute(sql.SQL("SET session_replication_role TO {}").format(sql.Identifier(role)))
            with pytest.raises(psycopg.Error):
                owner.execute(WAYS[way].encode())
    assert list(store.slots()) == before


def test_a_hole_that_a_purge_left_cannot_be_filled(roles: Roles, store: PostgresStore) -> None:
    with store.open_write() as writer:
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
    with pytest.raises(ReadOnly) as refusal, writer.open_write() as open_write:
        open_write.purge("note/1", actor="user:ada", reason="asked to")
    assert "grant_" in refusal.value.hint
    assert store.purges() == []
    writer.close()


def test_a_purger_purges(roles: Roles, store: PostgresStore) -> None:
    purger = PostgresStore(roles.url(roles.make("grant_purger")))
    with purger.open_write() as writer:
        purge = writer.purge("note/1", actor="user:ada", reason="asked to")
    assert store.purges() == [purge]
    assert list(store.check()) == []
    purger.close()


def test_a_reader_reads_everything_and_writes_nothing(roles: Roles, store: PostgresStore) -> None:
    reader = PostgresStore(roles.url(roles.make("grant_reader")))
    assert list(reader.slots()) == list(store.slots())
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
        with store.open_write() as writer:
            writer.purge(stream, actor="user:ada", reason="asked to")
    tenant = Log(PostgresStore(roles.url(roles.make("grant_tenant", "acme"))), catalog)
    assert [purge.stream for purge in tenant.stored.purges()] == ["note/1"]
    page = tenant.page_after(1, Query(scope="acme"))
    assert page.reset is not None
    assert page.reset.reason == "purged"
    tenant.close()


def test_a_role_of_two_tenants_sees_the_scopes_of_both_and_each_event_once(
    roles: Roles, store: PostgresStore
) -> None:
    """It is a member of one role and has a scope of its own, which lies below or beside that one's."""
    for own, expected in (("acme/shop", ["acme", "acme/shop", "acme/shop/prod"]), ("other", [*SCOPES[:3], "other"])):
        role = roles.make("grant_tenant", own)
        roles.join(role, roles.make("grant_tenant", "acme"))
        tenant = PostgresStore(roles.url(role))
        assert seen(tenant) == expected
        assert seen(tenant, Query(types=frozenset(["note.added"]))) == expected
        tenant.close()
        narrowed = PostgresStore(roles.url(role, "acme/shop"))
        assert seen(narrowed) == ["acme/shop", "acme/shop/prod"]
        narrowed.close()


def test_a_tenant_with_many_scopes_reads_page_by_page_in_order(
    roles: Roles, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "PAGE_ROWS", 3)
    chain = Chain("01TESTFREE0000000000000001")
    append(store, *[chain.next(stream=f"n/{n}", scope=f"{'acme' if n % 3 else 'other'}/{n % 7}") for n in range(60)])
    tenant = PostgresStore(roles.url(roles.make("grant_tenant", "acme")))
    expected = [r.position for r in store.read() if r.event.scope.split("/")[0] == "acme"]
    assert positions(tenant.read()) == expected
    assert positions(tenant.read(newest_first=True)) == expected[::-1]
    assert positions(tenant.read(after=Position(20), limit=5)) == [p for p in expected if p > 20][:5]
    assert [place.position for place in tenant.slots()] == expected
    tenant.close()


def test_a_tenant_is_asked_about_once_and_not_for_every_row(roles: Roles, store: PostgresStore) -> None:
    """The rows of others are passed over by comparing a column, and a read without a filter goes along the index."""
    chain = Chain("01TESTFREE0000000000000001")
    append(store, *[chain.next(stream=f"n/{n}", scope="other/x" if n % 100 else "acme/x") for n in range(3000)])
    with roles.connect(roles.make("grant_tenant", "acme")) as bare:
        plan = "\n".join(row[0] for row in bare.execute("EXPLAIN SELECT * FROM scoped_events").fetchall())
        assert "InitPlan" in plan
        assert "SubPlan" not in plan
        values = {"after": 0, "upto": 2**62, "limit": 1000}
        reading = Reading(tenant=True)
        text = reading.sql(reading._plan(Query())[0])
        told = bare.execute(b"EXPLAIN (ANALYZE, TIMING off) " + text.encode(), values).fetchall()
    plan = "\n".join(row[0] for row in told)
    assert "events_by_scope" in plan
    removed = [int(number) for number in re.findall(r"Rows Removed by Filter: (\d+)", plan)]
    assert sum(removed) < 100, plan


# ---- who is in the way


def test_busy_names_the_holder(roles: Roles, store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another role's session is named by its process, role and program; when it began is told to its own role."""
    monkeypatch.setattr(connection, "LOCK_TIMEOUT_MS", 200)
    role = roles.make("grant_writer")
    holder = PostgresStore(roles.url(role) + "&application_name=night%20job")
    others = [PostgresStore(roles.url(roles.make("grant_writer"))), PostgresStore(roles.url(role))]
    with holder.open_write():
        assert holder._writer is not None
        pid = holder._writer.info.backend_pid
        for other, sees_when in zip(others, (False, True), strict=True):
            with pytest.raises(Busy) as refusal, other.open_write():
                pass
            assert f"process {pid} of the role {role} (night job)" in refusal.value.why
            assert ("since 20" in refusal.value.why) == sees_when
            (told,) = refusal.value.details["holders"]
            assert (told["pid"], told["role"], told["application_name"]) == (pid, role, "night job")
            assert (told["since"] is not None) == sees_when
    for opened in (holder, *others):
        opened.close()


def test_busy_names_who_locked_a_table(roles: Roles, store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "LOCK_TIMEOUT_MS", 200)
    writer = PostgresStore(roles.url(roles.make("grant_writer")))
    with roles.connect("postgres") as bare:
        bare.execute("BEGIN")
        bare.execute("LOCK TABLE events IN SHARE MODE")
        with pytest.raises(Busy) as refusal:
            append(writer, Chain("01TESTFREE0000000000000001").next())
        assert f"process {bare.info.backend_pid} of the role postgres" in refusal.value.why
        bare.execute("ROLLBACK")
    append(writer, Chain("01TESTFREE0000000000000001").next())
    writer.close()


def test_a_clock_far_ahead_is_for_the_owner_to_accept(
    roles: Roles, store: PostgresStore, postgres_url: str, catalog: Catalog
) -> None:
    """`everlog import --trust-clock`: a writer is refused by name of the reason, and nothing is kept."""
    far = Chain("01TESTFREE0000000000000001").next(lamport=2**40).event
    writer = Log(PostgresStore(roles.url(roles.make("grant_writer"))), catalog)
    with pytest.raises(ClockJump) as refusal:
        writer.admit([far], jump_max=2**53)
    assert "owner" in refusal.value.hint
    assert writer.head() == len(SCOPES)
    writer.close()
    owner = Log(PostgresStore(postgres_url), catalog)
    assert len(owner.admit([far], jump_max=2**53)) == 1
    owner.close()
