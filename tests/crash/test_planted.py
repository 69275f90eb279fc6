"""Bugs planted in the real store and log, each of which the suite must catch: without this a green run means nothing.

Every variant is wrong in one way, and names the promise it breaks. The right program passes the same checks, which is
what the suite itself shows.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from msgspec.structs import replace
from tests.support.sqlite_edits import edit

from everlog.catalog.builtin import BUILT_IN
from everlog.core.codec import Packed
from everlog.core.event import START, Position, Purge, Purged
from everlog.core.query import EVERYTHING, Cursor, Page
from everlog.errors import EverlogError, WriterStopped
from everlog.log.log import Log
from everlog.log.read import pages, resets
from everlog.log.verify import audit, stored_groups
from everlog.log.write.committer import Committer
from everlog.log.write.group import Item
from everlog.stores.contract import Encoded, Ends, Known, Store
from everlog.stores.open_write import OpenWrite
from everlog.stores.small_state import NOTES, StoreState
from everlog.stores.sqlite import check, connection, insert
from everlog.stores.sqlite.store import SqliteStore
from everlog.testing.builders import seal_any
from everlog.testing.filling import append
from everlog.testing.store_contract import StoreContract
from everlog.transfer import copy, import_pass, importing

Plant = Callable[[pytest.MonkeyPatch], None]
Check = Callable[[Path], None]


def contract(name: str) -> Check:
    """One promise of the contract suite, as a check of a folder."""

    def check(folder: Path) -> None:
        def open_store() -> Store:
            return SqliteStore(folder / "log.db")

        promise = getattr(StoreContract(), name)
        if "open_store" in promise.__code__.co_varnames[: promise.__code__.co_argcount]:
            promise(open_store)
            return
        store = open_store()
        try:
            promise(store)
        finally:
            store.close()

    return check


# ---- the bugs


def batch_not_atomic(patch: pytest.MonkeyPatch) -> None:
    """G2: an exception inside a write commits what was staged before it."""

    def roll_back(self: SqliteStore) -> None:
        if self._writer is not None and self._writer.in_transaction:
            self._writer.execute("COMMIT")
        self._forget_committed()

    def append_at_once(self: OpenWrite, events: Any, *, fresh: bool = False) -> Any:
        recorded = real(self, events, fresh=fresh)
        store = self._store
        assert isinstance(store, SqliteStore)
        if store._writer is not None:
            store._inserter.insert(store._writer, self)
        return recorded

    real = OpenWrite.append
    patch.setattr(SqliteStore, "_roll_back", roll_back)
    patch.setattr(OpenWrite, "append", append_at_once)


def attempt_not_undone(patch: pytest.MonkeyPatch) -> None:
    """G2: a refused request in a group leaves its events behind."""
    from contextlib import contextmanager

    @contextmanager
    def attempt(self: OpenWrite) -> Iterator[None]:
        yield

    patch.setattr(OpenWrite, "attempt", attempt)


def ids_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    """G5: the same id is recorded again."""
    patch.setattr(OpenWrite, "_without_known", lambda self, events: list(events))


def other_content_taken_for_a_retry(patch: pytest.MonkeyPatch) -> None:
    """G5, F54: the hash is not compared."""

    def without_known(self: OpenWrite, events: Any) -> list[Encoded]:
        return [sealed for sealed in events if sealed.event.id not in self._store.ends(ids=(sealed.event.id,)).known]

    patch.setattr(OpenWrite, "_without_known", without_known)


def purged_events_come_back(patch: pytest.MonkeyPatch) -> None:
    """A purge that sync undoes is none."""
    real = SqliteStore._find_known

    def find_known(self: SqliteStore, event_id: Any) -> Known | None:
        found = real(self, event_id)
        return None if found is not None and found.purged else found

    patch.setattr(SqliteStore, "_find_known", find_known)


def reserved_position_given_away(patch: pytest.MonkeyPatch) -> None:
    """G3: the head forgets the purges, so that the next event gets the reserved position."""

    def head(self: SqliteStore) -> Position:
        ((found,),) = self._fetch("SELECT max(position) FROM events", ())
        return Position(found or 0)

    def commit(self: SqliteStore, staged: OpenWrite) -> None:
        real(self, staged)
        self._head = None  # the next write asks for the head

    real = SqliteStore._commit
    patch.setattr(SqliteStore, "head", head)
    patch.setattr(SqliteStore, "_commit", commit)


def sequence_starts_again_after_a_purge(patch: pytest.MonkeyPatch) -> None:
    """A number that meant one event comes to mean another."""

    def ends(self: SqliteStore, **asked: Any) -> Ends:
        found = real(self, **asked)
        return replace(found, sequences={stream: last_sequence(self, stream) for stream in found.sequences})

    def last_sequence(self: SqliteStore, stream: str) -> int:
        rows = self._fetch("SELECT max(sequence) FROM events WHERE stream = ?", (stream,))
        return int(rows[0][0] or 0)

    real = SqliteStore.ends
    patch.setattr(SqliteStore, "ends", ends)


def other_writers_not_noticed(patch: pytest.MonkeyPatch) -> None:
    """G13: what a write starts from is remembered although another process has written."""

    def begin(self: SqliteStore) -> None:
        if self._writer is None:
            self._writer = connection.connect_writer(self.path)
        self._writer.execute("BEGIN IMMEDIATE")

    patch.setattr(SqliteStore, "_begin", begin)


def marks_not_written(patch: pytest.MonkeyPatch) -> None:
    """G6: a filtered read skips what it should find, in silence."""

    class Forgetful(set[Any]):
        def __rsub__(self, other: Any) -> set[Any]:
            return set()

    def forget(self: insert.Inserter) -> None:
        real(self)
        self._marked = Forgetful()

    real = insert.Inserter.forget
    patch.setattr(insert.Inserter, "forget", forget)


def notes_outside_the_transaction(patch: pytest.MonkeyPatch) -> None:
    """F33, F82: an idempotency record or a cursor that is kept although its events are not."""

    def put(self: OpenWrite, space: str, rows: dict[str, bytes | None], **more: Any) -> None:
        if space == NOTES:
            _KeptNotes.kept.update(rows)
        else:
            really_put(self, space, rows, **more)

    _KeptNotes.kept.clear()
    really_put, real = OpenWrite.put, StoreState.scan
    patch.setattr(OpenWrite, "put", put)

    def scan(self: StoreState, space: str, **more: Any) -> Iterator[tuple[str, Any]]:
        return iter({**dict(real(self, space, **more)), **_KeptNotes.kept}.items())

    patch.setattr(StoreState, "scan", scan)


class _KeptNotes:
    kept: ClassVar[dict[str, Any]] = {}


def purge_leaves_bytes_in_the_journal(patch: pytest.MonkeyPatch) -> None:
    """F63: the write-ahead log is not emptied."""
    patch.setattr(SqliteStore, "_tidy_up", lambda self, writer, **asked: None)


def retry_after_a_failed_flush(patch: pytest.MonkeyPatch) -> None:
    """G12, F05: the writer goes on as if the disk were known."""
    patch.setattr(SqliteStore, "_require_writable", lambda self: None)


def empty_file_taken_for_a_new_log(patch: pytest.MonkeyPatch) -> None:
    """F04: history restarts at 0."""
    real = SqliteStore.__init__

    def init(self: SqliteStore, path: Path, **more: Any) -> None:
        if path.exists() and path.stat().st_size == 0:
            path.unlink()
        real(self, path, **more)

    patch.setattr(SqliteStore, "__init__", init)


def damage_written_over(patch: pytest.MonkeyPatch) -> None:
    """G10, F60: a log that was cut off is appended to."""
    patch.setattr(check, "state_problems", lambda fetch: iter(()))


def commitments_not_checked(patch: pytest.MonkeyPatch) -> None:
    """F61: bytes changed, and the proof still passes."""
    patch.setattr(audit, "content_problems", lambda place, event, **more: iter(()))
    patch.setattr(stored_groups, "group_changed", lambda facts, linked: None)


def head_taken_after_the_purges(patch: pytest.MonkeyPatch) -> None:
    """G8, F31: a purge that commits between the two looks is never told to the reader."""

    def page_after(store: Any, cursor: Cursor, query: Any = None, *, limit: int = 500, **more: Any) -> Any:
        purged = resets.newest_purge(store, EVERYTHING)
        head = store.head()
        reset = resets.find_reset(store, cursor, head, purged)
        if reset is not None:
            return Page((), reset.cursor, head, reset)
        events = tuple(store.read(after=cursor.position, upto=head, limit=limit))
        return Page(events, Cursor(head, START, store.identity.epoch), head)

    patch.setattr(pages, "page_after", page_after)


def told_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """G7: the answer comes before the write has ended."""

    def submit(self: Committer, item: Item) -> Any:
        manager = self._store.open_write()
        result = item.do(manager.__enter__())
        _Unfinished.managers.append(manager)
        return result

    patch.setattr(Committer, "commit", submit)


class _Unfinished:
    managers: ClassVar[list[Any]] = []


def key_claimed_apart_from_the_append(patch: pytest.MonkeyPatch) -> None:
    """F82: the key's record is lost, and a retry appends a second event."""
    patch.setattr(OpenWrite, "claim", lambda self, claims: None)


