"""What a role tries by SQL of its own: the log stays as it is, and what is not for a tenant stays unseen.

The table of privileges must name every table and function of the schema, so that a new one cannot be left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from tests.stores.postgres import privileges
from tests.stores.postgres.roles import KINDS, NOT_FOR_TENANTS, TENANTS, Bare, Roles, fill, purge_some
from tests.support.postgres_schemas import Schemas

import everlog
from everlog.core.codec import header_hash
from everlog.core.ids import id_value
from everlog.errors import EverlogError
from everlog.log.log import Log
from everlog.stores.contract import Encoded
from everlog.stores.small_state import read_notes
from everlog.testing.builders import stamped

WRITERS = ("writer", "runner", "purger")
COLUMNS = ("position", "id", "stream", "sequence", "type", "scope", "received_us", "header", "payload", "salt")


class World:
    def __init__(self, schemas: Schemas) -> None:
        self.url = schemas.new()
        self.log = everlog.open(self.url, actor="user:ada")
        fill(self.log)
        purge_some(self.log)
        self.owner: Bare = schemas.connect(self.url)
        self.roles = Roles(self.owner, self.url)
        self.names = {kind: self.roles.of_kind(kind) for kind in KINDS}

    def connect(self, kind: str) -> Bare:
        return self.roles.connect(self.names[kind], "acme" if kind == "many" else "")

    def everything(self) -> Any:
        """All that a log is: places, what is kept beside them, the clock, the ends of chains, who it is."""
        store = self.log._store
        rest = [
            self.owner.execute(text).fetchall()
            for text in (
                "SELECT * FROM chains ORDER BY 1, 2",
                "SELECT * FROM forks ORDER BY 1",
                "SELECT * FROM groups ORDER BY 1",
                "SELECT * FROM tenants ORDER BY 1",
                "SELECT * FROM identity",
            )
        ]
        claims = self.owner.execute("SELECT * FROM claims ORDER BY 1").fetchall()
        return (
            list(store.slots()),
            read_notes(store.small_state, ""),
            store.purges(),
            store.ends().clock,
            store.head(),
            rest,
            claims,
        )

    def close(self) -> None:
        self.log.close()
        self.roles.drop_all()
        self.owner.close()


@pytest.fixture(scope="module")
def world(postgres_schemas: Schemas) -> Iterator[World]:
    url = postgres_schemas.new()
    if "postgres@" not in url:
        pytest.skip("needs a server that roles can be made in: EVERLOG_TEST_PG_DSN=postgresql://postgres@…")
    made = World(postgres_schemas)
    yield made
    made.close()


def usable(world: World, kind: str = "writer") -> None:
    """Somebody appends, with a key, and everything verifies."""
    with everlog.open(world.roles.url(world.names[kind]), actor="user:ada") as log:
        record = log.append("note.added", stream="note/mine-0", payload={"text": "on"}, scope="acme", key="on")
        assert (
            log.append("note.added", stream="note/mine-0", payload={"text": "on"}, scope="acme", key="on") == record
        )
        assert log.verify().problems == ()


# ---- privileges, one by one


def test_the_table_of_privileges_names_every_relation_and_function(world: World) -> None:
    assert privileges.relations(world.owner) == set(privileges.RELATIONS)
    assert privileges.functions(world.owner) == set(privileges.FUNCTIONS)


def test_every_role_has_exactly_the_privileges_of_the_table(world: World) -> None:
    assert privileges.wrong_privileges(world.owner, world.names) == []


def test_a_table_that_nobody_thought_of_is_noticed(world: World) -> None:
    """The check itself can fail: a table, a function and a grant too many are each found."""
    world.owner.execute("CREATE TABLE forgotten (a int)")
    world.owner.execute("GRANT UPDATE ON chains TO {}".format(f'"{world.names["writer"]}"').encode())
    world.owner.execute("CREATE FUNCTION forgotten() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    try:
        assert privileges.relations(world.owner) - set(privileges.RELATIONS) == {"forgotten"}
        assert privileges.functions(world.owner) - set(privileges.FUNCTIONS) == {"forgotten"}
        wrong = privileges.wrong_privileges(world.owner, {"writer": world.names["writer"]})
        assert wrong == ["writer has UPDATE on chains", "writer may call forgotten"]
    finally:
        world.owner.execute("DROP TABLE forgotten")
        world.owner.execute("DROP FUNCTION forgotten()")
        world.owner.execute("REVOKE UPDATE ON chains FROM {}".format(f'"{world.names["writer"]}"').encode())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "owner"])
def test_no_role_rewrites_a_table(world: World, kind: str) -> None:
    """UPDATE, DELETE and TRUNCATE, tried on every relation. What a role may rewrite is derived or its own."""
    before = world.everything()
    tried = 0
    with world.connect(kind) as bare:
        for relation in sorted(privileges.relations(world.owner)):
            if relation in ("derived", "projection_checkpoints"):
                continue  # the table of privileges says who may: views, and those who keep projections
            columns = world.owner.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
                (relation,),
            ).fetchall()
            table = sql.Identifier(relation)
            statements = [sql.SQL("DELETE FROM {}").format(table), sql.SQL("TRUNCATE {}").format(table)]
            statements += [
                sql.SQL("UPDATE {} SET {} = DEFAULT").format(table, sql.Identifier(str(column)))
                for (column,) in columns
                if (relation, column) != ("state", "one")  # it is true in every row there can be
            ]
            statements.append(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(table))
            for statement in statements:
                with pytest.raises(psycopg.Error):
                    bare.execute(statement)
                tried += 1
    assert tried > 100
    assert world.everything() == before


@pytest.mark.parametrize("relation", ["events", "purges", "purged", "state"])
def test_not_even_the_owner_rewrites_history_by_a_slip(world: World, relation: str) -> None:
    before = world.everything()
    for text in ("DELETE FROM {}", "TRUNCATE {}", *(["UPDATE {} SET reserved = 0"] if "purge" in relation else [])):
        with pytest.raises(psycopg.Error):
            world.owner.execute(sql.SQL(text).format(sql.Identifier(relation)))
    assert world.everything() == before


# ---- what a writer tries

ATTACKS = {
    "the note of an unfinished copy": "SELECT keep_notes(ARRAY['copy/unfinished'], ARRAY['x'::bytea], '{NULL}')",
    "the same among others": "SELECT keep_notes(ARRAY['a', 'copy/x'], ARRAY['x', 'x']::bytea[], ARRAY[1, 1]::int8[])",
    "the same by SQL": "INSERT INTO notes VALUES ('copy/unfinished', 'x')",
    "a note that is no text": "SELECT keep_notes(ARRAY['a'], ARRAY['\\xff'::bytea], ARRAY[NULL::int8])",
    "the clock by SQL": "UPDATE state SET clock = 9007199254740991",
    "the clock to its end": "SELECT move_clock(9007199254740991)",
    "the clock one further without an event": "SELECT move_clock(clock + 1) FROM state",
    "the clock back": "SELECT move_clock(1)",
    "the clock to nothing": "SELECT move_clock(NULL)",
    "the head": "UPDATE state SET head = head + 1",
    "the counter that bounds the clock": "UPDATE state SET given = 9007199254740991",
    "a chain that is new": "INSERT INTO chains VALUES ('x', 1, '', 1, 'x', 1)",
    "a run that closes a hole": "SELECT join_run('x', 1, '', 9007199254740991, 'x', 1)",
    "a fork on record": "INSERT INTO forks VALUES (1, 'x', 1, 'x')",
    "a signature by SQL": "INSERT INTO groups VALUES (1, 'x', 1, 1, 'x')",
    "a signature of old events": "SELECT sign_groups(ARRAY[1::int8], ARRAY[1], ARRAY['x'::bytea])",
    "a signature of events to come": "SELECT sign_groups(ARRAY[head + 1], ARRAY[1], ARRAY['x'::bytea]) FROM state",
    "an erasure by SQL": "UPDATE events SET payload = '', salt = '', erased_by = 'x' WHERE position = 1",
    "the end of a chain": "UPDATE chains SET origin_seq = 9007199254740991",
    "the ends of all chains": "DELETE FROM chains",
    "claims deleted": "DELETE FROM claims",
    "a claim replaced": "SELECT claim(ARRAY[name], ARRAY[first], ARRAY[count], 0) FROM claims LIMIT 1",
    "a claim replaced in the far future": "SELECT claim(ARRAY[name], ARRAY[first], ARRAY[count], 9000000000000000000)"
    " FROM claims LIMIT 1",
    "a claim of old events": "SELECT claim(ARRAY[gen_random_uuid()], ARRAY[1::int8], ARRAY[1], 0)",
    "a claim of events to come": "SELECT claim(ARRAY[gen_random_uuid()], ARRAY[head + 1], ARRAY[1], 0) FROM state",
    "a claim of no events": "SELECT claim(ARRAY[gen_random_uuid()], ARRAY[head], ARRAY[0], 0) FROM state",
    "a purge on record": "INSERT INTO purges VALUES (99, 'note/1', '{}', 'system', 'no', 1, 1, 1)",
    "a purged event on record": "INSERT INTO purged VALUES (1, 1, gen_random_uuid(), '', 1, '', '', 1)",
    "a scope of its own": "INSERT INTO tenants VALUES (current_user::regrole, '')",
    "a migration": "INSERT INTO migrations VALUES (9999, 'x', '')",
    "another log": "UPDATE identity SET log_id = 'x'",
    "an event in the scoped table": "INSERT INTO scoped_events (position) VALUES (1)",
    "no trigger": "DROP TRIGGER events_follow_on ON events",
    "triggers off": "ALTER TABLE events DISABLE TRIGGER ALL",
    "triggers of a replica": "SET session_replication_role TO replica",
    "no filter": "ALTER TABLE scoped_events DISABLE ROW LEVEL SECURITY",
    "a column less": "ALTER TABLE events DROP COLUMN payload",
    "no table": "DROP TABLE events CASCADE",
    "no schema": "DO $$ BEGIN EXECUTE format('DROP SCHEMA %I CASCADE', current_schema()); END $$",
    "a trigger of its own": "CREATE TRIGGER mine BEFORE INSERT ON events EXECUTE FUNCTION refuse('mine')",
    "a table of its own": "DO $$ BEGIN EXECUTE format('CREATE TABLE %I.x (a int)', current_schema()); END $$",
    "another function": "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN END'",
    "the owner of a function": "ALTER FUNCTION claim OWNER TO current_user",
    "the search_path of a function": "ALTER FUNCTION claim RESET search_path",
    "the owner": "SET ROLE postgres",
    "the owner's session": "SET SESSION AUTHORIZATION postgres",
    "rights of its own": "SELECT grant_purger(current_user)",
    "more for a tenant": "SELECT grant_tenant(current_user, '')",
    "a trigger function by hand": "SELECT events_follow_on()",
    "rules": "CREATE RULE mine AS ON INSERT TO events DO INSTEAD NOTHING",
}


def attack(world: World, text: str) -> bytes:
    """With the schema by its name: for a role that may not use it, it is not the current one."""
    schema = world.url.rpartition("=")[2]
    return text.replace("current_schema()", f"'{schema}'").replace(" refuse()", f" {schema}.refuse()").encode()


@pytest.mark.parametrize("kind", WRITERS)
def test_a_writer_cannot_make_the_log_unusable(world: World, kind: str) -> None:
    before = world.everything()
    for name, text in ATTACKS.items():
        with world.connect(kind) as bare, pytest.raises(psycopg.Error):
            bare.execute(attack(world, text))
            pytest.fail(f"{kind} did it: {name}")
    assert world.everything() == before
    usable(world, kind)


def test_rights_that_a_writer_gives_away_are_none(world: World) -> None:
    """PostgreSQL only warns of this one."""
    with world.connect("writer") as bare:
        bare.execute("GRANT ALL ON events, state, chains, notes, claims TO PUBLIC")
    assert privileges.wrong_privileges(world.owner, world.names) == []


def test_a_writer_that_may_not_purge_does_not(world: World) -> None:
    with world.connect("writer") as bare, pytest.raises(psycopg.errors.InsufficientPrivilege):
        bare.execute("SELECT * FROM purge('note/mine-0', 'user:ada', 'no', 1)")


def test_a_writer_that_may_not_erase_does_not(world: World) -> None:
    before = world.everything()
    for kind in ("writer", "runner"):
        with world.connect(kind) as bare, pytest.raises(psycopg.errors.InsufficientPrivilege):
            bare.execute("SELECT erase(ARRAY(SELECT id FROM events), ARRAY(SELECT 'x' FROM events))")
    assert world.everything() == before


@pytest.mark.parametrize("kind", WRITERS)
def test_claims_stay_until_they_expire_by_the_servers_clock(world: World, kind: str) -> None:
    before = world.everything()
    with world.connect(kind) as bare:
        bare.execute("SELECT forget_claims(1000000, 9000000000000000000)")
        assert world.everything() == before
        world.owner.execute("UPDATE claims SET made_us = made_us - 86500000000")
        bare.execute("SELECT forget_claims(1000000, 9000000000000000000)")
    assert world.owner.execute("SELECT count(*) FROM claims").fetchone() == (0,)
    with everlog.open(world.url, actor="user:ada") as log:  # for the next one
        log.append("note.added", stream="note/mine-0", payload={"text": "again"}, key=f"again-{kind}", scope="acme")


def test_a_claim_is_not_replaced_even_for_an_event_of_the_same_write(world: World) -> None:
    """A key that somebody used stays theirs; the event of whoever tries is not recorded either."""
    world.log.append("note.added", stream="note/mine-0", payload={"text": "k"}, key="theirs", scope="acme")
    before = world.everything()
    row = next_row(world.log)
    with (
        world.connect("writer") as bare,
        pytest.raises(psycopg.Error, match="stays until it expires"),
        bare.transaction(),
    ):
        insert(bare, row)
        bare.execute("SELECT claim(ARRAY[gen_random_uuid()], ARRAY[%s::int8], ARRAY[1], 0)", (row["position"],))
        bare.execute(
            "SELECT claim(ARRAY[name], ARRAY[%s::int8], ARRAY[1], 0) FROM claims"
            " ORDER BY first DESC OFFSET 1 LIMIT 1",
            (row["position"],),
        )
    assert world.everything() == before


def test_a_function_does_not_take_a_table_of_the_caller_for_the_logs(world: World) -> None:
    """A table of the same name in front of the log's is not what the functions write to."""
    before = world.owner.execute("SELECT count(*) FROM notes").fetchone()
    with world.connect("writer") as bare:
        bare.execute("CREATE TEMP TABLE notes (key text PRIMARY KEY, value bytea, expires_us bigint)")
        bare.execute("SET search_path TO pg_temp, pg_catalog")
        schema = world.url.rpartition("=")[2]
        bare.execute(f"SELECT {schema}.keep_notes(ARRAY['probe/z'], ARRAY['x'::bytea], ARRAY[NULL::int8])".encode())
        assert bare.execute("SELECT count(*) FROM notes").fetchone() == (0,)
    assert world.owner.execute("SELECT count(*) FROM notes").fetchone() == (before[0] + 1,)  # type: ignore[index]


