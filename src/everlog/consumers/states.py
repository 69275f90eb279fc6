"""What a group of consumers keeps in the log: small notes that commit with a write.

    consumers/NAME/group             how it is defined, who sits in it until when, who has which partition
    consumers/NAME/partition/00007   how far a partition is finished
    dead-letter/NAME/…               see everlog.log.letters

A token is a number that only grows. Every seat and every grant of a partition gets a new one: who comes with an old
one was overtaken.
"""

from __future__ import annotations

import msgspec

from everlog.core.query import Query
from everlog.stores.contract import Reader, Writer

PREFIX = "consumers/"
_GROUP = "/group"


class Seat(msgspec.Struct, frozen=True):
    """A member's place in the group, lent until a moment of the store's time."""

    token: int
    until_us: int


class Grant(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who has a partition; nobody, if the name is empty. The token stays when it becomes free, and only grows."""

    member: str = ""
    token: int = 0


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    query: Query
    start: str  # the cursor that a partition begins with
    grants: tuple[Grant, ...]
    seats: dict[str, Seat] = {}
    tokens: int = 0  # the last one given
    decisions: int = 0  # how often somebody decided something by hand: then members look again

    def held_by(self, member: str) -> list[int]:
        return [number for number, grant in enumerate(self.grants) if grant.member == member]

    def granting(self, changed: dict[int, Grant]) -> GroupState:
        grants = tuple(changed.get(number, grant) for number, grant in enumerate(self.grants))
        return msgspec.structs.replace(self, grants=grants)


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a partition is: everything of it up to the cursor is finished, and beyond it what `done` names."""

    cursor: str
    done: tuple[int, ...] = ()
    attempts: dict[int, tuple[int, int]] = {}  # position -> how often it failed, when it may be tried again
    watched: int = 0  # so many of the next events are given out only when that is on record: an owner vanished here
    begun: tuple[int, ...] = ()  # those of them that were, and of which nobody knows yet what became of them


def read_group(reader: Reader, name: str) -> GroupState | None:
    text = reader.noted(f"{PREFIX}{name}{_GROUP}")
    return None if text is None else _decode_group(text)


def keep_group(writer: Writer, name: str, state: GroupState) -> None:
    writer.note(f"{PREFIX}{name}{_GROUP}", _encode(state).decode())


def read_place(reader: Reader, name: str, partition: int) -> Place | None:
    text = reader.noted(_place_key(name, partition))
    return None if text is None else _decode_place(text)


def keep_place(writer: Writer, name: str, partition: int, place: Place | None) -> None:
    writer.note(_place_key(name, partition), None if place is None else _encode(place).decode())


def group_names(reader: Reader) -> list[str]:
    keys = reader.notes(PREFIX)
    return [key.removeprefix(PREFIX).removesuffix(_GROUP) for key in keys if key.endswith(_GROUP)]


def forget_group(writer: Writer, name: str) -> None:
    for key in writer.notes(f"{PREFIX}{name}/"):
        writer.note(key, None)


def _place_key(name: str, partition: int) -> str:
    return f"{PREFIX}{name}/partition/{partition:05}"


_encode = msgspec.json.Encoder().encode
_decode_group = msgspec.json.Decoder(GroupState).decode
_decode_place = msgspec.json.Decoder(Place).decode
