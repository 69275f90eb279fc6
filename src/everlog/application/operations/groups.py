"""`group.*`: groups of consumers over requests: join, take, ack, nack, renew, leave; and how far each group is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from everlog.application.consumer_groups import (
    GroupOverview,
    MemberLag,
    dead_letters,
    group_overviews,
    member_lags,
    reset_group,
    retry_letter,
    skip_letter,
)
from everlog.application.operations.fields import Filter, GroupName, MemberName, Record, record_of
from everlog.application.operations.memberships import memberships_of
from everlog.consumers import settings
from everlog.consumers.delivery import Delivery
from everlog.consumers.group import Group
from everlog.log.dead_letters import GroupLetter
from everlog.log.log import Log
from everlog.log.read.follow import POLL_S
from everlog.programs.command import Action, By, Done, Question
from everlog.programs.policy import Policy

TAKE_MAX = 1000
WAIT_S_MAX = 30.0
_READ = Policy(role="read", scope="log")
_CONSUME = Policy(role="append", scope="log", idempotent=False)
_ADMIN = Policy(role="admin", scope="log", idempotent=False)
_LEASED = ("lease_lost", "history_changed", "damaged", "read_only")

Position = Annotated[int, Meta(description="The position of the event.", ge=1, le=2**53)]
Token = Annotated[int, Meta(description="The token of its partition, as it was delivered.", ge=0, le=2**53)]


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer that joined a group."""

    group: str
    member: str
    lease_s: float
    partitions: list[int]


class DeliveryObject(msgspec.Struct, frozen=True, kw_only=True):
    """An event to handle: acknowledge it by its position and its token."""

    position: int
    token: int
    partition: int
    key: str
    attempt: int
    event: Record

    @classmethod
    def of(cls, delivery: Delivery) -> DeliveryObject:
        return cls(
            position=delivery.position,
            token=delivery.token,
            partition=delivery.partition,
            key=delivery.key,
            attempt=delivery.attempt,
            event=record_of(delivery.recorded),
        )


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """Events to handle; none if nothing is there for this consumer now."""

    deliveries: list[DeliveryObject]
    partitions: list[int]


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """What a consumer acknowledged or refused."""

    group: str
    member: str
    position: int


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer that left a group."""

    group: str
    member: str


class ResetAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Where a group begins again, or that it was removed."""

    group: str
    to: str
    forgotten: bool


class List(Question[list[GroupOverview]], frozen=True, kw_only=True):
    """Return every group of consumers, and how far behind it is."""

    verb = "list"
    columns = GroupOverview.columns
    policy = _READ

    def answer(self, log: Log, within: str) -> list[GroupOverview]:
        return group_overviews(log)


class Lag(Question[list[MemberLag]], frozen=True, kw_only=True):
    """Return how far behind each member of a group is."""

    verb = "lag"
    columns = MemberLag.columns
    policy = _READ
    example: ClassVar[dict[str, Any]] = {"group": "mailer"}

    group: GroupName

    def answer(self, log: Log, within: str) -> list[MemberLag]:
        return member_lags(log, self.group)


class DeadLetters(Question[list[GroupLetter]], frozen=True, kw_only=True):
    """Return the events that a group could not handle."""

    verb = "dead_letters"
    policy = _READ
    example: ClassVar[dict[str, Any]] = {"group": "mailer"}

    group: GroupName
    decided: Annotated[bool, Meta(description="Also those that were retried or skipped recently.")] = False

    def answer(self, log: Log, within: str) -> list[GroupLetter]:
        return dead_letters(log, self.group, decided=self.decided)


