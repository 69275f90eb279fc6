"""Every role, every operation, before and after a purge: what it may do works, and what it may not is refused.

A refusal is an error of everlog that names the role and the privilege that is missing. The operations are those of a
log, of the command line, of views and of consumers; direct SQL is tried in test_role_attacks.py.
"""

from __future__ import annotations

import io
import json
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.stores.postgres.roles import KINDS, NOT_FOR_TENANTS, OWN, SCOPES, TENANTS, Roles, fill, purge_some
from tests.support.postgres_schemas import Schemas

import everlog
from everlog.cli.main import main
from everlog.consumers import Group
from everlog.core.event import Position, Purged
from everlog.core.ids import EventId
from everlog.core.query import Cursor, Query
from everlog.errors import EverlogError, ReadOnly
from everlog.log.log import Log
from everlog.stores.contract import HidesEvents, Scanning
from everlog.stores.postgres.connection import own_errors
from everlog.stores.postgres.store import PostgresStore
from everlog.transfer.copy import copy_log
from everlog.views.builtin import Streams, Types
from everlog.wiring import copy_target

EVERYBODY = frozenset(KINDS) - {"stranger"}
WRITERS = frozenset({"owner", "writer", "runner", "purger"})
STAGES = ("before a purge", "after a purge")


class World:
    """A log at one stage, and a URL of it for each kind of role."""

    def __init__(self, schemas: Schemas, stage: str) -> None:
        self.url = schemas.new()
        self.stage = stage
        self.log = everlog.open(self.url, actor="user:ada")
        fill(self.log)
        if stage == "after a purge":
            purge_some(self.log)
        self._bare = schemas.connect(self.url)
        self.roles = Roles(self._bare, self.url)
        self.names = {kind: self.roles.of_kind(kind) for kind in KINDS}

    def url_of(self, kind: str) -> str:
        return self.roles.url(self.names[kind], "acme" if kind == "many" else "")

    def open(self, kind: str) -> Log:
        return everlog.open(self.url_of(kind), actor="user:ada", create=False)

    def close(self) -> None:
        self.log.close()
        self.roles.drop_all()
        self._bare.close()


