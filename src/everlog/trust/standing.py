"""Standing: up to which number the chain of an origin counts, decided from the signed history alone.

    open          every chain counts
    pinned        the chains of some keys count
    community     the chains of members count, as the community's own history says (`everlog.programs.community`)

Only origins that are keys are judged: anybody can write events under another name. A fork ends a chain whatever the
standing of its origin is: see `everlog.trust.forks`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import Protocol

import msgspec

from everlog.core.event import Event
from everlog.trust.keys import key_of


class Limit(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The last number of a chain that counts, and the code that explains why no later one does."""

    upto: int
    code: str


class Branch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The branch of a chain that forked which somebody named who may: its events from a number on, by their hashes.

    It ends with the last of them. Which events it has does not depend on what else the key has signed.
    """

    first: int
    hashes: tuple[bytes, ...]

    @property
    def last(self) -> int:
        return self.first + len(self.hashes) - 1

    def has(self, number: int, hash: bytes) -> bool:
        """Return whether an event is on this branch, or before it."""
        return number < self.first or (number <= self.last and self.hashes[number - self.first] == hash)


class Rights(Protocol):
    """What one state of the history says of every origin. If it can name branches of forks, it has a method
    `branch`: see `branch_of`."""

    @property
    def begun(self) -> bool:
        """Whether the history has its beginning, so that nobody can make another one."""
        ...

    @property
    def named(self) -> Collection[str]:
        """The keys of which this speaks, also before anything of them is here."""
        ...

    def limit(self, origin: str) -> Limit | None:
        """Return how far the chain of an origin counts; None if it has no end."""
        ...

    def may_remove(self, record: Event) -> bool:
        """Return whether others follow the author of a record that events were purged or erased."""
        ...


class _NamesBranches(Protocol):
    def branch(self, origin: str) -> Branch | None: ...


def branch_of(rights: Rights | _NamesBranches, origin: str) -> Branch | None:
    """Return the branch of a chain that was named; None if none was, or nobody can name one."""
    named = getattr(rights, "branch", None)
    return None if named is None else named(origin)


class Standing(Protocol):
    @property
    def deciding(self) -> Collection[str]:
        """The types of the events that decide; empty if none does."""
        ...

    def rights(self, history: Iterable[Event]) -> Rights:
        """Return what follows from the events that decide, in whatever order they are given."""
        ...

    def begins(self, event: Event) -> bool:
        """Return whether an event can begin the history, so that its author needs no right before it."""
        ...


class _WithoutHistory(ABC):
    """A standing on which no event decides. It is its own rights."""

    deciding: Collection[str] = ()
    begun = True
    named: Collection[str] = ()

    def rights(self, history: Iterable[Event]) -> Rights:
        return self

    def begins(self, event: Event) -> bool:
        return False

    def may_remove(self, record: Event) -> bool:
        return True

    @abstractmethod
    def limit(self, origin: str) -> Limit | None: ...


class Open(_WithoutHistory):
    """Every chain counts."""

    def limit(self, origin: str) -> Limit | None:
        return None


class Pinned(_WithoutHistory):
    """The chains of these keys count, and no others."""

    def __init__(self, keys: Collection[str]) -> None:
        self.named = self._origins = frozenset(key_of(key).origin for key in keys)

    def limit(self, origin: str) -> Limit | None:
        return None if origin in self._origins else Limit(0, "unknown_author")
