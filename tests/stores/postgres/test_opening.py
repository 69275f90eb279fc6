"""Opening a log in PostgreSQL: made once, of this program, and told in words when it cannot be."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.stores.postgres.conftest import Bare
from tests.support.postgres_schemas import Schemas

import everlog
import everlog.stores.postgres
from everlog.errors import (
    InvalidSettings,
    NewerFormat,
    NotALog,
    NotFound,
    Unavailable,
)
from everlog.stores.postgres.statements import migrations
from everlog.stores.postgres.store import PostgresStore
from everlog.testing.builders import Chain
from everlog.testing.filling import append


def test_two_processes_make_one_log(postgres_url: str) -> None:
    with ThreadPoolExecutor(6) as threads:
        stores = list(threads.map(PostgresStore, [postgres_url] * 6))
    assert len({store.identity for store in stores}) == 1
    for store in stores:
        store.close()


def test_a_log_is_not_made_where_none_is_wanted(postgres_url: str) -> None:
    with pytest.raises(NotFound):
        PostgresStore(postgres_url, create=False)


def test_a_schema_of_another_program_is_left_alone(postgres_schemas: Schemas, postgres_url: str) -> None:
    schema = postgres_url.rpartition("=")[2]
    with postgres_schemas.connect() as bare:
        bare.execute(f"CREATE SCHEMA {schema}")
        bare.execute(f"CREATE TABLE {schema}.customers (id int)")
        with pytest.raises(NotALog):
            PostgresStore(postgres_url)
        found = bare.execute("SELECT count(*) FROM pg_class WHERE relnamespace = %s::regnamespace", (schema,))
        assert found.fetchone() == (1,)


def test_a_newer_format_is_refused_and_left_alone(store: PostgresStore, owner: Bare, postgres_url: str) -> None:
    owner.execute("INSERT INTO migrations (number, name, digest) VALUES (9999, '9999_tomorrow', '')")
    with pytest.raises(NewerFormat) as refusal:
        PostgresStore(postgres_url)
    assert refusal.value.details["format"] == 9999


def test_a_log_knows_by_which_files_it_was_migrated(store: PostgresStore, owner: Bare) -> None:
    kept = owner.execute("SELECT number, digest FROM migrations ORDER BY number").fetchall()
    assert kept == [(number, hashlib.sha256(text.encode()).digest()) for number, _, text in migrations()]


def test_a_log_migrated_by_other_files_is_refused(store: PostgresStore, owner: Bare, postgres_url: str) -> None:
    owner.execute("UPDATE migrations SET digest = 'x' WHERE number = 1")
    with pytest.raises(NotALog):
        PostgresStore(postgres_url)


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("postgresql:///db?host=/nowhere/at/all", Unavailable),
        ("postgresql://u:secret-word@[::1", InvalidSettings),
        ("postgresql:///db?no_such_option=1", InvalidSettings),
        ("postgresql:///db?schema=", InvalidSettings),
        ("postgresql:///db?schema=pg_toast", InvalidSettings),
        ("postgresql:///db?schema=" + "x" * 64, InvalidSettings),
    ],
)
def test_a_wrong_url_is_told_without_its_password(url: str, error: type[Exception]) -> None:
    with pytest.raises(error) as refusal:
        everlog.open(url)
    told = f"{refusal.value} {getattr(refusal.value, 'hint', '')} {getattr(refusal.value, 'details', '')}"
    assert getattr(refusal.value, "hint", "")
    assert "secret-word" not in told


def test_a_missing_database_is_told(postgres_url: str) -> None:
    with pytest.raises(NotFound):
        PostgresStore(postgres_url.replace("/postgres?", "/no_such_database?"))


def test_a_database_that_cannot_hold_every_character_is_refused(postgres_schemas: Schemas, postgres_url: str) -> None:
    with postgres_schemas.connect() as bare:
        bare.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        try:
            with pytest.raises(InvalidSettings) as refusal:
                PostgresStore(postgres_url.replace("/postgres?", "/latin?"))
        finally:
            bare.execute("DROP DATABASE latin")
    assert "LATIN1" in refusal.value.why


def test_commits_are_flushed_whatever_the_server_is_set_to(postgres_schemas: Schemas, postgres_url: str) -> None:
    """G1: a role or database may be set to be quicker than safe."""
    with postgres_schemas.connect() as bare:
        bare.execute("ALTER ROLE postgres SET synchronous_commit TO off")
        try:
            store = PostgresStore(postgres_url)
            append(store, Chain().next())
            assert store._writer is not None
            assert store._writer.execute("SHOW synchronous_commit").fetchone() == ("on",)
            store.close()
        finally:
            bare.execute("ALTER ROLE postgres RESET synchronous_commit")


def test_importing_everlog_does_not_load_psycopg() -> None:
    code = "import sys, everlog; everlog.open('memory:').close(); sys.exit('psycopg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_psycopg_the_hint_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    # It is imported again below; afterwards the first one is found again, also by its name in the package.
    monkeypatch.setattr(everlog.stores, "postgres", everlog.stores.postgres)
    for name in [name for name in sys.modules if name.startswith("everlog.stores.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(Unavailable) as refusal:
        everlog.open("postgresql:///db")
    assert "everlog[pg]" in refusal.value.hint
