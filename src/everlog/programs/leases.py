"""Who works on something: one actor at a time, until a moment (a lease). Pure, but for the clock that it is given.

A claim whose time has passed no longer counts. The next actor who takes the work records that it expired, and its own
claim, in one write. So the events alone show who had the work when. A program has `Claims` of its kind of work, and
makes an `Attempt` of what an actor wants.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from everlog.core.event import Event
from everlog.errors import RuleRefused

if TYPE_CHECKING:
    from everlog.programs.command import Decision

LONGEST = timedelta(days=7)
Minutes = Annotated[int, Meta(ge=1, le=10_080, description="How long the claim lasts, in minutes.")]


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """Its actor works on something until this moment. A later claim of the same actor extends it."""

    until: Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]


class Released(msgspec.Struct, frozen=True, kw_only=True):
    """A claim ended: its holder gave it up, or its time had passed and somebody else took the work."""

    holder: Annotated[str, Meta(min_length=1, max_length=256)]
    reason: Literal["given up", "expired"] = "given up"


class Lease(msgspec.Struct, frozen=True):
    """The last claim that was not given up; without a holder, there is none."""

    holder: str = ""
    until: str = ""

    def is_live(self, now: datetime) -> bool:
        return bool(self.holder) and datetime.fromisoformat(self.until) > now

    def after(self, event: Event) -> Lease:
        """Return what an event of a claim leaves: one type has a moment, the other one names a holder."""
        if "until" in event.payload:
            return Lease(event.actor, event.payload["until"])
        return Lease() if event.payload["holder"] == self.holder else self

    def row(self) -> dict[str, str]:
        return {"holder": self.holder, "until": self.until}


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """How a program calls the claims of its work, and its commands."""

    claimed: str  # the type of an event
    released: str
    made: type[Claimed]
    ended: type[Released]
    group: str  # the word of the program on the command line
    free: str  # its command that shows what can be claimed
    shows: str  # its command that shows one

    @property
    def types(self) -> tuple[str, str]:
        return (self.claimed, self.released)

    def left_by(self, events: Iterable[Event]) -> Lease:
        """Return the claim that a history leaves, in the same order on every clone."""
        lease = Lease()
        for event in sorted((one for one in events if one.type in self.types), key=lambda event: event.causal_order):
            lease = lease.after(event)
        return lease


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """What an actor tries with the claim of one piece of work, at a moment."""

    claims: Claims
    name: str  # of the work
    actor: str
    held: Lease
    at: datetime
    require: Callable[[str], None]  # refuses work that is not there, or that cannot be claimed or renewed now

    def take(self, minutes: int) -> list[Any]:
        """Return what a claim records. A holder extends its own claim."""
        return self._take("claim", self.at + timedelta(minutes=minutes))

    def renew(self, minutes: int) -> list[Any]:
        """Return what extends a claim; one that has expired is claimed like any other work."""
        if not self.is_mine:
            self.require("renew")
            raise RuleRefused(
                f"{self.actor} has no claim of {self.name} to renew",
                rule="a claim is renewed by its holder, before it expires",
                tried=f"renew {self.name}",
                why=self._who("had"),
                hint=f"everlog {self.claims.group} claim {self.name}",
            )
        return self._take("renew", self.at + timedelta(minutes=minutes))

    def release(self) -> list[Any]:
        """Return what gives a claim up; nothing, if there is none."""
        self.require("release")
        if not self.held.holder:
            return []
        if self.held.holder != self.actor:
            raise self._held("release")
        return [self.claims.ended(holder=self.actor)]

    def judge(self, made: Claimed | Released) -> None:
        """Judge a claim, or the end of one, that was not recorded by a command."""
        if isinstance(made, Released):
            self._judge_released(made)
            return
        if self.held.holder and self.held.holder != self.actor and not self.held.is_live(self.at):
            raise RuleRefused(
                f"the claim of {self.held.holder} on {self.name} has expired, and is not recorded as ended",
                rule="a claim ends before another begins",
                tried=f"claim {self.name}",
                why="the events show who had the work when",
                hint=f"everlog {self.claims.group} claim {self.name}, which records both",
            )
        self._take("claim", datetime.fromisoformat(made.until))

    @property
    def is_mine(self) -> bool:
        """True if this actor has the claim, and it has not expired."""
        return self.held.holder == self.actor and self.held.is_live(self.at)

    def _take(self, verb: str, until: datetime) -> list[Any]:
        if self.held.is_live(self.at) and not self.is_mine:
            self.require("release")
            raise self._held(verb)
        self.require(verb)
        if not self.at < until <= self.at + LONGEST:
            raise RuleRefused(
                f"{self.name} cannot be claimed until {_text(until)}",
                rule="a claim ends in the future, and at most 7 days from now",
                tried=f"{verb} {self.name}",
                why=f"it is {_text(self.at)} now",
                hint=f"everlog {self.claims.group} claim {self.name} --minutes 60",
            )
        made: list[Any] = [self.claims.made(until=_text(until))]
        expired = self.held.holder and self.held.holder != self.actor
        return [self.claims.ended(holder=self.held.holder, reason="expired"), *made] if expired else made

    def _judge_released(self, made: Released) -> None:
        if made.reason == "given up":
            self.release()
        if made.holder != self.held.holder or (made.reason == "expired" and self.held.is_live(self.at)):
            raise RuleRefused(
                f"{made.holder} has no claim of {self.name} that ended",
                rule="a claim is given up by its holder, or has expired",
                tried=f"release {self.name}",
                why=self._who("has"),
                hint=f"everlog {self.claims.group} {self.claims.shows} {self.name}",
            )

    def _who(self, has: str) -> str:
        return f"{self.held.holder} {has} it until {self.held.until}" if self.held.holder else "nobody has claimed it"

    def _held(self, verb: str) -> RuleRefused:
        return RuleRefused(
            f"{self.held.holder} has claimed {self.name}",
            rule="one actor at a time works on it",
            tried=f"{verb} {self.name}",
            why=f"the claim ends at {self.held.until}",
            hint=f"everlog {self.claims.group} {self.claims.free}",
            current="claimed",
        )


def now() -> datetime:
    """Return the time of this machine. It decides whether a claim has expired, not a time that a caller states."""
    return datetime.fromtimestamp(time.time_ns() // 1_000_000_000, UTC)


def made_by(decision: Decision) -> dict[str, str] | None:
    """Return who has claimed something by a decision, and until when; None if it claimed nothing."""
    last = decision.events[-1] if decision.events else None
    if last is None or "until" not in last.payload:
        return None
    return {"claimed_by": last.actor, "until": last.payload["until"]}


def _text(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
