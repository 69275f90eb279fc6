"""A log that an older everlog made: migrated by its owner, its roles with it; refused to others until then."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from psycopg import sql
from tests.stores.postgres import privileges
from tests.stores.postgres.roles import GRANTS, NOT_FOR_TENANTS, OWN, Bare, Roles, fill
from tests.support.postgres_schemas import Schemas

import everlog
from everlog.errors import Unavailable
from everlog.stores.postgres import migrate
from everlog.stores.postgres.address import address_of
from everlog.stores.postgres.connection import connect
from everlog.stores.postgres.statements import migrations
from everlog.stores.postgres.store import PostgresStore

COLUMNS = "position, id, stream, sequence, type, scope, received_us, header, payload, salt, signature, path"
BEFORE_CHECKED_WRITES = 4


class Old:
    """A log of an older format with events, keys and a purge in it, and roles that were granted their rights then."""

    def __init__(self, schemas: Schemas, monkeypatch: pytest.MonkeyPatch) -> None:
        self.url, newer = schemas.new(), schemas.new()
        with everlog.open(newer, actor="user:ada") as log:
            fill(log)
            identity = log.identity
        monkeypatch.setattr(migrate, "migrations", lambda: migrations()[:BEFORE_CHECKED_WRITES])
        address = address_of(self.url)
        with connect(address) as connection:
            migrate._migrate(connection, address, identity, stays=False)
        monkeypatch.undo()
        self.owner: Bare = schemas.connect(self.url)
        source = sql.Identifier(newer.rpartition("=")[2])
        for text in (
            f"INSERT INTO events ({COLUMNS}) SELECT {COLUMNS} FROM {{}}.events ORDER BY position",  # noqa: S608
            "INSERT INTO chains SELECT * FROM {}.chains",
            "INSERT INTO claims SELECT * FROM {}.claims",
            "INSERT INTO notes SELECT * FROM {}.notes",
            "UPDATE state SET clock = (SELECT clock FROM {}.state)",
        ):
            self.owner.execute(sql.SQL(text).format(source))
        self.owner.execute("SELECT purge('note/mine-1', 'user:ada', 'asked to', 1)")
        self.roles = Roles(self.owner, self.url)
        self.names = {kind: self.roles.of_kind(kind) for kind in GRANTS}


@pytest.fixture
def old(postgres_schemas: Schemas, monkeypatch: pytest.MonkeyPatch, postgres_url: str) -> Iterator[Old]:
    if "postgres@" not in postgres_url:
        pytest.skip("needs a server that roles can be made in: EVERLOG_TEST_PG_DSN=postgresql://postgres@…")
    made = Old(postgres_schemas, monkeypatch)
    yield made
    made.roles.drop_all()
    made.owner.close()


def test_a_role_that_cannot_migrate_an_older_log_is_refused_before_a_query_fails(old: Old) -> None:
    for kind in ("writer", "reader", "purger", "tenant"):
        with pytest.raises(Unavailable) as refusal:
            PostgresStore(old.roles.url(old.names[kind]))
        assert "format 4" in refusal.value.why
        assert "only its owner, postgres," in refusal.value.why
        assert "as postgres" in refusal.value.hint
    assert old.owner.execute("SELECT max(number) FROM migrations").fetchone() == (BEFORE_CHECKED_WRITES,)


def test_the_owner_migrates_an_older_log_with_its_roles(old: Old) -> None:
    """Every role has what it would be granted today: what it must not have any more was taken back."""
    with everlog.open(old.url, actor="user:ada") as log:
        report = log.verify()
    assert report.problems == ()
    assert (report.events, report.purged) == (15, 3)
    assert privileges.wrong_privileges(old.owner, old.names) == []
    for kind in ("writer", "runner", "purger"):
        with everlog.open(old.roles.url(old.names[kind]), actor="user:ada") as log:
            again = log.append(
                "note.added",
                stream="note/mine-0",
                payload={"text": "mine 0"},
                scope="acme",
                key="mine-0-0",
            )
            assert again.position == 1, "a key of before the migration is not known any more"
            log.append("note.added", stream="note/mine-0", payload={"text": "new"}, scope="acme", key=kind)
    with everlog.open(old.roles.url(old.names["tenant"])) as log:
        scopes = {record.event.scope for record in log.read()}
        assert scopes == set(OWN) - {"acme/shop"}  # all of that one was purged
        assert NOT_FOR_TENANTS not in str(list(log.read()))
        assert [purge.stream for purge in log.stored.purges()] == ["note/mine-1"]
    with everlog.open(old.url) as log:
        assert log.verify().problems == ()


def test_a_migration_leaves_the_newer_log_as_a_new_one_is(old: Old, postgres_url: str, owner: Bare) -> None:
    """Tables, columns, functions, views, policies and triggers: the same, whichever way a log came to be."""
    everlog.open(old.url).close()
    everlog.open(postgres_url).close()
    questions = (
        "SELECT table_name::text, column_name::text, data_type::text FROM information_schema.columns"
        " WHERE table_schema = current_schema() ORDER BY 1, 2",
        "SELECT proname::text, prosrc, prosecdef FROM pg_proc WHERE pronamespace = current_schema()::regnamespace"
        " ORDER BY 1",
        "SELECT tablename::text, policyname::text FROM pg_policies WHERE schemaname = current_schema() ORDER BY 1, 2",
        "SELECT tgname::text, tgenabled FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid"
        " WHERE relnamespace = current_schema()::regnamespace ORDER BY 1",
    )
    for question in questions:
        migrated = old.owner.execute(question.encode()).fetchall()
        assert migrated == owner.execute(question.encode()).fetchall()
        assert migrated
