"""One contact of a member with its group: everything that must be true at once happens in one write.

The order inside is the promise: first who is out of time loses its seat, then the caller shows its tokens, and only
what it still holds is written. So a member that lost its lease neither acknowledges nor moves a cursor, however late
its write arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from everlog.consumers import dealing
from everlog.consumers.states import Grant, GroupState, Place, Seat, keep_group, keep_place, read_group, read_place
from everlog.log.letters import OPEN, Letter, keep_letter, read_letters, remove_letter
from everlog.stores.contract import Writer

WATCHED = 100
"""Events that are watched after an owner vanished: as many as one has in hand, as a rule."""


@dataclass(frozen=True)
class Finished:
    """What a member has finished in one partition since the last contact."""

    token: int
    place: Place | None  # None: nothing new to say of the cursor
    letters: tuple[Letter, ...] = ()
    forgotten: tuple[Letter, ...] = ()


@dataclass(frozen=True)
class Ask:
    """What a member wants of its group."""

    group: str
    member: str
    token: int  # of its seat; 0 to join
    lease_us: int
    finished: dict[int, Finished]
    idle: tuple[int, ...] = ()  # partitions with nothing in flight, which it can give back
    deal: bool = False  # also give back and take
    leave: bool = False


@dataclass
class Outcome:
    """What became of it."""

    now_us: int
    token: int = 0  # 0: the seat was lost
    until_us: int = 0
    overtaken: bool = False  # somebody else sits there under the same name
    lost: set[int] = field(default_factory=set)
    released: set[int] = field(default_factory=set)
    taken: dict[int, tuple[int, Place | None, list[Letter]]] = field(default_factory=dict)
    surplus: int = 0
    state: GroupState | None = None


def contact(writer: Writer, ask: Ask, agreed: Callable[[Writer, GroupState | None], GroupState]) -> Outcome:
    """Do what a member asks. `agreed` makes the group that is not there yet, and refuses one that differs."""
    found = agreed(writer, read_group(writer, ask.group))
    outcome = Outcome(now_us=writer.now_us)
    state = dealing.without_expired(found, writer.now_us)
    if ask.token == 0:
        state = dealing.seated(state, ask.member, writer.now_us + ask.lease_us)
    seat = state.seats.get(ask.member)
    if seat is None or (ask.token and seat.token != ask.token):
        outcome.lost = set(ask.finished)
        outcome.overtaken = seat is not None
        return outcome
    for partition in _abandoned(found, state):
        _watch(writer, ask.group, partition, state)
    for partition, finished in ask.finished.items():
        if not _has(state, ask.member, partition, finished.token):
            outcome.lost.add(partition)
            continue
        if finished.place is not None:
            keep_place(writer, ask.group, partition, finished.place)
        for letter in finished.letters:
            keep_letter(writer, letter)
        for letter in finished.forgotten:
            remove_letter(writer, letter)
    if ask.leave:
        state = dealing.without_members(state, {ask.member})
        outcome.released = set(ask.finished) - outcome.lost
    else:
        state = _renewed(state, ask.member, seat, writer.now_us, ask.lease_us)
        outcome.token, outcome.until_us = seat.token, state.seats[ask.member].until_us
        if ask.deal:
            state = _dealt(writer, ask, state, outcome)
    if state != found:
        keep_group(writer, ask.group, state)
    outcome.state = state
    return outcome


def _abandoned(found: GroupState, state: GroupState) -> list[int]:
    """The partitions whose owner went without a word: its lease ended, or its name joined again."""
    pairs = zip(found.grants, state.grants, strict=True)
    return [number for number, (before, now) in enumerate(pairs) if before.member and not now.member]


def _watch(writer: Writer, group: str, partition: int, state: GroupState) -> None:
    """Have the next owner write down what it gives out, and count what the last one had written down as a failure.

    So an event that ends its consumer is found out at its second attempt, and nobody else pays for that.
    """
    place = read_place(writer, group, partition) or Place(cursor=state.start)
    attempts = dict(place.attempts)
    letters = {letter.position: letter for letter in read_letters(writer, group, partition) if letter.what in OPEN}
    for position in place.begun:
        letter = letters.get(position)
        if letter is not None:
            keep_letter(writer, msgspec.structs.replace(letter, attempts=letter.attempts + 1))
        else:
            attempts[position] = (attempts.get(position, (0, 0))[0] + 1, writer.now_us)
    watched = msgspec.structs.replace(place, attempts=attempts, watched=WATCHED, begun=())
    if watched != place:
        keep_place(writer, group, partition, watched)


def _has(state: GroupState, member: str, partition: int, token: int) -> bool:
    return state.grants[partition] == Grant(member, token)


def _renewed(state: GroupState, member: str, seat: Seat, now_us: int, lease_us: int) -> GroupState:
    """The seat for a whole lease from now on. Within the first third it is left: most writes then spare a note."""
    if seat.until_us - now_us > lease_us - lease_us // 3:
        return state
    renewed = Seat(seat.token, now_us + lease_us)
    return msgspec.structs.replace(state, seats={**state.seats, member: renewed})


def _dealt(writer: Writer, ask: Ask, state: GroupState, outcome: Outcome) -> GroupState:
    too_many = dealing.surplus(state, ask.member)
    for partition in ask.idle:
        if too_many and partition not in outcome.lost:
            state = state.granting({partition: Grant("", state.grants[partition].token)})
            outcome.released.add(partition)
            too_many -= 1
    outcome.surplus = too_many
    state, taken = dealing.taking_free(state, ask.member)
    for partition, token in taken.items():
        place = read_place(writer, ask.group, partition)
        outcome.taken[partition] = (token, place, read_letters(writer, ask.group, partition))
    return state