@pytest.fixture(scope="module", params=STAGES)
def world(request: pytest.FixtureRequest, postgres_schemas: Schemas) -> Iterator[World]:
    made = World(postgres_schemas, request.param)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _roles_can_be_made(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "postgres@" not in postgres_url:
        pytest.skip("needs a server that roles can be made in: EVERLOG_TEST_PG_DSN=postgresql://postgres@…")
    monkeypatch.chdir(tmp_path)


# ---- the operations. Each one checks its own result; what it may not do it lets raise.

Operation = Callable[[World, str], None]
MAY: dict[str, frozenset[str]] = {}
OPERATIONS: dict[str, Operation] = {}


def operation(may: frozenset[str]) -> Callable[[Operation], Operation]:
    def register(function: Operation) -> Operation:
        name = function.__name__.strip("_")
        MAY[name], OPERATIONS[name] = may, function
        return function

    return register


def seen_by(world: World, kind: str) -> list[int]:
    """The positions that a role of this kind must see now."""
    return [record.position for record in world.log.read() if kind not in TENANTS or record.event.scope in OWN]


@operation(EVERYBODY)
def _open(world: World, kind: str) -> None:
    with world.open(kind) as log:
        assert log.identity == world.log.identity


@operation(WRITERS)
def _append(world: World, kind: str) -> None:
    with world.open(kind) as log:
        record = log.append("note.added", stream="note/new", payload={"text": "n"}, scope="acme")
        assert log.get(record.event.id) == record
        assert log.append("note.added", stream="note/new", payload={"text": "n"}).position == record.position + 1


@operation(WRITERS)
def _batch(world: World, kind: str) -> None:
    with world.open(kind) as log:
        for size in (3, 60):  # as arrays, and by COPY
            drafts = [
                everlog.Draft(type="note.added", stream=f"note/b{n}", payload={"text": "b"}) for n in range(size)
            ]
            assert len(log.append_batch(drafts)) == size


@operation(WRITERS)
def _keyed_append_and_retry(world: World, kind: str) -> None:
    key = secrets.token_hex(4)
    with world.open(kind) as log:
        first = log.append("note.added", stream="note/keyed", payload={"text": "k"}, key=key)
    with world.open(kind) as log:
        assert log.append("note.added", stream="note/keyed", payload={"text": "k"}, key=key) == first


@operation(WRITERS)
def _admit_from_a_peer(world: World, kind: str) -> None:
    with everlog.open("memory:", actor="user:eve") as peer:
        for n in range(3):
            peer.append("note.added", stream="note/peer", payload={"text": str(n)})
        events = [record.event for record in peer.read()]
    with world.open(kind) as log:
        assert len(log.admit(events)) == 3
        assert log.admit(events) == []


@operation(EVERYBODY)
def _read(world: World, kind: str) -> None:
    expected = seen_by(world, kind)
    with world.open(kind) as log:
        assert [record.position for record in log.read()] == expected
        assert [record.position for record in log.read(newest_first=True)] == expected[::-1]
        for query in (Query(scope="acme"), Query(types=frozenset(["note.added"])), Query(kind="note")):
            found = {record.position for record in log.read(query)}
            assert found <= set(expected)
            assert found
        assert not list(log.read(Query(scope="other"))) or kind not in TENANTS
        assert isinstance(log._store, Scanning)
        assert [position for block in log._store.blocks() for position in block.positions] == expected


@operation(EVERYBODY)
def _page(world: World, kind: str) -> None:
    expected = seen_by(world, kind)
    with world.open(kind) as log:
        cursor, found = Cursor(Position(0)), []
        while True:
            page = log.page_after(cursor, limit=4)
            cursor = page.next_cursor
            found += [record.position for record in page.events]
            if page.reset is None and not page.events:
                break
        assert found == expected
        assert cursor.position == log.head()
        if world.stage == "after a purge":
            page = log.page_after(1)
            assert page.reset is not None
            assert page.reset.reason == "purged"


@operation(EVERYBODY)
def _subscribe(world: World, kind: str) -> None:
    with world.open(kind) as log:
        items = list(log.subscribe(to_end=True))
    assert [item.position for item in items if isinstance(item, everlog.Recorded)] == seen_by(world, kind)


@operation(EVERYBODY)
def _listen(world: World, kind: str) -> None:
    with world.open(kind) as log:
        heard = threading.Event()
        log._store.watch(heard.set)
        for _ in range(200):  # until it listens
            world.log.append("note.added", stream="note/heard", payload={"text": "x"}, scope="acme")
            if heard.wait(0.05):
                return
        raise AssertionError("no commit was heard of")


@operation(EVERYBODY)
def _get(world: World, kind: str) -> None:
    mine = next(world.log.read(Query(scope="acme")))
    others = next(world.log.read(Query(scope="acmecorp")))
    with world.open(kind) as log:
        assert log.get(mine.event.id) == mine
        assert log.get(others.event.id) == (None if kind in TENANTS else others)


@operation(EVERYBODY)
def _live_view(world: World, kind: str) -> None:
    with world.open(kind) as log:
        found = log.view(Types).get("note.added").state["events"]
        assert found == len(seen_by(world, kind))
        assert log.view(Streams).get("note/mine-0").found


@operation(WRITERS)
def _inline_view(world: World, kind: str) -> None:
    with world.open(kind) as log:
        handle = log.views.register(Streams, mode="inline")
        record = log.append("note.added", stream="note/inline", payload={"text": "i"})
        assert handle.get("note/inline", fresh=False).position == record.position


@operation(EVERYBODY)
def _rebuild_a_view(world: World, kind: str) -> None:
    with world.open(kind) as log:
        handle = log.view(Types)
        handle.catch_up()
        assert handle.rebuild().same
        assert handle.audit().ok


@operation(WRITERS)
def _consume(world: World, kind: str) -> None:
    seen: list[int] = []
    query = Query(stream="note/mine-0")
    with world.open(kind) as log, Group(log, secrets.token_hex(4), query, partitions=2).member("a") as member:
        member.run(lambda recorded: seen.append(recorded.position), to_end=True)
    assert seen == [record.position for record in world.log.read(query)]


@operation(frozenset({"owner", "purger"}))
def _purge(world: World, kind: str) -> None:
    stream = f"note/gone-{secrets.token_hex(4)}"
    world.log.append("note.added", stream=stream, payload={"text": "x"}, scope="other")
    with world.open(kind) as log:
        assert log.purge(stream, reason="asked to").count == 1
        assert not list(log.read(stream=stream))


@operation(frozenset({"owner"}))
def _place_what_another_log_had_purged(world: World, kind: str) -> None:
    """What a copy into a log needs beside appending. It is undone, so that the log stays whole for the others."""

    class Undo(Exception):
        pass

    with world.open(kind) as log:
        store = log._store
        assert isinstance(store, PostgresStore)
        gone = EventId("01TESTFREE0000000000000001")
        hole = Purged(Position(log.head() + 1), 1, gone, "x", 1, bytes(32), b"", 1)
        with pytest.raises(Undo), store.open_write() as writer, own_errors(store._address, "writing to"):
            assert store._writer is not None
            writer.copy_in([hole])
            store._inserter._place(store._writer, writer)
            raise Undo


@operation(frozenset({"owner", "writer", "runner", "reader", "purger"}))
def _copy_out(world: World, kind: str) -> None:
    with world.open(kind) as log:
        target = f"sqlite:{secrets.token_hex(4)}.db"
        copied = copy_log(log._store, copy_target(target, base=Path()))
    with everlog.open(target, create=False) as copy:
        assert copy.verify().digest == world.log.verify().digest
        assert copy.head() == copied.summary.head


@operation(EVERYBODY)
def _verify(world: World, kind: str) -> None:
    with world.open(kind) as log:
        report = log.verify()
    assert report.problems == ()
    assert report.events == len(seen_by(world, kind))
    assert (report.unseen > 0) == (kind in TENANTS)


# ---- the command line


def run(*arguments: str) -> str:
    """One command in this process; an error of everlog is raised as one, by its code."""
    out, err = io.StringIO(), io.StringIO()
    kept = sys.stdout, sys.stderr, sys.stdin
    sys.stdout, sys.stderr, sys.stdin = out, err, io.TextIOWrapper(io.BytesIO(b""))
    try:
        code = main(arguments)
    finally:
        sys.stdout, sys.stderr, sys.stdin = kept
    if code and not err.getvalue().startswith("{"):  # doctor: its answer is the refusal
        raise EverlogError("refused", why=out.getvalue(), hint=out.getvalue())
    if code:
        error = json.loads(err.getvalue())["error"]
        raise EverlogError(error["message"], why=error["why"], hint=error["hint"], **error["details"])
    return out.getvalue()


@operation(EVERYBODY)
def _command_log(world: World, kind: str) -> None:
    found = json.loads(run("log", "--json", "-n", "500", "--log", world.url_of(kind)))["data"]
    said = json.dumps(found)
    assert "mine" in said
    assert (NOT_FOR_TENANTS in said) == (kind not in TENANTS)
    assert json.loads(run("log", "--purges", "--json", "--log", world.url_of(kind)))["data"] is not None


@operation(EVERYBODY)
def _command_show(world: World, kind: str) -> None:
    first = next(world.log.read(Query(scope="acme")))
    for name in (f"#{first.position}", first.event.id, first.event.id[-8:]):
        assert first.event.id in run("show", name, "--json", "--log", world.url_of(kind))


@operation(EVERYBODY)
def _command_export(world: World, kind: str) -> None:
    target = Path(f"{secrets.token_hex(4)}.jsonl")
    run("export", str(target), "--json", "--log", world.url_of(kind))
    text = target.read_text()
    assert len(text.splitlines()) >= len(seen_by(world, kind))
    assert (NOT_FOR_TENANTS in text) == (kind not in TENANTS)


@operation(EVERYBODY)
def _command_verify(world: World, kind: str) -> None:
    found = json.loads(run("verify", "--json", "--log", world.url_of(kind)))["data"]
    assert found["ok"]
    assert ("unseen" in found) == (kind in TENANTS)


@operation(EVERYBODY)
def _command_doctor(world: World, kind: str) -> None:
    found = json.loads(run("doctor", "--json", "--log", world.url_of(kind)))["data"]
    assert "FAIL" not in json.dumps(found).upper()


# ---- the matrix


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_role_does_what_it_may_and_nothing_else(world: World, name: str, kind: str) -> None:
    before = world.log.head(), world.log.stored.purges()
    if kind in MAY[name]:
        OPERATIONS[name](world, kind)
        return
    with pytest.raises(EverlogError) as refusal:
        OPERATIONS[name](world, kind)
    if name == "copy_out" and kind in TENANTS:
        assert "sees only a part of the log" in refusal.value.why
    else:
        assert world.names[kind] in refusal.value.why, "it does not name the role"
        assert " on the " in refusal.value.why, "it does not name the privilege"
        assert "postgres" in refusal.value.hint, "it does not name the owner, who can grant it"
        assert NOT_FOR_TENANTS not in f"{refusal.value} {refusal.value.hint} {refusal.value.details}"
    if name != "purge":
        assert (world.log.head(), world.log.stored.purges()) == before


def test_the_log_is_whole_after_all_that(world: World) -> None:
    report = world.log.verify()
    assert report.problems == ()
    assert report.head == world.log.head() > len(SCOPES)


def test_a_tenant_hides_events_and_says_so(world: World) -> None:
    for kind in sorted(EVERYBODY):
        with world.open(kind) as log:
            assert isinstance(log._store, HidesEvents)
            assert log._store.hides_events == (kind in TENANTS)


def test_two_writers_write_for_their_tenants_at_once(world: World) -> None:
    """Each has a session of its own; the tenants read beside them, and nothing of the one is seen by the other."""
    tenants = {scope: world.roles.make("grant_tenant", scope) for scope in ("left", "right")}
    failures: list[BaseException] = []

    def write(scope: str) -> None:
        try:
            with everlog.open(world.roles.url(world.names["writer"]), actor="user:ada") as log:
                for n in range(25):
                    drafts = [
                        everlog.Draft(type="note.added", stream=f"note/{scope}", payload={"text": scope}, scope=scope)
                        for _ in range(1 + n % 3)
                    ]
                    log.append_batch(drafts, key=f"{scope}-{n}")
        except BaseException as error:
            failures.append(error)
            raise

    writers = [threading.Thread(target=write, args=(scope,)) for scope in tenants]
    for thread in writers:
        thread.start()
    logs = {scope: everlog.open(world.roles.url(role)) for scope, role in tenants.items()}
    seen: dict[str, list[int]] = {scope: [] for scope in tenants}
    alive = True
    while alive:
        alive = any(thread.is_alive() for thread in writers)
        for scope, log in logs.items():
            records = list(log.read(after=seen[scope][-1] if seen[scope] else 0))
            assert {record.event.scope for record in records} <= {scope}
            seen[scope] += [record.position for record in records]
    assert failures == []
    for scope, log in logs.items():
        assert seen[scope] == [r.position for r in world.log.read(Query(scope=scope))], "a reader missed an event"
        assert len(seen[scope]) == 49
        assert log.verify().ok
        log.close()
    assert world.log.verify().ok


def test_the_refusal_of_a_reader_says_what_to_grant(world: World) -> None:
    with world.open("reader") as log, pytest.raises(ReadOnly) as refusal:
        log.append("note.added", stream="note/x", payload={"text": "x"})
    role = world.names["reader"]
    assert refusal.value.why == f"the role {role} lacks UPDATE on the table state"
    assert f".grant_writer('{role}')" in refusal.value.hint
    assert refusal.value.details["owner"] == "postgres"