# ---- events that are not what they should be


def next_row(log: Log, **other: Any) -> dict[str, Any]:
    """The row of an event that could be recorded next."""

    class Undo(Exception):
        pass

    made: list[Any] = []
    try:
        with log._store.open_write() as writer:
            sealed: Encoded = stamped(writer, log.identity.origin, stream="note/mine-0", scope="acme")
            made = [(record, sealed) for record in writer.append([sealed], fresh=True)]
            raise Undo
    except Undo:
        pass
    record, sealed = made[0]
    event = sealed.event
    row = {
        "position": record.position,
        "id": id_value(event.id).to_bytes(16, "big").hex(),
        "stream": event.stream,
        "sequence": record.sequence,
        "type": event.type,
        "scope": event.scope,
        "received_us": record.received_us,
        "header": sealed.header.decode(),
        "payload": sealed.payload.decode(),
        "salt": event.salt,
    }
    return {**row, **other}


def insert(bare: Bare, *rows: dict[str, Any]) -> None:
    columns = sql.SQL(", ").join(map(sql.Identifier, COLUMNS))
    marks = sql.SQL("({}, '', '')").format(sql.SQL(", ").join([sql.Placeholder()] * len(COLUMNS)))
    bare.execute(
        sql.SQL("INSERT INTO events ({}, signature, path) VALUES {}").format(
            columns, sql.SQL(", ").join([marks] * len(rows))
        ),
        [row[name] for row in rows for name in COLUMNS],
    )