def purged_places_not_copied(patch: pytest.MonkeyPatch) -> None:
    """G3: a copy without what is left of purged events."""
    real = insert.Inserter.insert

    def insert_without(self: insert.Inserter, writer: Any, staged: OpenWrite, **rest: Any) -> Any:
        staged.placed_purged = []
        return real(self, writer, staged, **rest)

    patch.setattr(insert.Inserter, "insert", insert_without)


def copied_events_arrive_anew(patch: pytest.MonkeyPatch) -> None:
    """A copy whose events have the time of the copy."""
    real = OpenWrite.copy_in

    def copy_now(self: OpenWrite, places: Sequence[Packed | Purged | Purge], decoded: object = None) -> None:
        moved = {"received_us": self.now_us}
        real(self, [msgspec.structs.replace(each, **moved) if isinstance(each, Packed) else each for each in places])

    patch.setattr(OpenWrite, "copy_in", copy_now)


def copy_not_compared(patch: pytest.MonkeyPatch) -> None:
    """A copy gets its name without a look at it."""
    patch.setattr(copy, "compare_with", lambda *arguments: None)


def import_not_rehearsed(patch: pytest.MonkeyPatch) -> None:
    """The good lines of a file are imported, and its bad ones told afterwards."""
    patch.setattr(importing, "_rehearse", lambda *arguments, **rest: 0)


