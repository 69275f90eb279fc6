"""Which partition an event belongs to, and which member has which partition: pure functions.

The events of one key are delivered in order, and a key belongs to one partition. A key has a name, so that any
process can compute it from the event alone:

    stream  kind  scope  actor  correlation  type      a field of the event
    tag:NAME                                           the text of a tag, empty if the event does not have it
    payload:FIELD                                      a field of the payload, as text

or it is a function of an event. Then every member must pass the same function, and the command line cannot use it.

Each member is entitled to an equal share of the partitions. A member with too many releases those it has finished; a
member with too few takes free ones. There is no coordinator: shares are computed from the group's state in each
write.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import blake2b

import msgspec

from everlog.consumers.group_state import Grant, GroupState, Membership
from everlog.core.event import Event
from everlog.errors import InvalidField

Key = Callable[[Event], str]
OWN = "function"
"""The name of a key that is a function, in the stored definition."""

_FIELDS: dict[str, Key] = {
    "stream": lambda event: event.stream,
    "kind": lambda event: event.kind,
    "scope": lambda event: event.scope,
    "actor": lambda event: event.actor,
    "correlation": lambda event: event.correlation_id,
    "type": lambda event: event.type,
}


def key_of(name: str) -> Key:
    """Return the function of a named key."""
    if name in _FIELDS:
        return _FIELDS[name]
    kind, _, field = name.partition(":")
    if field and kind == "tag":
        return lambda event: event.tags.get(field, "")
    if field and kind == "payload":
        return lambda event: _text(event.payload.get(field, ""))
    raise InvalidField(
        f"{name[:60]!r} is not a key",
        why=f"a key is one of {', '.join(_FIELDS)}, or tag:NAME, or payload:FIELD",
        hint="use one of these, or pass a function of an event",
        field="key",
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))


def partition_of(key: str, partitions: int) -> int:
    """Return a key's partition: the same in every process, on every machine and for ever (Python's hash is not)."""
    digest = blake2b(key.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % partitions


def without_expired(state: GroupState, now_us: int) -> GroupState:
    """Return the state without the members whose lease has ended. Their partitions are free, and their tokens old."""
    gone = {name for name, membership in state.members.items() if membership.until_us <= now_us}
    return without_members(state, gone) if gone else state


def without_members(state: GroupState, gone: set[str]) -> GroupState:
    freed = {number: Grant("", grant.token) for number, grant in enumerate(state.grants) if grant.member in gone}
    members = {name: membership for name, membership in state.members.items() if name not in gone}
    return msgspec.structs.replace(state.granting(freed), members=members)


def with_member(state: GroupState, member: str, until_us: int) -> GroupState:
    """Return the state with a new lease for this member; an earlier member of the same name is replaced."""
    state = without_members(state, {member})
    token = state.tokens + 1
    return msgspec.structs.replace(
        state, tokens=token, members={**state.members, member: Membership(token, until_us)}
    )


def shares(state: GroupState) -> dict[str, int]:
    """Return how many partitions each member may have. A remainder goes to the members that have the most already."""
    if not state.members:
        return {}
    least, more = divmod(len(state.grants), len(state.members))
    by_holding = sorted(state.members, key=lambda name: (-len(state.held_by(name)), name))
    return {name: least + (rank < more) for rank, name in enumerate(by_holding)}


def taking_free(state: GroupState, member: str) -> tuple[GroupState, dict[int, int]]:
    """Return the state after a member took its share of the free partitions, and the tokens of those."""
    wanted = shares(state)[member] - len(state.held_by(member))
    free = [number for number, grant in enumerate(state.grants) if not grant.member]
    taken = {number: state.tokens + count for count, number in enumerate(free[: max(wanted, 0)], start=1)}
    granted = state.granting({number: Grant(member, token) for number, token in taken.items()})
    return msgspec.structs.replace(granted, tokens=state.tokens + len(taken)), taken


def surplus(state: GroupState, member: str) -> int:
    """Return how many partitions a member has to release."""
    return max(len(state.held_by(member)) - shares(state)[member], 0)


def is_out_of_step(state: GroupState, member: str, tokens: dict[int, int], now_us: int) -> bool:
    """Return whether a member with these tokens has lost a partition, or has some to take or to release."""
    held = {number: state.grants[number].token for number in state.held_by(member)}
    state = without_expired(state, now_us)
    if held != tokens or member not in state.members or surplus(state, member):
        return True
    return bool(taking_free(state, member)[1])
