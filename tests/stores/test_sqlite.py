"""The SQLite store keeps the contract, and what is its own business: pragmas, triggers, files, foreign databases."""

from __future__ import annotations

import random
import sqlite3
import stat
from pathlib import Path

import msgspec
import pytest
from tests.at_once import at_once

from everlog.catalog.builtin import BUILT_IN
from everlog.core.event import Position
from everlog.core.ids import EventId
from everlog.core.query import Query
from everlog.errors import Busy, Damaged, NewerFormat, NotALog, NotFound, ReadOnly, StorageFull, WriterStopped
from everlog.log.log import Log
from everlog.stores.contract import Store, seal
from everlog.stores.sqlite import connection, tail
from everlog.stores.sqlite.store import SqliteStore
from everlog.testing.builders import Chain, seal_any, stamped
from everlog.testing.store_contract import (
    OpenStore,
    StoreContract,
    append,
    fill,
    fill_two_streams,
    positions,
)


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        def open_it() -> Store:
            return SqliteStore(tmp_path / "log.db")

        return open_it


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


def own_event(store: SqliteStore, **fields: str) -> None:
    with store.write() as writer:
        writer.append([stamped(writer, store.identity.origin, **fields)], fresh=True)


def test_every_commit_is_flushed(path: Path) -> None:
    """F08: WAL with synchronous FULL; NORMAL loses acknowledged commits in a power cut."""
    store = SqliteStore(path)
    own_event(store)
    assert store._writer is not None
    assert store._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._writer.execute("PRAGMA synchronous").fetchone() == (2,)
    store.close()


REWRITES = [
    "UPDATE events SET payload = '{}'",
    "UPDATE events SET header = header || ' ' WHERE position = 1",
    "UPDATE OR REPLACE events SET position = 2 WHERE position = 1",
    "DELETE FROM events",
    "DELETE FROM events WHERE position = 3",
    "UPDATE purges SET reason = ''",
    "DELETE FROM purges",
    "UPDATE purged SET hash = x''",
    "DELETE FROM purged",
    "UPDATE names SET name = 'other'",
    "DELETE FROM names",
]


@pytest.mark.parametrize("statement", REWRITES)
def test_the_database_refuses_to_rewrite_history(path: Path, statement: str) -> None:
    """G9: whatever program opens the file."""
    store = SqliteStore(path)
    fill_two_streams(store)
    with store.write() as writer:
        writer.purge("note/2", actor="user:ada", reason="asked to")
    other = sqlite3.connect(path)
    before = list(other.iterdump())
    with pytest.raises(sqlite3.IntegrityError, match="everlog"):
        other.execute(statement)
    other.rollback()

    assert list(other.iterdump()) == before
    other.close()
    store.close()


def test_a_purge_leaves_no_byte_of_the_payload_behind(path: Path) -> None:
    """F63: not in the file, not in its free pages, not in the write-ahead log."""
    store = SqliteStore(path)
    sentinel = "sentinel-of-the-purged-payload"
    for number in range(50):
        append(store, seal_any(stream="note/1", payload={"text": f"{sentinel} {number} " + "x" * 300}))
        append(store, seal_any(stream="note/2"))
    assert any(sentinel.encode() in file.read_bytes() for file in path.parent.iterdir())

    with store.write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")

    assert not [file.name for file in path.parent.iterdir() if sentinel.encode() in file.read_bytes()]
    store.close()


