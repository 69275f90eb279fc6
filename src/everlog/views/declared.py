"""Declared views: the last or first value, the number of events, the set of values. They need no code.

    class Lanes(DeclaredView):
        name = "lanes"
        types = ("workpackage.moved",)
        fields = {"lane": Last("payload.went_to"), "moves": Count(), "who": Distinct("actor")}

Each field of the state is one reduction of a value of the event or of a field of its payload, and nothing else. So
another engine may compute the same in its own way: on Spark column by column, with the same digest.

A value that is missing or null changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from everlog.core.event import Event
from everlog.errors import InvalidField
from everlog.views.view import View

KEYS = ("stream", "type", "actor", "scope", "origin", "correlation_id")
"""The values that may be the key of a declared view."""

VALUES = (*KEYS, "id", "occurred_at", "request_id", "causation_id")
"""The values of an event that a reduction may use, besides `payload.NAME`."""

PAYLOAD = "payload."
_IN_PAYLOAD = re.compile(r"payload\.[A-Za-z_][A-Za-z0-9_]*").fullmatch


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


Reduction = Last | First | Distinct | Count


class DeclaredView(View):
    """A view made of reductions; see above."""

    by: ClassVar[str] = "stream"  # one of KEYS
    fields: ClassVar[Mapping[str, Reduction]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.by not in KEYS:
            raise _unusable(f"{cls.__name__} is keyed by {cls.by!r}", f"it may be by {', '.join(KEYS)}")
        for name, reduction in cls.fields.items():
            if not isinstance(reduction, Count) and reduction.of not in VALUES and not _IN_PAYLOAD(reduction.of):
                choices = f"payload.NAME, {', '.join(VALUES)}"
                raise _unusable(f"{cls.__name__}.{name} is of {reduction.of!r}", f"it may be of {choices}")

    @property
    def by_stream(self) -> bool:
        return self.by == "stream"

    def key(self, event: Event) -> str | None:
        found: str = getattr(event, self.by)
        return found

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        new = dict(state)
        for name, reduction in self.fields.items():
            match reduction:
                case Count():
                    new[name] = new.get(name, 0) + 1
                case Last(of):
                    if (value := value_of(event, of)) is not None:
                        new[name] = value
                case First(of):
                    if name not in new and (value := value_of(event, of)) is not None:
                        new[name] = value
                case Distinct(of):
                    if (value := value_of(event, of)) is not None:
                        new[name] = _with_one_more(new.get(name, []), value)
        return new


def _unusable(what: str, why: str) -> InvalidField:
    return InvalidField(what, why=why, hint="correct the view's class, or write it as a fold", field="view")


def value_of(event: Event, of: str) -> Any:
    """Return the value of an event that a reduction uses."""
    if of.startswith(PAYLOAD):
        return event.payload.get(of.removeprefix(PAYLOAD))
    value = getattr(event, of)
    return moment_text(value) if isinstance(value, datetime) else value


def moment_text(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _with_one_more(texts: list[str], text: Any) -> list[str]:
    if type(text) is not str:
        raise TypeError(f"{text!r} is not a text; Distinct collects texts")
    return texts if text in texts else sorted([*texts, text])
