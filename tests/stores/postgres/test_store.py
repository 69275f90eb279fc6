"""PostgreSQL keeps the contract; and what is its own: the order of commits, values, hearing of others."""

from __future__ import annotations

import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.stores.postgres.conftest import Bare
from tests.support.postgres_schemas import Schemas

import everlog
from everlog import wiring
from everlog.catalog.catalog import Catalog
from everlog.core.codec import Packed
from everlog.core.event import Position
from everlog.log.log import Log
from everlog.log.read import follow
from everlog.stores.postgres import claims, insert
from everlog.stores.postgres.listener import Listener
from everlog.stores.postgres.store import PostgresStore
from everlog.stores.small_state import read_claim, read_notes
from everlog.testing.builders import Chain, put_claim, put_note, seal_any, stamped
from everlog.testing.chain_contract import ChainContract
from everlog.testing.erase_contract import EraseContract
from everlog.testing.filling import append, positions
from everlog.testing.group_contract import GroupContract
from everlog.testing.store_contract import OpenStore, StoreContract
from everlog.transfer.copy import copy_log


class TestPostgresStore(StoreContract, ChainContract, EraseContract, GroupContract):
    @pytest.fixture
    def open_store(self, postgres_url: str) -> OpenStore:
        return lambda: PostgresStore(postgres_url)


def test_a_log_too_large_to_know_all_streams_asks_for_those_of_a_write_at_once(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everlog.stores.postgres.store._KNOWN_WHOLE_MAX", -1)
    asked: list[Any] = []
    fetch = PostgresStore._fetch_in_write

    def watched(self: PostgresStore, name: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        if name == "last_sequences":
            asked.append(values["streams"])
        return fetch(self, name, values)

    monkeypatch.setattr(PostgresStore, "_fetch_in_write", watched)
    contract = TestPostgresStore()
    contract.test_one_write_over_many_streams_goes_on_where_each_of_them_was(lambda: PostgresStore(postgres_url))
    assert {"note/1", "note/2", "note/3", "note/4"} in map(set, asked)


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
    with store.open_write() as writer:
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
                with store.open_write() as writer:
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
        with store.open_write() as writer:
            put_claim(writer, name, writer.append([chain.next()])[0].position, 1)
        now[0] += day * 3 // 4
    assert [read_claim(store.small_state, name * 16) is not None for name in (b"a", b"b", b"c")] == [
        False,
        True,
        True,
    ]
    store.close()


def test_expired_notes_are_removed_by_the_first_write_of_a_process_and_then_now_and_then(
    postgres_url: str, owner: Bare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(insert, "_BETWEEN_PRUNES", 3)
    now = [1_800_000_000_000_000]
    store = PostgresStore(postgres_url, now_us=lambda: now[0])
    left = []
    for number in range(7):
        now[0] += 10
        with store.open_write() as writer:
            put_note(writer, f"note {number}", "x", expires_us=now[0] + 1)
        left += [row[0] for row in owner.execute("SELECT count(*) FROM notes")]
    assert left == [1, 2, 3, 1, 2, 3, 1]
    store.close()


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
    assert [_bytes(place) for place in log._store.slots()] == [_bytes(place) for place in memory._store.slots()]
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


# ---- hearing of others


def test_a_follower_hears_of_another_process_without_looking(
    postgres_url: str, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hint of LISTEN: with a look only every minute, an event of another process still comes at once."""
    monkeypatch.setattr(follow, "POLL_S", 60)
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


def test_a_closed_store_hears_nothing_more_and_others_still_do(postgres_url: str) -> None:
    heard: dict[str, list[int]] = {"closed": [], "open": []}
    stores = {name: PostgresStore(postgres_url) for name in heard}
    for name, store in stores.items():
        store.watch(lambda name=name: heard[name].append(1))  # type: ignore[misc]

    def append_until_heard(*names: str) -> None:
        before = {name: len(heard[name]) for name in names}
        deadline = time.monotonic() + 20
        while not all(len(heard[name]) > before[name] for name in names):  # it may not listen yet
            assert time.monotonic() < deadline
            append(stores["open"], seal_any())
            time.sleep(0.05)

    append_until_heard("closed", "open")
    listener = stores["closed"]._listener
    assert listener is not None
    stores["closed"].close()
    assert not listener._thread.is_alive()
    before = len(heard["closed"])
    append_until_heard("open")
    assert len(heard["closed"]) == before
    stores["open"].close()


def test_closing_does_not_wait_for_what_the_server_may_say(postgres_url: str) -> None:
    """The shortest of several: the machine may have other work."""
    took = []
    for _ in range(5):
        store, heard = PostgresStore(postgres_url), threading.Event()
        store.watch(heard.set)
        while not heard.wait(0.05):  # it may not listen yet
            append(store, seal_any())
        began = time.monotonic()
        store.close()
        took.append(time.monotonic() - began)
    assert min(took) < 0.2, took


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


def test_a_commit_is_not_waited_for_if_it_holds_nothing_but_refusals(store: PostgresStore, owner: Bare) -> None:
    owner.execute("CREATE TABLE seen (key text, synchronous text)")
    owner.execute(
        "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO seen VALUES (NEW.key, current_setting('synchronous_commit')); RETURN NEW; END $$"
    )
    owner.execute("CREATE TRIGGER see BEFORE INSERT ON notes FOR EACH ROW EXECUTE FUNCTION see()")
    with store.open_write() as write:
        put_note(write, "lost", "1", may_be_lost=True)
    with store.open_write() as write:
        put_note(write, "kept", "1")
        put_note(write, "beside", "1", may_be_lost=True)
    with store.open_write() as write:
        put_note(write, "with an event", "1", may_be_lost=True)
        write.append([stamped(write, store.identity.origin)])

    seen: dict[str, str] = dict(owner.execute("SELECT key, synchronous FROM seen").fetchall())
    assert seen == {"lost": "off", "kept": "on", "beside": "on", "with an event": "on"}
    assert read_notes(store.small_state, "") == dict.fromkeys(seen, "1")


def test_a_claim_of_another_handle_is_found_after_a_write_that_was_undone(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handle that writes alone knows every name. It must forget them with everything else."""
    monkeypatch.setattr(claims, "_WRITES_ALONE_MIN", 1)

    def request(store: PostgresStore, name: bytes) -> None:
        with store.open_write() as writer:
            assert read_claim(writer, name) is None
            writer.append([stamped(writer, writer.own_origin())], fresh=True)
            put_claim(writer, name, writer.position, 1)

    with closing(PostgresStore(postgres_url)) as one, closing(PostgresStore(postgres_url)) as other:
        for number in range(3):
            request(one, bytes([number]) * 16)
        assert one._claims.complete
        with pytest.raises(ZeroDivisionError), one.open_write():
            raise ZeroDivisionError
        request(other, b"x" * 16)
        with one.open_write() as writer:
            found = [read_claim(writer, name) for name in (b"\0" * 16, b"x" * 16, b"y" * 16)]
        assert [None if claim is None else claim.first for claim in found] == [1, 4, None]