def test_a_purge_that_a_reader_holds_up_is_told_and_finished_later(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """F63: success is not reported in silence while the bytes are still there."""
    monkeypatch.setattr("everlog.stores.sqlite.store._SCRUB_WAIT_MS", 10)
    store = SqliteStore(path)
    append(store, seal_any(stream="note/1", payload={"text": "sentinel-held-by-a-reader"}))
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM events").fetchone()
    with store.write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")

    assert "log.db-wal" in caplog.text
    reader.close()
    append(store, seal_any(stream="note/2"))
    assert not [file.name for file in path.parent.iterdir() if b"sentinel-held" in file.read_bytes()]
    store.close()


def test_a_read_writes_nothing(path: Path) -> None:
    """G11."""
    store = SqliteStore(path)
    fill(store)
    store.close()
    before = path.read_bytes()

    reader = SqliteStore(path)
    assert len(list(reader.read())) == 300
    assert list(reader.read(Query(scope="acme"), newest_first=True, limit=3))
    assert list(reader.packed())
    assert list(reader.check()) == []
    assert reader._writer is None
    reader.close()
    assert path.read_bytes() == before


def test_a_reader_cannot_write_even_by_mistake(path: Path) -> None:
    store = SqliteStore(path)
    with pytest.raises(ReadOnly):
        store._fetch("DELETE FROM notes", ())
    store.close()


def test_files_are_not_open_to_others(path: Path) -> None:
    """S17: the log may be read by its group and by nobody else."""
    store = SqliteStore(path)
    own_event(store)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    store.close()

    assert set(modes) >= {"log.db", "log.db-wal", "log.db-shm", "log.db-lock"}
    assert {name: mode for name, mode in modes.items() if mode & 0o027} == {}


def test_an_empty_file_is_not_taken_for_a_new_log(path: Path) -> None:
    """F04: never restart at 0."""
    path.touch()
    with pytest.raises(NotALog, match="empty"):
        SqliteStore(path)
    assert path.stat().st_size == 0


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"just some text, long enough to be looked at")
    with pytest.raises(NotALog, match="not an SQLite database"):
        SqliteStore(path)
    assert path.read_bytes() == b"just some text, long enough to be looked at"


