"""The groups of consumers of a log, for people who look after them: how far each is, what failed, and repairs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import ClassVar

import msgspec

from everlog.consumers.group import Group, groups
from everlog.errors import ConfirmationNeeded
from everlog.log.dead_letters import GroupLetter
from everlog.log.log import Log


class GroupOverview(msgspec.Struct, frozen=True, kw_only=True):
    """A group, its members, and how many positions the slowest of them is behind."""

    columns: ClassVar[tuple[str, ...]] = ("group", "members", "partitions", "key", "behind", "dead_letters")

    group: str
    members: int
    partitions: int
    key: str
    behind: int
    dead_letters: int


class MemberLag(msgspec.Struct, frozen=True, kw_only=True):
    """How far behind a member is. Without a name, it is about partitions that no member has."""

    columns: ClassVar[tuple[str, ...]] = (
        *("member", "partitions", "events", "positions", "cursor", "dead_letters", "lease_until"),
    )

    member: str
    partitions: tuple[int, ...]
    events: int | None  # None: the key is a function in the consumers' code, so they cannot be counted here
    positions: int
    cursor: int
    dead_letters: int
    lease_until: datetime | None


def group_overviews(log: Log) -> list[GroupOverview]:
    """Return every group of a log."""
    found = []
    for group in groups(log):
        lags = group.lag_in_positions()
        found.append(
            GroupOverview(
                group=group.name,
                members=sum(1 for lag in lags if lag.member),
                partitions=group.partitions,
                key=group.key_name,
                behind=max((lag.positions for lag in lags), default=0),
                dead_letters=sum(lag.dead_letters for lag in lags),
            )
        )
    return found


def member_lags(log: Log, name: str) -> list[MemberLag]:
    """Return the lag of each member of a group."""
    return [
        MemberLag(
            member=lag.member,
            partitions=lag.partitions,
            events=lag.events,
            positions=lag.positions,
            cursor=lag.cursor,
            dead_letters=lag.dead_letters,
            lease_until=datetime.fromtimestamp(lag.lease_until_us / 1e6, UTC) if lag.lease_until_us else None,
        )
        for lag in Group.stored(log, name).lag()
    ]


def dead_letters(log: Log, name: str, *, decided: bool = False) -> list[GroupLetter]:
    """Return the events that a group could not process; with `decided`, also those retried or skipped recently."""
    return Group.stored(log, name).dead_letters(decided=decided)


def retry_letter(log: Log, name: str, position: int, *, reason: str) -> GroupLetter:
    return Group.stored(log, name).retry(position, reason=reason)


def skip_letter(log: Log, name: str, position: int, *, reason: str) -> GroupLetter:
    return Group.stored(log, name).skip(position, reason=reason)


def reset_group(log: Log, name: str, *, to: str = "start", forget: bool = False, confirm: str | None) -> None:
    """Move a group to another position, or remove it. It needs the exact words `reset GROUP`."""
    group = Group.stored(log, name)
    words = f"reset {name}"
    if confirm != words:
        raise ConfirmationNeeded(
            f"after a reset of {name}, events are processed again or not at all",
            why=f"it needs the exact words: {words}",
            hint=f'if that is what you want, repeat the command with --confirm "{words}"',
            confirm=words,
        )
    if forget:
        group.forget()
    else:
        group.reset(0 if to == "start" else to)
