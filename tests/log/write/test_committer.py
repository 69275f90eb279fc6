"""Group commit: many callers, one flush, and nobody pays for another's mistake."""

from __future__ import annotations

import errno
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Self

import pytest
from tests.log.write.held_up import PATIENCE_S, HeldUp

import everlog.log.write.committer as module
from everlog.errors import InvalidPayload, LogClosed, StorageFull, Unavailable
from everlog.log.write.committer import GROUP_MAX, Committer, HeldBack
from everlog.log.write.group import Item, Plain
from everlog.log.write.stages import Stages
from everlog.stores.open_write import OpenWrite
from everlog.stores.small_state import read_notes
from everlog.testing.builders import put_note


class Store(HeldUp):
    """Counts its writes, can be held up inside one, and can fail at the commit."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[int] = []
        self.go_on.set()
        self.trouble: BaseException | None = None

    @contextmanager
    def open_write(self) -> Iterator[Any]:
        with super().open_write() as staged:
            yield staged
            self.groups.append(len(staged.staged_notes))
            if self.trouble is not None:
                raise self.trouble


def note(name: str) -> Callable[[OpenWrite], str]:
    def work(writer: OpenWrite) -> str:
        put_note(writer, name, "written")
        return name

    return work


def failing(name: str, error: BaseException) -> Callable[[OpenWrite], str]:
    def work(writer: OpenWrite) -> str:
        put_note(writer, name, "written")
        raise error

    return work


class Callers:
    """Threads that submit one work each, and what they got for it."""

    def __init__(self, committer: Bench) -> None:
        self.committer = committer
        self.results: dict[str, Any] = {}
        self.threads: list[threading.Thread] = []

    def submit(self, name: str, work: Callable[[OpenWrite], Any], *, exclusive: bool = False) -> None:
        def run() -> None:
            try:
                self.results[name] = self.committer.write(work, exclusive=exclusive)
            except BaseException as error:
                self.results[name] = error

        queued = len(self.committer._waiting)
        thread = threading.Thread(target=run, daemon=True)
        self.threads.append(thread)
        thread.start()
        # In order, and all of them in the queue before the next step of the test.
        deadline = time.monotonic() + PATIENCE_S
        while len(self.committer._waiting) <= queued and name not in self.results and not self.committer.is_held_up():
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def join(self) -> None:
        for thread in self.threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


class Bench(Committer):
    def __init__(self, store: Store, **options: Any) -> None:
        super().__init__(store, Stages(), **options)
        self.bench_store = store
        self.took_s: float | None = None  # for a test: how long the last commit took

    def _wait_for_others(self, here: int) -> None:
        if self.took_s is not None:
            self._took_s = self.took_s
        super()._wait_for_others(here)

    def is_held_up(self) -> bool:
        """True for the first caller, which leaves the queue at once and is held up inside the store."""
        return self.busy and not self._waiting and self.bench_store.entered.is_set()


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def committer(store: Store) -> Iterator[Bench]:
    made = Bench(store)
    yield made
    store.go_on.set()
    made.close()


def held_up(store: Store, committer: Bench) -> Callers:
    """A first caller that is inside its write, so that all others gather behind it."""
    callers = Callers(committer)
    store.entered.clear()
    store.go_on.clear()
    callers.submit("first", note("first"))
    assert store.entered.wait(PATIENCE_S)
    return callers


def test_a_lone_caller_commits_at_once_in_its_own_thread(store: Store, committer: Bench) -> None:
    ran_in: list[int] = []
    committer.write(lambda writer: ran_in.append(threading.get_ident()))
    assert ran_in == [threading.get_ident()]
    assert committer._thread is None


def test_those_who_wait_share_one_flush(store: Store, committer: Bench) -> None:
    callers = held_up(store, committer)
    for number in range(10):
        callers.submit(f"n{number}", note(f"n{number}"))
    store.go_on.set()
    callers.join()
    assert store.groups == [1, 10]
    assert callers.results == {"first": "first", **{f"n{number}": f"n{number}" for number in range(10)}}


def test_one_callers_mistake_undoes_nobody_elses_work(store: Store, committer: Bench) -> None:
    callers = held_up(store, committer)
    mistake = ValueError("mine")
    callers.submit("good", note("good"))
    callers.submit("bad", failing("bad", mistake))
    callers.submit("fine", note("fine"))
    store.go_on.set()
    callers.join()
    assert callers.results == {"first": "first", "good": "good", "bad": mistake, "fine": "fine"}
    assert set(read_notes(store.small_state, "")) == {"first", "good", "fine"}


def test_a_failed_commit_is_told_to_everybody_of_the_group_and_leaves_nothing(store: Store, committer: Bench) -> None:
    callers = held_up(store, committer)
    mistake = ValueError("mine")
    callers.submit("a", note("a"))
    callers.submit("bad", failing("bad", mistake))
    callers.submit("b", note("b"))
    store.trouble = StorageFull("the disk is full")
    store.go_on.set()
    callers.join()
    assert callers.results["first"] is store.trouble
    assert callers.results["bad"] is mistake
    assert [str(callers.results[name]) for name in ("a", "b")] == ["the disk is full"] * 2
    assert read_notes(store.small_state, "") == {}
    store.trouble = None
    assert committer.write(note("later")) == "later"


@pytest.mark.parametrize(
    "trouble",
    [
        StorageFull("the disk is full", why="no block is free", hint="make room", free=0),
        InvalidPayload("thing.said", [("$.text", "is missing")]),  # made by what its words do not tell any more
        OSError(errno.EIO, "Input/output error", "log.db"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    ],
    ids=lambda trouble: type(trouble).__name__,
)
def test_everybody_of_a_failed_group_raises_an_error_of_his_own(
    store: Store, committer: Bench, trouble: Exception
) -> None:
    """One object would gather the tracebacks of all their threads."""
    callers = held_up(store, committer)
    for name in "abc":
        callers.submit(name, note(name))
    store.trouble = trouble
    store.go_on.set()
    callers.join()
    told = [callers.results[name] for name in "abc"]
    assert len({id(one) for one in (trouble, *told)}) == 4
    for one in told:
        assert type(one) is type(trouble)
        assert (str(one), one.args, vars(one)) == (str(trouble), trouble.args, vars(trouble))
        assert one.__cause__ is trouble
        frames = [frame.name for frame in traceback.extract_tb(one.__traceback__)]
        assert frames.count("commit") == 1
    store.trouble = None


def test_the_only_one_of_a_group_whose_write_failed_raises_the_error_itself(store: Store, committer: Bench) -> None:
    """The other was refused before the write, and raises his own: a copy would hide the place of the failure."""
    callers = held_up(store, committer)
    mistake = ValueError("mine")
    callers.submit("a", note("a"))
    callers.submit("bad", failing("bad", mistake))
    store.trouble = StorageFull("the disk is full")
    store.go_on.set()
    callers.join()
    assert callers.results["bad"] is mistake
    assert callers.results["a"] is store.trouble
    assert store.trouble.__cause__ is None
    store.trouble = None


class Odd(Exception):
    """One that cannot be made again from what it says."""

    def __new__(cls, *, code: int) -> Self:
        return super().__new__(cls)

    def __init__(self, *, code: int) -> None:
        super().__init__(f"code {code}")


def test_an_error_that_cannot_be_made_again_is_raised_by_all_and_nothing_is_taken_for_done(
    store: Store, committer: Bench
) -> None:
    callers = held_up(store, committer)
    for name in "abc":
        callers.submit(name, note(name))
    store.trouble = Odd(code=7)
    store.go_on.set()
    callers.join()
    assert [callers.results[name] for name in "abc"] == [store.trouble] * 3
    assert read_notes(store.small_state, "") == {}
    store.trouble = None


def test_a_work_of_a_group_that_asks_for_a_write_is_refused_and_holds_nobody_up(
    store: Store, committer: Bench
) -> None:
    callers = held_up(store, committer)
    callers.submit("asks", lambda writer: committer.write(note("inner")))
    callers.submit("b", note("b"))
    store.go_on.set()
    callers.join()
    assert isinstance(callers.results["asks"], RuntimeError)
    assert callers.results["b"] == "b"
    assert set(read_notes(store.small_state, "")) == {"first", "b"}


def test_who_has_passed_the_lead_on_may_come_again_before_it_is_taken(store: Store, committer: Bench) -> None:
    """The next leader has been woken and does not run yet."""
    waiting, again = Plain(note("waiting")), Plain(note("again"))

    def queued(writer: OpenWrite) -> None:
        thread = threading.Thread(target=committer._begin, args=(waiting,))
        thread.start()
        thread.join()

    committer.write(queued)
    assert not committer._begin(again)
    with HeldBack() as held:
        committer._wait(waiting, held)
        committer._lead_once(held)
    assert (waiting.result, again.result) == ("waiting", "again")


class Noting:
    """A stage that notes how each write ended."""

    name = "derive"

    def __init__(self, told: list[str]) -> None:
        self._told = told

    def run(self, write: OpenWrite) -> None:
        self._told.append("took part")

    def committed(self) -> None:
        self._told.append("done")

    def undone(self) -> None:
        self._told.append("undone")


def test_who_takes_part_in_writes_is_told_how_each_of_them_ended(store: Store, committer: Bench) -> None:
    told: list[str] = []
    committer._stages.add(Noting(told))
    committer.write(note("a"))
    with pytest.raises(ValueError, match="mine"):
        committer.write(failing("b", ValueError("mine")))
    assert told == ["took part", "done"]
    callers = held_up(store, committer)
    callers.submit("c", note("c"))
    callers.submit("d", note("d"))
    store.trouble = StorageFull("full")
    store.go_on.set()
    callers.join()
    assert told[2:] == ["took part", "undone"] * 2  # the first caller alone, and the group behind it
    store.trouble = None
    callers = held_up(store, committer)
    callers.submit("e", note("e"))
    callers.submit("f", note("f"))
    store.go_on.set()
    callers.join()
    assert told[6:] == ["took part", "done"] * 2


def test_nobody_is_told_of_a_commit_that_failed(store: Store) -> None:
    woken: list[bool] = []
    committer = Committer(store, Stages(), committed=lambda: woken.append(True))
    store.trouble = StorageFull("full")
    with pytest.raises(StorageFull):
        committer.write(note("a"))
    assert woken == []
    store.trouble = None
    committer.write(note("a"))
    assert woken == [True]


def test_an_interrupt_is_the_leaders_own(store: Store, committer: Bench) -> None:
    """The others of its group are told that the write was interrupted; their threads are not."""
    callers = held_up(store, committer)
    callers.submit("leader", failing("leader", KeyboardInterrupt()))
    callers.submit("follower", note("follower"))
    callers.submit("another", note("another"))
    store.go_on.set()
    callers.join()
    assert isinstance(callers.results["leader"], KeyboardInterrupt)
    for name in ("follower", "another"):
        assert isinstance(callers.results[name], Unavailable)
        assert "KeyboardInterrupt" in callers.results[name].why
    assert set(read_notes(store.small_state, "")) == {"first"}
    assert committer.write(note("later")) == "later"


class InterruptedGate:
    """A gate whose wait is interrupted, once it is opened or at once."""

    def __init__(self, *, when_opened: bool) -> None:
        self._inner = threading.Lock()
        self._when_opened = when_opened
        self._closed_once = False

    def acquire(self) -> bool:
        if not self._closed_once:
            self._closed_once = True
            return self._inner.acquire()
        if self._when_opened:
            self._inner.acquire()
        raise KeyboardInterrupt

    def release(self) -> None:
        self._inner.release()


@pytest.mark.parametrize("when_opened", [False, True])
def test_an_interrupted_follower_holds_nobody_up(
    store: Store, committer: Bench, monkeypatch: pytest.MonkeyPatch, when_opened: bool
) -> None:
    """Also when the lead was just given to it: it passes the lead on."""
    callers = held_up(store, committer)
    with monkeypatch.context() as patched:
        gates = SimpleNamespace(Lock=lambda: InterruptedGate(when_opened=when_opened))
        patched.setattr("everlog.log.write.committer.threading", gates)
        callers.submit("interrupted", note("interrupted"))
    callers.submit("a", note("a"))
    callers.submit("b", note("b"))
    store.go_on.set()
    callers.join()
    assert isinstance(callers.results["interrupted"], KeyboardInterrupt)
    assert (callers.results["a"], callers.results["b"]) == ("a", "b")
    assert set(read_notes(store.small_state, "")) == {"first", "a", "b"}
    assert not committer.busy


def test_who_is_interrupted_before_a_leader_has_made_his_work_ready_leaves_nothing(
    store: Store, committer: Bench
) -> None:
    """Nobody waits for it any more, and its caller was told that it came to nothing."""

    class Unready(Plain):
        ready = False

        def prepare(self, items: Sequence[Any]) -> None:
            with pytest.raises(KeyboardInterrupt), HeldBack() as held:
                committer._wait(items[1], held)  # as in the thread of its caller, meanwhile

    group: list[Item] = [Unready(note("leader")), Unready(note("interrupted"))]
    gate: Any = InterruptedGate(when_opened=False)
    gate.acquire()
    group[1].gate = gate
    with HeldBack() as held:
        committer._commit(group, held)
    assert group[0].result == "leader"
    assert set(read_notes(store.small_state, "")) == {"leader"}


def test_a_group_has_a_bound(store: Store, committer: Bench) -> None:
    told = Told()
    store.entered.clear()
    store.go_on.clear()
    committer.submit([Plain(note(f"n{number}"), ticket=number) for number in range(2 * GROUP_MAX + 10)], told)
    store.go_on.set()
    told.wait_for(2 * GROUP_MAX + 10)
    assert max(store.groups) <= GROUP_MAX
    assert sum(store.groups) == 2 * GROUP_MAX + 10


def test_work_that_must_be_alone_is(store: Store, committer: Bench) -> None:
    callers = held_up(store, committer)
    for name in ("a", "b"):
        callers.submit(name, note(name))
    callers.submit("alone", note("alone"), exclusive=True)
    for name in ("c", "d"):
        callers.submit(name, note(name))
    store.go_on.set()
    callers.join()
    assert store.groups == [1, 2, 1, 2]


class Told:
    """A waker that keeps what it was told."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.calls = 0
        self._grown = threading.Condition()

    def wake(self, items: list[Item]) -> None:
        with self._grown:
            self.items += items
            self.calls += 1
            self._grown.notify_all()

    def wait_for(self, count: int) -> None:
        with self._grown:
            assert self._grown.wait_for(lambda: len(self.items) >= count, PATIENCE_S)


