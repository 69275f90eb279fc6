"""Group commit: many callers, one flush.

A caller that finds nobody committing commits at once, in its own thread, so that a lone writer pays no hand-over.
Callers that come meanwhile wait. When the flush is done, the first of them becomes the leader and commits all that
have gathered. Tasks of an event loop cannot lead, because a flush would stop their loop: a thread of the committer
leads for them (`everlog.aio`), and one wake-up per loop notifies all tasks of a group.

Threads that were in the last group, or wait already, are likely to come again at once. A leader waits for them, at
most as long as the last commit took: otherwise the first one to come would commit alone, and all others would wait
for it. If they do not come, the next groups are not waited for.

Ctrl-C is held back while a write is open and while the queue changes, and raised at once while a caller waits for its
turn (`HeldBack`).
"""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from threading import get_ident
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar
from weakref import WeakSet

from everlog.errors import EverlogError, LogClosed, Unavailable
from everlog.log.write.group import Item, Plain, Waker, Work, do, own_copy, prepare_all, runs, wake
from everlog.log.write.stages import Stage, Stages, committed, undone
from everlog.stores.contract import Store

T = TypeVar("T")

_logger = logging.getLogger("everlog")

GROUP_MAX = 256
"""Items in one group. Larger groups gain nothing and make the first item wait for the last."""

WAIT_MAX_S = 0.005
"""A leader never waits longer for the others of the last group."""

_GROUPS_NOT_WAITED_FOR = 32  # after a group that was waited for in vain

PATIENCE_S = 1.0
"""During a write, a second Ctrl-C is raised at once if it comes so long after the first."""

_ALWAYS = math.inf
_NEVER = -1.0

# Beneath the module's own functions, which turn numbers into enum members and back: ten times the cost of the rest.
_beneath = import_module("_signal") if find_spec("_signal") else signal
_set_handler: Callable[[int, Any], Any] = _beneath.signal
_handler_of: Callable[[int], Any] = _beneath.getsignal
_SIGINT = int(signal.SIGINT)

_main_thread = threading.main_thread().ident


