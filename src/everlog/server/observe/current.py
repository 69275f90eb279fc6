"""The request that is being answered, for log lines and refusals. Threads that work for it see it, too."""

from __future__ import annotations

from contextvars import ContextVar
from itertools import count

from everlog.core.ids import new_id


class Current:
    """What is known of a request so far."""

    __slots__ = ("headers", "log", "request_id", "route", "token", "traceparent")

    def __init__(self, request_id: str, traceparent: str = "") -> None:
        self.request_id = request_id
        self.traceparent = traceparent
        self.route = "none"
        self.token = ""
        self.log = ""
        self.headers: list[tuple[str, str]] = []  # of its answer, whatever that is


_PROCESS, _NUMBERS = str(new_id()), count(1)


def new_request_id() -> str:
    """Return an id that no other request has: that of this process, and a number."""
    return f"{_PROCESS}-{next(_NUMBERS)}"


CURRENT: ContextVar[Current | None] = ContextVar("everlog_request", default=None)