def forged(row: dict[str, Any], place: int, value: str) -> str:
    """The header with one of its fields replaced."""
    fields = json.loads(row["header"])
    fields[place] = json.loads(value)
    return json.dumps(fields, separators=(",", ":"))


FORGED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "no JSON": lambda row: {"header": row["header"][:-1]},
    "an object": lambda row: {"header": "{}"},
    "too short": lambda row: {"header": "[]"},
    "too long": lambda row: {"header": row["header"][:-1] + ",1]"},
    "another type": lambda row: {"type": "note.changed"},
    "another stream": lambda row: {"stream": "note/other"},
    "another tenant's scope": lambda row: {"scope": "other"},
    "no scope": lambda row: {"header": forged(row, 9, "null")},
    "a position too far": lambda row: {"position": row["position"] + 1},
    "a position that is taken": lambda row: {"position": 1},
    "a sequence without end": lambda row: {"sequence": 2**62},
    "a clock without end": lambda row: {"header": forged(row, 4, str(2**53 - 1))},
    "a clock that jumps": lambda row: {"header": forged(row, 4, str(2**20 + 10_000))},
    "no clock": lambda row: {"header": forged(row, 4, '"x"')},
    "a chain without end": lambda row: {"header": forged(row, 6, str(2**53 - 1))},
    "a chain that goes back": lambda row: {"header": forged(row, 6, "1")},
    "no time": lambda row: {"header": forged(row, 7, '"yesterday"')},
    "an impossible time": lambda row: {"header": forged(row, 7, '"2026-99-99T99:99:99Z"')},
    "tags that are none": lambda row: {"header": forged(row, 14, '"x"')},
    "no commitment": lambda row: {"header": forged(row, 15, '""')},
    "a link that is none": lambda row: {"header": forged(row, 16, '"%%%"')},
    "a payload that is no JSON": lambda row: {"payload": "x"},
    "a payload that is no object": lambda row: {"payload": "[]"},
    "a payload with U+0000 that is no JSON": lambda row: {"payload": '{"a":"\\u0000'},
}