class Committer:
    def __init__(self, store: Store, stages: Stages, *, committed: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._stages = stages
        self._committed = committed
        self.forked: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._waiting: deque[Item] = deque()
        self.busy = False  # a caller leads, so that another one is likely to wait; it may be over the next moment
        self._leader = 0  # the thread that leads
        self._closed = False
        self._thread: threading.Thread | None = None
        self._asked_to_lead = threading.Semaphore(0)
        self._expected = 1  # how many threads were in the last group or waited when it ended
        self._missing = 0  # how many of them a leader waits for
        self._all_here = threading.Lock()
        self._all_here.acquire()
        self._took_s = 0.0  # the last commit
        self._not_waiting = 0  # for how many groups
        _every_committer.add(self)

    def write(self, work: Work[T], *, exclusive: bool = False) -> T:
        """Run `work` inside a write and return what it returned, once that write is on the disk.

        `exclusive` is for work that must not share its write with others.
        """
        result: T = self.commit(Plain(work, exclusive=exclusive))
        return result

    def commit(self, item: Item) -> Any:
        """Carry out an item and return its result, once that is on the disk."""
        with HeldBack() as held:  # all the way: an item in the queue needs its caller, who may have to lead
            if self._begin(item):
                alone = True
                try:
                    if self._expected > 1:
                        self._wait_for_others(1)
                    alone = not self._waiting
                    if alone:
                        # The shortest way, for a caller that found nobody else.
                        self._write([item], held)
                finally:
                    if alone:
                        self._pass_the_lead(1)
                if alone:
                    item.done = True
                    held.patience = PATIENCE_S
                    self._committed()
                else:
                    self._lead_once(held, item)
            else:
                self._wait(item, held)
                if not item.done:
                    self._lead_once(held)
        if item.error is not None:
            raise item.error
        return item.result

    def _begin(self, item: Item) -> bool:
        """Return True if nobody leads: then this caller does. Otherwise the item waits its turn."""
        with self._lock:
            if not self.busy and not self._closed:
                self.busy = True
                self._leader = get_ident()
                return True
            self._require_open()
            if self._leader == get_ident():
                raise RuntimeError("this thread already has an open write on this log; a second one would deadlock")
            item.gate = threading.Lock()
            item.gate.acquire()
            self._waiting.append(item)
            if self._missing:
                self._missing -= 1
                if not self._missing:
                    self._all_here.release()
            return False

    def _wait_for_others(self, here: int) -> None:
        """Wait for the threads that are likely to come; `here` items are there already."""
        with self._lock:
            self._missing = max(0, self._expected - here)
            if not self._missing:
                return
            if self._not_waiting:
                self._not_waiting -= 1
                self._missing = 0
                return
        came = False
        try:
            came = self._all_here.acquire(timeout=min(self._took_s, WAIT_MAX_S))
        finally:  # also if a handler of a signal raises while this waits
            if not came:
                with self._lock:
                    if self._missing:
                        self._missing = 0
                        self._not_waiting = _GROUPS_NOT_WAITED_FOR
                    else:  # the last one came just now
                        self._all_here.acquire(blocking=False)

    def submit(self, items: Sequence[Item], waker: Waker) -> None:
        """Have items carried out by the committer's own thread, which calls the waker when they are done."""
        for item in items:
            item.waker = waker
        with HeldBack(), self._lock:
            self._require_open()
            if items and not self.busy:
                self._wake_thread()  # may fail if no thread can be had; then nothing was accepted
                self.busy = True
            self._waiting.extend(items)

    def close(self) -> None:
        """Refuse further work and end the thread. What was submitted before is committed first."""
        while True:
            with HeldBack(), self._lock:
                idle = not self._waiting and not self.busy
                self._closed = self._closed or idle
                if self._closed:
                    break
            with suppress(EverlogError):  # its outcome does not matter: it waited behind all others
                self.write(lambda write: None)
        if self._thread is not None:
            self._asked_to_lead.release()
            self._thread.join()

    def stop_after_fork(self) -> None:
        """Refuse everything from here on: a child process opens the log again, it does not share it."""
        self._lock = threading.Lock()
        self._waiting.clear()
        self.busy = False
        self._thread = None
        self._closed = True
        self.forked()

    def _wait(self, item: Item, held: HeldBack) -> None:
        """Wait until the item is done, or until it is its caller's turn to lead."""
        assert item.gate is not None
        try:
            held.let_through()
            item.gate.acquire()
            held.patience = _ALWAYS
        except BaseException:
            held.patience = _ALWAYS
            # An interrupt. The item leaves the queue, and if it was just asked to lead, it passes the lead on. One
            # that a leader has not prepared yet is not recorded any more: nobody waits for it.
            if not item.ready and item.error is None:
                item.error = _interrupted(KeyboardInterrupt())
            with self._lock:
                if item in self._waiting:
                    self._waiting.remove(item)
                asked = item.asked and not item.done
            if asked:
                self._pass_the_lead()
            raise

    def _require_open(self) -> None:
        if self._closed:
            raise LogClosed("the log is closed", hint="open it again; after a fork, in the child itself")

    def _lead_once(self, held: HeldBack, first: Item | None = None) -> None:
        """Commit one group, then pass the lead to the first caller that waits. `first` is an item before these."""
        if first is None and len(self._waiting) < self._expected and self._waiting and self._waiting[0].gate:
            try:
                self._wait_for_others(len(self._waiting))
            except BaseException:
                with self._lock:
                    self._waiting.popleft()  # the item of this caller, who gives up
                self._pass_the_lead()
                raise
        with self._lock:
            self._leader = get_ident()
            group = [first] if first else [self._waiting.popleft()] if self._waiting else []
            while self._waiting and len(group) < GROUP_MAX and not (group[0].exclusive or self._waiting[0].exclusive):
                group.append(self._waiting.popleft())
        try:
            self._commit(group, held)
        finally:
            # Even if the commit failed in an unforeseen way, nobody must wait for ever.
            self._pass_the_lead(len(group))
            wake(group)
        # Last, and by a thread that does not lead any more: a callback may append in turn.
        held.patience = PATIENCE_S
        self._committed()

    def _commit(self, group: list[Item], held: HeldBack) -> None:
        """Commit a group, and give every item of it its outcome."""
        try:
            self._write(group, held)
        except BaseException as error:
            # The write was undone. An item that was refused keeps its reason; all others get this one. An interrupt
            # belongs to the leader: in the threads and tasks of others it would end what nobody meant to end.
            reason = error if isinstance(error, Exception) else _interrupted(error)
            undone = [item for item in group if item.error is None]
            for item in undone:
                item.error, item.result = reason, None  # first of all: nobody may take it for done
            if len(undone) > 1:
                for item in undone:
                    item.error = own_copy(reason)
            if not isinstance(error, Exception):
                raise

    def _write(self, group: list[Item], held: HeldBack) -> None:
        """Carry out a group in one write. This is the only place where a write is opened and its stages run.

        This may take long, because it may wait for another process: it can be interrupted. An item that is alone in
        its group raises its own refusal, which undoes the write. With several, each is refused alone, and an
        exception concerns all of them.
        """
        held.patience = PATIENCE_S
        stages: tuple[Stage, ...] = ()
        first = group[0]
        began = time.perf_counter()
        try:
            if len(group) > 1:
                prepare_all(group)
                group = [item for item in group if item.error is None]
                if not group:
                    return
                first = group[0]  # the first one may have been refused
            elif not first.ready:
                first.prepare(group)
                if first.error is not None:
                    raise first.error
            with self._store.open_write() as write:
                if len(group) == 1:
                    first.result = first.do(write)
                else:
                    for run in runs(group):
                        do(run, write)
                if self._stages.active:
                    stages = self._stages.run(write)
        except BaseException:
            undone(stages)
            raise
        else:
            if stages:
                committed(stages)
        finally:
            held.patience = _ALWAYS
            self._took_s = time.perf_counter() - began

    def _pass_the_lead(self, ended: int = 0) -> None:
        """`ended` is the number of items whose callers return now."""
        with self._lock:
            self._leader = 0
            self._expected = ended + len(self._waiting)
            if not self._waiting:
                self.busy = False
            elif (gate := self._waiting[0].gate) is not None:
                self._waiting[0].asked = True
                gate.release()
            else:
                self._wake_thread()

    def _wake_thread(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._lead_for_others, name="everlog-committer", daemon=True)
            thread.start()
            self._thread = thread
        self._asked_to_lead.release()

    def _lead_for_others(self) -> None:
        while True:
            self._asked_to_lead.acquire()
            with self._lock:
                if self._closed:
                    return
                mine = bool(self._waiting) and self._waiting[0].gate is None
            if mine:
                try:
                    with HeldBack() as held:
                        self._lead_once(held)
                except BaseException:
                    # Every caller of that group has its error. The next group still needs a leader.
                    _logger.exception("a group of requests could not be committed")


def _interrupted(error: BaseException) -> Unavailable:
    return Unavailable(
        "the write was interrupted",
        why=f"the thread that wrote for several callers was stopped by {type(error).__name__}",
        hint="check whether it was recorded; with an idempotency key it can simply be repeated",
    )


def _in_a_forked_child() -> None:
    """Threads and waiting callers stayed with the parent: what is left must raise, not hang.

    The thread that forked is the main thread of the child.
    """
    global _main_thread
    _main_thread = get_ident()
    for committer in list(_every_committer):
        committer.stop_after_fork()


_every_committer: WeakSet[Committer] = WeakSet()
os.register_at_fork(after_in_child=_in_a_forked_child)


class HeldBack:
    """A context in which SIGINT waits for its end. Only the main thread gets any.

    Python raises KeyboardInterrupt between any two steps of the main thread. Between taking a lock and knowing that
    it was taken there is no place to catch it, and a log whose lock nobody holds or releases hangs for ever. So does
    one whose next leader has left. So an interrupt waits until the write has ended, a matter of milliseconds, and is
    raised then. Another handler (of asyncio, of Spark) is called then too: it may raise as well.

    `patience` is how many seconds after the first one another Ctrl-C is raised at once: somebody means it, perhaps
    because the write waits for another process.
    """

    __slots__ = ("_before", "_came", "_where", "patience")

    def __enter__(self) -> Self:
        self.patience = _ALWAYS
        self._came = 0.0
        self._where: FrameType | None = None
        self._before: Any = None
        if get_ident() == _main_thread:
            before = _handler_of(_SIGINT)
            if callable(before):  # else it is ignored, or ends the process, or is no matter of Python's
                self._before = before
                _set_handler(_SIGINT, self._hold_back)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.patience = _ALWAYS  # the next line handles a signal that has just come: it must not raise and stay
        if self._before is not None:
            _set_handler(_SIGINT, self._before)
            if self._came:
                self._before(_SIGINT, self._where)

    def let_through(self) -> None:
        """Raise an interrupt that came, and from here on every one at once, until `patience` is set."""
        self.patience = _NEVER
        if self._came:
            self._came = 0.0
            self._before(_SIGINT, self._where)

    def _hold_back(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - (self._came or now) > self.patience:
            if self._came:
                self._came = now  # what is undone now gets the same time
            self._before(number, frame)
            return
        self._came, self._where = self._came or now, frame
