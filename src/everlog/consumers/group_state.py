"""The stored state of a group: small notes in the log that commit with a write.

    consumers/NAME/group             its definition, its members with their leases, the owner of each partition
    consumers/NAME/partition/00007   how much of a partition is finished
    dead-letter/NAME/…               see everlog.log.dead_letters

A token is a number that only grows. Each membership and each grant of a partition gets a new one, so a caller with
an old token has been replaced.
"""

from __future__ import annotations

import msgspec

from everlog.core.query import Query
from everlog.stores.open_write import OpenWrite
from everlog.stores.small_state import NOTES, RowReader, read_note, read_notes

PREFIX = "consumers/"
_GROUP = "/group"


class Membership(msgspec.Struct, frozen=True):
    """A member's lease in the group, which ends at a moment of the store's time."""

    token: int
    until_us: int


class Grant(msgspec.Struct, frozen=True, omit_defaults=True):
    """The owner of a partition, or an empty name. The token stays when the partition becomes free; it only grows."""

    member: str = ""
    token: int = 0


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    query: Query
    start: str  # the cursor at which a partition begins
    grants: tuple[Grant, ...]
    members: dict[str, Membership] = msgspec.field(name="seats", default_factory=dict)  # "seats" is its name on disk
    tokens: int = 0  # the last one that was issued
    decisions: int = 0  # how many decisions people made: a change makes members read the dead letters again

    def held_by(self, member: str) -> list[int]:
        return [number for number, grant in enumerate(self.grants) if grant.member == member]

    def granting(self, changed: dict[int, Grant]) -> GroupState:
        grants = tuple(changed.get(number, grant) for number, grant in enumerate(self.grants))
        return msgspec.structs.replace(self, grants=grants)


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a partition is: its events up to the cursor are finished, and after it those in `done`."""

    cursor: str
    done: tuple[int, ...] = ()
    attempts: dict[int, tuple[int, int]] = {}  # position -> number of failures, when to try again
    watched: int = 0  # this many of the next events are recorded before delivery: an owner vanished
    begun: tuple[int, ...] = ()  # those that were recorded and whose outcome is not known yet


def read_group(state: RowReader, name: str) -> GroupState | None:
    text = read_note(state, f"{PREFIX}{name}{_GROUP}")
    return None if text is None else _decode_group(text)


def keep_group(writer: OpenWrite, name: str, state: GroupState) -> None:
    writer.put(NOTES, {f"{PREFIX}{name}{_GROUP}": _encode(state)})


def read_progress(state: RowReader, name: str, partition: int) -> Progress | None:
    text = read_note(state, _progress_key(name, partition))
    return None if text is None else _decode_progress(text)


def keep_progress(writer: OpenWrite, name: str, partition: int, progress: Progress | None) -> None:
    writer.put(NOTES, {_progress_key(name, partition): None if progress is None else _encode(progress)})


def group_names(state: RowReader) -> list[str]:
    keys = read_notes(state, PREFIX)
    return [key.removeprefix(PREFIX).removesuffix(_GROUP) for key in keys if key.endswith(_GROUP)]


def forget_group(writer: OpenWrite, name: str) -> None:
    for key in read_notes(writer, f"{PREFIX}{name}/"):
        writer.put(NOTES, {key: None})


def _progress_key(name: str, partition: int) -> str:
    return f"{PREFIX}{name}/partition/{partition:05}"


_encode = msgspec.json.Encoder().encode
_decode_group = msgspec.json.Decoder(GroupState).decode
_decode_progress = msgspec.json.Decoder(Progress).decode