# ---- the checks


def a_copy_that_differs_gets_no_name(folder: Path) -> None:
    class Forgetful(SqliteStore):
        def slots(self, *, after: Position = START) -> Iterator[Any]:
            for place in super().slots(after=after):
                yield msgspec.structs.replace(place, sequence=7) if place.position == 2 else place

    with contextlib.closing(_log(folder, "one", "two", "three")) as log:
        draft = folder / "copy.db.copying"
        target = copy.Target(
            name="copy.db",
            draft=str(draft),
            open=lambda identity: Forgetful(draft, identity=identity),
            swap=lambda: (folder / "copy.db").touch(),
        )
        with contextlib.suppress(EverlogError):
            copy.copy_log(log._store, target)
    assert not (folder / "copy.db").exists()


def a_file_is_imported_whole_or_not_at_all(folder: Path) -> None:
    event = (
        '{"event_id":"%s","event_type":"x.y","lamport_clock":1,"entity_id":"1","timestamp":"2026-01-27T10:30:00Z"}'
    )
    text = "".join(event % f"01HN3R5K8D12345678900{number:05}" + "\n" for number in range(600))
    data = (text + "<<<<<<< HEAD\n").encode()
    source = import_pass.Source("file", len(data), lambda size, at: data[at : at + size])
    with contextlib.closing(_log(folder)) as log:
        with contextlib.suppress(EverlogError):
            importing.import_files(log, [source])
        assert log.head() == 0


def a_purge_leaves_no_bytes(folder: Path) -> None:
    store = SqliteStore(folder / "log.db")
    append(store, seal_any(stream="note/1", payload={"text": "sentinel-to-be-purged"}))
    with store.open_write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")
    left = [file.name for file in folder.iterdir() if b"sentinel-to-be-purged" in file.read_bytes()]
    store.close()
    assert left == []


def a_failed_flush_stops_the_writer(folder: Path) -> None:
    store = SqliteStore(folder / "log.db")
    store._failed = WriterStopped("a flush failed")
    with pytest.raises(WriterStopped):
        append(store, seal_any())
    store.close()


def an_empty_file_is_refused(folder: Path) -> None:
    (folder / "log.db").touch()
    with pytest.raises(Exception, match="not an everlog log"):
        SqliteStore(folder / "log.db").close()


def a_cut_log_takes_no_writes(folder: Path) -> None:
    _log(folder, "one", "two").close()
    edit(folder / "log.db", "DELETE FROM events WHERE position = 2")
    with pytest.raises(Exception, match="damaged"):
        _log(folder, "three").close()


