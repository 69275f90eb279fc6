"""Every figure that bounds a caller, and the rate of each token."""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

_TOKENS_KEPT_MAX = 10_000


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    request_s: float = 10.0  # from the first byte of a request to its last
    write_s: float = 10.0  # how long a client may take nothing of what waits for it
    idle_s: int = 30  # how long a connection is kept between two requests
    stop_s: float = 10.0  # from the signal to the end of the process
    head_bytes_max: int = 32 * 1024  # of the request line and the headers
    headers_max: int = 100
    query_bytes_max: int = 8 * 1024
    connections_max: int = 2000
    connections_per_token_max: int = 1000
    requests_per_s: int = 1000  # of one token; 0: no limit
    burst_s: int = 2  # so many seconds of the rate may come at once
    refusals_per_s: int = 10  # so many refusals of a token are recorded; the rest are counted
    send_buffer_bytes: int = 128 * 1024  # what the system keeps for a stream


class Taken(NamedTuple):
    """Whether a request may go on, how many more may, and after how many seconds all may again."""

    allowed: bool
    left: int
    full_in_s: int


class Rates:
    """A bucket per token: it fills at a steady rate, and each request takes one from it."""

    def __init__(self, per_s: int, burst_s: int) -> None:
        self.per_s = per_s
        self.burst_s = burst_s
        self.quota = per_s * burst_s
        self._buckets: dict[str, tuple[float, float]] = {}  # how full, and when

    def take(self, name: str, now: float) -> Taken:
        level, before = self._buckets.get(name, (float(self.quota), now))
        level = min(self.quota, level + (now - before) * self.per_s)
        allowed = level >= 1
        if allowed:
            level -= 1
        if name not in self._buckets and len(self._buckets) >= _TOKENS_KEPT_MAX:
            self._forget_full(now)
        self._buckets[name] = (level, now)
        return Taken(allowed, int(level), math.ceil((self.quota - level) / self.per_s))

    def _forget_full(self, now: float) -> None:
        """Forget the tokens whose buckets have filled up since: they are as if they were new."""
        self._buckets = {name: (level, at) for name, (level, at) in self._buckets.items() if now - at < self.burst_s}
