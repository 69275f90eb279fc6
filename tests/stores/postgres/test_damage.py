"""A log in PostgreSQL that somebody changed behind its back is found out."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from psycopg import sql
from tests.stores.postgres.conftest import Bare
from tests.support.postgres_schemas import Schemas

from everlog.application.trust.checkpoints import make_checkpoint, make_heads
from everlog.application.trust.proofs import prove
from everlog.catalog.catalog import Catalog
from everlog.core.event import Position
from everlog.core.query import EVERYTHING, Query
from everlog.errors import (
    Damaged,
)
from everlog.log.log import Log
from everlog.stores.postgres.store import PostgresStore
from everlog.sync.exchange import Node
from everlog.testing.builders import Chain
from everlog.testing.filling import append


def test_a_log_that_was_cut_off_takes_no_writes(store: PostgresStore, owner: Bare, postgres_url: str) -> None:
    """G10, F60: rows that a superuser took away with the triggers switched off."""
    append(store, *[Chain().next()])
    chain = Chain("01TESTFREE0000000000000001")
    append(store, chain.next(), chain.next())
    owner.execute("ALTER TABLE events DISABLE TRIGGER USER")
    owner.execute("DELETE FROM events WHERE position = 3")
    owner.execute("ALTER TABLE events ENABLE TRIGGER USER")
    fresh = PostgresStore(postgres_url)
    with pytest.raises(Damaged), fresh.open_write():
        pass
    codes = {problem.code for problem in fresh.check()}
    assert {"log_cut_off", "state_disagrees", "schema_changed"} <= codes
    fresh.close()


@pytest.mark.parametrize("position", [1, 4, 9, 12])
@pytest.mark.parametrize("newest_first", [False, True])
def test_a_lost_row_ends_a_read_with_its_position(
    store: PostgresStore, owner: Bare, position: int, newest_first: bool
) -> None:
    """G10: rows that a superuser took away; a purge before it and one after it are no damage."""
    chain = Chain()
    for stream in ("note/1", "note/2", "note/1", "note/1", "note/2"):
        append(store, chain.next(stream=stream))
    with store.open_write() as writer:
        writer.purge("note/2", actor="user:ada", reason="test")
    append(store, *[chain.next(stream="note/1") for _ in range(6)])
    whole = [recorded.position for recorded in store.read(newest_first=newest_first)]
    assert sorted(whole) == [1, 3, 4, 7, 8, 9, 10, 11, 12]
    owner.execute("ALTER TABLE events DISABLE TRIGGER USER")
    owner.execute(sql.SQL("DELETE FROM events WHERE position = {}").format(position))
    assert store.head() == 12
    with pytest.raises(Damaged):
        list(store.read(after=Position(position - 1), upto=Position(position), limit=1, newest_first=newest_first))
    for query in (EVERYTHING, Query(stream="note/1")):
        if query.stream and position in (1, 12):
            continue  # the first and the last of a stream are missed by a read without a filter
        found: list[int] = []
        with pytest.raises(Damaged) as raised:
            found.extend(recorded.position for recorded in store.read(query, newest_first=newest_first))
        assert (raised.value.details["position"], raised.value.details["after"]) == (position, position)
        assert found == [place for place in whole if (place > position if newest_first else place < position)]


@pytest.mark.parametrize(("newest_first", "gap", "before"), [(False, 3, [1, 2]), (True, 7, [9, 8])])
def test_of_two_lost_rows_the_first_that_is_met_ends_the_read_of_a_stream(
    store: PostgresStore, owner: Bare, newest_first: bool, gap: int, before: list[int]
) -> None:
    chain = Chain()
    append(store, *[chain.next(stream="note/1") for _ in range(9)])
    owner.execute("ALTER TABLE events DISABLE TRIGGER USER")
    owner.execute("DELETE FROM events WHERE position IN (3, 7)")
    found: list[int] = []
    with pytest.raises(Damaged) as raised:
        found.extend(one.position for one in store.read(Query(stream="note/1"), newest_first=newest_first))
    assert (raised.value.details["position"], found) == (gap, before)


def test_a_lost_row_stops_what_other_nodes_rely_on(
    postgres_url: str, postgres_schemas: Schemas, catalog: Catalog
) -> None:
    """G10: a peer, a checkpoint and a proof. The heads are kept apart from the rows, and stay whole."""
    log = Log(PostgresStore(postgres_url), catalog)
    for number in range(6):
        log.append("thing.said", stream=f"thing/{number % 2}", payload={"value": number})
    node = Node(log)
    spans, heads = node.all_spans(), make_heads(log, None)
    with postgres_schemas.connect(postgres_url) as bare:
        bare.execute("ALTER TABLE events DISABLE TRIGGER USER")
        bare.execute("DELETE FROM events WHERE position = 3")
    reads: list[Callable[[], object]] = [
        Node(log).heads,
        lambda: list(node.batches(spans)),
        lambda: make_checkpoint(log, None),
        lambda: prove(log, "#5", None),
    ]
    for read in reads:
        with pytest.raises(Damaged) as raised:
            read()
        assert raised.value.details["position"] == 3
    assert make_heads(log, None) == heads
    log.close()


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
