"""The items of a commit group: the work of each caller, carried out in order, each refused alone.

Neighbours that can be batched are carried out together, which costs less. If a whole group fails, each caller gets a
copy of the error.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from types import FunctionType, MemberDescriptorType
from typing import Any, Protocol, TypeVar

from everlog.stores.open_write import OpenWrite

T = TypeVar("T")
Work = Callable[[OpenWrite], T]

_logger = logging.getLogger("everlog")


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


def runs(group: list[Item]) -> Iterator[list[Item]]:
    """Divide a group, in its order, into runs of neighbours that can be batched: no append overtakes another."""
    run: list[Item] = []
    for item in group:
        if run and not (item.can_batch and run[-1].can_batch):
            yield run
            run = []
        run.append(item)
    yield run


def prepare_all(group: list[Item]) -> None:
    unready = [item for item in group if not item.ready]
    if unready:
        unready[0].prepare(unready)


def do(run: list[Item], write: OpenWrite) -> None:
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


def wake(group: list[Item]) -> None:
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


def own_copy(error: Exception) -> Exception:
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
