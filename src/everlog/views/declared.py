"""Declared views: the last or first value, the number of events, sums, the set of values. They need no code.

    class Lanes(DeclaredView):
        name = "lanes"
        types = ("workpackage.moved",)
        fields = {"lane": Last("payload.went_to"), "moves": Count(), "who": Distinct("actor")}

    class Shops(DeclaredView):
        name = "shops"
        by = "payload.shop.id"
        fields = {"revenue": Sum("payload.amount"), "largest": Top("payload.amount", 3)}

Each field of the state is one reduction of a value of the event or of its payload, and nothing else. So another
engine may compute the same in its own way: on Spark column by column, with the same digest.

A value that is missing or null changes nothing. An event whose value has a type that the reduction cannot take cannot
be applied. Sums and means are exact, so they do not depend on the order of the events: what a float cannot hold is
kept beside them, under `_` in the state.
"""

from __future__ import annotations

import re
from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Any, ClassVar

from everlog.core.canonical import canonical
from everlog.core.event import Event
from everlog.errors import InvalidField
from everlog.views.view import View

KEYS = ("stream", "type", "actor", "scope", "origin", "correlation_id")
"""The values that may be the key of a declared view, besides `payload.NAME`."""

VALUES = (*KEYS, "id", "occurred_at", "request_id", "causation_id")
"""The values of an event that a reduction may use, besides `payload.NAME`."""

PAYLOAD = "payload."
RESTS = "_"
"""The field of a state that holds what exact sums need besides their values."""

_IN_PAYLOAD = re.compile(r"payload(\.[A-Za-z_][A-Za-z0-9_]*)+").fullmatch


@dataclass(frozen=True)
class Last:
    """The value of the last event that has one, in the order of the view: the last writer wins."""

    of: str


@dataclass(frozen=True)
class First:
    """The value of the first event that has one."""

    of: str


@dataclass(frozen=True)
class Distinct:
    """All texts that the value had, sorted. An event whose value is not a text cannot be applied."""

    of: str


@dataclass(frozen=True)
class Count:
    """The number of events."""


@dataclass(frozen=True)
class Sum:
    """The sum of numbers. Beyond ±(2^53-1) it cannot be stored, and the event that exceeds this cannot be applied."""

    of: str


@dataclass(frozen=True)
class Mean:
    """The mean of numbers."""

    of: str


@dataclass(frozen=True)
class Min:
    """The least value. Numbers are less than texts."""

    of: str


@dataclass(frozen=True)
class Max:
    """The greatest value. Texts are greater than numbers."""

    of: str


@dataclass(frozen=True)
class Top:
    """The `n` greatest values, the greatest first; a value that came twice is there twice."""

    of: str
    n: int = 10


Reduction = Last | First | Distinct | Count | Sum | Mean | Min | Max | Top


