"""What a view is: a name, the events it takes, and a pure fold of them into one state a key.

    class Board(View):
        name = "board"
        types = ("workpackage.moved",)

        def initial(self):
            return {"lane": "planned"}

        def apply(self, state, event):
            return {**state, "lane": event.payload["went_to"]}

A view is written once and runs anywhere: live, rebuilt, as of any moment, in one process or in many. For that it must
be pure: what `key`, `initial` and `apply` answer depends on their arguments and on nothing else. A state is made of
what JSON has: dict with text as keys, list, str, int, float, bool, None.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from everlog.core.canonical import canonical
from everlog.core.event import Event, Position
from everlog.core.query import Query
from everlog.errors import InvalidField

State = Any
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")


class Order(StrEnum):
    POSITION = "position"  # as the events arrived in this log
    CAUSAL = "causal"  # by (lamport, id): the same on every node, whatever arrived first


POSITION, CAUSAL = Order.POSITION, Order.CAUSAL


class Change(msgspec.Struct, frozen=True):
    """A state that became another, told to `View.on_change` after it is on record."""

    key: str
    state: State
    position: Position  # up to which the log was looked at


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """What a row is found by. `part` is where it belongs, as a path such as a scope."""

    title: str
    body: str = ""
    part: str = ""


class View:
    """A pure fold. Give a new `version` to a view whose code changed: its states are then built anew beside."""

    name: ClassVar[str] = ""
    version: ClassVar[int] = 1
    types: ClassVar[Collection[str]] = ()  # empty: every event
    kind: ClassVar[str] = ""  # only streams of this kind
    scope: ClassVar[str] = ""  # only this scope and what lies below it
    order: ClassVar[Order] = Order.POSITION
    uses: ClassVar[Collection[Any]] = ()  # classes and functions elsewhere whose code decides what it says

    def key(self, event: Event) -> str | None:
        """The part of the state that an event belongs to; None for an event that this view leaves out."""
        return event.stream

    def initial(self) -> State:
        """The state of a key before its first event, a new one at every call."""
        return {}

    def apply(self, state: State, event: Event) -> State:
        """The state after an event, which has been brought up to the latest version of its type."""
        raise NotImplementedError(f"{type(self).__name__} has no apply")

    def text(self, state: State) -> Text | None:
        """What a row is found by, in a view that can be searched; None for a row that is not to be found. Pure."""
        return None

    def on_change(self, changes: Sequence[Change]) -> None:
        """Told of what changed while live, after it is on record; never during a rebuild. It may not be told of a
        change at all (a crash in between): what must happen belongs into a consumer of the log."""

    # ---- what follows from the above

    @property
    def query(self) -> Query:
        return Query(types=frozenset(self.types), kind=self.kind, scope=self.scope)

    @property
    def by_stream(self) -> bool:
        """True when the key is the stream: then a key is known without its payload, and a purge concerns one key."""
        return type(self).key is View.key

    @property
    def has_text(self) -> bool:
        return type(self).text is not View.text

    @property
    def has_effects(self) -> bool:
        return type(self).on_change is not View.on_change


def view_of(given: View | type[View]) -> View:
    """A view from its class or from itself, refused if it cannot be run."""
    view = given() if isinstance(given, type) else given
    if not isinstance(view, View):
        raise _unusable(f"{given!r} is not a view", "a view is a subclass of everlog.View")
    if not isinstance(view.name, str) or _NAME.fullmatch(view.name) is None:
        raise _unusable(f"{type(view).__name__} has the name {view.name!r}", "a name is like work-packages")
    if type(view.version) is not int or view.version < 1:
        raise _unusable(f"{view.name} has the version {view.version!r}", "versions are whole numbers from 1")
    if isinstance(view.types, str) or not all(isinstance(name, str) and name for name in view.types):
        raise _unusable(f"{view.name} has the types {view.types!r}", 'types are names, as in ("note.added",)')
    return view


def _unusable(what: str, why: str) -> InvalidField:
    return InvalidField(what, why=why, hint="correct the view's class", field="view")


def state_bytes(state: State) -> bytes:
    """A state as it is kept and compared: canonical JSON. What JSON cannot say is refused, with its path."""
    return canonical(state)


def digest(states: Iterable[tuple[str, State]]) -> str:
    """One hash for all states of a view. Two runs that derived the same have the same digest."""
    return digest_of_bytes((key, state_bytes(state)) for key, state in sorted(states, key=lambda item: item[0]))


def digest_of_bytes(states: Iterable[tuple[str, bytes]]) -> str:
    """The same over states that are canonical JSON already, in order of their keys."""
    sha = hashlib.sha256()
    for key, state in states:
        sha.update(b"[%b,%b]\n" % (canonical(key), state))
    return sha.hexdigest()
