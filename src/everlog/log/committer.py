"""Group commit: many callers, one flush.

Whoever finds nobody committing commits at once, in their own thread, so that a lone writer pays no hand-over.
Those who come meanwhile wait; when the flush is done, the first of them becomes the leader and commits all that have
gathered. Tasks of an event loop cannot lead (a flush would stop their loop), so a thread of the committer's own leads
for them (`everlog.aio`), and one wake-up per loop tells all of a group.
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
from everlog.log.interrupts import HeldBack
from everlog.stores.contract import Store, Writer

T = TypeVar("T")
Work = Callable[[Writer], T]

_logger = logging.getLogger("everlog")

GROUP_MAX = 256
"""Works in one group. Larger groups gain nothing and make the first of them wait for the last."""


class Waker(Protocol):
    """Tells those who do not wait in a thread of their own, all of a group at once."""

    def tell(self, items: list[Item]) -> None: ...


class Item:
    """One caller's work, and what became of it. What most items never need lies in the class, not in each of them."""

    result: Any = None
    error: BaseException | None = None
    done = False
    asked = False
    alone = False  # must not share its write with others
    gate: threading.Lock | None = None
    waker: Waker | None = None
    ticket: Any = None  # the waker's own, to know whom to tell
    may_share = False  # may be done together with its neighbours, cheaper than one by one
    ready = True  # False: `make_ready` comes first, and outside the write

    def make_ready(self, items: Sequence[Any]) -> None:
        """Make these items ready, all at once; who is refused has an `error` then."""
        raise NotImplementedError

    def do(self, writer: Writer) -> Any:
        raise NotImplementedError

    def do_together(self, items: Sequence[Any], writer: Writer) -> list[Any]:
        """What became of each: its result, or the exception that refuses it alone."""
        raise NotImplementedError


class Plain(Item):
    """Any function of a writer."""

    def __init__(self, work: Work[Any], *, alone: bool = False, ticket: Any = None) -> None:
        self._work = work
        self.alone = alone
        self.ticket = ticket

    def do(self, writer: Writer) -> Any:
        return self._work(writer)


