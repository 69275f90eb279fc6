"""An upgrade of a PostgreSQL schema: killed around the renaming, beside writers that wait, with roles."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.upgrade.server import Server, postgres_server
from tests.upgrade.test_format1 import LOGS
from tests.upgrade.test_upgrade import known, plain, without_chain
from tests.upgrade.writing import CATALOG

from everlog.errors import NotFound, OlderFormat
from everlog.log.log import Log
from everlog.stores.postgres.upgrade import Schemas
from everlog.upgrading import forget_old, upgrade
from everlog.wiring import open_store

NUMBERS = itertools.count()
HERE = Path()
KILL = """
import os, signal, sys
from pathlib import Path
from everlog.stores.postgres.upgrade import Schemas
from everlog.upgrading import upgrade
swap, when = Schemas.swap, sys.argv[2]
def killed(self):
    if when == "before the renaming":
        os.kill(os.getpid(), signal.SIGKILL)
    swap(self)
    if when == "before the commit":
        os.kill(os.getpid(), signal.SIGKILL)
Schemas.swap = killed
upgrade(sys.argv[1], base=Path())
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    yield from postgres_server()


@pytest.fixture
def schema(server: Server) -> str:
    name = f"log{next(NUMBERS)}"
    server.load(name, LOGS / "postgres.txt")
    return name


@pytest.fixture
def url(server: Server, schema: str) -> str:
    return f"{server.url}{'&' if '?' in server.url else '?'}schema={schema}"


def schemas(server: Server, schema: str) -> list[str]:
    with server.connect() as connection:
        rows = connection.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname LIKE %s ORDER BY 1", (schema + "%",)
        )
        return [row[0] for row in rows.fetchall()]


@pytest.mark.parametrize("when", ["before the renaming", "before the commit", "after the commit"])
def test_a_killed_upgrade_is_begun_again_or_was_done(when: str, server: Server, schema: str, url: str) -> None:
    done = subprocess.run([sys.executable, "-c", KILL, url, when], check=False, timeout=120)
    assert done.returncode == -9
    if when != "after the commit":
        with pytest.raises(OlderFormat):
            open_store(url, base=HERE)
        again = upgrade(url, base=HERE)
        assert (again.done, again.earlier) == (True, "begun again")
    else:
        again = upgrade(url, base=HERE)
        assert (again.done, again.earlier) == (False, "")
    assert schemas(server, schema) == [schema, f"{schema}_format1"]
    before = known("postgres")
    with closing(open_store(url, base=HERE, create=False)) as store:
        assert plain(store) == {
            **{key: value for key, value in before.items() if key != "digest"},
            "slots": [without_chain(slot) for _, slot in before["slots"]],
        }
        assert Log(store, CATALOG).verify().ok
    forget_old(url, base=HERE)
    assert schemas(server, schema) == [schema]
    with pytest.raises(NotFound):
        forget_old(url, base=HERE)


