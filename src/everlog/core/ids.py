"""Event ids: one 128-bit value with two spellings.

     48 bits             4    12 bits   2    62 bits
    | Unix milliseconds | 7  | random  | 10 | counter, seeded at random each millisecond |

The bits are a valid UUIDv7, and the usual text is the ULID spelling of the same bits (26 characters of
Crockford's base 32), so the two spellings name one id. Text order is time order. Within a process ids only
grow, also when the wall clock steps back.

An id of a signed log encodes its origin, so that nobody can take an id of another author:

     48 bits             4    12 bits    2    40 bits     22 bits
    | Unix milliseconds | 7  | of origin | 10 | of origin | counter |

The 52 bits are the first of SHA-256(origin). The counter is the number of the event in its chain: two processes that
write to one log in the same millisecond never make the same id.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, NewType, cast

from everlog.errors import IdFromTheFuture, InvalidField
from everlog.hiding import shown

if TYPE_CHECKING:
    from uuid import UUID

EventId = NewType("EventId", str)

AHEAD_MS_MAX = 24 * 60 * 60 * 1000
"""How far ahead of our clock the time in an id from outside may be. Ties are broken by id, so an id from the year
10889 would win them all."""

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
# Crockford's alphabet mapped to the digits that int(…, 32) reads; I, L and O are read as 1, 1 and 0.
_TO_BASE_32 = str.maketrans(_ALPHABET + "ILO" + _ALPHABET.lower() + "ilo", "0123456789abcdefghijklmnopqrstuv110" * 2)
_ALIKE = str.maketrans("ILO", "110")
# Spelled out, because str.upper() turns "ß" into "SS", and UUID() itself reads underscores, braces and "urn:".
_ULID = re.compile(r"[0-7IiLlOo][0-9A-TV-Za-tv-z]{25}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-?)[0-9a-fA-F]{4}\1[0-9a-fA-F]{4}\1[0-9a-fA-F]{4}\1[0-9a-fA-F]{12}")

_VERSION_7 = 0x7 << 76
_VARIANT = 0b10 << 62
_COUNTER_MAX = (1 << 62) - 1
_COUNTER_START_MAX = (1 << 61) - 1
_LOW_10_BITS, _LOW_30_BITS = (1 << 10) - 1, (1 << 30) - 1
_ORIGIN_COUNTER_BITS = 22
_ORIGIN_COUNTER_MAX = (1 << _ORIGIN_COUNTER_BITS) - 1


def id_text(value: int) -> EventId:
    """Return the ULID spelling of a 128-bit value."""
    pairs = _PAIRS
    return EventId("".join([pairs[(value >> shift) & 1023] for shift in range(120, -1, -10)]))


def id_value(text: str) -> int:
    """Return the 128 bits of an id in its ULID spelling."""
    return int(text.translate(_TO_BASE_32), 32)


def parse_id(text: str) -> EventId:
    """Either spelling (ULID, or UUID with or without hyphens) as the ULID text; anything else is refused."""
    if isinstance(text, str):
        if _ULID.fullmatch(text):
            return EventId(text.upper().translate(_ALIKE))
        if _UUID.fullmatch(text):
            return id_text(int(text.replace("-", ""), 16))
    raise InvalidField(
        f"{shown(str(text), 62)} is not an event id",
        why="an id is a ULID of 26 characters or a UUID",
        hint="everlog log -n 5 -q prints ids; a new event gets an id if none is given",
        field="id",
    )


def one_spelling(text: str) -> str:
    """Return an id in its ULID spelling; any other text is returned as it is.

    A cause may be named in either spelling, and both name the same event.
    """
    return parse_id(text) if _ULID.fullmatch(text) or _UUID.fullmatch(text) else text


def id_uuid(event_id: str) -> UUID:
    """Return the same id in its UUID spelling."""
    from uuid import UUID  # slow to load, and rarely needed

    return UUID(int=id_value(event_id))


def id_time_ms(event_id: str) -> int:
    """Return the Unix milliseconds in an id. They are a claim of its creator, and never define an order."""
    return id_value(event_id) >> 80


def refuse_future_id(event_id: str, *, now_ms: int) -> None:
    """Refuse an id from outside whose time is more than a day ahead of ours."""
    ahead_ms = id_time_ms(event_id) - now_ms
    if ahead_ms > AHEAD_MS_MAX:
        claimed = _claimed_time(id_time_ms(event_id))
        raise IdFromTheFuture(
            f"the id {event_id} claims the time {claimed}",
            why="an id from outside may be at most 24 hours ahead of this machine's clock",
            hint="check both clocks; leave the id out to get one from this log",
            id=event_id,
            ahead_ms=ahead_ms,
        )


def _claimed_time(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError):
        return f"{ms} ms after 1970, beyond the year 9999"


def random_bits(count: int) -> int:
    """Return random bits, like `secrets.randbits` but twice as fast."""
    size = (count + 7) // 8
    return int.from_bytes(os.urandom(size), "big") >> (8 * size - count)


class IdSource:
    """Creates ids that only grow. It has no lock: the one writer of a log owns it."""

    def __init__(
        self,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        random_bits: Callable[[int], int] = random_bits,
    ) -> None:
        self._now_ms = now_ms
        self._random_bits = random_bits
        self._ms = -1
        self._high = 0
        self._counter = 0

    def take(self, count: int, now_ms: int | None = None) -> list[EventId]:
        """Return `count` new ids in growing order, of one millisecond unless the counter is exhausted.

        `now_ms` is the time, if the caller knows it.
        """
        now = self._now_ms() if now_ms is None else now_ms
        if now > self._ms:
            self._begin(now)
        ids: list[EventId] = []
        while count:
            first = self._counter + 1
            if first > _COUNTER_MAX:
                self._begin(self._ms + 1)
                first = self._counter + 1
            # Neighbours differ in their last 10 bits only, so the first 24 characters are rendered once.
            start = first & _LOW_10_BITS
            end = min(start + count, _LOW_10_BITS + 1)
            prefix = id_text(self._high | first)[:24]
            ids += cast("list[EventId]", [prefix + pair for pair in _PAIRS[start:end]])
            self._counter = first + end - start - 1
            count -= end - start
        return ids

    def _begin(self, ms: int) -> None:
        self._ms = ms
        random = self._random_bits(73)
        self._high = (ms << 80) | _VERSION_7 | (random >> 61 << 64) | _VARIANT
        # The top bit starts at zero, which leaves room for 2^61 ids in this millisecond.
        self._counter = random & _COUNTER_START_MAX


def is_key(origin: str) -> bool:
    """Return whether an origin claims to be a key, as that of a signed log. `everlog.trust.keys.key_of` finds out
    whether it is one."""
    return origin.startswith("z6Mk")


@lru_cache(maxsize=4096)
def _bits_of(origin: str) -> int:
    """Return everything but the time and the counter of the ids of a signed origin."""
    bits = int.from_bytes(sha256(origin.encode()).digest()[:7], "big") >> 4
    return _VERSION_7 | (bits >> 40 << 64) | _VARIANT | ((bits & ((1 << 40) - 1)) << _ORIGIN_COUNTER_BITS)


def id_matches(event_id: str, origin: str, number: int) -> bool:
    """Return whether an id is one that the signed log of this origin makes for the event with this number."""
    return id_value(event_id) & ((1 << 80) - 1) == _bits_of(origin) | number & _ORIGIN_COUNTER_MAX


def signed_part(event_id: str) -> int:
    """Return the part of an id that would name its origin, if a signed log made it."""
    return (id_value(event_id) & ((1 << 80) - 1)) >> _ORIGIN_COUNTER_BITS


def signed_part_of(origin: str) -> int:
    """Return the part that all ids of a signed log have in common."""
    return _bits_of(origin) >> _ORIGIN_COUNTER_BITS


class OriginIds:
    """Creates the ids of a signed log. It has no lock: the one writer of a log owns it."""

    def __init__(self) -> None:
        self._ms = -1
        self._counter = 0
        self._origin = ""

    def take(self, count: int, origin: str, after: int, now_ms: int) -> list[EventId]:
        """Return ids in growing order for the events of an origin after a number.

        They are of one millisecond unless the counter starts again from 0 in it.
        """
        if now_ms > self._ms:
            self._ms, self._counter = now_ms, -1
        elif origin != self._origin:
            self._ms, self._counter = self._ms + 1, -1
        self._origin = origin
        bits, pairs = _bits_of(origin), _PAIRS
        ids: list[EventId] = []
        prefix, prefix_of = "", -1
        for number in range(after + 1, after + count + 1):
            counter = number & _ORIGIN_COUNTER_MAX
            if counter <= self._counter:
                self._ms, prefix_of = self._ms + 1, -1
            self._counter = counter
            if prefix_of < 0:  # the first 20 characters are rendered once
                value = (self._ms << 80) | bits
                prefix, prefix_of = id_text(value)[:20], (value & _LOW_30_BITS) >> _ORIGIN_COUNTER_BITS
            low = prefix_of << _ORIGIN_COUNTER_BITS | counter
            ids.append(EventId(prefix + pairs[low >> 20] + pairs[(low >> 10) & 1023] + pairs[low & 1023]))
        return ids


def new_id() -> EventId:
    """Return one id from a new source, for a thread that has none."""
    return IdSource().take(1)[0]
