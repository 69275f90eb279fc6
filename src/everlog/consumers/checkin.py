"""A member checks in with its group: everything that must be true at the same time happens in one write.

The order inside that write is the guarantee. First, members whose lease has ended are removed; then the caller's
tokens are compared; only what the caller still holds is written. So a member that lost its lease can neither
acknowledge an event nor move a cursor, however late its write arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from everlog.consumers import assignment
from everlog.consumers.group_state import (
    Grant,
    GroupState,
    Membership,
    Progress,
    keep_group,
    keep_progress,
    read_group,
    read_progress,
)
from everlog.consumers.settings import WATCHED_EVENTS
from everlog.log.dead_letters import (
    OPEN,
    GroupLetter,
    keep_letter,
    read_letters,
    remove_letter,
)
from everlog.stores.open_write import OpenWrite


@dataclass(frozen=True)
class Finished:
    """What a member has finished in one partition since it last checked in."""

    token: int
    progress: Progress | None  # None: the cursor has not changed
    letters: tuple[GroupLetter, ...] = ()
    forgotten: tuple[GroupLetter, ...] = ()


@dataclass(frozen=True)
class CheckIn:
    """What a member requests of its group."""

    group: str
    member: str
    token: int  # of its lease; 0 to join
    lease_us: int
    finished: dict[int, Finished]
    idle: tuple[int, ...] = ()  # partitions with nothing in flight, which it can release
    rebalance: bool = False  # also release and take partitions
    leave: bool = False


@dataclass
class CheckInResult:
    """The answer to a check-in."""

    now_us: int
    token: int = 0  # 0: the lease was lost
    until_us: int = 0
    overtaken: bool = False  # another member joined under the same name
    lost: set[int] = field(default_factory=set)
    released: set[int] = field(default_factory=set)
    taken: dict[int, tuple[int, Progress | None, list[GroupLetter]]] = field(default_factory=dict)
    surplus: int = 0
    state: GroupState | None = None


class Lease:
    """A member's own view of its lease, by its own clock: it sees the store's clock only when it checks in."""

    def __init__(self, lease_us: int, ticks: Callable[[], float]) -> None:
        self.token = 0  # of the lease; 0: there is none
        self.length_s = lease_us / 1_000_000
        self._ticks = ticks
        self._until_s = 0.0
        self._renew_s = 0.0
        self._now_us = 0  # the store's time when it last checked in, and our ticks then
        self._now_s = 0.0

    @property
    def runs(self) -> bool:
        return self._ticks() < self._until_s

    def is_due(self, now_s: float) -> bool:
        """Return whether it is time to join, to join again, or to renew the lease."""
        return not self.token or now_s >= self._renew_s

    def update(self, outcome: CheckInResult, before_s: float) -> None:
        """Take over the result of a check-in that was requested at `before_s`."""
        self._now_us, self._now_s = outcome.now_us, self._ticks()
        self.token = outcome.token
        # The lease began when the store read its clock, which was after `before_s`: so ours ends no later than the
        # store's.
        self._until_s = before_s + (outcome.until_us - outcome.now_us) / 1_000_000
        self._renew_s = self._until_s - self.length_s * 2 / 3

    def store_now_us(self) -> int:
        """Return an estimate of the store's time, without a request."""
        return self._now_us + int((self._ticks() - self._now_s) * 1_000_000)


def check_in(
    writer: OpenWrite, request: CheckIn, agreed: Callable[[OpenWrite, GroupState | None], GroupState]
) -> CheckInResult:
    """Carry out a check-in. `agreed` returns the group to begin with, and refuses one that is defined differently."""
    found = agreed(writer, read_group(writer, request.group))
    outcome = CheckInResult(now_us=writer.now_us)
    state = assignment.without_expired(found, writer.now_us)
    if request.token == 0:
        state = assignment.with_member(state, request.member, writer.now_us + request.lease_us)
    membership = state.members.get(request.member)
    if membership is None or (request.token and membership.token != request.token):
        outcome.lost = set(request.finished)
        outcome.overtaken = membership is not None
        return outcome
    for partition in _abandoned(found, state):
        _watch(writer, request.group, partition, state)
    for partition, finished in request.finished.items():
        if not _has(state, request.member, partition, finished.token):
            outcome.lost.add(partition)
            continue
        if finished.progress is not None:
            keep_progress(writer, request.group, partition, finished.progress)
        for letter in finished.letters:
            keep_letter(writer, letter)
        for letter in finished.forgotten:
            remove_letter(writer, letter)
    if request.leave:
        state = assignment.without_members(state, {request.member})
        outcome.released = set(request.finished) - outcome.lost
    else:
        state = _renewed(state, request.member, membership, writer.now_us, request.lease_us)
        outcome.token, outcome.until_us = membership.token, state.members[request.member].until_us
        if request.rebalance:
            state = _rebalanced(writer, request, state, outcome)
    if state != found:
        keep_group(writer, request.group, state)
    outcome.state = state
    return outcome


def _abandoned(found: GroupState, state: GroupState) -> list[int]:
    """Return the partitions whose owner did not leave: its lease ended, or its name joined again."""
    pairs = zip(found.grants, state.grants, strict=True)
    return [number for number, (before, now) in enumerate(pairs) if before.member and not now.member]


def _watch(writer: OpenWrite, group: str, partition: int, state: GroupState) -> None:
    """Have the next owner record what it delivers, and count what the last owner had recorded as failed.

    So an event that kills its consumer is recognized at its second attempt, at no cost to other groups.
    """
    progress = read_progress(writer, group, partition) or Progress(cursor=state.start)
    attempts = dict(progress.attempts)
    letters = {letter.position: letter for letter in read_letters(writer, group, partition) if letter.what in OPEN}
    for position in progress.begun:
        letter = letters.get(position)
        if letter is not None:
            keep_letter(writer, msgspec.structs.replace(letter, attempts=letter.attempts + 1))
        else:
            attempts[position] = (attempts.get(position, (0, 0))[0] + 1, writer.now_us)
    watched = msgspec.structs.replace(progress, attempts=attempts, watched=WATCHED_EVENTS, begun=())
    if watched != progress:
        keep_progress(writer, group, partition, watched)


def _has(state: GroupState, member: str, partition: int, token: int) -> bool:
    return state.grants[partition] == Grant(member, token)


def _renewed(state: GroupState, member: str, membership: Membership, now_us: int, lease_us: int) -> GroupState:
    """Renew the lease from now on. During its first third it is left as it is, which saves most writes a note."""
    if membership.until_us - now_us > lease_us - lease_us // 3:
        return state
    renewed = Membership(membership.token, now_us + lease_us)
    return msgspec.structs.replace(state, members={**state.members, member: renewed})


def _rebalanced(writer: OpenWrite, request: CheckIn, state: GroupState, outcome: CheckInResult) -> GroupState:
    too_many = assignment.surplus(state, request.member)
    for partition in request.idle:
        if too_many and partition not in outcome.lost:
            state = state.granting({partition: Grant("", state.grants[partition].token)})
            outcome.released.add(partition)
            too_many -= 1
    outcome.surplus = too_many
    state, taken = assignment.taking_free(state, request.member)
    for partition, token in taken.items():
        progress = read_progress(writer, request.group, partition)
        outcome.taken[partition] = (token, progress, read_letters(writer, request.group, partition))
    return state