def test_of_two_upgrades_at_once_one_does_it(server: Server, schema: str, url: str) -> None:
    found: list[bool] = []
    both = [threading.Thread(target=lambda: found.append(upgrade(url, base=HERE).done)) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(120)
    assert sorted(found) == [False, True]
    assert schemas(server, schema) == [schema, f"{schema}_format1"]


def test_a_writer_that_waits_writes_into_the_upgraded_log_or_is_refused(
    server: Server, schema: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[str] = []
    swap = Schemas.swap
    note = "INSERT INTO notes (key, value) VALUES ('late', 'x')"
    # An event as the version of format 1 goes on with its chain: its hash of the last event is another one.
    event = (
        "INSERT INTO events (position, sequence, received_us, id, stream, type, scope, header, payload, salt,"
        " signature, path) SELECT (SELECT head FROM state) + 1, 40, received_us, %s::uuid, stream, type, scope,"
        " jsonb_set(jsonb_set(jsonb_set(header::jsonb, '{0}', to_jsonb(%s::text)), '{6}',"
        " to_jsonb((SELECT origin_seq + 1 FROM chains JOIN identity USING (origin)))), '{16}',"
        " to_jsonb(encode((SELECT sha256(convert_to(e.header, 'UTF8')) FROM events AS e JOIN chains USING (position)"
        " JOIN identity USING (origin)), 'base64')))::text, payload, salt, signature, path"
        " FROM events WHERE header::jsonb ->> 5 = (SELECT origin FROM identity) ORDER BY position LIMIT 1"
    )
    late, late_in_header = "01a1ec1c-fbcc-7027-80f1-6ba5144949ff", "01M7P1SYYCE0KR1WBBMM8CJ4ZZ"

    def write(statement: str, values: tuple[str, ...]) -> None:
        with server.connect() as connection:
            connection.execute(f"SET search_path TO {schema}, pg_temp")
            try:
                connection.execute(statement, values, prepare=False)
                answers.append("written")
            except psycopg.Error as error:
                answers.append(str(error))

    writers = [
        threading.Thread(target=write, args=(note, ())),
        threading.Thread(target=write, args=(event, (late, late_in_header))),
    ]

    def swap_beside_writers(self: Schemas) -> None:
        for thread in writers:
            thread.start()
        with server.connect() as watching:
            for _ in range(200):
                waits = watching.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()
                if waits == (len(writers),):
                    break
                time.sleep(0.05)
            assert waits == (len(writers),)
        swap(self)

    monkeypatch.setattr(Schemas, "swap", swap_beside_writers)
    upgrade(url, base=HERE)
    for thread in writers:
        thread.join(60)
    with server.connect() as connection:
        for where, count in ((f"{schema}_format1", 0), (schema, 1)):
            connection.execute(f"SET search_path TO {where}, pg_temp")
            assert connection.execute("SELECT count(*) FROM notes WHERE key = 'late'").fetchone() == (count,)
            assert connection.execute("SELECT count(*) FROM events WHERE id = %s", (late,)).fetchone() == (0,)
    assert sorted(answer == "written" for answer in answers) == [False, True], answers
    assert any("its chain ends" in answer or "was upgraded" in answer for answer in answers), answers
    with closing(open_store(url, base=HERE, create=False)) as store:
        assert Log(store, CATALOG).verify().ok


def rights(connection: Any, schema: str, role: str) -> list[Any]:
    asked = (
        "SELECT has_table_privilege(%(role)s, %(in)s || 'events', 'SELECT'),"
        " has_any_column_privilege(%(role)s, %(in)s || 'events', 'INSERT'),"
        " has_table_privilege(%(role)s, %(in)s || 'scoped_events', 'SELECT'),"
        " has_table_privilege(%(role)s, %(in)s || 'derived', 'INSERT'),"
        " (SELECT bool_or(has_function_privilege(%(role)s, oid, 'EXECUTE')) FROM pg_proc"
        "  WHERE proname = 'purge' AND pronamespace = %(schema)s::regnamespace),"
        " (SELECT array_agg(scope ORDER BY scope) FROM tenants WHERE role::text = %(role)s)"
    )
    connection.execute(f"SET search_path TO {schema}, pg_temp")
    row = connection.execute(asked, {"role": role, "in": f"{schema}.", "schema": schema}, prepare=False).fetchone()
    return list(row)


def test_roles_keep_what_they_may_do(server: Server, schema: str, url: str) -> None:
    grants = {
        "reader": "grant_reader(%s)",
        "writer": "grant_writer(%s)",
        "purger": "grant_purger(%s)",
        "views": "grant_views(%s)",
        "tenant": "grant_tenant(%s, 'acme/shop')",
        "nobody": "",
    }
    with server.connect() as connection:
        connection.execute(f"SET search_path TO {schema}, pg_temp")
        for name, grant in grants.items():
            connection.execute(f"CREATE ROLE {schema}_{name}")
            if grant:
                connection.execute(f"SELECT {grant}", (f"{schema}_{name}",), prepare=False)
        before = {name: rights(connection, schema, f"{schema}_{name}") for name in grants}
    assert len({str(found) for found in before.values()}) == len(grants), before
    upgrade(url, base=HERE)
    with server.connect() as connection:
        assert {name: rights(connection, schema, f"{schema}_{name}") for name in grants} == before
