"""Ctrl-C, held back while locks are held.

Python raises KeyboardInterrupt between any two steps of the main thread. Between taking a lock and knowing that it
was taken there is no place to catch it, and a log whose lock nobody holds or releases hangs for ever. So an interrupt
waits until the write has ended, a matter of milliseconds, and is raised then. Another Ctrl-C, a second later or more,
is raised at once: somebody means it, perhaps because the write waits for another process. Another handler (of
asyncio, of Spark) is called then too: it may raise as well.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import FrameType, TracebackType
from typing import Any

PATIENCE_S = 1.0

# Beneath the module's own functions, which turn numbers into enum members and back: ten times the cost of the rest.
_beneath = import_module("_signal") if find_spec("_signal") else signal
_set_handler: Callable[[int, Any], Any] = _beneath.signal
_handler_of: Callable[[int], Any] = _beneath.getsignal
_SIGINT = int(signal.SIGINT)

_this_thread = threading.get_ident
_main_thread = threading.main_thread().ident


def _in_a_forked_child() -> None:
    """The thread that forked is the main thread of the child."""
    global _main_thread
    _main_thread = _this_thread()


os.register_at_fork(after_in_child=_in_a_forked_child)


class HeldBack:
    """A context in which the first SIGINT waits for its end. Only the main thread gets any."""

    __slots__ = ("_before", "_came", "_where")

    def __enter__(self) -> None:
        self._came = 0.0
        self._where: FrameType | None = None
        self._before: Any = None
        if _this_thread() == _main_thread:
            before = _handler_of(_SIGINT)
            if callable(before):  # else it is ignored, or ends the process, or is no matter of Python's
                self._before = before
                _set_handler(_SIGINT, self._hold_back)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._before is not None:
            _set_handler(_SIGINT, self._before)
            if self._came:
                self._before(_SIGINT, self._where)

    def _hold_back(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._came and now - self._came > PATIENCE_S:
            self._before(number, frame)
            return
        self._came, self._where = self._came or now, frame
