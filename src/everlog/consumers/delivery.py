"""One event that a consumer is handling, until it acknowledges or refuses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everlog.core.event import Event, Position, Recorded

if TYPE_CHECKING:
    from everlog.consumers.member import Member
    from everlog.consumers.window import PendingEvent, Window


class Delivery:
    """An event to handle. `ack` after its effects are durable, `nack` if it failed.

    `token` grows with every owner of its partition. Effects outside the log can carry it: a receiver that has seen a
    greater token of the partition refuses it, so a consumer that was replaced while it slept does no harm.
    """

    def __init__(self, member: Member, window: Window, entry: PendingEvent) -> None:
        self._member = member
        self.window = window
        self.entry = entry
        self.settled = False

    @property
    def recorded(self) -> Recorded:
        return self.entry.recorded

    @property
    def event(self) -> Event:
        return self.entry.recorded.event

    @property
    def position(self) -> Position:
        return self.entry.recorded.position

    @property
    def key(self) -> str:
        return self.entry.key

    @property
    def partition(self) -> int:
        return self.window.partition

    @property
    def token(self) -> int:
        return self.window.token

    @property
    def attempt(self) -> int:
        """1 for the first attempt; more after recorded failures."""
        return self.entry.attempts + 1

    def ack(self) -> None:
        """Acknowledge the event: its effects are durable. Raise LeaseLost if another member has the partition now."""
        self._member.ack(self)

    def nack(self, reason: str = "", *, retry_in_s: float | None = None) -> None:
        """Refuse the event: it failed. It is delivered again later, and becomes a dead letter after the last
        attempt."""
        self._member.nack(self, reason, retry_in_s=retry_in_s)

    def __repr__(self) -> str:
        return f"Delivery({self.position}, key={self.key!r}, attempt={self.attempt})"
