"""What a reader requests, and how far it has read: queries, cursors, pages and resets."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from datetime import datetime
from typing import Any

import msgspec

from everlog.core.event import START, Event, Position, Purge, Recorded
from everlog.core.text import counted
from everlog.errors import InvalidField

POSITION_MAX = 2**63 - 1
"""Every store counts positions in 64 bits."""

TYPES_MAX = 10_000
"""The most types in one query: each is a variable of a statement, and SQLite allows 32,766 of these."""

_TEXTS = ("stream", "kind", "scope", "actor", "correlation_id")


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A filter. Every part that is given must match; a filter never changes the order.

    A part that no event could have, such as a text with NUL or a time without a zone, is refused here, so that
    every store gives the same answer to the same query.
    """

    types: frozenset[str] = frozenset()
    stream: str = ""
    kind: str = ""
    scope: str = ""  # a path prefix: "acme/shop" matches "acme/shop" and "acme/shop/prod"
    actor: str = ""
    correlation_id: str = ""
    since: datetime | None = None  # by the time of arrival, inclusive
    until: datetime | None = None  # by the time of arrival, exclusive

    def __post_init__(self) -> None:
        # The usual query passes a few cheap tests: one is created for every decision and every question to a view.
        if (
            type(self.types) is frozenset
            and type(self.stream) is type(self.kind) is type(self.scope) is type(self.actor) is str
            and type(self.correlation_id) is str
            and self.since is None
            and self.until is None
        ):
            try:
                together = "".join((self.stream, self.kind, self.scope, self.actor, self.correlation_id, *self.types))
            except TypeError:  # one of the types is not a text
                together = "\0"
            if together.isascii() and "\0" not in together and len(self.types) <= TYPES_MAX:
                return
        _check(self)

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
        """Return whether the parts match for which no store has an index."""
        return (not self.actor or event.actor == self.actor) and (
            not self.correlation_id or event.correlation_id == self.correlation_id
        )


def _check(query: Query) -> None:
    """Refuse a part of a query that has the wrong type or value; subclasses of str become plain texts."""
    set_part = msgspec.structs.force_setattr
    types: Any = query.types  # past the type checker it may be anything
    if isinstance(types, str | bytes) or not isinstance(types, Collection):
        raise InvalidField(
            f"the types of the query are {types!r:.60}",
            why="types are a set of names, not a single text",
            hint=f"Query(types=frozenset([{types!r:.60}]))",
            field="types",
        )
    if len(query.types) > TYPES_MAX:
        raise InvalidField(
            f"the query names {counted(len(query.types), 'type')}",
            why=f"a query takes at most {TYPES_MAX:,}",
            hint="leave the types out, and filter the events that you read",
            field="types",
        )
    set_part(query, "types", frozenset([_text("types", name) for name in query.types]))
    for field in _TEXTS:
        set_part(query, field, _text(field, getattr(query, field)))
    for field in ("since", "until"):
        moment = getattr(query, field)
        if moment is None:
            continue
        if not isinstance(moment, datetime):
            why = f"a time is a datetime, not a {type(moment).__name__}"
        elif moment.utcoffset() is None:
            why = "a time without a zone means another moment on every machine"
        else:
            continue
        raise InvalidField(
            f"the query asks for what arrived {field} {str(moment)[:60]!r}",
            why=why,
            hint="give a datetime with a zone, such as datetime(2026, 11, 15, 12, tzinfo=UTC)",
            field=field,
        )


def _text(field: str, found: object) -> str:
    if not isinstance(found, str):
        why = f"it is a text, not a {type(found).__name__}"
    elif "\0" in found:
        why = "it holds NUL, which no event has there"
    else:
        try:
            found.encode()
        except UnicodeEncodeError:
            why = "it holds half of a character (a lone surrogate), which no event has there"
        else:
            return str(found)
    raise InvalidField(
        f"the {field} of the query {'hold' if field == 'types' else 'is'} {found!r:.60}",
        why=why,
        hint="check where it comes from",
        field=field,
    )


class Newest(msgspec.Struct, frozen=True):
    """A query of which a decision needs only the newest event."""

    query: Query


Looks = Query | Newest
"""What a decision reads."""


def require_query(query: object) -> None:
    """Refuse anything that is not a query."""
    if isinstance(query, Query):
        return
    shown = f"{query!r:.60}"
    raise InvalidField(
        f"the query is {shown}",
        why=f"a query is an everlog.Query, not a {type(query).__name__}",
        hint=_query_of(query) if isinstance(query, str) else "Query(stream=…, types=…)",
        field="query",
    )


def _query_of(text: str) -> str:
    """Return what to write in place of a bare text: it is a stream or an event type."""
    shown = f"{text!r:.60}"
    return f"to read one stream: read(stream={shown})" if "/" in text else f"Query(types=frozenset([{shown}]))"


