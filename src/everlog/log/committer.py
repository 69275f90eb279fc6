"""Group commit: many callers, one flush.

Whoever finds nobody committing commits at once, in their own thread, so that a lone writer pays no hand-over.
Those who come meanwhile wait; when the flush is done, the first of them becomes the leader and commits all that have
gathered. Tasks of an event loop cannot lead (a flush would stop their loop), so a thread of the committer's own leads
for them (`everlog.aio`), and one wake-up per loop tells all of a group.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from everlog.errors import EverlogError, LogClosed, Unavailable
from everlog.stores.contract import Store, Writer

T = TypeVar("T")
Work = Callable[[Writer], T]

_logger = logging.getLogger("everlog")

GROUP_MAX = 256
"""Works in one group. Larger groups gain nothing and make the first of them wait for the last."""


class Shared(ABC):
    """Work that is made ready before the write is opened, and may be done together with others of its kind."""

    __slots__ = ()
    refusal: Exception | None

    @property
    @abstractmethod
    def may_share(self) -> bool: ...

    @abstractmethod
    def make_ready(self, works: Sequence[Any]) -> None:
        """Prepare works of this kind, all at once. One that is refused has its `refusal` set."""

    @abstractmethod
    def together(self, works: Sequence[Any], writer: Writer) -> list[Any]:
        """What became of each: its result, or the exception that refuses it alone."""


class Waker(Protocol):
    """Tells those who do not wait in a thread of their own, all of a group at once."""

    def tell(self, items: list[Item]) -> None: ...


class Item:
    """One caller's work, and what became of it."""

    __slots__ = ("alone", "asked", "done", "error", "gate", "result", "ticket", "waker", "work")

    def __init__(self, work: Work[Any]) -> None:
        self.work = work
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False
        self.asked = False
        self.alone = False
        self.gate: threading.Lock | None = None
        self.waker: Waker | None = None
        self.ticket: Any = None  # the waker's own, to know whom to tell


class Committer:
    def __init__(self, store: Store, *, committed: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._committed = committed
        self._lock = threading.Lock()
        self._waiting: deque[Item] = deque()
        self._leading = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._asked_to_lead = threading.Semaphore(0)

    def submit(self, work: Work[T], *, alone: bool = False) -> T:
        """Run `work` inside a write and return what it returned once that write is on the disk.

        `alone` is for work that must not share its write with others'.
        """
        with self._lock:
            self._require_open()
            idle = not self._leading
            if idle:
                self._leading = True
            else:
                item = Item(work)
                item.alone = alone
                item.gate = threading.Lock()
                item.gate.acquire()
                self._waiting.append(item)
        if idle:
            return self._commit_alone(work)
        self._wait(item)
        if not item.done:
            self._lead_once()
        if item.error is not None:
            raise item.error
        result: T = item.result
        return result

    def submit_later(self, works: Iterable[tuple[Work[Any], Any]], waker: Waker) -> None:
        """Have works done by the committer's own thread; the waker is told, with their tickets, when they are."""
        items = []
        for work, ticket in works:
            item = Item(work)
            item.waker, item.ticket = waker, ticket
            items.append(item)
        with self._lock:
            self._require_open()
            self._waiting.extend(items)
            if items and not self._leading:
                self._leading = True
                self._wake_thread()

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

    def _commit_alone(self, work: Work[T]) -> T:
        """The shortest way, for a caller that found nobody else: an exception undoes the whole write."""
        try:
            refusal = _make_ready([work])
            if refusal is not None:
                raise refusal
            with self._store.write() as writer:
                result = work(writer)
        finally:
            self._pass_the_lead()
        self._committed()
        return result

    def _wait(self, item: Item) -> None:
        """Until the item is done, or until it is its caller's turn to lead."""
        assert item.gate is not None
        try:
            item.gate.acquire()
        except BaseException:
            # An interrupt. The item leaves the queue, and if the lead was just given to it, it passes that on.
            with self._lock:
                if item in self._waiting:
                    self._waiting.remove(item)
                asked = item.asked and not item.done
            if asked:
                self._pass_the_lead()
            raise

    def _require_open(self) -> None:
        if self._closed:
            raise LogClosed("the log is closed", hint="open it again")

    def _lead_once(self) -> None:
        """Commit one group, then hand the lead to whoever waits first."""
        with self._lock:
            group = [self._waiting.popleft()] if self._waiting else []
            while self._waiting and len(group) < GROUP_MAX and not (group[0].alone or self._waiting[0].alone):
                group.append(self._waiting.popleft())
        try:
            self._commit(group)
        finally:
            # Even if the commit broke in an unforeseen way, those who wait must not wait for ever.
            self._pass_the_lead()
            _tell(group)

    def _commit(self, group: list[Item]) -> None:
        try:
            group_left = _ready(group)
            if not group_left:
                return
            with self._store.write() as writer:
                for item in self._share(group_left, writer):
                    try:
                        with writer.attempt():
                            item.result = item.work(writer)
                    except Exception as error:
                        item.error = error
        except BaseException as error:
            # The write was undone: who was refused keeps the reason, everybody else gets this one. An interrupt is
            # the leader's own: in the threads and tasks of others it would end what nobody meant to end.
            told = error if isinstance(error, Exception) else _interrupted(error)
            for item in group:
                if item.error is None:
                    item.error, item.result = told, None
            if not isinstance(error, Exception):
                raise
        else:
            self._committed()

    def _share(self, group: list[Item], writer: Writer) -> list[Item]:
        """Do together what can be, and return what is left to be done one by one."""
        sharing = [item for item in group if _may_share(item.work)]
        if len(sharing) < 2:
            return group
        works: list[Any] = [item.work for item in sharing]
        try:
            with writer.attempt():
                outcomes = works[0].together(works, writer)
        except Exception:
            _logger.exception("works could not be done together, and are done one by one")
            return group
        for item, outcome in zip(sharing, outcomes, strict=True):
            if isinstance(outcome, Exception):
                item.error = outcome
            else:
                item.result = outcome
        done = set(map(id, sharing))
        return [item for item in group if id(item) not in done]

    def _pass_the_lead(self) -> None:
        with self._lock:
            if not self._waiting:
                self._leading = False
            elif (gate := self._waiting[0].gate) is not None:
                self._waiting[0].asked = True
                gate.release()
            else:
                self._wake_thread()

    def _wake_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._lead_for_others, name="everlog-committer", daemon=True)
            self._thread.start()
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


def _interrupted(error: BaseException) -> Unavailable:
    return Unavailable(
        "the write was interrupted",
        why=f"the thread that wrote for several was stopped by {type(error).__name__}",
        hint="look whether it was recorded; with an idempotency key it can simply be repeated",
    )


def _ready(group: list[Item]) -> list[Item]:
    """Make a group's works ready, and return those that were not refused."""
    _make_ready([item.work for item in group])
    for item in group:
        item.error = _refusal(item.work)
    return [item for item in group if item.error is None]


def _make_ready(works: list[Any]) -> Exception | None:
    """Make the works ready that can be, and return the refusal of the first, if it has one."""
    shared = [work for work in works if isinstance(work, Shared)]
    if shared:
        shared[0].make_ready(shared)
    return _refusal(works[0])


def _refusal(work: Any) -> Exception | None:
    return work.refusal if isinstance(work, Shared) else None


def _may_share(work: Any) -> bool:
    return isinstance(work, Shared) and work.may_share


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