class DeclaredView(View):
    """A view made of reductions; see above. Fields whose types follow from their reductions are columns."""

    by: ClassVar[str] = "stream"  # one of KEYS, or payload.NAME; an event without that value is left out
    fields: ClassVar[Mapping[str, Reduction]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.by not in KEYS and not _IN_PAYLOAD(cls.by):
            raise _unusable(f"{cls.__name__} is keyed by {cls.by!r}", f"it may be by payload.NAME, {', '.join(KEYS)}")
        for name, reduction in cls.fields.items():
            if name == RESTS:
                raise _unusable(f"{cls.__name__} has a field {name}", "this name is taken by what exact sums need")
            if isinstance(reduction, Top) and reduction.n < 1:
                raise _unusable(f"{cls.__name__}.{name} is the top {reduction.n}", "it holds at least one value")
            if not isinstance(reduction, Count) and reduction.of not in VALUES and not _IN_PAYLOAD(reduction.of):
                choices = f"payload.NAME, {', '.join(VALUES)}"
                raise _unusable(f"{cls.__name__}.{name} is of {reduction.of!r}", f"it may be of {choices}")
        cls.columns = {**{n: kind for n, one in cls.fields.items() if (kind := _kind(one))}, **cls.columns}

    @property
    def by_stream(self) -> bool:
        return self.by == "stream"

    def key(self, event: Event) -> str | None:
        if not self.by.startswith(PAYLOAD):
            found: str = getattr(event, self.by)
            return found
        value = value_of(event, self.by)
        return value if value is None or isinstance(value, str) else canonical(value).decode()

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        new = dict(state)
        for name, reduction in self.fields.items():
            if isinstance(reduction, Count):
                new[name] = new.get(name, 0) + 1
            elif (value := value_of(event, reduction.of)) is not None:
                _reduce(new, name, reduction, value)
        return new


def _reduce(state: dict[str, Any], name: str, reduction: Reduction, value: Any) -> None:
    match reduction:
        case Last():
            state[name] = value
        case First():
            state.setdefault(name, value)
        case Distinct():
            state[name] = _with_one_more(state.get(name, []), value)
        case Sum():
            if type(value) is int and type(there := state.get(name, 0)) is int and RESTS not in state:
                state[name] = there + value
            else:
                rest = state.get(RESTS, {}).get(name, [])
                state[name], *rest = _exact([state.get(name, 0), *rest, _number(value)])
                _keep_rest(state, name, rest)
        case Mean():
            count, *parts = state.get(RESTS, {}).get(name, [0])
            parts = _exact([*parts, _number(value)])
            state[name] = _float(sum(map(Fraction, parts)) / (count + 1))
            _keep_rest(state, name, [count + 1, *parts])
        case Min():
            state[name] = min(state.get(name, value), value, key=_rank)
        case Max():
            state[name] = max(state.get(name, value), value, key=_rank)
        case Top(n=n):
            values = list(reversed(state.get(name, [])))
            insort(values, value, key=_rank)
            state[name] = values[: -n - 1 : -1]


def _kind(reduction: Reduction) -> Any:
    """Return the type of a reduction's result where it follows from the declaration; None elsewhere."""
    match reduction:
        case Count():
            return int
        case Distinct():
            return list[str]
        case Sum() | Mean():
            return float
        case Top(of):
            return None if of.startswith(PAYLOAD) else list[_kind_of(of)]  # type: ignore[misc]
        case _:
            return None if reduction.of.startswith(PAYLOAD) else _kind_of(reduction.of)


def _kind_of(value: str) -> type:
    return datetime if value == "occurred_at" else str


def _unusable(what: str, why: str) -> InvalidField:
    return InvalidField(what, why=why, hint="correct the view's class, or write it as a fold", field="view")


def value_of(event: Event, of: str) -> Any:
    """Return the value of an event that a reduction uses."""
    if of.startswith(PAYLOAD):
        found: Any = event.payload
        for name in of.split(".")[1:]:
            found = found.get(name) if isinstance(found, Mapping) else None
        return found
    value = getattr(event, of)
    return moment_text(value) if isinstance(value, datetime) else value


def moment_text(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _with_one_more(texts: list[str], text: Any) -> list[str]:
    if type(text) is not str:
        raise TypeError(f"{text!r} is not a text; Distinct collects texts")
    return texts if text in texts else sorted([*texts, text])


# ---- numbers


def _number(value: Any) -> int | float:
    if type(value) is int or type(value) is float:
        return value
    raise TypeError(f"{value!r} is not a number")


def _rank(value: Any) -> tuple[bool, Any]:
    """Return what values are compared by."""
    if type(value) in (int, float, str):
        return isinstance(value, str), value
    raise TypeError(f"{value!r} is neither a number nor a text, so it is not compared")


def _exact(numbers: list[int | float]) -> list[int | float]:
    """Return numbers whose exact sum is that of the given ones: the first is the sum as a float has it, and each is
    that of what is left. They depend on the exact sum alone."""
    left = sum(map(Fraction, numbers))
    parts = [_float(left)]
    while left := left - Fraction(parts[-1]):
        parts.append(_float(left))
    return parts


def _float(exact: Fraction | int) -> int | float:
    """Return the nearest float, in the form that a stored state has: 1 in place of 1.0."""
    found = float(exact)
    return int(found) if found.is_integer() else found


def _keep_rest(state: dict[str, Any], name: str, rest: list[int | float]) -> None:
    others = {other: parts for other, parts in state.get(RESTS, {}).items() if other != name}
    kept = {**others, name: rest} if rest else others
    if kept:
        state[RESTS] = kept
    else:
        state.pop(RESTS, None)
