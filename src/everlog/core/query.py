"""What a reader asks for, and how far it has got: queries, cursors, pages and resets."""

from __future__ import annotations

import re
from datetime import datetime

import msgspec

from everlog.core.event import START, Event, Position, Recorded
from everlog.errors import InvalidField


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A filter. Every part that is given must match; a filter never changes the order of what it lets through."""

    types: frozenset[str] = frozenset()
    stream: str = ""
    kind: str = ""
    scope: str = ""  # a path prefix: "acme/shop" matches "acme/shop" and "acme/shop/prod"
    actor: str = ""
    correlation_id: str = ""
    since: datetime | None = None  # by the time of arrival, inclusive
    until: datetime | None = None  # by the time of arrival, exclusive

    def matches(self, recorded: Recorded) -> bool:
        event = recorded.event
        return (
            (not self.types or event.type in self.types)
            and (not self.stream or event.stream == self.stream)
            and (not self.kind or event.kind == self.kind)
            and (not self.scope or in_scope(event.scope, self.scope))
            and self.matches_person(event)
            and (self.since is None or recorded.received_at >= self.since)
            and (self.until is None or recorded.received_at < self.until)
        )

    def matches_person(self, event: Event) -> bool:
        """The parts that no store keeps an index for."""
        return (not self.actor or event.actor == self.actor) and (
            not self.correlation_id or event.correlation_id == self.correlation_id
        )


EVERYTHING = Query()


def in_scope(scope: str, prefix: str) -> bool:
    """True when a scope is the prefix itself or lies below it: "acme" covers "acme/shop", not "acmecorp"."""
    return not prefix or scope == prefix or scope.startswith(prefix + "/")


def scopes_touch(scope: str, other: str) -> bool:
    """True when one of two scopes lies within the other."""
    return in_scope(scope, other) or in_scope(other, scope)


_CURSOR = re.compile(r"#?(\d{1,16})(?:~(\d{1,16}))?(?:@([0-9A-Za-z]{1,26}))?")


class Cursor(msgspec.Struct, frozen=True):
    """How far a reader got, as `position~knows@epoch`; the plain position is a cursor too.

    `knows` is the greatest purge that the reader already took into account although its position is still below:
    so a reader that replays a purged log from the start is not told of old purges at every page, and one that
    holds state from before a purge always is. `epoch` names the copy of the log; a restored copy is another one.
    """

    position: Position = START
    knows: Position = START
    epoch: str = ""

    def __str__(self) -> str:
        knows = f"~{self.knows}" if self.knows > self.position else ""
        return f"{self.position}{knows}{'@' if self.epoch else ''}{self.epoch}"

    @classmethod
    def of(cls, value: Cursor | int | str) -> Cursor:
        """The cursor of its text, of a plain position, or of itself."""
        if isinstance(value, Cursor):
            return value
        found = _CURSOR.fullmatch(str(value))
        if found is None:
            raise InvalidField(
                f"{str(value)[:60]!r} is not a cursor",
                why="a cursor is a position, or the text that a page gave as its next cursor",
                hint="start with 0, or use the 'next' of the last page as it is",
                field="cursor",
            )
        position, knows, epoch = found.groups()
        return cls(Position(int(position)), Position(int(knows or 0)), epoch or "")


class Reset(msgspec.Struct, frozen=True):
    """History changed under a cursor: drop what was derived, fetch state anew, go on from `cursor`."""

    cursor: Cursor
    reason: str  # "purged" or "restored"


class Page(msgspec.Struct, frozen=True):
    """Some records in order, and how far the page looked, so that a reader with rare matches moves on."""

    events: tuple[Recorded, ...]
    next_cursor: Cursor
    head: Position
    reset: Reset | None = None

    @property
    def at_head(self) -> bool:
        """True when there was nothing more to look at."""
        return self.next_cursor.position >= self.head
