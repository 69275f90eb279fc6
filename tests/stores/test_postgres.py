"""PostgreSQL keeps the contract; and what is its own: the order of commits, lost connections, restarts."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

import everlog
from everlog import wiring
from everlog.catalog.catalog import Catalog
from everlog.core.codec import Packed
from everlog.core.event import Position
from everlog.cutover.copy import copy_log
from everlog.errors import (
    Busy,
    Damaged,
    InvalidSettings,
    LogClosed,
    NewerFormat,
    NotALog,
    NotFound,
    Unavailable,
)
from everlog.log import subscribers
from everlog.log.log import Log
from everlog.stores.postgres import connection, insert
from everlog.stores.postgres.listening import Listener
from everlog.stores.postgres.store import PostgresStore
from everlog.testing.builders import Chain, stamped
from everlog.testing.postgres_schemas import Schemas
from everlog.testing.postgres_server import NoServer, PostgresServer, start_server
from everlog.testing.store_contract import OpenStore, StoreContract, append, positions

Bare = psycopg.Connection[tuple[Any, ...]]


class TestPostgresStore(StoreContract):
    @pytest.fixture
    def open_store(self, postgres_url: str) -> OpenStore:
        return lambda: PostgresStore(postgres_url)


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(postgres_url)
    yield opened
    opened.close()


@pytest.fixture
def owner(store: PostgresStore, postgres_schemas: Schemas, postgres_url: str) -> Iterator[Bare]:
    """A bare connection to the same schema, as the owner of it."""
    with postgres_schemas.connect(postgres_url) as opened:
        yield opened


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that a test may crash."""
    try:
        server = start_server()
    except NoServer as error:
        pytest.skip(f"no PostgreSQL of one's own: {error}")
    with server:
        yield server


# ---- the order of commits


def test_a_position_is_given_only_when_everything_before_it_is_committed(
    store: PostgresStore, postgres_url: str
) -> None:
    """F20: while one write is open, the next one waits; a reader never sees the later without the earlier."""
    other = PostgresStore(postgres_url)
    chain = Chain()
    first, second = chain.next(), chain.next()
    done = threading.Event()

    def write_second() -> None:
        append(other, second)
        done.set()

    thread = threading.Thread(target=write_second)
    with store.write() as writer:
        writer.append([first])
        thread.start()
        assert not done.wait(0.3), "it was given a position before the one before it was committed"
        assert positions(store.read()) == []
    thread.join()
    assert [recorded.event.id for recorded in store.read()] == [first.event.id, second.event.id]
    other.close()


def test_an_idle_transaction_elsewhere_holds_nobody_up(store: PostgresStore, owner: Bare) -> None:
    """F24: it has a snapshot and even a row of its own, and neither writers nor readers wait for it."""
    append(store, Chain().next())
    owner.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    owner.execute("SELECT count(*) FROM events")
    owner.execute("INSERT INTO projection_checkpoints (projection, last_applied_position) VALUES ('board', 1)")
    started = time.monotonic()
    for _ in range(5):
        append(store, Chain("01TESTFREE" + os.urandom(8).hex().upper()).next())
    assert positions(store.read()) == [1, 2, 3, 4, 5, 6]
    assert time.monotonic() - started < 10
    owner.execute("ROLLBACK")