def test_those_without_a_thread_are_led_by_the_committers_own_and_told_at_once(
    store: Store, committer: Bench
) -> None:
    callers = held_up(store, committer)
    told = Told()
    for number in range(5):
        committer.submit([Plain(note(f"n{number}"), ticket=number)], told)
    mistake = ValueError("mine")
    committer.submit([Plain(failing("bad", mistake), ticket="bad")], told)
    store.go_on.set()
    callers.join()
    told.wait_for(6)
    assert told.calls == 1
    assert {item.ticket: item.error for item in told.items}["bad"] is mistake
    assert [item.result for item in told.items if item.error is None] == [f"n{number}" for number in range(5)]
    assert committer._thread is not None
    assert committer._thread.name == "everlog-committer"


def test_callers_wait_their_turn_behind_the_committers_own_thread(store: Store, committer: Bench) -> None:
    """Two leaders would open two writes at once."""
    told, callers = Told(), Callers(committer)
    store.go_on.clear()
    committer.submit([Plain(note("first"), ticket=1)], told)
    assert store.entered.wait(PATIENCE_S)
    assert committer.busy
    committer.submit([Plain(note("second"), ticket=2)], told)
    callers.submit("third", note("third"))
    assert len(committer._waiting) == 2
    store.go_on.set()
    callers.join()
    told.wait_for(2)
    assert store.groups == [1, 2]