@pytest.mark.parametrize("name", FORGED)
def test_an_event_that_could_not_be_read_or_goes_astray_is_refused(world: World, name: str) -> None:
    before = world.everything()
    row = next_row(world.log)
    with world.connect("writer") as bare, pytest.raises(psycopg.Error):
        insert(bare, {**row, **FORGED[name](row)})
    assert world.everything() == before


def test_a_writer_cannot_hide_a_bad_event_among_good_ones(world: World) -> None:
    """A batch is looked at row by row, whichever way it comes."""
    before = world.everything()
    row = next_row(world.log)
    bad = {**row, "position": row["position"] + 1, "sequence": row["sequence"] + 1, "header": "[]", "id": "0" * 32}
    with world.connect("writer") as bare:
        with pytest.raises(psycopg.Error):
            insert(bare, row, bad)
        text = f"COPY events ({', '.join(COLUMNS)}, signature, path) FROM STDIN"
        with pytest.raises(psycopg.Error), bare.cursor() as cursor, cursor.copy(text.encode()) as copy:
            for one in (row, bad):
                copy.write_row([*(one[column] for column in COLUMNS), b"", b""])
    assert world.everything() == before


def test_a_writer_cannot_put_an_unlinked_event_into_the_own_chain(world: World) -> None:
    """Not even behind one that is linked, in the same statement."""
    before = world.everything()
    row = next_row(world.log)
    fields = json.loads(row["header"])
    header = forged(row, 6, str(fields[6] + 1)).replace(fields[0], "0" * 26)
    place = {"position": row["position"] + 1, "sequence": row["sequence"] + 1, "id": "0" * 32}
    after = {**row, **place, "header": header}
    with world.connect("writer") as bare, pytest.raises(psycopg.Error, match="where its chain ends"):
        insert(bare, row, after)
    assert world.everything() == before


