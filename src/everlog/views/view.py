"""What a view is: a name, the events that it applies, and a pure fold of them into one state per key.

    class Board(View):
        name = "board"
        types = ("workpackage.moved",)

        def initial(self):
            return {"lane": "planned"}

        def apply(self, state, event):
            return {**state, "lane": event.payload["went_to"]}

A view is written once and runs anywhere: live, rebuilt, as of any moment, in one process or in many. For that it must
be pure: the results of `key`, `initial` and `apply` depend on their arguments only. A state consists of JSON values:
dict with str keys, list, str, int, float, bool, None.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from everlog.core.canonical import canonical
from everlog.core.event import Event, Position
from everlog.core.query import Query
from everlog.errors import InvalidField
from everlog.views.columns import model_of

State = Any
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")


class Order(StrEnum):
    POSITION = "position"  # as the events arrived in this log
    CAUSAL = "causal"  # by (lamport, id): the same on every node, in whatever order the events arrived


POSITION, CAUSAL = Order.POSITION, Order.CAUSAL


class Change(msgspec.Struct, frozen=True):
    """A changed state, passed to `View.on_change` after it is stored."""

    key: str
    state: State
    position: Position  # the log was read up to here


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """The words that a search finds a row by. `part` is the path that it belongs to, such as a scope."""

    title: str
    body: str = ""
    part: str = ""


class View:
    """A pure fold. Give a view whose code changed a new `version`: its states are then rebuilt beside the others."""

    name: ClassVar[str] = ""
    version: ClassVar[int] = 1
    types: ClassVar[Collection[str]] = ()  # empty: every event
    kind: ClassVar[str] = ""  # only streams of this kind
    scope: ClassVar[str] = ""  # only this scope and those below it
    order: ClassVar[Order] = Order.POSITION
    uses: ClassVar[Collection[Any]] = ()  # classes and functions elsewhere that its states depend on
    columns: ClassVar[Mapping[str, Any]] = {}  # fields of its state with their types: columns of its table in a lake

    def key(self, event: Event) -> str | None:
        """Return the key whose state an event changes; None for an event that this view leaves out."""
        return event.stream

    def initial(self) -> State:
        """Return the state of a key before its first event, a new one at every call."""
        return {}

    def apply(self, state: State, event: Event) -> State:
        """Return the state after an event, which has the latest version of its type."""
        raise NotImplementedError(f"{type(self).__name__} has no apply")

    def text(self, state: State) -> Text | None:
        """Return the words that a search finds a row by; None for a row that it does not find. Must be pure too."""
        return None

    def on_change(self, changes: Sequence[Change]) -> None:
        """Receive the changes of a live view after they are stored; never those of a rebuild. After a crash a change
        may not be passed at all: what must happen belongs in a consumer of the log."""

    # ---- derived from the above

    @property
    def query(self) -> Query:
        return Query(types=frozenset(self.types), kind=self.kind, scope=self.scope)

    @property
    def by_stream(self) -> bool:
        """True if the key is the stream: then a key is known without the payload, and a purge affects one key."""
        return type(self).key is View.key

    @property
    def has_text(self) -> bool:
        return type(self).text is not View.text

    @property
    def has_effects(self) -> bool:
        return type(self).on_change is not View.on_change


def view_of(given: View | type[View]) -> View:
    """Return a view from its class or from itself; refuse one that cannot run."""
    view = given() if isinstance(given, type) else given
    if not isinstance(view, View):
        raise _unusable(f"{given!r} is not a view", "a view is a subclass of everlog.View")
    if not isinstance(view.name, str) or _NAME.fullmatch(view.name) is None:
        raise _unusable(f"{type(view).__name__} has the name {view.name!r}", "a name is like work-packages")
    if type(view.version) is not int or view.version < 1:
        raise _unusable(f"{view.name} has the version {view.version!r}", "versions are whole numbers from 1")
    if isinstance(view.types, str) or not all(isinstance(name, str) and name for name in view.types):
        raise _unusable(f"{view.name} has the types {view.types!r}", 'types are names, as in ("note.added",)')
    model_of(view)
    return view


def _unusable(what: str, why: str) -> InvalidField:
    return InvalidField(what, why=why, hint="correct the view's class", field="view")


def state_bytes(state: State) -> bytes:
    """Return a state as it is stored and compared: canonical JSON. A value that JSON cannot express is refused, with
    its path."""
    return canonical(state)


def digest(states: Iterable[tuple[str, State]]) -> str:
    """Return one hash over all states of a view. Two runs that derived the same states have the same digest."""
    return digest_of_bytes((key, state_bytes(state)) for key, state in sorted(states, key=lambda item: item[0]))


def digest_of_bytes(states: Iterable[tuple[str, bytes]]) -> str:
    """Return the same hash from states that are canonical JSON already, in order of their keys."""
    sha = hashlib.sha256()
    for key, state in states:
        sha.update(b"[%b,%b]\n" % (canonical(key), state))
    return sha.hexdigest()
