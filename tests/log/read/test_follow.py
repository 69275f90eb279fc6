"""Following a log: no seam, nothing lost, nothing twice (G7, F26)."""

from __future__ import annotations

import logging
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from everlog.core.event import START, Recorded
from everlog.core.query import EVERYTHING, Cursor, Page, Query, Reset
from everlog.errors import LogClosed
from everlog.log.log import Log
from everlog.log.read.follow import Waiters, follow
from everlog.log.write.draft import Draft

PATIENCE_S = 20


class Follower:
    """Follows in a thread of its own and keeps what it heard."""

    def __init__(self, items: Iterator[Recorded | Reset]) -> None:
        self.heard: queue.Queue[Recorded | Reset] = queue.Queue()
        self.error: BaseException | None = None
        self._items = items
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            for item in self._items:
                self.heard.put(item)
        except BaseException as error:
            self.error = error

    def next(self) -> Recorded | Reset:
        return self.heard.get(timeout=PATIENCE_S)

    def ended(self) -> bool:
        self.thread.join(PATIENCE_S)
        assert self.error is None
        return not self.thread.is_alive()


def append(log: Log, stream: str = "thing/1", **fields: Any) -> Recorded:
    return log.append("thing.said", stream=stream, **fields)


def test_history_and_news_are_one_stream_without_a_seam(kind: str, make_log: Callable[..., Log]) -> None:
    """G7, F26: four threads append while several readers catch up and go live."""
    with make_log(kind) as log:
        for _ in range(50):
            append(log)
        followers = [Follower(log.subscribe(after)) for after in (0, 0, 25, 50)]
        writers = [threading.Thread(target=lambda: [append(log, f"thing/{n}") for n in range(50)]) for _ in range(4)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        for follower, after in zip(followers, (0, 0, 25, 50), strict=True):
            heard = [follower.next() for _ in range(250 - after)]
            positions = [item.position for item in heard if isinstance(item, Recorded)]
            assert positions == list(range(after + 1, 251))
    for follower in followers:
        assert follower.ended()
        assert follower.heard.empty()


def test_an_event_is_heard_only_after_its_commit(
    make_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    """G7."""
    log = make_log("memory")
    follower = Follower(log.subscribe())
    heard_before_commit: list[bool] = []
    persist = log._store._persist  # type: ignore[attr-defined]

    def slow(staged: Any) -> None:
        time.sleep(0.1)
        heard_before_commit.append(not follower.heard.empty())
        persist(staged)

    monkeypatch.setattr(log._store, "_persist", slow)
    returned = append(log)
    assert heard_before_commit == [False]
    assert follower.next() == returned
    log.close()
    assert follower.ended()


def test_a_query_is_followed_past_all_that_does_not_match(log: Log) -> None:
    follower = Follower(log.subscribe(0, Query(stream="thing/rare")))
    for _ in range(20):
        append(log)
    wanted = append(log, "thing/rare")
    assert follower.next() == wanted
    log.close()
    assert follower.ended()


def test_a_purge_reaches_a_live_follower_as_one_reset(log: Log) -> None:
    """G8."""
    append(log)
    append(log, "thing/2")
    follower = Follower(log.subscribe())
    follower.next()
    follower.next()
    reserved = log.purge("thing/1", reason="test").reserved
    item = follower.next()
    assert isinstance(item, Reset)
    assert item.cursor.position == reserved
    after = append(log, "thing/2")
    assert follower.next() == after
    log.close()
    assert follower.ended()


def test_to_end_stops_at_the_head(log: Log) -> None:
    records = [append(log) for _ in range(3)]
    assert list(log.subscribe(to_end=True)) == records
    assert list(log.subscribe(1, to_end=True)) == records[1:]
    log.purge("thing/1", reason="test")
    append(log)
    reset, last = log.subscribe(1, to_end=True)
    assert isinstance(reset, Reset)
    assert isinstance(last, Recorded)
    assert last.position == 5


def test_stop_ends_a_follower_that_waits(log: Log) -> None:
    stopped = threading.Event()
    follower = Follower(log.subscribe(stop=stopped.is_set))
    append(log)
    follower.next()
    stopped.set()
    assert follower.ended()


def test_closing_ends_all_followers_wherever_they_are(kind: str, make_log: Callable[..., Log]) -> None:
    for _ in range(10):
        log = make_log(kind)
        for _ in range(3):
            append(log)
        followers = [Follower(log.subscribe()) for _ in range(5)]
        log.close()
        assert all(follower.ended() for follower in followers)


def test_a_follower_in_the_middle_of_a_page_is_let_go_by_closing(log: Log) -> None:
    append(log)
    items = log.subscribe()
    next(items)
    log.close()
    assert list(items) == []


@pytest.mark.parametrize("kind", ["memory", "sqlite", "jsonl", "segments"])
def test_to_end_does_not_take_a_part_for_all_when_the_log_is_closed(kind: str, make_log: Callable[..., Log]) -> None:
    log = make_log(kind)
    log.append_batch([Draft(type="thing.said", stream="thing/1")] * 502)
    within, beyond = log.subscribe(to_end=True), log.subscribe(500, to_end=True)
    next(within), next(beyond)
    log.close()
    assert [item.position for item in beyond if isinstance(item, Recorded)] == [502]  # its page reached the end
    with pytest.raises(LogClosed, match="read up to position 500") as closed:
        list(within)
    assert closed.value.details["after"] == 500


def test_nobody_begins_to_follow_a_closed_log(log: Log) -> None:
    log.close()
    with pytest.raises(LogClosed):
        next(log.subscribe())


def test_a_log_that_closed_under_us_by_mistake_is_an_error(log: Log) -> None:
    """Only closing the log lets followers go; a store that went away under it is trouble and is told."""
    append(log)
    items = log.subscribe()
    next(items)
    log._store.close()
    with pytest.raises(LogClosed):
        next(items)


def test_appends_of_another_process_are_noticed(make_log: Callable[..., Log], tmp_path: Path) -> None:
    with make_log("sqlite", tmp_path / "log.db") as here, make_log("sqlite", tmp_path / "log.db") as there:
        follower = Follower(here.subscribe())
        for _ in range(3):
            sent = append(there)
            assert follower.next() == sent
        reserved = there.purge("thing/1", reason="test").reserved
        item = follower.next()
        assert isinstance(item, Reset)
        assert item.cursor.position == reserved
    assert follower.ended()


def test_a_slow_reader_pulls_pages_and_nothing_is_kept_for_it(log: Log) -> None:
    """F81: what it has not asked for is in the log and nowhere else."""
    asked: list[Cursor] = []

    def read_page(cursor: Cursor, query: Query) -> Page:
        asked.append(cursor)
        return log.page_after(cursor, query, limit=10)

    items = follow(read_page, log.head, log.writer.waiters, Cursor.of(0))
    for _ in range(100):
        append(log)
    next(items)
    assert len(asked) == 1
    for _ in range(9):
        next(items)
    assert len(asked) == 1
    next(items)
    assert [cursor.position for cursor in asked] == [START, 10]


def test_a_reader_that_left_is_forgotten(log: Log) -> None:
    items = log.subscribe()
    append(log)
    next(items)
    items.close()  # type: ignore[attr-defined]
    append(log)


def test_a_commit_during_the_look_is_not_slept_over() -> None:
    """The wake-up is counted before the page is read: a commit in between makes the wait return at once."""
    waiters = Waiters()
    seen = waiters.commits
    waiters.wake()
    begun = time.perf_counter()
    waiters.wait(seen, timeout_s=5)
    assert time.perf_counter() - begun < 1


def test_a_callback_that_fails_does_not_affect_the_commit(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []

    def broken() -> None:
        told.append("broken")
        raise RuntimeError("a follower's own trouble")

    log.writer.waiters.watch(broken)
    log.writer.waiters.watch(lambda: told.append("fine"))
    with caplog.at_level(logging.ERROR, logger="everlog"):
        assert append(log).position == 1
    assert sorted(told) == ["broken", "fine"]
    assert "callback failed" in caplog.text
    log.writer.waiters.unwatch(broken)
    append(log)
    assert told.count("broken") == 1


def test_the_reader_of_everything_hears_what_page_after_gives(log: Log) -> None:
    for number in range(7):
        append(log, f"thing/{number % 2}")
    assert tuple(log.subscribe(to_end=True)) == log.page_after(0, EVERYTHING).events


_WOKEN_BY_A_SIGNAL = """
import signal, time
from everlog.log.read.follow import Waiters

waiters = Waiters()
signal.signal(signal.SIGALRM, lambda number, frame: waiters.wake())
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
end = time.monotonic() + 3
while time.monotonic() < end:
    waiters.wait(waiters.commits, 0.0002)
signal.setitimer(signal.ITIMER_REAL, 0)
print(waiters.commits > 100)
"""


def test_a_signal_may_wake_the_thread_that_it_interrupts() -> None:
    """As when its handler closes the log: the thread that waits holds the lock at that moment."""
    ended = subprocess.run(
        [sys.executable, "-c", _WOKEN_BY_A_SIGNAL], capture_output=True, text=True, timeout=30, check=True
    )
    assert ended.stdout.strip() == "True"


def test_a_follower_at_the_head_sleeps_between_two_looks(log: Log) -> None:
    """Else it would keep a processor busy for as long as nothing happens."""
    log.append("thing.said", stream="thing/1")
    looks: list[float] = []

    class Sleepy(Waiters):
        slept = 0

        def wait(self, seen_commits: int, timeout_s: float) -> None:
            self.slept += 1

    waiters = Sleepy()

    def head() -> Any:
        looks.append(time.monotonic())
        return log.head()

    found = list(
        follow(
            lambda cursor, query: log.page_after(cursor, query), head, waiters, Cursor(), stop=lambda: len(looks) > 4
        )
    )
    assert len(found) == 1
    assert waiters.slept == len(looks) == 5