@pytest.mark.parametrize("events", [800, pytest.param(20_000, marks=pytest.mark.slow)])
def test_readers_miss_repeat_and_reorder_nothing(postgres_url: str, events: int) -> None:
    """F20 to F24, G3: 16 writers with connections of their own commit after random delays, some roll back."""
    writers, readers = 16, 4
    stores = [PostgresStore(postgres_url) for _ in range(writers + readers)]
    origin = stores[0].identity.origin
    recorded_ids: list[str] = []
    stop = threading.Event()

    def write(number: int) -> None:
        store, chance = stores[number], random.Random(number)
        for turn in range(events // writers // 4):
            try:
                with store.write() as writer:
                    new = []
                    for _ in range(4):
                        made = stamped(writer, origin, stream=f"note/{chance.randrange(20)}")
                        new += writer.append([made], fresh=True)
                    if chance.random() < 0.3:
                        time.sleep(chance.random() * 0.003)
                    if chance.random() < 0.1 and turn:
                        raise _ChangedMind
            except _ChangedMind:
                continue
            recorded_ids.extend(record.event.id for record in new)

    def read(number: int) -> list[tuple[int, str]]:
        store, cursor = stores[writers + number], Position(0)
        seen: list[tuple[int, str]] = []
        while True:
            last_look = stop.is_set()
            for record in store.read(after=cursor, limit=random.choice([1, 7, 500])):
                seen.append((record.position, record.event.id))
                cursor = record.position
            if last_look and cursor == store.head():
                return seen

    with ThreadPoolExecutor(writers + readers) as threads:
        reading = [threads.submit(read, number) for number in range(readers)]
        writing = [threads.submit(write, number) for number in range(writers)]
        for work in writing:
            work.result()
        stop.set()
        seen = [work.result() for work in reading]
    final = [(record.position, record.event.id) for record in stores[0].read()]
    assert [position for position, _ in final] == list(range(1, len(final) + 1))
    assert sorted(event_id for _, event_id in final) == sorted(recorded_ids)
    for one in seen:
        assert one == final
    assert list(stores[0].check()) == []
    for store in stores:
        store.close()


class _ChangedMind(Exception):
    pass


def test_16_clients_with_one_key_make_one_event(postgres_url: str, catalog: Catalog) -> None:
    """F82: each with a connection of its own, all at once."""
    logs = [Log(PostgresStore(postgres_url), catalog) for _ in range(16)]
    start = threading.Barrier(16)

    def ask(log: Log) -> tuple[int, str]:
        start.wait()
        record = log.append("thing.said", stream="thing/1", payload={"value": 1}, key="once")
        return record.position, record.event.id

    with ThreadPoolExecutor(16) as threads:
        answers = set(threads.map(ask, logs))
    assert len(answers) == 1
    assert logs[0].head() == 1
    for log in logs:
        log.close()


def test_claims_of_other_processes_are_known(postgres_url: str, catalog: Catalog) -> None:
    """The names that one process remembers are brought up to date when another has written."""
    one, other = (Log(PostgresStore(postgres_url), catalog) for _ in range(2))
    for number in range(40):
        one.append("thing.said", stream="thing/1", payload={"value": number}, key=f"one-{number}")
    made = other.append("thing.said", stream="thing/1", payload={"value": "x"}, key="other")
    again = one.append("thing.said", stream="thing/1", payload={"value": "x"}, key="other")
    assert made == again
    assert one.append("thing.said", stream="thing/1", payload={"value": "y"}, key="new").position == 42
    one.close()
    other.close()


def test_a_claim_is_forgotten_after_its_time(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insert, "_BETWEEN_PRUNES", 1)
    day = 24 * 3_600_000_000
    now = [1_800_000_000_000_000]
    store = PostgresStore(postgres_url, now_us=lambda: now[0])
    chain = Chain()
    for name in (b"a" * 16, b"b" * 16, b"c" * 16):
        with store.write() as writer:
            writer.claim(name, writer.append([chain.next()])[0].position, 1)
        now[0] += day * 3 // 4
    assert [store.claimed(name * 16) is not None for name in (b"a", b"b", b"c")] == [False, True, True]
    store.close()


# ---- opening


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
    for name in [name for name in sys.modules if name.startswith("everlog.stores.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(Unavailable) as refusal:
        everlog.open("postgresql:///db")
    assert "everlog[pg]" in refusal.value.hint


# ---- values


HOSTILE: list[Any] = [
    "\x00",
    "\\u0000",
    "\\\x00",
    "a\x00b\\",
    "\u2028\u2029\x85",
    "\ufeff",
    "é",
    "e\u0301",
    "\u202eabc",
    1,
    1.5,
    -0.0,
    1e-7,
    2**53 - 1,
    -(2**53) + 1,
    "",
    " ",
    "x" * 65536,
    "x" * (1024 * 1024 - 64),
    "../x",
    "'; DROP TABLE events; --",
    "${HOME}",
    "</script>",
    "a\r\nb",
    "\t\\N",
    {"__proto__": {"constructor": 1}},
    {"a": {"b": [[[[[]]]]]}},
    "\U0001f600",
]


def test_hostile_values_come_back_byte_for_byte(postgres_url: str, catalog: Catalog) -> None:
    """FAILURES section 6: whatever the door lets in comes back equal, also what jsonb has no place for."""
    memory, log = everlog.open("memory:", catalog=catalog), Log(PostgresStore(postgres_url), catalog)
    for number, value in enumerate(HOSTILE):
        log.append("thing.said", stream=f"thing/{number}", payload={"value": value})
    log.append_batch([everlog.Draft(type="thing.said", stream="thing/all", payload={"value": v}) for v in HOSTILE])
    memory.admit([record.event for record in log.read()])
    assert [_bytes(place) for place in log.store.packed()] == [_bytes(place) for place in memory.store.packed()]
    assert log.verify().digest == memory.verify().digest
    assert log.verify().ok
    log.close()


def _bytes(place: Any) -> tuple[bytes, bytes, bytes]:
    assert isinstance(place, Packed)
    return place.header, place.payload, place.salt


def test_the_derived_json_is_there_where_it_can_be(
    postgres_url: str, postgres_schemas: Schemas, catalog: Catalog
) -> None:
    log = Log(PostgresStore(postgres_url), catalog)
    for value in ("plain", "\x00", "\\u0000", "\\\\u0000", "\\\x00"):
        log.append("thing.said", stream="thing/1", payload={"value": value})
    with postgres_schemas.connect(postgres_url) as bare:
        found = bare.execute("SELECT body ->> 'value' FROM events ORDER BY position").fetchall()
    assert [row[0] for row in found] == ["plain", None, "\\u0000", "\\\\u0000", None]
    log.close()


@pytest.mark.parametrize("rows", [1, 3, 200])
def test_few_and_many_rows_are_stored_alike(store: PostgresStore, rows: int) -> None:
    """As arrays and by COPY: signatures, paths and erased payloads included."""
    chain = Chain()
    made = [chain.next(stream=f"note/{n % 3}", payload={"text": f"ä{n}"}, tags={"n": str(n)}) for n in range(rows)]
    append(store, *made)
    assert [record.event for record in store.read()] == [sealed.event for sealed in made]
    assert list(store.check()) == []


def test_a_log_goes_to_postgres_and_back_unchanged(postgres_url: str, tmp_path: Path) -> None:
    """Positions, bytes, purges and keys: the digest of `verify` is the same on all three."""
    digests = []
    first, second = f"sqlite:{tmp_path / 'one.db'}", f"sqlite:{tmp_path / 'two.db'}"
    with everlog.open(first, actor="user:ada") as log:
        for number in range(30):
            log.append("note.added", stream=f"note/{number % 4}", payload={"text": f"n {number}"}, key=f"k{number}")
        log.purge("note/1", reason="asked to")
        log.append("note.added", stream="note/1", payload={"text": "after"})
        digests.append(log.verify().digest)
    for source, target in ((first, postgres_url), (postgres_url, second)):
        opened = wiring.open_store(source, base=Path(), create=False)
        copy_log(opened, wiring.copy_target(target, base=Path()))
        opened.close()
        with everlog.open(target, actor="user:ada") as log:
            report = log.verify()
            assert report.ok, report.problems
            digests.append(report.digest)
            again = log.append("note.added", stream="note/3", payload={"text": "n 3"}, key="k3")
            assert again.position == 4
    assert len(set(digests)) == 1


# ---- a server that goes away


def test_a_read_and_a_write_go_on_after_the_server_came_back(own_server: PostgresServer) -> None:
    store = PostgresStore(own_server.url)
    chain = Chain()
    append(store, chain.next())
    assert store.head() == 1
    own_server.crash()
    with pytest.raises(Unavailable):
        store.head()
    with pytest.raises(Unavailable):
        append(store, chain.next())
    own_server.start()
    assert store.head() == 1
    append(store, Chain("01TESTFREE0000000000000001").next())
    assert positions(store.read()) == [1, 2]
    store.close()


def test_a_write_that_meets_a_restarted_server_does_not_notice(own_server: PostgresServer) -> None:
    store = PostgresStore(own_server.url)
    append(store, Chain().next())
    own_server.stop()
    own_server.start()
    append(store, Chain("01TESTFREE0000000000000001").next())
    assert store.head() == 2
    store.close()


def test_a_server_that_crashes_loses_nothing_acknowledged(own_server: PostgresServer, catalog: Catalog) -> None:
    """G1: killed without a word while eight threads append; every acknowledged event is there, and none twice."""
    log = Log(PostgresStore(own_server.url), catalog)
    acknowledged: list[str] = []
    stop = threading.Event()

    def write(number: int) -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            try:
                record = log.append(
                    "thing.said", stream=f"thing/{number}", payload={"value": turn}, key=f"{number}-{turn}"
                )
                acknowledged.append(record.event.id)
            except Unavailable:
                time.sleep(0.05)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        time.sleep(0.5)
        own_server.crash()
        own_server.start()
    time.sleep(0.3)
    stop.set()
    for thread in threads:
        thread.join()
    there = [record.event.id for record in log.read()]
    assert len(acknowledged) > 50
    assert set(acknowledged) <= set(there)
    assert len(there) == len(set(there))
    assert log.verify().ok
    log.close()


@pytest.mark.parametrize("committed", [True, False])
def test_a_connection_lost_in_a_commit_is_looked_into(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    """What the server did is found out: an event that stands is acknowledged, one that does not is refused."""
    whole = insert.Inserter.insert

    def cut_off(self: insert.Inserter, writer: Any, wire: Any, staged: Any) -> None:
        if committed:
            whole(self, writer, wire, staged)
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    chain = Chain()
    append(store, chain.next())
    monkeypatch.setattr(insert.Inserter, "insert", cut_off)
    if committed:
        append(store, chain.next())
    else:
        with pytest.raises(Unavailable) as refusal:
            append(store, chain.next())
        assert "nothing of this write was kept" in refusal.value.why
    monkeypatch.undo()
    assert store.head() == (2 if committed else 1)
    append(store, Chain("01TESTFREE0000000000000001").next())
    assert list(store.check()) == []


def test_an_unknown_outcome_is_told_as_such(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a server to ask, nobody is told that it was kept, nor that it was not."""
    from everlog.stores.postgres import store as module

    def cut_off(self: insert.Inserter, writer: Any, wire: Any, staged: Any) -> None:
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    def unreachable(address: Any) -> Any:
        raise psycopg.OperationalError("connection refused")

    append(store, Chain().next())
    monkeypatch.setattr(insert.Inserter, "insert", cut_off)
    monkeypatch.setattr(module, "connect", unreachable)
    monkeypatch.setattr(module, "_RESOLVE_S", 0)
    with pytest.raises(Unavailable) as refusal:
        append(store, Chain("01TESTFREE0000000000000001").next())
    assert "unknown" in refusal.value.what
    assert "idempotency key" in refusal.value.hint


def test_a_writer_that_is_killed_lets_go_of_the_log(postgres_url: str, tmp_path: Path) -> None:
    """G1, G13: kill -9 of a client in the middle of its writes; what it had said is there, and others go on."""
    store = PostgresStore(postgres_url)
    code = (
        "import sys, everlog\n"
        "log = everlog.open(sys.argv[1])\n"
        "for n in range(100000):\n"
        "    print(log.append('note.added', stream='note/1', payload={'text': str(n)}).event.id, flush=True)\n"
    )
    for _ in range(3):
        client = subprocess.Popen([sys.executable, "-c", code, postgres_url], stdout=subprocess.PIPE, text=True)
        assert client.stdout is not None
        said = [client.stdout.readline().strip() for _ in range(15)]
        client.send_signal(signal.SIGKILL)
        said += client.stdout.read().split()
        client.wait()
        client.stdout.close()
        append(store, Chain("01TESTFREE" + os.urandom(8).hex().upper()).next())
        there = {record.event.id for record in store.read()}
        whole = [event_id for event_id in said if len(event_id) == 26]
        assert set(whole) <= there
    assert list(store.check()) == []
    store.close()


def test_who_waits_too_long_for_the_log_is_told(
    store: PostgresStore, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LOCK_TIMEOUT_MS", 100)
    other = PostgresStore(postgres_url)
    with store.write(), pytest.raises(Busy), other.write():
        pass
    append(other, Chain().next())
    other.close()


def test_a_fork_does_not_share_connections(store: PostgresStore) -> None:
    """The child is refused, and its end does not end the parent's sessions."""
    append(store, Chain().next())
    assert store.head() == 1
    child = os.fork()
    if child == 0:
        try:
            store.head()
        except LogClosed:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    append(store, Chain("01TESTFREE0000000000000001").next())
    assert store.head() == 2


# ---- damage


def test_a_log_that_was_cut_off_takes_no_writes(store: PostgresStore, owner: Bare, postgres_url: str) -> None:
    """G10, F60: rows that a superuser took away with the triggers switched off."""
    append(store, *[Chain().next()])
    chain = Chain("01TESTFREE0000000000000001")
    append(store, chain.next(), chain.next())
    owner.execute("ALTER TABLE events DISABLE TRIGGER USER")
    owner.execute("DELETE FROM events WHERE position = 3")
    owner.execute("ALTER TABLE events ENABLE TRIGGER USER")
    fresh = PostgresStore(postgres_url)
    with pytest.raises(Damaged), fresh.write():
        pass
    codes = {problem.code for problem in fresh.check()}
    assert {"log_cut_off", "state_disagrees", "schema_changed"} <= codes
    fresh.close()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("DROP TRIGGER events_are_not_changed ON events", "trigger_missing"),
        ("ALTER TABLE events DISABLE TRIGGER events_are_not_deleted", "schema_changed"),
        (
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
            "schema_changed",
        ),
        (
            "CREATE TRIGGER mine BEFORE INSERT ON events EXECUTE FUNCTION suppress_redundant_updates_trigger()",
            "schema_changed",
        ),
        ("UPDATE chains SET origin_seq = 0", "state_disagrees"),
        ("UPDATE chains SET hash = 'x'", "state_disagrees"),
        ("DELETE FROM chains", "state_disagrees"),
        ("UPDATE state SET head = 99", "state_disagrees"),
    ],
)
def test_a_change_to_the_protection_is_found(store: PostgresStore, owner: Bare, change: str, code: str) -> None:
    chain = Chain()
    append(store, chain.next(), chain.next())
    owner.execute(change.encode())
    assert code in {problem.code for problem in store.check()}


@pytest.mark.parametrize("column", ["stream", "type", "scope"])
def test_a_row_filed_under_another_name_is_found(store: PostgresStore, owner: Bare, column: str) -> None:
    append(store, Chain().next(scope="acme"))
    owner.execute("ALTER TABLE events DISABLE TRIGGER USER")
    owner.execute(sql.SQL("UPDATE events SET {} = 'other' WHERE position = 1").format(sql.Identifier(column)))
    assert "index_disagrees" in {problem.code for problem in store.check()}


def test_every_direct_edit_is_found_by_verify(postgres_url: str, postgres_schemas: Schemas, catalog: Catalog) -> None:
    """S16: whatever somebody with all rights changes in the rows."""
    log = Log(PostgresStore(postgres_url), catalog)
    for number in range(40):
        log.append("thing.said", stream=f"thing/{number % 4}", payload={"value": number}, scope="acme")
    chance = random.Random(16)
    with postgres_schemas.connect(postgres_url) as bare:
        bare.execute("CREATE TEMP TABLE kept AS SELECT * FROM events")
        bare.execute("ALTER TABLE events DISABLE TRIGGER USER")
        for _ in range(30):
            position, (column, change) = chance.randrange(1, 41), chance.choice(list(EDITS.items()))
            value = change.format(n=chance.randrange(1, 12))
            edit = f"{column} = {value} WHERE position = {position}"
            bare.execute(b"UPDATE events SET " + edit.encode())
            found = {problem.code for problem in log.verify().problems}
            assert found - {"schema_changed"}, edit
            bare.execute("DELETE FROM events WHERE position IN (%s, %s)", (position, position + 100))
            bare.execute(
                "INSERT INTO events (position, id, stream, sequence, type, scope, received_us, header, payload, salt,"
                " signature, path) SELECT position, id, stream, sequence, type, scope, received_us, header, payload,"
                " salt, signature, path FROM kept WHERE position = %s",
                (position,),
            )
        for trigger in ("follow_on", "are_not_changed", "are_not_deleted", "are_not_emptied"):
            bare.execute(f"ALTER TABLE events ENABLE ALWAYS TRIGGER events_{trigger}".encode())
    assert log.verify().ok
    log.close()


EDITS = {
    "header": "overlay(header placing '~' from {n})",
    "payload": "payload || repeat(' ', {n})",
    "salt": "set_byte(salt, {n}, (get_byte(salt, {n}) + 1) % 256)",
    "sequence": "sequence + 100",
    "position": "position + 100",
    "stream": "stream || 'x'",
    "type": "type || 'x'",
    "scope": "scope || 'x'",
    "id": "gen_random_uuid()",
}


# ---- hearing of others


def test_a_follower_hears_of_another_process_without_looking(
    postgres_url: str, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint of LISTEN: with a look only every minute, an event of another process still comes at once."""
    monkeypatch.setattr(subscribers, "POLL_S", 60)
    here, there = (Log(PostgresStore(postgres_url), catalog) for _ in range(2))
    items = here.subscribe()
    there.append("thing.said", stream="thing/1")
    assert next(items).position == 1  # type: ignore[union-attr]
    with ThreadPoolExecutor(1) as threads:
        following = threads.submit(lambda: next(items))
        time.sleep(1)  # it listens and sleeps by now
        there.append("thing.said", stream="thing/1")
        assert following.result(timeout=20).position == 2  # type: ignore[union-attr]
    here.close()
    there.close()


def test_a_follower_needs_no_hint(postgres_url: str, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """LISTEN is no part of the promise: a follower that never hears anything sees every event all the same."""
    monkeypatch.setattr(Listener, "call", lambda self, callback: None)
    here, there = (Log(PostgresStore(postgres_url), catalog) for _ in range(2))
    items = here.subscribe()
    for position in (1, 2, 3):
        there.append("thing.said", stream="thing/1")
        assert next(items).position == position  # type: ignore[union-attr]
    here.close()
    there.close()