def require_position(field: str, found: object) -> None:
    """Refuse anything that is not a position; 0 is the start of the log."""
    if type(found) is int or (isinstance(found, int) and not isinstance(found, bool)):
        if 0 <= found <= POSITION_MAX:
            return
        why = "positions are numbers from 0, the start, to 2^63-1"
    else:
        why = f"a position is a whole number, not a {type(found).__name__}"
    raise InvalidField(
        f"{field} is {str(found)[:60]!r}",
        why=why,
        hint="use the position of an event, or 0 for the start of the log",
        field=field,
    )


def require_limit(found: object) -> None:
    """Refuse anything that is not a number of events to read."""
    if type(found) is int or (isinstance(found, int) and not isinstance(found, bool)):
        if 1 <= found <= POSITION_MAX:
            return
        why = "a limit is a number from 1 to 2^63-1"
    else:
        why = f"a limit is a whole number, not a {type(found).__name__}"
    raise InvalidField(
        f"the limit is {str(found)[:60]}",
        why=why,
        hint="ask for 1 or more, or leave the limit out",
        field="limit",
    )


EVERYTHING = Query()


def narrowed(query: Query, within: str) -> Query | None:
    """Return the query without what is outside of a scope; None if nothing is left of it."""
    if not within or (query.scope and in_scope(query.scope, within)):
        return query
    return msgspec.structs.replace(query, scope=within) if in_scope(within, query.scope) else None


def in_scope(scope: str, prefix: str) -> bool:
    """Return True when a scope is the prefix itself or lies below it: "acme" covers "acme/shop", not "acmecorp"."""
    return not prefix or scope == prefix or scope.startswith(prefix + "/")


def scopes_touch(scope: str, other: str) -> bool:
    """Return True when one of two scopes lies within the other."""
    return in_scope(scope, other) or in_scope(other, scope)


_CURSOR = re.compile(r"#?(\d{1,16})(?:~(\d{1,16}))?(?:@([0-9A-Za-z]{1,26}))?(?:\.([0-9a-f]{12}))?")
_PROOF_BYTES = 6


def proof_of(id: str, life: str = "") -> str:
    """Return the proof of a position that holds this event, or what a purge left of it: both have its id.

    `life` is the origin that the log took when it was put back last (`Identity.life_at`).
    """
    return hashlib.sha256((id + life).encode()).hexdigest()[: 2 * _PROOF_BYTES]


def proof_of_purge(purge: Purge) -> str:
    """Return the proof of a position that a purge took for itself."""
    return proof_of(f"purge {purge.reserved} {purge.stream} {purge.actor} {purge.purged_us}")


class Cursor(msgspec.Struct, frozen=True):
    """How far a reader has read, as `position~knows@epoch.proof`; a plain position is a cursor too.

    `knows` is the newest purge that the reader has already taken into account, although its position is still lower.
    So a reader that replays a purged log from the start gets no reset for old purges at every page, and a reader with
    state from before a purge always gets one. `epoch` names the copy of the log; a restored copy is another one.
    `proof` is a short hash of what is stored at the position: a log that was restored by hand and has grown since has
    another event there. A cursor without a proof, such as one that a person typed, is not checked that way.
    """

    position: Position = START
    knows: Position = START
    epoch: str = ""
    proof: str = ""

    def __str__(self) -> str:
        knows = f"~{self.knows}" if self.knows > self.position else ""
        proof = f".{self.proof}" if self.proof else ""
        return f"{self.position}{knows}{'@' if self.epoch else ''}{self.epoch}{proof}"

    @classmethod
    def of(cls, value: Cursor | int | str) -> Cursor:
        """Return a cursor from its text, a plain position or a cursor."""
        if isinstance(value, Cursor):
            require_position("the position of the cursor", value.position)
            require_position("what the cursor knows", value.knows)
            return value
        found = _CURSOR.fullmatch(str(value))
        if found is None:
            raise InvalidField(
                f"{str(value)[:60]!r} is not a cursor",
                why="a cursor is a position, or the text that a page gave as its next cursor",
                hint="start with 0, or use the 'next' of the last page as it is",
                field="cursor",
            )
        position, knows, epoch, proof = found.groups()
        return cls(Position(int(position)), Position(int(knows or 0)), epoch or "", proof or "")


class Reset(msgspec.Struct, frozen=True):
    """History changed under a cursor: discard derived state, fetch it again, and continue from `cursor`."""

    cursor: Cursor
    reason: str  # "purged" or "restored"


class Page(msgspec.Struct, frozen=True):
    """Some records in order, and how far the page has searched, so that a reader with rare matches advances."""

    events: tuple[Recorded, ...]
    next_cursor: Cursor
    head: Position
    reset: Reset | None = None

    @property
    def at_head(self) -> bool:
        """True when the page reached the head of the log."""
        return self.next_cursor.position >= self.head
