"""Places in a log as people name them: `10m`, `2026-11-01`, `2026-11-01T10:00Z`, `#1234`.

Times without a zone are UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from everlog.views.as_of import Moment

_AGO = re.compile(r"-?(\d{1,9})\s*(s|m|h|d|w)")
_POSITION = re.compile(r"#(\d{1,16})")
_LAMPORT = re.compile(r"lamport:(\d{1,16})")
_NUMBER = re.compile(r"\d{1,7}")  # eight digits are a date: 20261101
_VERSION = re.compile(r"v(\d{1,16})")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class MomentType(click.ParamType[datetime]):
    """A time: so long ago, or by the calendar."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            ago = _AGO.fullmatch(value)
            if ago is not None:
                return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
            found = datetime.fromisoformat(value)
            return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a time; give 10m, 2h, 3d, 2026-11-01 or 2026-11-01T10:00Z", param, ctx)


class PlaceType(click.ParamType[datetime | int]):
    """A time, or a position as #1234."""

    name = "time or #position"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime | int:
        if isinstance(value, int | datetime):
            return value
        position = _POSITION.fullmatch(value) if isinstance(value, str) else None
        if position is None and _NUMBER.fullmatch(value):
            self.fail(f"{value!r} is not a time; the position is written '#{value}', a time such as 10m", param, ctx)
        return int(position[1]) if position is not None else MOMENT.convert(value, param, ctx)


class AsOfType(click.ParamType["Moment"]):
    """A moment to go back to: a place, `lamport:41`, or `v3` for the third event of a stream."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Moment:
        from everlog.views.as_of import Lamport, Version

        if not isinstance(value, str):
            found: Moment = value
            return found
        if _NUMBER.fullmatch(value):
            self.fail(
                f"{value!r} could be several moments; the position is written '#{value}', a stream's event number"
                f" {value} is v{value}, and its clock lamport:{value}",
                param,
                ctx,
            )
        lamport, version = _LAMPORT.fullmatch(value), _VERSION.fullmatch(value)
        if lamport is not None:
            return Lamport(int(lamport[1]))
        return Version(int(version[1])) if version is not None else PLACE.convert(value, param, ctx)


class TakesMoments(click.Command):
    """A command whose arguments may be `-10m`, which looks like a row of options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [text.removeprefix("-") if _AGO.fullmatch(text) else text for text in args])


MOMENT = MomentType()
PLACE = PlaceType()
AS_OF = AsOfType()