def a_changed_payload_is_found(folder: Path) -> None:
    _log(folder, "one").close()
    edit(folder / "log.db", "UPDATE events SET payload = replace(payload, 'one', 'two')")
    log = _log(folder)
    codes = [problem.code for problem in log.verify().problems]
    log.close()
    assert "group_changed" in codes


def a_purge_during_a_page_is_told(folder: Path) -> None:
    log = _log(folder, "one", "two")
    cursor = log.page_after(1).next_cursor
    real = log._store.purges
    purged = False

    def purges_then_purge(*, after: Position = START) -> Any:
        nonlocal purged
        found = real(after=after)
        if not purged:
            purged = True
            log.purge("note/1", reason="in the middle of a page")
        return found

    log._store.purges = purges_then_purge  # type: ignore[method-assign]
    first = log.page_after(cursor)
    second = log.page_after(first.next_cursor)
    log.close()
    assert first.reset or second.reset


def an_answer_means_that_it_is_there(folder: Path) -> None:
    log = _log(folder)
    recorded = log.append("note.added", stream="note/1", payload={"text": "one"})
    with sqlite3.connect(folder / "log.db") as other:
        found = other.execute("SELECT count(*) FROM events WHERE position = ?", (recorded.position,)).fetchone()
    other.close()
    while _Unfinished.managers:
        _Unfinished.managers.pop().__exit__(None, None, None)
    assert found == (1,)


def a_retry_appends_nothing(folder: Path) -> None:
    log = _log(folder)
    for _ in range(2):
        log.append("note.added", stream="note/1", payload={"text": "one"}, key="k")
    head = log.head()
    log.close()
    assert head == 1


def _log(folder: Path, *texts: str) -> Log:
    log = Log(SqliteStore(folder / "log.db"), BUILT_IN)
    for text in texts:
        try:
            log.append("note.added", stream="note/1", payload={"text": text})
        except BaseException:
            log.close()
            raise
    return log


PLANTED: list[tuple[Plant, Check]] = [
    (batch_not_atomic, contract("test_a_failed_write_leaves_nothing")),
    (attempt_not_undone, contract("test_a_failed_attempt_is_undone_alone")),
    (ids_not_looked_for, contract("test_appending_an_id_twice_records_it_once")),
    (other_content_taken_for_a_retry, contract("test_the_same_id_with_other_content_is_refused")),
    (purged_events_come_back, contract("test_a_purged_event_cannot_come_back")),
    (reserved_position_given_away, contract("test_a_purge_reserves_a_position_that_no_event_gets")),
    (sequence_starts_again_after_a_purge, contract("test_a_purged_stream_goes_on_after_its_last_sequence")),
    (other_writers_not_noticed, contract("test_two_open_stores_of_one_log_see_each_other")),
    (marks_not_written, contract("test_filtering_keeps_positions_and_order")),
    (notes_outside_the_transaction, contract("test_notes_commit_with_the_events_of_their_write")),
    (purge_leaves_bytes_in_the_journal, a_purge_leaves_no_bytes),
    (retry_after_a_failed_flush, a_failed_flush_stops_the_writer),
    (empty_file_taken_for_a_new_log, an_empty_file_is_refused),
    (damage_written_over, a_cut_log_takes_no_writes),
    (commitments_not_checked, a_changed_payload_is_found),
    (head_taken_after_the_purges, a_purge_during_a_page_is_told),
    (told_before_the_commit, an_answer_means_that_it_is_there),
    (key_claimed_apart_from_the_append, a_retry_appends_nothing),
    (purged_places_not_copied, contract("test_slots_of_another_log_are_kept_as_they_stand")),
    (copied_events_arrive_anew, contract("test_slots_of_another_log_are_kept_as_they_stand")),
    (copy_not_compared, a_copy_that_differs_gets_no_name),
    (import_not_rehearsed, a_file_is_imported_whole_or_not_at_all),
]


@pytest.mark.parametrize(("plant", "check"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_a_planted_bug_is_caught(plant: Plant, check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "right").mkdir()
    check(tmp_path / "right")  # the right program passes
    (tmp_path / "wrong").mkdir()
    plant(monkeypatch)
    # A failed assertion, an expected refusal that did not come, or a refusal by the layer below.
    with pytest.raises((AssertionError, pytest.fail.Exception, EverlogError)):
        check(tmp_path / "wrong")