def test_a_writer_signs_what_it_has_just_written_and_nothing_else(world: World) -> None:
    before = world.everything()
    row = next_row(world.log)
    sign = "SELECT sign_groups(ARRAY[%s::int8], ARRAY[%s], ARRAY['x'::bytea])"
    with world.connect("writer") as bare:
        for first, count in ((row["position"] - 1, 2), (row["position"], 2), (row["position"] + 1, 1)):
            with pytest.raises(psycopg.Error, match="of its own write"), bare.transaction():
                insert(bare, row)
                bare.execute(sign, (first, count))
    assert world.everything() == before


def test_the_state_follows_an_event_that_a_writer_inserts_by_itself(world: World) -> None:
    """The control: the same row, not forged, is accepted, and head, clock and chain go with it."""
    row = next_row(world.log)
    with world.connect("writer") as bare:
        insert(bare, row)
        bare.execute("SELECT move_clock(clock) FROM state")
        with pytest.raises(psycopg.Error):
            bare.execute("SELECT move_clock(clock + 1) FROM state")  # another transaction: nothing was given in it
    assert world.log.head() == row["position"]
    found = world.owner.execute("SELECT hash, position FROM chains WHERE origin = (SELECT origin FROM identity)")
    assert found.fetchall() == [(header_hash(row["header"].encode()), row["position"])]
    with everlog.open(world.url) as log:
        assert list(log._store.check()) == []
    usable(world)