def test_the_committers_thread_outlives_a_group_that_broke(
    store: Store, committer: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    told = Told()
    committer.submit([Plain(failing("bad", SystemExit()), ticket=1)], told)
    told.wait_for(1)
    assert isinstance(told.items[0].error, Unavailable)
    committer.submit([Plain(note("later"), ticket=2)], told)
    told.wait_for(2)
    assert told.items[1].result == "later"


def test_threads_and_tasks_hand_the_lead_over_without_losing_anything(store: Store, committer: Bench) -> None:
    """Eight threads of 200 works each, half of them not waiting in a thread."""
    told = Told()

    def thread(number: int) -> None:
        for step in range(200):
            name = f"{number}/{step}"
            if (step + number) % 2:
                committer.submit([Plain(note(name), ticket=name)], told)
            else:
                assert committer.write(note(name)) == name

    threads = [threading.Thread(target=thread, args=(number,)) for number in range(8)]
    for started in threads:
        started.start()
    for started in threads:
        started.join(PATIENCE_S)
        assert not started.is_alive()
    told.wait_for(800)
    assert len(read_notes(store.small_state, "")) == 1600
    assert sum(store.groups) == 1600
    assert all(item.error is None for item in told.items)


def test_closing_waits_for_what_was_submitted(store: Store, committer: Bench) -> None:
    callers = held_up(store, committer)
    told = Told()
    callers.submit("waiting", note("waiting"))
    committer.submit([Plain(note("later"), ticket=1)], told)
    closing = threading.Thread(target=committer.close)
    closing.start()
    time.sleep(0.05)
    assert closing.is_alive()
    store.go_on.set()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
    callers.join()
    assert set(read_notes(store.small_state, "")) == {"first", "waiting", "later"}
    assert [item.result for item in told.items] == ["later"]
    assert committer._thread is None or not committer._thread.is_alive()


def test_closing_waits_for_what_is_called_after_a_commit(store: Store) -> None:
    """It may still read the log, so the store must not be closed under it."""
    called, go_on = threading.Event(), threading.Event()

    def after_commit() -> None:
        called.set()
        assert go_on.wait(PATIENCE_S)

    committer = Bench(store, committed=after_commit)
    committer.submit([Plain(note("a"), ticket=1)], Told())
    assert called.wait(PATIENCE_S)
    closing = threading.Thread(target=committer.close)
    closing.start()
    closing.join(0.2)
    waited = closing.is_alive()
    go_on.set()
    closing.join(PATIENCE_S)
    assert (waited, closing.is_alive()) == (True, False)
    assert committer._thread is not None
    assert not committer._thread.is_alive()


def test_after_closing_there_is_no_more_work(store: Store, committer: Bench) -> None:
    committer.close()
    committer.close()
    with pytest.raises(LogClosed):
        committer.write(note("a"))
    with pytest.raises(LogClosed):
        committer.submit([Plain(note("a"), ticket=1)], Told())
    assert read_notes(store.small_state, "") == {}


def test_closing_ends_also_when_the_store_takes_no_more_writes(store: Store, committer: Bench) -> None:
    callers = held_up(store, committer)
    callers.submit("a", note("a"))
    store.trouble = StorageFull("full")
    closing = threading.Thread(target=committer.close)
    closing.start()
    store.go_on.set()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
    callers.join()


# ---- who is on the way


def test_a_leader_waits_for_those_of_the_last_group(
    store: Store, committer: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the two that waited would commit without the first one, which comes again at once."""
    monkeypatch.setattr(module, "WAIT_MAX_S", PATIENCE_S)
    callers = held_up(store, committer)
    callers.submit("second", note("second"))
    callers.submit("third", note("third"))
    committer.took_s = PATIENCE_S
    store.go_on.set()
    callers.threads[0].join(PATIENCE_S)
    committer.write(note("again"))
    callers.join()
    assert store.groups == [1, 3]


def test_a_leader_does_not_wait_longer_than_the_last_commit_took_and_not_each_time(
    store: Store, committer: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []
    waits = committer._wait_for_others

    def wait_for_others(here: int) -> None:
        waited.append(committer._not_waiting)
        waits(here)

    monkeypatch.setattr(committer, "_wait_for_others", wait_for_others)
    callers = held_up(store, committer)
    callers.submit("second", note("second"))
    committer.took_s = 0.001
    store.go_on.set()
    callers.join()  # the first one does not come again
    assert store.groups == [1, 1]
    assert committer._not_waiting > 0
    began = time.monotonic()
    committer.took_s = PATIENCE_S
    committer.write(note("alone"))
    assert time.monotonic() - began < PATIENCE_S / 2
    assert waited == [0]


class Stopped(BaseException):
    """What a handler of a signal raises, such as SystemExit."""


def test_a_leader_that_a_signal_stops_while_it_waits_holds_nobody_up(
    store: Store, committer: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler of a signal other than SIGINT raises at once, also between two steps of the committer."""

    def stop(number: int, frame: object) -> None:
        raise Stopped

    monkeypatch.setattr(module, "WAIT_MAX_S", PATIENCE_S)
    before = signal.signal(signal.SIGALRM, stop)
    try:
        for come in (False, True):
            committer._expected, committer.took_s, committer._not_waiting = 2, PATIENCE_S, 0
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(Stopped):
                committer.write(note("stopped"))
            assert not committer.busy
            committer._expected = 1
            if come:  # a later leader must not take an earlier caller for one that has come
                assert not committer._all_here.acquire(blocking=False)
            assert committer.write(note("later")) == "later"
    finally:
        signal.signal(signal.SIGALRM, before)
    assert set(read_notes(store.small_state, "")) == {"later"}


def test_a_caller_that_is_stopped_when_it_has_just_got_the_lead_passes_it_on(
    store: Store, committer: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, stopped = committer._wait_for_others, [Stopped()]

    def wait_for_others(here: int) -> None:
        if stopped:
            raise stopped.pop()
        waits(here)

    monkeypatch.setattr(committer, "_wait_for_others", wait_for_others)
    callers = held_up(store, committer)
    callers.submit("second", note("second"))
    callers.submit("third", note("third"))
    store.go_on.set()
    callers.join()
    assert isinstance(callers.results["second"], Stopped)
    assert callers.results["third"] == "third"
    assert committer.write(note("later")) == "later"
    assert set(read_notes(store.small_state, "")) == {"first", "third", "later"}


def test_a_caller_that_is_always_alone_never_waits(
    store: Store, committer: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "_wait_for_others", lambda here: pytest.fail("there was nobody"))
    for number in range(5):
        committer.write(note(f"n{number}"))
    assert store.groups == [1] * 5
