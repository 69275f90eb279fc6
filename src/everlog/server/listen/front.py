"""What the whole server shares: its phase, the rates, the connections by token, and the metrics."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection
from typing import Literal

from everlog.errors import NotReady, TooManyRequests
from everlog.server.listen.hosts import known_hosts
from everlog.server.listen.limits import Limits, Rates, Taken
from everlog.server.observe.current import CURRENT
from everlog.server.observe.metrics import Metrics

Phase = Literal["starting", "serving", "draining", "refusing"]
"""In `draining`, requests are still answered, and every connection ends with its answer; `refusing` answers none."""


class Front:
    def __init__(
        self,
        limits: Limits | None = None,
        *,
        host_names: Collection[str] = (),
        behind_proxy: bool = False,
        log_requests: bool = False,
    ) -> None:
        self.limits = limits or Limits()
        self.hosts = known_hosts(host_names)
        self.behind_proxy = behind_proxy
        self.log_requests = log_requests
        self.phase: Phase = "serving"
        self.metrics = Metrics()
        self.by_token: Counter[str] = Counter()  # open connections
        self._rates = Rates(self.limits.requests_per_s, self.limits.burst_s) if self.limits.requests_per_s else None
        self._refusals = Rates(self.limits.refusals_per_s, 1)

    # ---- rates

    def take(self, token: str) -> Taken | None:
        """Count a request of a token, and return what is left to it; None if there is no limit."""
        return None if self._rates is None else self._rates.take(token, time.monotonic())

    def require_rate(self, taken: Taken | None) -> None:
        if taken is not None and self._rates is not None and not taken.allowed:
            raise TooManyRequests(
                "this token sends too many requests",
                why=f"{self._rates.per_s:,} per second are answered, and {self._rates.quota:,} at once",
                hint="wait, or send events in batches",
                retry_after_s=1,
                limit=self._rates.per_s,
            )

    def rate_headers(self, taken: Taken | None) -> list[tuple[str, str]]:
        """Return what an answer says about the limit (draft-ietf-httpapi-ratelimit-headers)."""
        if taken is None or self._rates is None:
            return []
        return [
            ("ratelimit-policy", f'"token";q={self._rates.quota};w={self._rates.burst_s}'),
            ("ratelimit", f'"token";r={taken.left};t={taken.full_in_s}'),
        ]

    def records_refusal(self) -> bool:
        """Return whether a refusal of the present caller is recorded in the log, or only counted."""
        current = CURRENT.get()
        if current is None:
            return True
        allowed = self._refusals.take(current.token, time.monotonic()).allowed
        if not allowed:
            self.metrics.refusals_not_recorded.add()
        return allowed

    # ---- connections

    def claim(self, token: str, before: str) -> None:
        """Count a connection for a token, instead of the one that used it before. Raise if it has too many."""
        if self.by_token[token] >= self.limits.connections_per_token_max:
            raise TooManyRequests(
                "this token has too many connections",
                why=f"one token may have {self.limits.connections_per_token_max:,}",
                hint="close some, or share one",
                retry_after_s=1,
                limit=self.limits.connections_per_token_max,
            )
        self.by_token[token] += 1
        self.release(before)

    def release(self, token: str) -> None:
        if token:
            self.by_token[token] -= 1
            if self.by_token[token] <= 0:
                del self.by_token[token]

    # ---- phase

    def require_serving(self) -> None:
        if self.phase == "refusing":
            raise NotReady("the server is stopping", hint="try again: another one may answer", retry_after_s=1)