# ---- what a tenant tries to see

LOOKS = {
    "events": "SELECT * FROM events",
    "the parent alone": "SELECT * FROM ONLY scoped_events",
    "all of it": "SELECT * FROM scoped_events",
    "by a name": "SELECT * FROM scoped_events WHERE stream LIKE '%not-%'",
    "by the derived column": "SELECT body FROM scoped_events WHERE body ->> 'text' LIKE '%not%'",
    "purges": "SELECT * FROM scoped_purges",
    "all purges": "SELECT * FROM purges",
    "what stays of purged events": "SELECT * FROM scoped_purged",
    "all of it that stays": "SELECT * FROM purged",
    "notes": "SELECT convert_from(value, 'UTF8'), * FROM notes",
    "claims": "SELECT * FROM claims",
    "chains": "SELECT * FROM chains",
    "forks": "SELECT * FROM forks",
    "signatures": "SELECT * FROM groups",
    "hashes of everything": "SELECT * FROM signed_groups(ARRAY(SELECT generate_series(1, 100)))",
    "what views keep": "SELECT * FROM derived",
    "other tenants": "SELECT * FROM tenants",
    "its scopes": "SELECT * FROM own_scopes",
    "statistics": "SELECT * FROM pg_stats WHERE schemaname = current_schema()",
    "an error that quotes a value": "SELECT payload::integer FROM scoped_events ORDER BY position DESC",
    "an error in a condition": "SELECT 1 FROM scoped_events WHERE (payload::json ->> 'text')::integer = 1",
    "a plan": "EXPLAIN (ANALYZE, VERBOSE) SELECT * FROM scoped_events",
    "a function that tells": "SELECT * FROM scoped_events WHERE pg_temp.tell(payload)",
    "a function that tells of purges": "SELECT * FROM scoped_purges WHERE pg_temp.tell(stream || reason)",
    "through a join": "SELECT a.* FROM scoped_events a RIGHT JOIN scoped_events b USING (stream)",
    "for sharing": "SELECT * FROM scoped_events FOR SHARE",
    "by a copy": "COPY (SELECT * FROM scoped_events) TO STDOUT",
    "the function of a purge": "SELECT * FROM purge('note/not-for-tenants-3', 'x', 'x', 1)",
    "the functions of writers": "SELECT claim(ARRAY[gen_random_uuid()], ARRAY[1::int8], ARRAY[1], 0)",
}
SESSIONS = ("", "other", "acme", "acme/shop", "acmecorp", "%", "acme%", "/", "acme/../other", NOT_FOR_TENANTS, "a")


