"""Group commit: many callers, one flush.

A caller that finds nobody committing commits at once, in its own thread, so that a lone writer pays no hand-over.
Callers that come meanwhile wait. When the flush is done, the first of them becomes the leader and commits all that
have gathered. Tasks of an event loop cannot lead, because a flush would stop their loop: a thread of the committer
leads for them (`everlog.aio`), and one wake-up per loop notifies all tasks of a group.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from threading import get_ident
from types import FunctionType, MemberDescriptorType
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from everlog.errors import EverlogError, LogClosed, Unavailable
from everlog.log.write.interrupts import HeldBack
from everlog.log.write.stages import (
    Stage,
    Stages,
    committed,
    undone,
)
from everlog.stores.contract import Store
from everlog.stores.open_write import OpenWrite

T = TypeVar("T")
Work = Callable[[OpenWrite], T]

_logger = logging.getLogger("everlog")

GROUP_MAX = 256
"""Items in one group. Larger groups gain nothing and make the first item wait for the last."""


class Waker(Protocol):
    """Notifies callers that do not wait in a thread, all of a group at once."""

    def wake(self, items: list[Item]) -> None: ...


class Item:
    """The work of one caller, and its outcome. What most items never need is in the class, not in each of them."""

    result: Any = None
    error: BaseException | None = None
    done = False
    asked = False  # to lead
    exclusive = False  # must not share its write with others
    gate: threading.Lock | None = None
    waker: Waker | None = None
    ticket: Any = None  # the waker's: whom to notify
    can_batch = False  # may be carried out together with its neighbours, which costs less
    ready = True  # False: `prepare` comes first, before the write opens

    def prepare(self, items: Sequence[Any]) -> None:
        """Prepare these items, all at once. One that is refused gets an `error`."""
        raise NotImplementedError

    def do(self, write: OpenWrite) -> Any:
        raise NotImplementedError

    def do_together(self, items: Sequence[Any], write: OpenWrite) -> list[Any]:
        """Return the outcome of each: its result, or the exception that refuses it alone."""
        raise NotImplementedError


class Plain(Item):
    """Any function of an open write."""

    def __init__(self, work: Work[Any], *, exclusive: bool = False, ticket: Any = None) -> None:
        self._work = work
        self.exclusive = exclusive
        self.ticket = ticket

    def do(self, write: OpenWrite) -> Any:
        return self._work(write)


class Committer:
    def __init__(self, store: Store, stages: Stages, *, committed: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._stages = stages
        self._committed = committed
        self.forked: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._waiting: deque[Item] = deque()
        self._leading = False
        self._leader = 0  # the thread that leads
        self._closed = False
        self._thread: threading.Thread | None = None
        self._asked_to_lead = threading.Semaphore(0)
        _every_committer.add(self)

    def write(self, work: Work[T], *, exclusive: bool = False) -> T:
        """Run `work` inside a write and return what it returned, once that write is on the disk.

        `exclusive` is for work that must not share its write with others.
        """
        result: T = self.commit(Plain(work, exclusive=exclusive))
        return result

    def commit(self, item: Item) -> Any:
        """Carry out an item and return its result, once that is on the disk."""
        with HeldBack():
            if self._begin(item):
                try:
                    # The shortest way, for a caller that found nobody else.
                    self._write([item])
                finally:
                    self._pass_the_lead()
                item.done = True
                self._committed()
        if not item.done:
            self._wait(item)
        if not item.done:
            with HeldBack():
                self._lead_once()
        if item.error is not None:
            raise item.error
        return item.result

    @property
    def busy(self) -> bool:
        """True while a caller leads, so that another one is likely to wait. It may be over the next moment."""
        return self._leading

    def _begin(self, item: Item) -> bool:
        """Return True if nobody leads: then this caller does. Otherwise the item waits its turn."""
        with self._lock:
            self._require_open()
            if not self._leading:
                self._leading = True
                self._leader = get_ident()
                return True
            if self._leader == get_ident():
                raise RuntimeError("this thread already has an open write on this log; a second one would deadlock")
            item.gate = threading.Lock()
            item.gate.acquire()
            self._waiting.append(item)
            return False

    def submit(self, items: Sequence[Item], waker: Waker) -> None:
        """Have items carried out by the committer's own thread, which calls the waker when they are done."""
        for item in items:
            item.waker = waker
        with self._lock:
            self._require_open()
            if items and not self._leading:
                self._wake_thread()  # may fail if no thread can be had; then nothing was accepted
                self._leading = True
            self._waiting.extend(items)

    def close(self) -> None:
        """Refuse further work and end the thread. What was submitted before is committed first."""
        while True:
            with self._lock:
                idle = not self._waiting and not self._leading
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
        self._leading = False
        self._thread = None
        self._closed = True
        self.forked()

    def _wait(self, item: Item) -> None:
        """Wait until the item is done, or until it is its caller's turn to lead."""
        assert item.gate is not None
        try:
            item.gate.acquire()
        except BaseException:
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

    def _lead_once(self) -> None:
        """Commit one group, then pass the lead to the first caller that waits."""
        with self._lock:
            self._leader = get_ident()
            group = [self._waiting.popleft()] if self._waiting else []
            while self._waiting and len(group) < GROUP_MAX and not (group[0].exclusive or self._waiting[0].exclusive):
                group.append(self._waiting.popleft())
        try:
            self._commit(group)
        finally:
            # Even if the commit failed in an unforeseen way, nobody must wait for ever.
            self._pass_the_lead()
            _wake(group)
        # Last, and by a thread that does not lead any more: a callback may append in turn.
        self._committed()

    def _commit(self, group: list[Item]) -> None:
        """Commit a group, and give every item of it its outcome."""
        try:
            self._write(group)
        except BaseException as error:
            # The write was undone. An item that was refused keeps its reason; all others get this one. An interrupt
            # belongs to the leader: in the threads and tasks of others it would end what nobody meant to end.
            reason = error if isinstance(error, Exception) else _interrupted(error)
            undone = [item for item in group if item.error is None]
            for item in undone:
                item.error, item.result = reason, None  # first of all: nobody may take it for done
            if len(undone) > 1:
                for item in undone:
                    item.error = _own_copy(reason)
            if not isinstance(error, Exception):
                raise

    def _write(self, group: list[Item]) -> None:
        """Carry out a group in one write. This is the only place where a write is opened and its stages run.

        An item that is alone in its group raises its own refusal, which undoes the write. With several, each is
        refused alone, and an exception concerns all of them.
        """
        first = group[0]
        if len(group) > 1:
            _prepare_all(group)
            group = [item for item in group if item.error is None]
            if not group:
                return
            first = group[0]  # the first one may have been refused
        elif not first.ready:
            first.prepare(group)
            if first.error is not None:
                raise first.error
        stages: tuple[Stage, ...] = ()
        try:
            with self._store.open_write() as write:
                if len(group) == 1:
                    first.result = first.do(write)
                else:
                    for run in _runs(group):
                        _do(run, write)
                if self._stages.active:
                    stages = self._stages.run(write)
        except BaseException:
            undone(stages)
            raise
        if stages:
            committed(stages)

    def _pass_the_lead(self) -> None:
        with self._lock:
            self._leader = 0
            if not self._waiting:
                self._leading = False
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
                    self._lead_once()
                except BaseException:
                    # Every caller of that group has its error. The next group still needs a leader.
                    _logger.exception("a group of requests could not be committed")