class Join(Filter, Action[Joined], frozen=True, kw_only=True):
    """Join a group of consumers, which is made if it does not exist. Each event of its filter goes to one member."""

    verb = "join"
    policy = _CONSUME
    problems = ("group_differs", "invalid_field", "busy", *_LEASED)
    example: ClassVar[dict[str, Any]] = {"group": "mailer", "member": "mailer-1", "kind": "note"}

    group: GroupName
    member: MemberName
    key: Annotated[
        str,
        Meta(
            description="What is handled in order: stream, kind, scope, actor, correlation, type, tag:NAME or"
            " payload:FIELD.",
            max_length=200,
        ),
    ] = "stream"
    partitions: Annotated[
        int, Meta(description="How many members can share the work.", ge=1, le=settings.PARTITIONS_MAX)
    ] = settings.PARTITIONS
    start: Annotated[str, Meta(description="Where a new group begins: start, head, or a cursor.", max_length=500)] = (
        "start"
    )
    lease_s: Annotated[
        float, Meta(description="After so many seconds without a request, others take over.", ge=1, le=3600)
    ] = settings.LEASE_S
    in_flight: Annotated[int, Meta(description="How many events may be handled at once.", ge=1, le=TAKE_MAX)] = 100

    def run(self, log: Log, by: By, progress: Callable[[int], None] = lambda position: None) -> Done[Joined]:
        group = Group(
            log,
            self.group,
            self.query(),
            key=self.key,
            partitions=self.partitions,
            start="0" if self.start == "start" else self.start,
            lease_s=self.lease_s,
        )
        # With one in flight, an event that is not settled before the next take has failed.
        in_flight = max(2, self.in_flight)
        joined = memberships_of(log).join(group, self.member, in_flight=in_flight, lease_s=self.lease_s)
        joined.begin()
        found = Joined(
            group=self.group, member=self.member, lease_s=self.lease_s, partitions=joined.member.partitions
        )
        return Done(found)


class Take(Action[Taken], frozen=True, kw_only=True):
    """Take the next events of a consumer's share, and renew its lease. Without `wait` it answers at once."""

    verb = "take"
    waits = True
    policy = _CONSUME
    problems = _LEASED
    example: ClassVar[dict[str, Any]] = {"group": "mailer", "member": "mailer-1", "max": 10}

    group: GroupName
    member: MemberName
    max: Annotated[int, Meta(description="At most this many.", ge=1, le=TAKE_MAX)] = 100
    wait: Annotated[float, Meta(description="Wait up to so many seconds for an event.", ge=0, le=WAIT_S_MAX)] = 0.0
    again: Annotated[
        bool, Meta(description="Also those that were taken and not settled: the answer to an earlier take was lost.")
    ] = False

    def run(self, log: Log, by: By, progress: Callable[[int], None] = lambda position: None) -> Done[Taken]:
        joined = memberships_of(log).find(self.group, self.member)
        deadline = time.monotonic() + self.wait
        waiters = log.writer.waiters
        while True:
            commits = waiters.commits  # read before the check, so that a commit during it is not missed
            found = joined.take(self.max, again=self.again)
            left = deadline - time.monotonic()
            if found or left <= 0 or waiters.closed:
                partitions = joined.member.partitions
                return Done(Taken(deliveries=list(map(DeliveryObject.of, found)), partitions=partitions))
            waiters.wait(commits, min(left, POLL_S))


class Ack(Action[Settled], frozen=True, kw_only=True):
    """Acknowledge an event: its effects are durable. It is never delivered again."""

    verb = "ack"
    policy = _CONSUME
    problems = _LEASED
    example: ClassVar[dict[str, Any]] = {"group": "mailer", "member": "mailer-1", "position": 1, "token": 1}

    group: GroupName
    member: MemberName
    position: Position
    token: Token

    def run(self, log: Log, by: By, progress: Callable[[int], None] = lambda position: None) -> Done[Settled]:
        joined = memberships_of(log).find(self.group, self.member)
        joined.settle(self.position, self.token, Delivery.ack)
        return Done(Settled(group=self.group, member=self.member, position=self.position))


