"""What a reader gets where rows or pages are lost: what comes before, then Damaged with the place (G10)."""

from __future__ import annotations

import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support import damage
from tests.support.sqlite_edits import edit

from everlog.catalog.builtin import BUILT_IN
from everlog.core.codec import Packed
from everlog.core.event import Position
from everlog.core.query import EVERYTHING, Query
from everlog.errors import Damaged, EverlogError, Unavailable
from everlog.log.log import Log
from everlog.log.verify.verify import verify
from everlog.log.write.draft import Draft
from everlog.stores.past_damage import PastDamage
from everlog.stores.sqlite.store import SqliteStore

EVENTS = 1500  # more than the index of streams waits for: some events are in it, and some are behind it
STREAMS = 7
QUERIES = {
    "everything": EVERYTHING,
    "type": Query(types=frozenset(["note.added"])),
    "scope": Query(scope="acme"),
    "kind": Query(kind="note"),
    "actor": Query(actor="user:ada"),
    "stream": Query(stream="note/3"),
    "stream and type": Query(stream="note/3", types=frozenset(["note.added"])),
}


def _fill(log: Log, count: int = EVENTS) -> None:
    for first in range(0, count, 500):
        log.append_batch(
            [
                Draft(
                    type="note.added",
                    stream=f"note/{number % STREAMS}",
                    payload={"text": f"note {number} " * 8},
                    scope="acme/shop",
                    actor="user:ada",
                )
                for number in range(first + 1, first + 501)
            ]
        )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "log.db"
    with Log(SqliteStore(path), BUILT_IN) as log:
        _fill(log)
        log.purge("note/5", reason="test")
        _fill(log, 500)
    return path


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    return Path(_copied(made, tmp_path / "log.db"))


def _copied(made: Path, to: Path) -> Path:
    to.write_bytes(made.read_bytes())
    return to


def _read(store: SqliteStore, query: Query, **how: Any) -> tuple[list[int], Damaged | None]:
    found: list[int] = []
    try:
        found.extend(recorded.position for recorded in store.read(query, **how))
    except Damaged as error:
        return found, error
    return found, None


def _expected(made: Path, query: Query) -> list[int]:
    with closing(SqliteStore(made)) as store:
        return [recorded.position for recorded in store.read(query)]


# Positions of note/3: one that its index leads to, one behind the index, and the last event of all.
@pytest.mark.parametrize("position", [3, 10, 1501 + 1 + 3 + 7, 2001])
@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("newest_first", [False, True])
def test_a_lost_row_ends_every_read_that_could_have_given_it(
    made: Path, path: Path, position: int, name: str, newest_first: bool
) -> None:
    query = QUERIES[name]
    whole = _expected(made, query)
    edit(path, f"DELETE FROM events WHERE position = {position}")  # noqa: S608 - a number of ours
    with closing(SqliteStore(path)) as store:
        assert store.head() == 2001
        found, error = _read(store, query, newest_first=newest_first)
        if position not in whole:
            assert error is None or error.details["position"] == position
            return
        assert error is not None
        assert (error.details["position"], error.details["after"]) == (position, position)
        assert error.details["file"] == "log.db"
        kept = [place for place in whole if (place > position if newest_first else place < position)]
        assert sorted(found) == kept
        left_out: list[Damaged] = []
        past = PastDamage(store, left_out.append).read(query, newest_first=newest_first)
        assert sorted(recorded.position for recorded in past) == [place for place in whole if place != position]
        assert [error.details["position"] for error in left_out] == [position]