def _own_copy(error: Exception) -> Exception:
    """Return a copy of the error, with the error as its cause. If several threads raised one object, each would add
    to its traceback and to its context."""
    kind = type(error)
    try:
        if isinstance(kind.__init__, FunctionType):  # it formats its arguments: not a second time
            made = kind.__new__(kind, *error.args)
            vars(made).update(vars(error))
        else:
            made = copy(error)
        if not _is_same(made, error):
            return error
        made.__cause__ = error
    except Exception:  # it cannot be copied: then all raise the same object
        return error
    return made


def _is_same(made: Exception, error: Exception) -> bool:
    """Compare also what some classes keep beside attributes: errno of an OSError, or slots."""
    if (str(made), made.args) != (str(error), error.args):
        return False
    beside = {
        name
        for kind in type(error).__mro__
        for name, found in vars(kind).items()
        if isinstance(found, MemberDescriptorType) and name != "__suppress_context__"  # that goes with the cause
    }
    return all(getattr(made, name, None) == getattr(error, name, None) for name in beside)


def _interrupted(error: BaseException) -> Unavailable:
    return Unavailable(
        "the write was interrupted",
        why=f"the thread that wrote for several callers was stopped by {type(error).__name__}",
        hint="check whether it was recorded; with an idempotency key it can simply be repeated",
    )


def _in_a_forked_child() -> None:
    """Threads and waiting callers stayed with the parent: what is left must raise, not hang."""
    for committer in list(_every_committer):
        committer.stop_after_fork()


_every_committer: WeakSet[Committer] = WeakSet()
os.register_at_fork(after_in_child=_in_a_forked_child)


def _runs(group: list[Item]) -> Iterator[list[Item]]:
    """Divide a group, in its order, into runs of neighbours that can be batched: no append overtakes another."""
    run: list[Item] = []
    for item in group:
        if run and not (item.can_batch and run[-1].can_batch):
            yield run
            run = []
        run.append(item)
    yield run


def _prepare_all(group: list[Item]) -> None:
    unready = [item for item in group if not item.ready]
    if unready:
        unready[0].prepare(unready)


def _do(run: list[Item], write: OpenWrite) -> None:
    if len(run) > 1 and _do_together(run, write):
        return
    for item in run:
        try:
            with write.attempt():
                item.result = item.do(write)
        except Exception as error:
            item.error = error


def _do_together(run: list[Item], write: OpenWrite) -> bool:
    try:
        with write.attempt():
            outcomes = run[0].do_together(run, write)
    except Exception:
        _logger.exception("a run of requests failed together, so each is carried out alone")
        return False
    for item, outcome in zip(run, outcomes, strict=True):
        if isinstance(outcome, Exception):
            item.error = outcome
        else:
            item.result = outcome
    return True


def _wake(group: list[Item]) -> None:
    """Wake all callers of a group: threads one by one, each waker once."""
    by_waker: dict[Waker, list[Item]] = {}
    for item in group:
        item.done = True
        if item.gate is not None:
            item.gate.release()
        elif item.waker is not None:
            by_waker.setdefault(item.waker, []).append(item)
    for waker, items in by_waker.items():
        waker.wake(items)