class Nack(Action[Settled], frozen=True, kw_only=True):
    """Refuse an event: it failed. It is delivered again later, and becomes a dead letter after the last attempt."""

    verb = "nack"
    policy = _CONSUME
    problems = _LEASED
    example: ClassVar[dict[str, Any]] = {
        "group": "mailer",
        "member": "mailer-1",
        "position": 1,
        "token": 1,
        "reason": "the mail server is down",
    }

    group: GroupName
    member: MemberName
    position: Position
    token: Token
    reason: Annotated[str, Meta(description="Why it failed; it is recorded.", max_length=1000)] = ""
    retry_in_s: Annotated[
        Annotated[float, Meta(ge=0, le=86400)] | None,
        Meta(description="When to deliver it again; by default later each time."),
    ] = None

    def run(self, log: Log, by: By, progress: Callable[[int], None] = lambda position: None) -> Done[Settled]:
        joined = memberships_of(log).find(self.group, self.member)
        joined.settle(self.position, self.token, lambda one: one.nack(self.reason, retry_in_s=self.retry_in_s))
        return Done(Settled(group=self.group, member=self.member, position=self.position))


class Leave(Action[Left], frozen=True, kw_only=True):
    """Leave a group, so that others need not wait until the lease ends."""

    verb = "leave"
    policy = Policy(role="append", scope="log")
    example: ClassVar[dict[str, Any]] = {"group": "mailer", "member": "mailer-1"}

    group: GroupName
    member: MemberName

    def run(self, log: Log, by: By, progress: Callable[[int], None] = lambda position: None) -> Done[Left]:
        memberships_of(log).leave(self.group, self.member)
        return Done(Left(group=self.group, member=self.member))


class Retry(Action[GroupLetter], frozen=True, kw_only=True):
    """Try a dead letter of a group again; the waiting events of its key follow in order."""

    verb = "retry"
    policy = _ADMIN
    problems = ("not_found", "read_only", "secret_found")
    example: ClassVar[dict[str, Any]] = {"group": "mailer", "position": 1, "reason": "the mail server is back"}

    group: GroupName
    position: Position
    reason: Annotated[str, Meta(description="Why; it is recorded.", max_length=1000)] = ""

    def run(self, log: Log, by: By, progress: Callable[[int], None] = lambda position: None) -> Done[GroupLetter]:
        return Done(retry_letter(log, self.group, self.position, reason=self.reason))


class Skip(Action[GroupLetter], frozen=True, kw_only=True):
    """Give up a dead letter of a group for good, and record it; the waiting events of its key follow in order."""

    verb = "skip"
    policy = Policy(role="admin", scope="log", destructive=True, idempotent=False)
    problems = ("not_found", "read_only", "secret_found")
    example: ClassVar[dict[str, Any]] = {"group": "mailer", "position": 1, "reason": "the address does not exist"}

    group: GroupName
    position: Position
    reason: Annotated[str, Meta(description="Why; it is recorded.", min_length=1, max_length=1000)]

    def run(self, log: Log, by: By, progress: Callable[[int], None] = lambda position: None) -> Done[GroupLetter]:
        return Done(skip_letter(log, self.group, self.position, reason=self.reason))


class Reset(Action[ResetAnswer], frozen=True, kw_only=True):
    """Move a group to another position, or remove it: events are handled again, or not at all."""

    verb = "reset"
    policy = Policy(role="admin", scope="log", destructive=True, idempotent=False)
    problems = ("not_found", "confirmation_needed", "read_only")
    example: ClassVar[dict[str, Any]] = {"group": "mailer", "to": "head", "confirm": "reset mailer"}

    group: GroupName
    to: Annotated[str, Meta(description="start, head, or a cursor.", max_length=500)] = "start"
    forget: Annotated[bool, Meta(description="Remove the group, with its cursors and dead letters.")] = False
    confirm: Annotated[str, Meta(description="The exact words: reset GROUP.", max_length=200)] = ""

    def run(self, log: Log, by: By, progress: Callable[[int], None] = lambda position: None) -> Done[ResetAnswer]:
        reset_group(log, self.group, to=self.to, forget=self.forget, confirm=self.confirm or None)
        return Done(ResetAnswer(group=self.group, to="" if self.forget else self.to, forgotten=self.forget))
