"""Parse a moment of a log as people write it.

    10m  -10m  2h  3d  1w              a time ago
    2026-11-01  2026-11-01T10:00Z      a time; without a zone it is UTC
    #1234  position:1234               a position; the second form needs no escape in a URL
    lamport:41                         a value of the causal clock
    v3                                 the third event of a stream

Text that is none of these raises InvalidField; its hint lists what is accepted.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from everlog.errors import InvalidField

if TYPE_CHECKING:
    from everlog.views.as_of import Moment as Moment

_AGO = re.compile(r"-?(\d{1,9})\s*(s|m|h|d|w)")
_POSITION = re.compile(r"(?:#|position:)(\d{1,16})")
_LAMPORT = re.compile(r"lamport:(\d{1,16})")
_VERSION = re.compile(r"v(\d{1,16})")
_NUMBER = re.compile(r"\d{1,7}")  # eight digits are a date: 20261101
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_time(text: str) -> datetime:
    """Return the time that the text names: a time ago, or a date with or without a time of day."""
    try:
        ago = _AGO.fullmatch(text)
        if ago is not None:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidField(
            f"{text!r} is not a time", hint="give 10m, 2h, 3d, 2026-11-01 or 2026-11-01T10:00Z"
        ) from None


def parse_time_ahead(text: str) -> datetime:
    """Return a time in the future: so long from now, or a date with or without a time of day."""
    ahead, now = _AGO.fullmatch(text), datetime.now(UTC)
    try:
        found = parse_time(text) if ahead is None else now + timedelta(**{_UNITS[ahead[2]]: int(ahead[1])})
    except OverflowError:
        found = now
    if found <= now:
        raise InvalidField(f"{text!r} is not a time in the future", hint="give 12h, 30d or 2027-01-01")
    return found


def parse_time_or_position(text: str) -> datetime | int:
    """Return a position if the text is one, such as #1234, otherwise a time."""
    position = _POSITION.fullmatch(text)
    if position is not None:
        return int(position[1])
    if _NUMBER.fullmatch(text):
        raise InvalidField(f"{text!r} is not a time", hint=f"the position is written '#{text}', a time such as 10m")
    return parse_time(text)


def parse_moment(text: str) -> Moment:
    """Return the moment that a state is shown at: a time, a position, `lamport:41`, or `v3`."""
    from everlog.views.as_of import Lamport, Version

    if _NUMBER.fullmatch(text):
        raise InvalidField(
            f"{text!r} could be several moments",
            hint=f"the position is written '#{text}', a stream's event number {text} is v{text}, and its clock"
            f" lamport:{text}",
        )
    lamport, version = _LAMPORT.fullmatch(text), _VERSION.fullmatch(text)
    if lamport is not None:
        return Lamport(int(lamport[1]))
    return Version(int(version[1])) if version is not None else parse_time_or_position(text)


def is_time_ago(text: str) -> bool:
    """Return whether the text is a time ago, such as `-10m`, which looks like an option of a command."""
    return _AGO.fullmatch(text) is not None
