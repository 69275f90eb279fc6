"""Many callers at once: what they share must never become what they mix up."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import everlog
from everlog import aio
from everlog.catalog.builtin import BUILT_IN
from everlog.catalog.catalog import Catalog
from everlog.core.event import Position, Recorded
from everlog.core.query import Query, Reset
from everlog.errors import InvalidField, LogClosed, RejectedEvent
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.log.write.expect import NoMatch
from everlog.stores.sqlite.store import SqliteStore


def note(text: str, stream: str = "note/1", **fields: Any) -> Draft:
    return Draft(type="note.added", stream=stream, payload={"text": text}, **fields)


@pytest.fixture
def sqlite_log(tmp_path: Path) -> Any:
    log = Log(SqliteStore(tmp_path / "log.db"), BUILT_IN)
    yield log
    log.close()


@pytest.mark.parametrize("fields", [{"tags": None}, {"tags": []}, {"request_id": None}, {"scope": None}])
def test_what_is_no_text_is_refused_and_never_recorded_unreadable(sqlite_log: Log, fields: dict[str, Any]) -> None:
    """Whatever is acknowledged can be read."""
    with pytest.raises(RejectedEvent):
        sqlite_log.append_batch([note("a", **fields)])
    assert list(sqlite_log.read()) == []


def test_a_key_of_none_is_no_key(sqlite_log: Log) -> None:
    key: Any = None
    sqlite_log.append("note.added", stream="note/1", payload={"text": "a"}, key=key)
    assert [recorded.event.idempotency_key for recorded in sqlite_log.read()] == [""]
    with pytest.raises(InvalidField):
        sqlite_log.append("note.added", stream="note/1", payload={"text": "a"}, key=7)  # type: ignore[arg-type]


def test_what_is_no_draft_is_said(sqlite_log: Log) -> None:
    wrong: Any = [{"type": "note.added", "stream": "note/1"}]
    with pytest.raises(InvalidField, match="not a draft"):
        sqlite_log.append_batch(wrong)
    with pytest.raises(InvalidField, match="type"):
        sqlite_log.append(wrong, stream="note/1")


def test_changing_the_list_after_asking_mixes_nobody_up(sqlite_log: Log) -> None:
    """One request's events are never recorded as another's."""

    async def main() -> tuple[Any, Any]:
        first, second = [note("a1"), note("a2")], [note("b1", "note/2")]
        asked = [
            asyncio.create_task(aio.append_batch(sqlite_log, first, key="A")),
            asyncio.create_task(aio.append_batch(sqlite_log, second, key="B")),
        ]
        await asyncio.sleep(0)
        first.clear()
        second.append(note("late", "note/2"))
        return await asked[0], await asked[1]

    one, other = asyncio.run(main())
    assert [recorded.event.payload["text"] for recorded in one] == ["a1", "a2"]
    assert [recorded.event.payload["text"] for recorded in other] == ["b1"]


def test_the_same_key_twice_in_one_group_makes_one_event(sqlite_log: Log) -> None:
    """F82: also when both are carried out in the same walk."""

    async def main() -> list[Any]:
        asked = [
            aio.append(sqlite_log, "note.added", stream="note/1", payload={"text": "x"}, key="k") for _ in range(8)
        ]
        others = [aio.append(sqlite_log, "note.added", stream="note/2", payload={"text": str(n)}) for n in range(8)]
        return (await asyncio.gather(*asked, *others))[:8]

    records = asyncio.run(main())
    assert len({recorded.event.id for recorded in records}) == 1
    assert len(list(sqlite_log.read(stream="note/1"))) == 1
    assert sqlite_log.head() == 9


def test_a_key_is_known_also_when_the_log_keeps_all_keys_in_memory(sqlite_log: Log) -> None:
    """After a while of writing alone the store does not ask the database for new keys; old ones must be found."""
    made = [
        sqlite_log.append("note.added", stream="note/1", payload={"text": str(n)}, key=f"k{n}") for n in range(100)
    ]
    for number in (0, 40, 99):
        again = sqlite_log.append("note.added", stream="note/1", payload={"text": str(number)}, key=f"k{number}")
        assert again == made[number]
    assert sqlite_log.head() == 100


def test_keys_of_another_process_are_not_overlooked(tmp_path: Path) -> None:
    one, other = (Log(SqliteStore(tmp_path / "log.db"), BUILT_IN) for _ in range(2))
    for number in range(60):
        one.append("note.added", stream="note/1", payload={"text": "x"}, key=f"one {number}")
    theirs = other.append("note.added", stream="note/1", payload={"text": "x"}, key="shared")
    assert one.append("note.added", stream="note/1", payload={"text": "x"}, key="shared") == theirs
    one.close()
    other.close()


def test_a_later_append_does_not_overtake_an_earlier_one_of_its_group(sqlite_log: Log) -> None:
    async def main() -> None:
        await asyncio.gather(
            aio.commit(sqlite_log, [note("first", expect=0)]),
            aio.commit(sqlite_log, [note("second")]),
            aio.commit(sqlite_log, [note("third", expect=2)]),
            aio.commit(sqlite_log, [note("fourth")]),
        )

    asyncio.run(main())
    texts = [recorded.event.payload["text"] for recorded in sqlite_log.read()]
    assert texts == ["first", "second", "third", "fourth"]


def test_a_slow_payload_model_holds_nobody_else_up(tmp_path: Path) -> None:
    catalog = Catalog()
    catalog.include(BUILT_IN)
    entered, leave = threading.Event(), threading.Event()

    @catalog.event("slow.said")
    class Slow(msgspec.Struct):
        text: str

        def __post_init__(self) -> None:
            entered.set()
            leave.wait(5)

    with Log(SqliteStore(tmp_path / "log.db"), catalog) as log:
        slow = threading.Thread(target=lambda: log.append("slow.said", stream="note/1", payload={"text": "a"}))
        slow.start()
        assert entered.wait(5)
        log.append("note.added", stream="note/2", payload={"text": "b"})
        leave.set()
        slow.join()
        assert log.head() == 2


def test_who_is_told_of_a_commit_may_append_in_turn(sqlite_log: Log) -> None:
    """Also when the commit was a group's: whoever tells does not lead any more."""
    answers: list[int] = []

    def answer() -> None:
        if len(answers) < 3:
            answers.append(0)
            answers[-1] = sqlite_log.append("note.added", stream="note/9", payload={"text": "answer"}).position

    sqlite_log.writer.waiters.watch(answer)

    async def main() -> None:
        asked = [aio.append(sqlite_log, "note.added", stream="note/1", payload={"text": "x"}) for _ in range(5)]
        await asyncio.wait_for(asyncio.gather(*asked), 10)

    asyncio.run(main())
    deadline = time.monotonic() + 5
    while len(list(sqlite_log.read(stream="note/9"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(list(sqlite_log.read(stream="note/9"))) == 3


def test_a_log_that_was_open_at_a_fork_is_refused_in_the_child(sqlite_log: Log, tmp_path: Path) -> None:
    """A child that wrote through its parent's connection, or through one that SQLite takes for locked, would
    acknowledge what nobody will find."""

    def refused() -> bool:
        with pytest.raises(LogClosed):
            sqlite_log.append("note.added", stream="note/1", payload={"text": "child"})
        with pytest.raises(LogClosed, match="cannot be opened in this process"):
            everlog.open(f"sqlite:{tmp_path}/log.db")
        return True

    sqlite_log.append("note.added", stream="note/1", payload={"text": "parent"})
    assert in_forked_child(refused)
    sqlite_log.append("note.added", stream="note/1", payload={"text": "parent again"})
    texts = [recorded.event.payload["text"] for recorded in sqlite_log.read()]
    assert texts == ["parent", "parent again"]
    assert sqlite_log.verify().problems == ()


def test_a_log_that_was_closed_before_a_fork_is_opened_in_the_child(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/closed.db"
    with everlog.open(url) as log:
        log.append("note.added", stream="note/1", payload={"text": "parent"})

    def appended() -> bool:
        with everlog.open(url) as own:
            for number in range(20):
                own.append("note.added", stream="note/1", payload={"text": str(number)})
        return True

    assert in_forked_child(appended)
    with everlog.open(url) as log:
        assert log.head() == 21
        assert log.verify().problems == ()


def in_forked_child(work: Callable[[], bool]) -> bool:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 0


def test_verify_finds_nothing_wrong_with_a_log_that_is_being_written(sqlite_log: Log) -> None:
    done = threading.Event()

    def write() -> None:
        number = 0
        while not done.is_set():
            number += 1
            sqlite_log.append("note.added", stream=f"note/{number % 3}", payload={"text": str(number)})
            if number % 40 == 0:
                sqlite_log.purge("note/1", reason="now and then")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        reports = [sqlite_log.verify() for _ in range(10)]
    finally:
        done.set()
        writer.join()
    assert [problem for report in reports for problem in report.problems] == []


@pytest.mark.parametrize(("after", "left"), [(1, 0), (99, 1)])  # a restored log is read again from its start
def test_reading_to_the_end_ends_also_after_a_reset(
    make_log: Callable[..., Log], kind: str, after: int, left: int
) -> None:
    with make_log(kind) as log:
        for stream in ("thing/1", "thing/2"):
            log.append("thing.said", stream=stream)
        log.purge("thing/1", reason="asked to")
        items = list(log.subscribe(after, to_end=True))
        assert [type(item) for item in items] == [Reset] + [Recorded] * left

        async def follow() -> list[Any]:
            return [item async for item in aio.subscribe(log, after, to_end=True)]

        assert len(asyncio.run(asyncio.wait_for(follow(), 5))) == 1 + left


def test_a_decision_cannot_be_based_on_what_is_not_there_yet(sqlite_log: Log) -> None:
    """G4, F28."""
    with pytest.raises(InvalidField):
        sqlite_log.append(
            "note.added", stream="note/1", payload={"text": "a"}, expect=NoMatch(Query(kind="note"), Position(10**9))
        )


def test_a_purge_takes_what_was_kept_beside_the_events_with_it(tmp_path: Path) -> None:
    """F63: stored responses, and refusals about the stream."""
    log = Log(SqliteStore(tmp_path / "log.db"), BUILT_IN)
    log.writer.commit([note("x")], key="k", response={"said": "sentinel-in-a-response"})
    with pytest.raises(RejectedEvent):
        log.append("note.added", stream="note/1", payload={"text": "x"}, correlation_id="sentinel\nin a refusal")
    assert log.refusals(stream="note/1")
    log.purge("note/1", reason="asked to")
    assert log.refusals(stream="note/1") == []
    log.close()
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"sentinel-in-a-response" not in kept
    assert b"in a refusal" not in kept


@pytest.mark.parametrize("where", ["stream", "key", "reason"])
def test_a_secret_does_not_get_in_by_a_name(sqlite_log: Log, where: str) -> None:
    token = "ghp_" + "a1B2" * 9
    with pytest.raises(RejectedEvent):
        if where == "stream":
            sqlite_log.append("note.added", stream=f"note/{token}", payload={"text": "a"})
        elif where == "key":
            sqlite_log.append("note.added", stream="note/1", payload={"text": "a"}, key=token)
        else:
            sqlite_log.append("note.added", stream="note/1", payload={"text": "a"})
            sqlite_log.purge("note/1", reason=f"it held {token}")