@pytest.mark.parametrize("kind", TENANTS)
def test_a_tenant_sees_nothing_of_others(world: World, kind: str) -> None:
    """Neither in rows nor in notices, plans or errors, whatever its session says that its scope is.

    A role that serves many may choose the scope, so for it only what lies in acme is looked at.
    """
    world.owner.execute("ANALYZE events")
    sessions = SESSIONS if kind == "tenant" else ("acme", "acme/shop", "acme/../other", "acme%", "%", "/")
    seen: list[str] = []

    def hear(notice: psycopg.errors.Diagnostic) -> None:
        seen.append(str(notice.message_primary))

    for session in sessions:
        with world.connect(kind) as bare:
            bare.add_notice_handler(hear)
            bare.execute("SELECT set_config('everlog.scope', %s, false)", (session,))
            bare.execute(
                "CREATE FUNCTION pg_temp.tell(text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS"
                " 'BEGIN RAISE NOTICE ''%'', $1; RETURN true; END'"
            )
            for text in LOOKS.values():
                try:
                    if text.startswith("COPY"):
                        with bare.cursor() as cursor, cursor.copy(text.encode()) as copy:
                            seen += [bytes(data).decode() for data in copy]
                    else:
                        seen.append(repr(bare.execute(text.encode()).fetchall()))
                except psycopg.Error as error:
                    seen.append(str(error))
    assert any("mine" in text for text in seen), "it does not even see its own"
    assert [text for text in seen if NOT_FOR_TENANTS in text.replace(f"purge('note/{NOT_FOR_TENANTS}", "")] == []


@pytest.mark.parametrize("kind", ["tenant", "many", "reader", "stranger"])
def test_who_does_not_write_can_call_nothing_that_writes(world: World, kind: str) -> None:
    before = world.everything()
    for name, text in ATTACKS.items():
        with world.connect(kind) as bare, pytest.raises(psycopg.Error):
            bare.execute(attack(world, text))
            pytest.fail(f"{kind} did it: {name}")
    for text in (
        "SELECT forget_claims(1, 1)",
        "SELECT forget_notes(1)",
        "SELECT * FROM purge('note/mine-0', '', '', 1)",
    ):
        with world.connect(kind) as bare, pytest.raises(psycopg.Error):
            bare.execute(text.encode())
    assert world.everything() == before


def test_an_error_of_a_tenant_tells_nothing_of_others(world: World) -> None:
    url = world.roles.url(world.names["tenant"])
    hidden = next(record for record in world.log.read() if record.event.scope == "other" or not record.event.scope)
    with everlog.open(url, actor="user:ada") as log:
        for act in (
            lambda: log.append("note.added", stream=hidden.event.stream, payload={"text": "x"}, expect=0),
            lambda: log.purge(hidden.event.stream, reason="x"),
            lambda: log.admit([hidden.event]),
        ):
            with pytest.raises(EverlogError) as refusal:
                act()
            said = f"{refusal.value} {refusal.value.hint} {refusal.value.details}".replace(hidden.event.stream, "")
            assert NOT_FOR_TENANTS not in said
            assert hidden.event.id not in said