def test_a_lost_row_is_noticed_by_who_asks_for_its_id(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        (recorded,) = store.read(after=Position(99), limit=1)
        (other,) = store.read(after=Position(999), limit=1)
    edit(path, "DELETE FROM events WHERE position = 100")
    with closing(SqliteStore(path)) as store:
        with pytest.raises(Damaged):
            store.get(recorded.event.id)
        assert store.get(other.event.id) == other


def test_rows_that_are_lost_while_a_store_is_open_are_noticed(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        assert len(list(store.read())) == len(list(store.read(QUERIES["type"])))
        edit(path, "DELETE FROM events WHERE position BETWEEN 500 AND 600")
        for name in ("everything", "stream"):
            found, error = _read(store, QUERIES[name])
            assert error is not None, name
            assert max(found) < 500


def test_an_unreadable_row_names_its_positions_and_the_rest_is_read(path: Path) -> None:
    """Position 700 is in the group of 629 to 756; 628 was purged."""
    edit(path, "UPDATE events SET payload = '{\"text\"' WHERE position = 700")
    with closing(SqliteStore(path)) as store:
        found, error = _read(store, EVERYTHING)
        assert error is not None
        assert (found[-1], error.details["position"], error.details["after"]) == (627, 629, 756)
        assert next(store.read(after=Position(756))).position == 757
        found, error = _read(store, EVERYTHING, newest_first=True)
        assert error is not None
        assert (found[-1], error.details["position"], error.details["after"]) == (757, 629, 756)


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("name", QUERIES)
def test_a_flipped_bit_is_found_by_every_way_of_reading(path: Path, name: str, newest_first: bool) -> None:
    """Also where it leaves a text that is JSON: in a payload, an actor, a name, a time."""
    with closing(SqliteStore(path)) as store:
        asked = next(store.read(after=Position(698))).event
    assert (asked.stream, asked.payload["text"][:8]) == ("note/6", "note 699")
    content = path.read_bytes()
    at = content.index(b'"text":"note 699 ') + len('"text":"no')
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    with closing(SqliteStore(path)) as store:
        query = QUERIES[name] if "stream" not in name else msgspec.structs.replace(QUERIES[name], stream="note/6")
        found, error = _read(store, query, newest_first=newest_first)
        assert error is not None
        assert (error.details["position"], error.details["after"]) == (629, 756)
        assert "checksum" in error.why
        assert found
        assert all(place > 756 if newest_first else place < 629 for place in found)
        with pytest.raises(Damaged):
            store.get(asked.id)
        with pytest.raises(Damaged):
            list(store.blocks(query))
        slots: dict[int, bool] = {slot.position: isinstance(slot, Packed) for slot in store.slots()}
        assert {place for place in range(629, 757) if slots.get(place, False)} == set()
        assert {628, 757} < slots.keys()
        assert [(each.position, each.last, each.code) for each in verify(store).problems][:1] == [
            (629, 756, "unreadable")
        ]


def _pages(path: Path, table: str) -> list[int]:
    """The leaf pages of a table that do not hold its first or last rows, by number."""
    with closing(sqlite3.connect(path)) as database:
        try:
            rows = database.execute(
                "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY path", (table,)
            ).fetchall()
        except sqlite3.OperationalError:
            pytest.skip("this SQLite was built without dbstat")
    return [page for (page,) in rows]


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_page_that_sqlite_cannot_read_costs_its_own_rows_and_no_others(
    made: Path, path: Path, newest_first: bool
) -> None:
    page = _pages(path, "groups")[1]
    content = bytearray(path.read_bytes())
    content[(page - 1) * 4096 : page * 4096] = b"\xff" * 4096
    path.write_bytes(content)
    whole = _expected(made, EVERYTHING)
    with closing(SqliteStore(path)) as store:
        found, error = _read(store, EVERYTHING, newest_first=newest_first)
        assert error is not None
        first, last = error.details["position"], error.details["after"]
        assert first <= last < first + 8 * 128
        assert sorted(found) == [place for place in whole if (place > last if newest_first else place < first)]
        past = PastDamage(store, lambda error: None).read(newest_first=newest_first)
        assert sorted(one.position for one in past) == [place for place in whole if not first <= place <= last]


@pytest.mark.parametrize("table", ["stream_places", "marks", "names", "id_blocks"])
def test_damage_of_an_index_costs_no_event(made: Path, path: Path, table: str) -> None:
    content = bytearray(path.read_bytes())
    for page in _pages(path, table):
        content[(page - 1) * 4096 : page * 4096] = b"\xff" * 4096
    path.write_bytes(content)
    with closing(SqliteStore(path)) as store:
        for name, query in QUERIES.items():
            found, error = _read(store, query)
            assert error is None, name
            assert found == _expected(made, query), name
        (recorded,) = store.read(after=Position(99), limit=1)
        assert store.get(recorded.event.id) == recorded


def test_an_entry_that_the_index_of_streams_has_lost_costs_no_event(made: Path, path: Path) -> None:
    edit(path, "DELETE FROM stream_places WHERE position = 10")
    with closing(SqliteStore(path)) as store:
        assert _read(store, QUERIES["stream"]) == (_expected(made, QUERIES["stream"]), None)


def test_a_cut_file_is_refused_with_an_error_of_everlog(path: Path, tmp_path: Path) -> None:
    for name, hurt in damage.cuts(path).items():
        other = _copied(path, tmp_path / "other.db")
        hurt(other)
        try:
            with closing(SqliteStore(other, create=False)) as store:
                found, error = _read(store, EVERYTHING)
                assert error is not None or found == _expected(path, EVERYTHING), name
        except EverlogError:
            pass


def test_an_older_database_under_a_newer_journal_is_noticed(tmp_path: Path) -> None:
    """Somebody puts a backup of log.db back and leaves log.db-wal where it is."""
    path = tmp_path / "log.db"
    with Log(SqliteStore(path), BUILT_IN) as log:
        _fill(log, 500)
    older = path.read_bytes()
    with Log(SqliteStore(path), BUILT_IN) as log:
        _fill(log, 500)
    log = Log(SqliteStore(path), BUILT_IN)
    log.append("note.added", stream="note/1", payload={"text": "newest"})
    journal = path.with_name("log.db-wal").read_bytes()
    log.close()
    path.write_bytes(older)
    path.with_name("log.db-wal").write_bytes(journal)
    for query in QUERIES.values():
        try:
            with closing(SqliteStore(path)) as store:
                _, error = _read(store, query)
        except Damaged as told:
            error = told
        assert error is not None, query


LIMITED = """
import resource, sys
from everlog.errors import EverlogError
from everlog.stores.sqlite.store import SqliteStore
store = SqliteStore(sys.argv[1])
held = []
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    while True:
        held.append(open(sys.argv[1]))
except OSError:
    pass
try:
    kept = store._idle_readers[:]  # whose files stay open
    store._idle_readers.clear()
    list(store.read())
except EverlogError as error:
    print(error.code, error.exit_code, error.why)
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_NOFILE"), reason="this system has no limit of open files")
def test_too_many_open_files_are_told_as_what_they_are(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", LIMITED, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.startswith("unavailable 7 Too many open files"), done.stdout + done.stderr


def test_a_disk_that_fails_to_read_is_unavailable(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from everlog.stores.sqlite import connection

    def failing(name: str) -> Callable[..., Any]:
        def fail(*_: Any, **__: Any) -> Any:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorname = name
            raise error

        return fail

    for name, kind in (("SQLITE_IOERR_READ", Unavailable), ("SQLITE_IOERR_SHORT_READ", Damaged)):
        with closing(SqliteStore(path)) as store:
            monkeypatch.setattr(connection.Borrowed, "__enter__", failing(name))
            with pytest.raises(kind):
                list(store.read())
            monkeypatch.undo()


def test_a_bit_flipped_in_the_schema_is_damage(tmp_path: Path) -> None:
    """The name of a column is another one then, and SQLite does not know the one that it is asked for."""
    path = tmp_path / "log.db"
    with Log(SqliteStore(path), BUILT_IN) as log:
        _fill(log, 1)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_schema SET sql = replace(sql, 'lamport', 'lamporu') WHERE name = 'purged'")
    store = SqliteStore(path)
    with pytest.raises(Damaged, match="schema"):
        list(store.slots())
    store.close()


def test_the_ends_of_chains_are_not_given_where_newest_events_are_lost(tmp_path: Path) -> None:
    """They are signed as heads, and sent to others."""
    path = tmp_path / "log.db"
    with Log(SqliteStore(path), BUILT_IN) as log:
        _fill(log, 5)
        whole = log.stored.chains()
    edit(path, "DELETE FROM groups WHERE first = (SELECT max(first) FROM groups WHERE last < 450)")
    with closing(SqliteStore(path)) as store:
        with pytest.raises(Damaged) as raised:
            store.chains()
        assert 1 < raised.value.details["position"] < 450
        assert whole[store.identity.origin].end.origin_seq == 500


def test_the_journal_of_one_moment_beside_the_database_of_another_is_noticed(tmp_path: Path) -> None:
    path, killed = tmp_path / "log.db", tmp_path / "killed"

    def write(count: int) -> None:
        for _ in range(count):
            log.append("note.added", stream="note/1", payload={"text": "a note " * 200})

    with Log(SqliteStore(path), BUILT_IN) as log:
        write(20)
    older = path.read_bytes()
    with Log(SqliteStore(path), BUILT_IN) as log:
        write(40)
    with Log(SqliteStore(path), BUILT_IN) as log:
        write(2)
        killed.mkdir()
        for name in ("log.db", "log.db-wal"):
            shutil.copy(tmp_path / name, killed / name)
    (killed / "log.db").write_bytes(older)
    with closing(SqliteStore(killed / "log.db")) as store:
        with pytest.raises(Damaged):
            list(store.read())
        with pytest.raises(Damaged):
            store.chains()