class Committer:
    def __init__(self, store: Store, *, committed: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._committed = committed
        self.before_commit: Callable[[Writer], None] | None = None  # takes part in every write, at its end
        self.when_done: Callable[[], None] = lambda: None  # told that a write which it took part in is on the disk
        self.when_undone: Callable[[], None] = lambda: None  # or that it has failed
        # Writes small things within a write that records something anyway, and says what to call when it is done.
        self.along: Callable[[Writer], Callable[[], None] | None] = lambda writer: None
        self.forked: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._waiting: deque[Item] = deque()
        self._leading = False
        self._leader = 0  # the thread that leads
        self._closed = False
        self._thread: threading.Thread | None = None
        self._asked_to_lead = threading.Semaphore(0)
        _every_committer.add(self)

    def submit(self, work: Work[T], *, alone: bool = False) -> T:
        """Run `work` inside a write and return what it returned once that write is on the disk.

        `alone` is for work that must not share its write with others'.
        """
        result: T = self.submit_item(Plain(work, alone=alone))
        return result

    def submit_item(self, item: Item) -> Any:
        with HeldBack():
            if self._begin(item):
                shared = False
                try:
                    # The shortest way, for a caller that found nobody else: an exception undoes the whole write.
                    if not item.ready:
                        _make_ready([item])
                        if item.error is not None:
                            raise item.error
                    with self._store.write() as writer:
                        item.result = item.do(writer)
                        went_along = self.along(writer)
                        if self.before_commit is not None:
                            shared = True
                            self.before_commit(writer)
                    if went_along is not None:
                        went_along()
                    if shared:
                        self.when_done()
                except BaseException:
                    if shared:
                        self.when_undone()
                    raise
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
        """Somebody leads, so that who comes now is likely to wait. It may be over the next moment."""
        return self._leading

    def _begin(self, item: Item) -> bool:
        """True when nobody leads: then this caller does. Otherwise the item waits its turn."""
        with self._lock:
            self._require_open()
            if not self._leading:
                self._leading = True
                self._leader = get_ident()
                return True
            if self._leader == get_ident():
                raise RuntimeError("a write of this log is going on in this thread, and another would wait for it")
            item.gate = threading.Lock()
            item.gate.acquire()
            self._waiting.append(item)
            return False

    def submit_later(self, items: Sequence[Item], waker: Waker) -> None:
        """Have items done by the committer's own thread; the waker is told when they are."""
        for item in items:
            item.waker = waker
        with self._lock:
            self._require_open()
            if items and not self._leading:
                self._wake_thread()  # may fail for want of threads; then nothing was taken on
                self._leading = True
            self._waiting.extend(items)

    def close(self) -> None:
        """Refuse further work and end the thread; what was submitted before is committed first."""
        while True:
            with self._lock:
                idle = not self._waiting and not self._leading
                self._closed = self._closed or idle
                if self._closed:
                    break
            with suppress(EverlogError):  # whatever becomes of it: it waited behind all that came before
                self.submit(lambda writer: None)
        if self._thread is not None:
            self._asked_to_lead.release()
            self._thread.join()

    def stop_after_fork(self) -> None:
        """Refuse everything from here on: a log is not shared with a child, it is opened again."""
        self._lock = threading.Lock()
        self._waiting.clear()
        self._leading = False
        self._thread = None
        self._closed = True
        self.forked()

    def _wait(self, item: Item) -> None:
        """Until the item is done, or until it is its caller's turn to lead."""
        assert item.gate is not None
        try:
            item.gate.acquire()
        except BaseException:
            # An interrupt. The item leaves the queue, and if the lead was just given to it, it passes that on. One
            # that a leader has not made ready yet is not recorded any more: nobody waits for it.
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
        """Commit one group, then hand the lead to whoever waits first."""
        with self._lock:
            self._leader = get_ident()
            group = [self._waiting.popleft()] if self._waiting else []
            while self._waiting and len(group) < GROUP_MAX and not (group[0].alone or self._waiting[0].alone):
                group.append(self._waiting.popleft())
        try:
            self._commit(group)
        finally:
            # Even if the commit broke in an unforeseen way, those who wait must not wait for ever.
            self._pass_the_lead()
            _tell(group)
        # Told last, and by somebody who does not lead any more: who is told may append in turn.
        self._committed()

    def _commit(self, group: list[Item]) -> None:
        shared = False
        try:
            _make_ready(group)
            group = [item for item in group if item.error is None]
            if not group:
                return
            with self._store.write() as writer:
                for run in _runs(group):
                    _do(run, writer)
                went_along = self.along(writer)
                if self.before_commit is not None:
                    shared = True
                    self.before_commit(writer)
            if went_along is not None:
                went_along()
            if shared:
                self.when_done()
        except BaseException as error:
            # The write was undone: who was refused keeps the reason, everybody else gets this one. An interrupt is
            # the leader's own: in the threads and tasks of others it would end what nobody meant to end.
            told = error if isinstance(error, Exception) else _interrupted(error)
            undone = [item for item in group if item.error is None]
            for item in undone:
                item.error, item.result = told, None  # first of all: nobody may take it for done
            for item in undone:
                item.error = _of_his_own(told)
            if shared:
                self.when_undone()
            if not isinstance(error, Exception):
                raise

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
                    # Everybody of that group was told. The next ones still need somebody who leads.
                    _logger.exception("a group of works could not be committed")


def _of_his_own(error: Exception) -> Exception:
    """The same error as an object of its own, with the first as its cause: several threads that raise one object
    would each add their way to its traceback, and their own troubles to its context."""
    kind = type(error)
    try:
        if isinstance(kind.__init__, FunctionType):  # which makes words of what it is given: not of these once more
            made = kind.__new__(kind, *error.args)
            vars(made).update(vars(error))
        else:
            made = copy(error)
        if not _says_the_same(made, error):
            return error
        made.__cause__ = error
    except Exception:  # it cannot be made again: then all raise the one
        return error
    return made


def _says_the_same(made: Exception, error: Exception) -> bool:
    """Some kinds keep more than their attributes: what C holds of an OSError, as errno, or what lies in slots."""
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
        why=f"the thread that wrote for several was stopped by {type(error).__name__}",
        hint="look whether it was recorded; with an idempotency key it can simply be repeated",
    )


def _in_a_forked_child() -> None:
    """Threads and those who waited stayed with the parent: what is left must answer, not hang."""
    for committer in list(_every_committer):
        committer.stop_after_fork()


_every_committer: WeakSet[Committer] = WeakSet()
os.register_at_fork(after_in_child=_in_a_forked_child)


def _runs(group: list[Item]) -> Iterator[list[Item]]:
    """The group in its order, neighbours that may share together: a later append never overtakes an earlier one."""
    run: list[Item] = []
    for item in group:
        if run and not (item.may_share and run[-1].may_share):
            yield run
            run = []
        run.append(item)
    yield run


def _make_ready(group: list[Item]) -> None:
    unready = [item for item in group if not item.ready]
    if unready:
        unready[0].make_ready(unready)


def _do(run: list[Item], writer: Writer) -> None:
    if len(run) > 1 and _do_together(run, writer):
        return
    for item in run:
        try:
            with writer.attempt():
                item.result = item.do(writer)
        except Exception as error:
            item.error = error


def _do_together(run: list[Item], writer: Writer) -> bool:
    try:
        with writer.attempt():
            outcomes = run[0].do_together(run, writer)
    except Exception:
        _logger.exception("works could not be done together, and are done one by one")
        return False
    for item, outcome in zip(run, outcomes, strict=True):
        if isinstance(outcome, Exception):
            item.error = outcome
        else:
            item.result = outcome
    return True


def _tell(group: list[Item]) -> None:
    """Wake everybody of a group: threads one by one, each waker once."""
    by_waker: dict[Waker, list[Item]] = {}
    for item in group:
        item.done = True
        if item.gate is not None:
            item.gate.release()
        elif item.waker is not None:
            by_waker.setdefault(item.waker, []).append(item)
    for waker, items in by_waker.items():
        waker.tell(items)
