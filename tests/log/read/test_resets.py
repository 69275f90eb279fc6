"""A backup that was put back by hand: no reader skips an event, whatever kind of reader it is (G8, F30)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from everlog.consumers.group import Group
from everlog.consumers.group_state import read_progress
from everlog.core.event import Position, Recorded
from everlog.core.query import POSITION_MAX, Cursor, Query, Reset, proof_of
from everlog.log.log import Log
from everlog.log.read.resets import proof_at
from everlog.log.write.draft import Draft
from everlog.stores.contract import ReadsPieces
from everlog.views.builtin import Streams

MakeLog = Callable[..., Log]


@pytest.fixture(params=["sqlite", "jsonl", "segments"])
def kept(request: pytest.FixtureRequest) -> str:
    """Each kind of store that a person can copy with `cp -r`."""
    return str(request.param)


class Restored:
    """A log that was copied when it had three events, grew to eight, was put back, and grew past the old head."""

    def __init__(self, make_log: MakeLog, kind: str, folder: Path) -> None:
        self._make, self._kind, self._folder = make_log, kind, folder
        folder.mkdir()
        self.log = self.open()
        self.say("a", 3)

    def open(self) -> Log:
        return self._make(self._kind, self._folder / "log.db" if self._kind == "sqlite" else self._folder / "log")

    def say(self, text: str, count: int) -> None:
        for number in range(count):
            self.log.append("thing.said", stream=f"thing/{number % 3}", payload={"value": f"{text}{number}"})

    def back_up(self) -> None:
        self.log.close()
        shutil.copytree(self._folder, self._folder.with_name("backup"))
        self.log = self.open()

    def put_back(self) -> None:
        self.log.close()
        shutil.rmtree(self._folder)
        shutil.copytree(self._folder.with_name("backup"), self._folder)
        self.log = self.open()


@pytest.fixture
def restored(make_log: MakeLog, kept: str, tmp_path: Path) -> Iterator[Restored]:
    made = Restored(make_log, kept, tmp_path / "here")
    yield made
    made.log.close()


def values(log: Log) -> list[str]:
    return [recorded.event.payload["value"] for recorded in log.read()]


def test_a_cursor_of_the_lost_history_is_reset_to_the_start(restored: Restored) -> None:
    restored.back_up()
    restored.say("lost", 5)
    cursor = restored.log.page_after().next_cursor
    restored.put_back()
    restored.say("new", 9)  # past the cursor: neither the epoch nor the head shows it

    page = restored.log.page_after(str(cursor))

    assert page.reset == Reset(Cursor(epoch=restored.log.identity.epoch), "restored")
    assert page.events == ()
    again = restored.log.page_after(page.next_cursor)
    assert [recorded.event.payload["value"] for recorded in again.events] == values(restored.log)


def test_a_cursor_of_the_history_that_both_share_goes_on(restored: Restored) -> None:
    restored.back_up()
    cursor = restored.log.page_after(0, limit=2).next_cursor
    restored.say("lost", 5)
    restored.put_back()
    restored.say("new", 9)

    page = restored.log.page_after(cursor)

    assert page.reset is None
    assert [recorded.position for recorded in page.events] == list(range(3, 13))


def test_a_reader_that_kept_earlier_cursors_goes_back_to_the_last_that_is_shared(restored: Restored) -> None:
    first = restored.log.page_after(0, limit=1).next_cursor
    second = restored.log.page_after(0, limit=2).next_cursor
    restored.back_up()
    restored.say("lost", 5)
    lost, last = restored.log.page_after(0, limit=5).next_cursor, restored.log.page_after().next_cursor
    restored.put_back()
    restored.say("new", 9)

    page = restored.log.page_after(last, earlier=[str(first), lost, second])

    assert page.reset == Reset(second, "restored")


def test_a_cursor_without_a_proof_is_accepted_and_gets_one(restored: Restored) -> None:
    page = restored.log.page_after(f"1@{restored.log.identity.epoch}", limit=1)

    assert page.reset is None
    assert page.next_cursor.proof == proof_of(page.events[0].event.id)
    assert str(page.next_cursor).endswith("." + page.next_cursor.proof)
    assert Cursor.of(str(page.next_cursor)) == page.next_cursor


def test_a_purge_of_the_event_at_the_cursor_is_a_purge_and_not_a_restore(restored: Restored) -> None:
    cursor = restored.log.page_after(0, limit=2).next_cursor
    restored.log.purge("thing/1", reason="test")  # the event at position 2

    page = restored.log.page_after(cursor)

    assert page.reset is not None
    assert (page.reset.reason, page.reset.cursor.position) == ("purged", 4)
    assert page.reset.cursor.proof  # of the position of the purge itself
    assert restored.log.page_after(page.next_cursor).reset is None


def test_a_cursor_at_a_purge_proves_itself(restored: Restored) -> None:
    restored.back_up()
    restored.log.purge("thing/1", reason="lost")
    cursor = restored.log.page_after().next_cursor
    assert cursor.position == 4
    restored.put_back()
    restored.say("new", 5)

    page = restored.log.page_after(cursor)

    assert page.reset is not None
    assert page.reset.reason == "restored"


def test_a_filter_does_not_weaken_the_proof(restored: Restored) -> None:
    """The position of a cursor may hold an event that the query does not match."""
    rare = Query(stream="thing/9")
    restored.back_up()
    restored.say("lost", 5)
    cursor = restored.log.page_after(0, rare).next_cursor
    assert (cursor.position, bool(cursor.proof)) == (8, True)
    restored.put_back()
    restored.say("new", 9)

    page = restored.log.page_after(cursor, rare)

    assert page.reset is not None
    assert page.reset.reason == "restored"


def test_a_caller_that_only_looks_is_never_reset(restored: Restored) -> None:
    restored.log.purge("thing/1", reason="test")
    restored.say("more", 2)

    page = restored.log.page_after(1, looking=True)

    assert page.reset is None
    assert [recorded.position for recorded in page.events] == [3, 5, 6]
    assert restored.log.page_after("99@elsewhere", looking=True).reset is None
    assert restored.log.page_after(1).reset is not None  # a reader with state is


def test_a_subscriber_starts_again_after_a_restore(restored: Restored) -> None:
    restored.back_up()
    restored.say("lost", 5)
    cursor = restored.log.page_after().next_cursor
    restored.put_back()
    restored.say("new", 9)

    items = list(restored.log.subscribe(cursor, to_end=True))

    assert isinstance(items[0], Reset)
    seen = [item.event.payload["value"] for item in items[1:] if isinstance(item, Recorded)]
    assert seen == values(restored.log)


def test_a_view_beside_the_log_is_rebuilt_after_a_restore(restored: Restored, kept: str, tmp_path: Path) -> None:
    restored.back_up()
    restored.say("lost", 5)
    restored.log.view(Streams()).get("thing/1")
    left = list((tmp_path / "here").rglob("views.db*"))
    for path in left:  # what is derived is not in everyone's backup
        shutil.copy(path, tmp_path / path.name)
    restored.put_back()
    for path in left:
        shutil.copy(tmp_path / path.name, path)
    restored.say("new", 9)

    view = restored.log.view(Streams())

    assert view.get("thing/1").state == view.get("thing/1", as_of=restored.log.head()).state
    counted = sum(view.get(f"thing/{number}").state["events"] for number in range(3))
    assert counted == len(values(restored.log))


def test_the_cursors_of_consumers_have_proofs(restored: Restored) -> None:
    with Group(restored.log, "g", partitions=1).member("one") as member:
        for _ in range(3):
            delivery = member.take()
            assert delivery is not None
            delivery.ack()

    progress = read_progress(restored.log.writer.small_state, "g", 0)
    assert progress is not None
    cursor = Cursor.of(progress.cursor)
    assert cursor.proof == proof_at(restored.log.stored, Position(3))


@pytest.mark.parametrize("kind", ["memory", "sqlite", "jsonl", "segments"])
def test_the_proof_of_a_position_stays_when_its_event_is_purged(
    make_log: Callable[..., Log], tmp_path: Path, kind: str
) -> None:
    """Else a cursor at it would be taken without a proof, also after a restore."""
    with make_log(kind, tmp_path / "log") as log:
        for number in range(4):
            log.append("thing.said", stream=f"thing/{number % 2}")
        before = [proof_at(log.stored, Position(position)) for position in range(5)]
        log.purge("thing/1", reason="test")
        assert [proof_at(log.stored, Position(position)) for position in range(5)] == before
        assert len(set(before)) == 5
        assert proof_at(log.stored, log.head()) not in ("", *before)
        assert proof_at(log.stored, Position(log.head() + 1)) == ""


def batch_of(text: str, count: int) -> list[Draft]:
    return [
        Draft("thing.said", stream=f"thing/{number % 3}", payload={"value": f"{text}{number}"})
        for number in range(count)
    ]


@pytest.mark.parametrize("limit", [1, 50, POSITION_MAX])
def test_a_cursor_anywhere_in_a_batch_is_checked(restored: Restored, limit: int) -> None:
    restored.back_up()
    shared = restored.log.page_after(0, limit=2).next_cursor
    restored.log.append_batch(batch_of("lost", 300))  # positions 4 to 303, in groups of at most 128
    lost = [restored.log.page_after(0, limit=end).next_cursor for end in (4, 60, 130, 131, 132, 259, 303)]
    going_on = [restored.log.page_after(cursor, limit=limit) for cursor in lost]
    restored.put_back()
    restored.log.append_batch(batch_of("new", 400))

    assert [(page.reset, len(page.events)) for page in going_on] == [
        (None, min(limit, 303 - cursor.position)) for cursor in lost
    ]
    for cursor in lost:
        assert restored.log.page_after(cursor, limit=limit).reset == Reset(
            Cursor(epoch=restored.log.identity.epoch), "restored"
        )
    assert restored.log.page_after(shared, limit=1).reset is None


@pytest.mark.parametrize("position", [3, 60, 131])  # the end of a group, the middle of one, and the end of it
def test_the_check_of_a_cursor_reads_nothing_but_the_page(
    restored: Restored, position: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    restored.log.append_batch(batch_of("b", 300))
    cursor = restored.log.page_after(0, limit=position).next_cursor
    store = restored.log._store
    reads: list[dict[str, Any]] = []
    name = "read_pieces" if isinstance(store, ReadsPieces) else "read"
    real = getattr(store, name)

    def counted(*given: Any, **named: Any) -> Any:
        reads.append(named)
        return real(*given, **named)

    monkeypatch.setattr(store, name, counted)

    page = restored.log.page_after(cursor, limit=100)

    assert [recorded.position for recorded in page.events] == list(range(position + 1, position + 101))
    assert len(reads) == 1
