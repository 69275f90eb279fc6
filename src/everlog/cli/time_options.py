"""Types of click parameters for times and moments. `everlog.application.events.parse_time` parses them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click

from everlog.application.events.parse_time import (
    is_time_ago,
    parse_moment,
    parse_time,
    parse_time_ahead,
    parse_time_or_position,
)
from everlog.errors import InvalidField

if TYPE_CHECKING:
    from everlog.application.events.parse_time import Moment

_Value = TypeVar("_Value")


class ParsedType(click.ParamType[_Value], Generic[_Value]):
    """A parameter that a function parses; a value that is not text has been parsed already."""

    def __init__(self, name: str, parse: Callable[[str], _Value]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> _Value:
        if not isinstance(value, str):
            found: _Value = value
            return found
        try:
            return self._parse(value)
        except InvalidField as error:
            self.fail(f"{error.what}; {error.hint}", param, ctx)


class TakesMoments(click.Command):
    """A command whose arguments may be times such as `-10m`, which click would read as options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [text.removeprefix("-") if is_time_ago(text) else text for text in args])


MOMENT: ParsedType[datetime] = ParsedType("time", parse_time)
TIME_OR_POSITION: ParsedType[datetime | int] = ParsedType("time or #position", parse_time_or_position)
AS_OF: ParsedType[Moment] = ParsedType("moment", parse_moment)
AHEAD: ParsedType[datetime] = ParsedType("time ahead", parse_time_ahead)
