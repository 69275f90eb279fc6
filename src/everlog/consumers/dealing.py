"""Who gets which partition: pure functions over the state of a group.

Every member may have its share and takes no more. Who has too many gives back those that it has finished; who has too
few takes what is free. Nobody is told by anybody: the shares follow from the state, in whichever write looks at it.
"""

from __future__ import annotations

import msgspec

from everlog.consumers.states import Grant, GroupState, Seat


def without_expired(state: GroupState, now_us: int) -> GroupState:
    """The state without the seats whose time is over; their partitions are free, and their holders fenced off."""
    gone = {name for name, seat in state.seats.items() if seat.until_us <= now_us}
    return without_members(state, gone) if gone else state


def without_members(state: GroupState, gone: set[str]) -> GroupState:
    freed = {number: Grant("", grant.token) for number, grant in enumerate(state.grants) if grant.member in gone}
    seats = {name: seat for name, seat in state.seats.items() if name not in gone}
    return msgspec.structs.replace(state.granting(freed), seats=seats)


def seated(state: GroupState, member: str, until_us: int) -> GroupState:
    """The state with a new seat for this member; whoever had one under its name is overtaken."""
    state = without_members(state, {member})
    token = state.tokens + 1
    return msgspec.structs.replace(state, tokens=token, seats={**state.seats, member: Seat(token, until_us)})


def shares(state: GroupState) -> dict[str, int]:
    """How many partitions each member may have. What does not divide stays with those who have the most already."""
    if not state.seats:
        return {}
    least, more = divmod(len(state.grants), len(state.seats))
    by_holding = sorted(state.seats, key=lambda name: (-len(state.held_by(name)), name))
    return {name: least + (place < more) for place, name in enumerate(by_holding)}


def taking_free(state: GroupState, member: str) -> tuple[GroupState, dict[int, int]]:
    """The state after a member took what it may of the free partitions, and their tokens."""
    wanted = shares(state)[member] - len(state.held_by(member))
    free = [number for number, grant in enumerate(state.grants) if not grant.member]
    taken = {number: state.tokens + count for count, number in enumerate(free[: max(wanted, 0)], start=1)}
    granted = state.granting({number: Grant(member, token) for number, token in taken.items()})
    return msgspec.structs.replace(granted, tokens=state.tokens + len(taken)), taken


def surplus(state: GroupState, member: str) -> int:
    """How many partitions a member has to give back."""
    return max(len(state.held_by(member)) - shares(state)[member], 0)


def is_out_of_step(state: GroupState, member: str, tokens: dict[int, int], now_us: int) -> bool:
    """Whether a member with these tokens of partitions has lost one, or has some to take or to give back."""
    held = {number: state.grants[number].token for number in state.held_by(member)}
    state = without_expired(state, now_us)
    if held != tokens or member not in state.seats or surplus(state, member):
        return True
    return bool(taking_free(state, member)[1])
