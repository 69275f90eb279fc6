"""The SQLite store keeps the contract, and what is its own business: pragmas, pages, names, ids, signatures."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import msgspec
import pytest
from tests.stores.sqlite.own import Failing, own_event

from everlog.core.event import Position
from everlog.core.ids import EventId
from everlog.core.query import Query
from everlog.errors import ReadOnly, StorageFull
from everlog.stores.contract import Store, encode_event
from everlog.stores.sqlite import connection, tail
from everlog.stores.sqlite.store import SqliteStore
from everlog.testing.builders import Chain, put_note, seal_any
from everlog.testing.chain_contract import ChainContract
from everlog.testing.erase_contract import EraseContract
from everlog.testing.filling import append, fill, positions
from everlog.testing.group_contract import GroupContract
from everlog.testing.store_contract import OpenStore, StoreContract


class TestSqliteStore(StoreContract, ChainContract, EraseContract, GroupContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        def open_it() -> Store:
            return SqliteStore(tmp_path / "log.db")

        return open_it


def test_every_commit_is_flushed(path: Path) -> None:
    """F08: WAL with synchronous FULL; NORMAL loses acknowledged commits in a power cut."""
    store = SqliteStore(path)
    own_event(store)
    assert store._writer is not None
    assert store._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._writer.execute("PRAGMA synchronous").fetchone() == (2,)
    store.close()


def test_a_write_to_many_new_streams_asks_no_question_for_each_of_them(path: Path) -> None:
    store = SqliteStore(path)
    own_event(store)
    assert store._writer is not None
    said: list[str] = []
    store._writer.set_trace_callback(said.append)
    append(store, *[seal_any(stream=f"note/{number}") for number in range(2, 102)])
    asked = [statement for statement in said if "names" in statement or "stream_places" in statement]
    store.close()
    assert 0 < len(asked) < 10


BOTH, OTHER = "note/1", "note/2"
PLACES = {  # the stream and the scope of each event
    "the scope first": [(OTHER, BOTH), (BOTH, ""), (BOTH, OTHER), (OTHER, "")],
    "the stream first": [(BOTH, ""), (OTHER, BOTH), (BOTH, BOTH), (OTHER, OTHER)],
    "at once": [(BOTH, BOTH), (OTHER, OTHER), (BOTH, OTHER), (OTHER, BOTH)],
}


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("writes", ["one write", "a write each", "a handle each"])
@pytest.mark.parametrize("order", PLACES)
def test_a_stream_a_scope_and_a_type_of_the_same_name_are_three_things(
    path: Path, monkeypatch: pytest.MonkeyPatch, order: str, writes: str, indexed: bool
) -> None:
    if indexed:
        monkeypatch.setattr(tail, "TAIL_MAX", 0)
    places = PLACES[order]
    made = [
        seal_any(stream=stream, scope=scope, type=BOTH if number == 3 else "note.added")
        for number, (stream, scope) in enumerate(places, start=1)
    ]
    store = SqliteStore(path)
    if writes == "one write":
        append(store, *made)
    for event in made if writes != "one write" else ():
        append(store, event)
        if writes == "a handle each":
            store.close()
            store = SqliteStore(path)
    append(store, seal_any(stream=BOTH), seal_any(stream=OTHER))  # by a handle that wrote them, or by one that asks
    places = [*places, (BOTH, ""), (OTHER, "")]
    for reader in (store, SqliteStore(path)):
        for name in (BOTH, OTHER):
            of_stream = [number for number, (stream, _) in enumerate(places, start=1) if stream == name]
            of_scope = [number for number, (_, scope) in enumerate(places, start=1) if scope == name]
            found = list(reader.read(Query(stream=name)))
            assert [recorded.position for recorded in found] == of_stream
            assert [recorded.sequence for recorded in found] == [1, 2, 3]
            assert [recorded.position for recorded in reader.read(Query(scope=name))] == of_scope
        assert [recorded.position for recorded in reader.read(Query(types=frozenset({BOTH})))] == [3]
        assert [(one.event.stream, one.event.scope) for one in reader.read()] == places
        reader.close()


def test_a_read_writes_nothing(path: Path) -> None:
    """G11."""
    store = SqliteStore(path)
    fill(store)
    store.close()
    before = path.read_bytes()

    reader = SqliteStore(path)
    assert len(list(reader.read())) == 300
    assert list(reader.read(Query(scope="acme"), newest_first=True, limit=3))
    assert list(reader.slots())
    assert list(reader.check()) == []
    assert reader._writer is None
    reader.close()
    assert path.read_bytes() == before


def test_a_reader_cannot_write_even_by_mistake(path: Path) -> None:
    store = SqliteStore(path)
    with pytest.raises(ReadOnly):
        store._fetch("DELETE FROM notes", ())
    store.close()


def test_a_stream_of_many_pages_is_read_whole(path: Path) -> None:
    """Pages of a stream follow its own index; a second page must go on where the first ended."""
    store = SqliteStore(path)
    chain = Chain()
    append(store, *[chain.next(stream=f"note/{number % 2}") for number in range(4200)])

    assert positions(store.read(Query(stream="note/1"))) == list(range(2, 4201, 2))
    assert positions(store.read(Query(stream="note/1"), newest_first=True)) == list(range(4200, 0, -2))
    assert positions(store.read(Query(stream="note/1"), after=Position(4000), limit=3)) == [4002, 4004, 4006]
    assert positions(store.read(Query(types=frozenset(["note.added"])))) == list(range(1, 4201))
    store.close()


def test_expired_notes_are_removed_as_others_are_written(path: Path) -> None:
    """Idempotency records are kept for a bounded time: the rows go too."""
    store = SqliteStore(path)
    with store.open_write() as writer:
        for number in range(20):
            put_note(writer, f"old/{number}", "x", expires_us=1)
    with store.open_write() as writer:
        put_note(writer, "new", "x")

    assert store._fetch("SELECT count(*) FROM notes", ()) == [(1,)]
    store.close()


def test_ids_from_elsewhere_are_found_among_our_own(path: Path) -> None:
    """Ids that grow with their positions are found by block, all others one by one."""
    store = SqliteStore(path)
    chance = random.Random(7)
    made = [seal_any() for _ in range(600)]
    chance.shuffle(made)
    for start in range(0, 600, 50):
        append(store, *made[start : start + 50])
        own_event(store)

    for sealed in made:
        found = store.get(sealed.event.id)
        assert found is not None
        assert found.event == sealed.event
    assert list(store.check()) == []
    assert store.get(EventId("00000000000000000000000000")) is None
    assert store.get(EventId("7ZZZZZZZZZZZZZZZZZZZZZZZZZ")) is None
    store.close()


def test_a_commit_that_fails_leaves_no_wrong_memory_of_new_names(path: Path) -> None:
    """The numbers of names, the marks and the greatest id of a write that was undone must be forgotten with it."""
    store = SqliteStore(path)
    own_event(store)
    store._writer = Failing(store._writer, "SQLITE_FULL")  # type: ignore[assignment,arg-type]
    with pytest.raises(StorageFull):
        append(store, seal_any(stream="fresh/1", type="fresh.made", scope="fresh"))
    append(store, seal_any(stream="other/1", type="other.made", scope="other"))
    append(store, seal_any(stream="fresh/1", type="fresh.made", scope="fresh"))

    assert positions(store.read(Query(stream="other/1"))) == [2]
    assert positions(store.read(Query(types=frozenset(["fresh.made"])))) == [3]
    assert positions(store.read(Query(scope="fresh"))) == [3]
    assert list(store.check()) == []
    store.close()


def test_signatures_come_back_in_both_directions_and_go_with_a_purge(path: Path) -> None:
    store = SqliteStore(path)
    for number in range(3):
        made = seal_any(stream=f"note/{number}").event
        signed = msgspec.structs.replace(made, signature=bytes([number]) * 64, path=(b"a" * 32, b"b" * 32))
        append(store, encode_event(signed))
    forward = [recorded.event.signature[:1] for recorded in store.read()]
    backward = [recorded.event.signature[:1] for recorded in store.read(newest_first=True)]
    assert forward == backward[::-1] == [b"\x00", b"\x01", b"\x02"]
    assert next(store.read()).event.path == (b"a" * 32, b"b" * 32)
    with store.open_write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")
    assert [recorded.event.signature[:1] for recorded in store.read()] == [b"\x00", b"\x02"]
    assert store._fetch("SELECT kept, events FROM groups WHERE first = 2", ()) == [(0, "[]")]
    store.close()


def test_a_reader_of_a_file_as_it_stands_is_not_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """G7: it would never see what is written later."""
    store = SqliteStore(path)
    own_event(store)
    store.close()
    monkeypatch.setattr(
        connection, "connect_reader", lambda path: (connection._connect(path, "ro&immutable=1"), False)
    )
    reader = SqliteStore(path)
    assert reader.head() == 1
    assert reader._idle_readers == []
    reader.close()


def test_readers_one_after_the_other_share_one_connection(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new connection costs more than a short read. Two reads at the same time need two, and both are kept."""
    store, opened, connect = SqliteStore(path), list[Path](), connection.connect_reader

    def counted(path: Path) -> tuple[sqlite3.Connection, bool]:
        opened.append(path)
        return connect(path)

    monkeypatch.setattr(connection, "connect_reader", counted)
    for number in range(1, 4):
        own_event(store)
        assert store.head() == number
        assert positions(store.read()) == list(range(1, number + 1))
    assert len(opened) <= 1
    with store._reader(), store._reader():
        assert len(opened) <= 2
    assert len(store._idle_readers) == 2
    store.close()


@pytest.mark.parametrize(
    "text",
    ["{}", ',[100,1,0,["', "[100,", ',[100,1,0,[\\"', ',[100,1]],[100,1,0,["x"', '"],[100,1,0,["x","y",1,"s",1]]'],
)
def test_the_last_event_of_a_group_is_found_whatever_its_payload_looks_like(path: Path, text: str) -> None:
    """It is decoded from the end of the row, where a payload may look like the beginning of a record."""
    chain = Chain()
    payload = {"a": text, "b": [[100, 1, 0, [text]], [100]], text: {"c": text}}
    events = [chain.next(stream="note/1", payload=payload) for _ in range(100)]
    store = SqliteStore(path)
    append(store, *events)
    for position in (1, 50, 99, 100):
        (found,) = store.read(after=Position(position - 1), upto=Position(position))
        assert (found.position, found.event.id) == (position, events[position - 1].event.id)
        assert found.event.payload == payload
        assert found.event.commitment == events[position - 1].event.commitment
    store.close()
