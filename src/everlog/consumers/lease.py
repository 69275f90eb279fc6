"""How long a member has its seat, by its own ticks: it sees the store's clock at a contact and not in between."""

from __future__ import annotations

from collections.abc import Callable

from everlog.consumers.contact import Outcome


class Lease:
    def __init__(self, lease_us: int, ticks: Callable[[], float]) -> None:
        self.token = 0  # of the seat; 0: there is none
        self.length_s = lease_us / 1_000_000
        self._ticks = ticks
        self._until_s = 0.0
        self._renew_s = 0.0
        self._now_us = 0  # the store's time at the last contact, and our ticks then
        self._now_s = 0.0

    @property
    def runs(self) -> bool:
        return self._ticks() < self._until_s

    def is_due(self, now_s: float) -> bool:
        """Whether it is time to take a seat, for the first time or again, or to renew the lease of ours."""
        return not self.token or now_s >= self._renew_s

    def take_in(self, outcome: Outcome, before_s: float) -> None:
        """What a contact said that was asked for at `before_s`."""
        self._now_us, self._now_s = outcome.now_us, self._ticks()
        self.token = outcome.token
        # The lease began when the store looked at its clock, not before we asked: so ours ends no later than its.
        self._until_s = before_s + (outcome.until_us - outcome.now_us) / 1_000_000
        self._renew_s = self._until_s - self.length_s * 2 / 3

    def store_now_us(self) -> int:
        """The store's time as far as we can tell without asking."""
        return self._now_us + int((self._ticks() - self._now_s) * 1_000_000)
