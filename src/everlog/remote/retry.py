"""Which failures are tried again, and when: only requests that may be sent twice, after pauses that grow and vary."""

from __future__ import annotations

import random
from typing import Any

from everlog.errors import EverlogError, PeerUnavailable, StorageFull, Unavailable, ViewBehind
from everlog.remote.calls import Call, Reply

ATTEMPTS = 6
"""Together they last about 5 seconds: as long as a server needs to start again."""

ATTEMPTS_AT_FIRST = 3
"""For a server that has never answered: probably its address is wrong."""

_PAUSE_S, _PAUSE_S_MAX = 0.1, 5.0
RETRY_AFTER_S_MAX = 60.0
"""A server that wants a longer pause gets no further request; the caller gets its answer."""


class NotSent(PeerUnavailable):
    """No byte of a request can have reached the server: it may be sent again, whatever it is."""


def pause_s(attempt: int) -> float:
    """Return how long to wait after a failed attempt, the first of which is 1."""
    return min(_PAUSE_S_MAX, _PAUSE_S * 2.0**attempt) * (0.5 + random.random() / 2)


def pause_before_next(call: Call[Any], error: EverlogError, attempt: int, *, answered: bool = True) -> float | None:
    """Return how long to wait before a request is sent again; None if it must not be.

    `answered`: this server has answered before.
    """
    attempts = ATTEMPTS if answered or not isinstance(error, NotSent) else ATTEMPTS_AT_FIRST
    if attempt >= attempts or not (call.repeatable or isinstance(error, NotSent)):
        return None
    if not error.retryable or not isinstance(error, Unavailable) or isinstance(error, ViewBehind | StorageFull):
        return None  # it would only be refused again, or it has waited already
    wanted = float(error.details.get("retry_after_s", 0) or 0)
    return None if wanted > RETRY_AFTER_S_MAX else max(wanted, pause_s(attempt))


def retry_after(reply: Reply) -> float:
    """Return the seconds that a server asks for; 0 if it asks for none."""
    text = reply.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else 0.0


def gone(server: str, why: str, *, sent: bool) -> PeerUnavailable:
    """Return the error for a server that does not answer."""
    kind = PeerUnavailable if sent else NotSent
    return kind(
        f"{server} does not answer",
        why=why,
        hint="check the URL, and that everlog serve runs there",
    )