def test_a_database_of_another_program_is_refused(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE events (position INTEGER PRIMARY KEY)")
    other.close()
    with pytest.raises(NotALog, match="another program"):
        SqliteStore(path)


def test_a_log_of_a_newer_format_is_refused_and_never_read_as_empty(path: Path) -> None:
    SqliteStore(path).close()
    other = sqlite3.connect(path)
    other.execute("PRAGMA user_version = 99")
    other.close()
    with pytest.raises(NewerFormat, match="99"):
        SqliteStore(path)


def test_a_log_that_is_not_there_is_not_made_unless_asked(path: Path) -> None:
    with pytest.raises(NotFound):
        SqliteStore(path, create=False)
    assert list(path.parent.iterdir()) == []


def test_a_crash_while_making_a_log_leaves_no_half_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F04, F06: the file gets its name when it is whole."""
    monkeypatch.setattr(connection, "create_database", _crash)
    with pytest.raises(RuntimeError):
        SqliteStore(path)
    assert not path.exists()
    monkeypatch.undo()

    store = SqliteStore(path)  # what the crash left beside it is no obstacle
    own_event(store)
    assert store.head() == 1
    store.close()


def _crash(draft: Path, schema: str) -> sqlite3.Connection:
    sqlite3.connect(draft).execute("CREATE TABLE half (a)")
    raise RuntimeError("the process ended here")


def test_many_openers_make_one_log(path: Path) -> None:
    opened: list[SqliteStore] = []
    at_once(*[lambda: opened.append(SqliteStore(path))] * 6)

    assert len({store.identity.log_id for store in opened}) == 1
    for store in opened:
        store.close()


def test_a_second_writer_is_told_who_holds_the_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """G13."""
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_MS", 50)
    one, other = SqliteStore(path), SqliteStore(path)
    with one.write():
        with pytest.raises(Busy) as refused, other.write():
            pass
        assert refused.value.hint
    own_event(other)
    assert one.head() == 1
    one.close()
    other.close()


def test_a_program_that_locks_the_database_makes_it_busy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_MS", 50)
    store = SqliteStore(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Busy), store.write():
        pass
    other.execute("ROLLBACK")
    own_event(store)
    other.close()
    store.close()


class _Failing:
    """A connection whose COMMIT fails once, as SQLite reports it."""

    def __init__(self, real: sqlite3.Connection, errorname: str) -> None:
        self._real = real
        self._errorname = errorname
        self.commits = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def execute(self, sql: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        if sql == "COMMIT":
            self.commits += 1
            if self.commits == 1:
                error = sqlite3.OperationalError("injected")
                error.sqlite_errorname = self._errorname
                raise error
        return self._real.execute(sql, values)


def test_a_failed_flush_stops_the_writer_for_good(path: Path) -> None:
    """G12, F05: it reports, and never goes on as if clean."""
    store = SqliteStore(path)
    own_event(store)
    real = store._writer
    assert real is not None
    failing = _Failing(real, "SQLITE_IOERR_FSYNC")
    store._writer = failing  # type: ignore[assignment]
    with pytest.raises(WriterStopped):
        own_event(store)
    with pytest.raises(WriterStopped, match="no more writes"):
        own_event(store)

    assert failing.commits == 1
    assert positions(store.read()) == [1]
    store.close()
    again = SqliteStore(path)
    own_event(again)
    assert again.head() == 2
    again.close()


def test_a_full_disk_refuses_the_write_and_takes_the_next_one(path: Path) -> None:
    """F07: reading goes on, and nothing is half written."""
    store = SqliteStore(path)
    own_event(store)
    store._writer = _Failing(store._writer, "SQLITE_FULL")  # type: ignore[assignment,arg-type]
    with pytest.raises(StorageFull):
        own_event(store)
    assert positions(store.read()) == [1]
    own_event(store)

    assert positions(store.read()) == [1, 2]
    assert [recorded.event.origin_seq for recorded in store.read()] == [1, 2]
    assert list(store.check()) == []
    store.close()


def test_a_log_whose_last_event_was_cut_off_takes_no_writes(path: Path) -> None:
    """G10, F60: it is not written over, and it can still be read."""
    store = SqliteStore(path)
    for _ in range(3):
        own_event(store)
    store.close()
    _without_triggers(path, "DELETE FROM events WHERE position = 3")

    cut = SqliteStore(path)
    assert positions(cut.read()) == [1, 2]
    assert "log_cut_off" in {problem.code for problem in cut.check()}
    with pytest.raises(Damaged):
        own_event(cut)
    cut.close()


def test_a_changed_last_event_is_noticed_before_the_next_write(path: Path) -> None:
    store = SqliteStore(path)
    own_event(store)
    store.close()
    _without_triggers(path, "UPDATE events SET header = replace(header, 'user:ada', 'user:eve')")

    changed = SqliteStore(path)
    with pytest.raises(Damaged):
        own_event(changed)
    changed.close()


def _without_triggers(path: Path, statement: str) -> None:
    with sqlite3.connect(path) as other:
        for (name,) in other.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            other.execute(f"DROP TRIGGER {name}")
        other.execute(statement)
    other.close()


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
    with store.write() as writer:
        for number in range(20):
            writer.note(f"old/{number}", "x", expires_us=1)
    with store.write() as writer:
        writer.note("new", "x")

    assert store._fetch("SELECT count(*) FROM notes", ()) == [(1,)]
    store.close()


REPLACEMENTS = [
    "REPLACE INTO events SELECT position, stream, sequence, type, scope, received_us, header, '{}', salt, claim"
    " FROM events",
    "INSERT OR REPLACE INTO events SELECT 9, stream, sequence, type, scope, received_us, header, payload, salt,"
    " claim FROM events WHERE position = 2",
    "INSERT INTO events SELECT 9, 99, 1, type, scope, received_us, header, payload, salt, NULL FROM events LIMIT 1",
]


@pytest.mark.parametrize("statement", REPLACEMENTS)
def test_what_sqlite_lets_an_owner_replace_is_found(path: Path, statement: str) -> None:
    """G9, G10: REPLACE deletes without asking a delete trigger; the chain tells."""
    log = Log(SqliteStore(path), BUILT_IN)
    for text in ("one", "two", "three"):
        log.append("note.added", stream="note/1", payload={"text": text})
    with sqlite3.connect(path) as other:
        other.execute(statement)
    other.close()

    assert log.verify().problems
    log.close()


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
    store._writer = _Failing(store._writer, "SQLITE_FULL")  # type: ignore[assignment,arg-type]
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
        append(store, seal(signed))
    forward = [recorded.event.signature[:1] for recorded in store.read()]
    backward = [recorded.event.signature[:1] for recorded in store.read(newest_first=True)]
    assert forward == backward[::-1] == [b"\x00", b"\x01", b"\x02"]
    assert next(store.read()).event.path == (b"a" * 32, b"b" * 32)
    with store.write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")
    assert store._fetch("SELECT position FROM proofs ORDER BY position", ()) == [(1,), (3,)]
    store.close()


def test_a_trigger_that_does_nothing_any_more_is_found(path: Path) -> None:
    store = SqliteStore(path)
    own_event(store)
    with sqlite3.connect(path) as other:
        other.execute("DROP TRIGGER events_are_not_changed")
        other.execute("CREATE TRIGGER events_are_not_changed BEFORE UPDATE ON events BEGIN SELECT 1; END")
        other.execute("CREATE TRIGGER of_somebody AFTER INSERT ON notes BEGIN SELECT 1; END")
        other.execute("INSERT INTO id_strays VALUES ('01M7GJY4JREWXR7F6ZT4NFS1FE', 1)")
    other.close()
    codes = [problem.code for problem in store.check()]
    assert codes == ["schema_changed", "schema_changed", "index_disagrees"]
    store.close()


def test_a_stream_whose_payload_cannot_be_read_can_still_be_purged(path: Path) -> None:
    store = SqliteStore(path)
    own_event(store, stream="note/1")
    _without_triggers(path, "UPDATE events SET payload = 'no json'")
    with pytest.raises(Damaged):
        list(store.read())
    with store.write() as writer:
        assert writer.purge("note/1", actor="user:ada", reason="damaged").count == 1
    assert list(store.read()) == []
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


def test_a_purge_whose_process_was_killed_is_tidied_up_by_the_next(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F63: between the commit of a purge and the emptying of the write-ahead log lies a moment."""
    store = SqliteStore(path)
    append(store, seal_any(stream="note/1", payload={"text": "sentinel-of-a-killed-purge"}))
    monkeypatch.setattr(SqliteStore, "_scrub", lambda self: None)
    with store.write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")
    monkeypatch.undo()
    assert any(b"sentinel-of-a-killed" in file.read_bytes() for file in path.parent.iterdir())

    other = SqliteStore(path)  # the first one is as good as killed: it does nothing more
    own_event(other)
    assert not [file.name for file in path.parent.iterdir() if b"sentinel-of-a-killed" in file.read_bytes()]
    own_event(other)
    assert other._fetch("SELECT number FROM state WHERE name = 'scrub'", ()) == [(0,)]
    other.close()
    store.close()


def test_a_log_whose_file_was_removed_takes_no_more_writes(path: Path) -> None:
    """G1: SQLite itself would go on, into a file that nobody can find."""
    store = SqliteStore(path)
    own_event(store)
    path.rename(path.with_name("moved.db"))
    with pytest.raises(Damaged, match="removed or replaced"):
        own_event(store)
    path.with_name("moved.db").rename(path)
    own_event(store)
    assert positions(store.read()) == [1, 2]
    store.close()


def test_a_claim_is_kept_for_its_time_and_forgotten_within_twice_that(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounded: a table that only grows would make every append slower for ever."""
    monkeypatch.setattr(tail, "TAIL_MAX", 2)
    hour = 3_600_000_000
    now = [1_000 * hour]
    store = SqliteStore(path, now_us=lambda: now[0])
    kept: dict[bytes, int] = {}
    for number in range(200):
        name = number.to_bytes(16, "big")
        with store.write() as writer:
            writer.append([stamped(writer, store.identity.origin)], fresh=True)
            writer.claim(name, Position(number + 1), 1)
        kept[name] = now[0]
        now[0] += hour
        if number == 100:
            store.close()
            store = SqliteStore(path, now_us=lambda: now[0])
    for name, since in kept.items():
        if now[0] - since <= 24 * hour:
            assert store.claimed(name) is not None
        elif now[0] - since > 54 * hour:
            assert store.claimed(name) is None
    store.close()


def test_names_that_are_remembered_are_forgotten_when_another_process_claims(path: Path) -> None:
    """F82: a store that wrote alone for long answers from memory; then it must not miss what somebody else claims."""
    one, other = SqliteStore(path), SqliteStore(path)
    for number in range(50):
        with one.write() as writer:
            assert writer.claimed(bytes(16)) is None
            writer.append([stamped(writer, one.identity.origin)], fresh=True)
            writer.claim((number + 1).to_bytes(16, "big"), Position(number + 1), 1)
    with other.write() as writer:
        writer.append([stamped(writer, one.identity.origin)], fresh=True)
        writer.claim(bytes(16), Position(51), 1)
    with one.write() as writer:
        assert writer.claimed(bytes(16)) is not None
    one.close()
    other.close()


def test_every_claim_is_found_wherever_it_lies_by_now(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F82: in the tail, in a table, among the names that are remembered: a claim that is missed is a second event."""
    monkeypatch.setattr(tail, "TAIL_MAX", 50)
    store = SqliteStore(path)
    for number in range(200):
        if number == 110:  # what was remembered is fetched anew, with events in the tail
            store.close()
            store = SqliteStore(path)
        names = [other.to_bytes(16, "big") for other in range(number)]
        with store.write() as writer:
            assert writer.claimed_among([*names, bytes([255]) * 16]) == set(names)
            assert all(writer.claimed(name) for name in names[:: 1 + number // 20])
            assert writer.claimed(bytes([255]) * 16) is None
            writer.append([stamped(writer, store.identity.origin)], fresh=True)
            writer.claim(number.to_bytes(16, "big"), Position(number + 1), 1)
    assert store.claimed_among(names) == set(names)
    store.close()


def test_a_writer_learns_that_another_let_the_claim_tables_change_their_turn(path: Path) -> None:
    """F82: with a turn remembered from before, it would empty the table that holds the newest claims."""
    hour = 3_600_000_000
    now = [1_000 * hour]
    one, other = (SqliteStore(path, now_us=lambda: now[0]) for _ in range(2))

    def write(store: SqliteStore, events: int, name: bytes = b"") -> None:
        with store.write() as writer:
            made = writer.append([seal_any() for _ in range(events)])
            if name:
                writer.claim(name, made[0].position, events)

    write(one, 1, b"o" * 16)
    write(one, tail.TAIL_MAX + 1)
    now[0] += 24 * hour
    write(one, 1, b"k" * 16)
    write(other, tail.TAIL_MAX + 1)  # it is the other table's turn
    write(one, tail.TAIL_MAX + 1)
    assert one.claimed(b"k" * 16) is not None
    one.close()
    other.close()


def test_a_flush_that_fails_while_purged_bytes_are_removed_stops_the_writer(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G12: the purge stands, and nothing is acknowledged after it as if the disk were well."""
    store = SqliteStore(path)
    own_event(store, stream="note/1")

    def fail(writer: sqlite3.Connection, *, wait_ms: int) -> bool:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
        raise error

    monkeypatch.setattr(connection, "empty_journal", fail)
    with store.write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")
    assert len(store.purges()) == 1
    with pytest.raises(WriterStopped):
        own_event(store)
    monkeypatch.undo()
    store.close()


def test_a_purge_takes_what_has_expired_along(path: Path) -> None:
    """F63: an expired note is shown to nobody, but its bytes may be a response about what is purged."""
    now = [1_000_000]
    store = SqliteStore(path, now_us=lambda: now[0])
    own_event(store, stream="note/1")
    with store.write() as writer:
        writer.note("key/a", "SENTINEL", expires_us=2_000_000)
    now[0] = 3_000_000
    with store.write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")
    store.close()
    assert b"SENTINEL" not in b"".join(file.read_bytes() for file in path.parent.iterdir() if file.is_file())
