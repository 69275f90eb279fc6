"""Views as seed 001 writes them: an object that receives events, returns its state, and can be restored from it.

    engine = ReplayEngine(log)
    engine.register("market", MarketView(), ["market.post.created"])
    engine.rebuild_all()

`MaterialisedView` is accepted as it is. `Materialised` makes a `View` with one key from it, which runs like others.
`ReplayEngine` has the four methods of the seed. Events come in causal order, in whatever order they arrived: a late
event rebuilds the view.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from everlog.core.event import Event, Recorded
from everlog.core.query import Query
from everlog.errors import NotFound
from everlog.views.fold import in_causal_order
from everlog.views.view import CAUSAL, State, View, digest

if TYPE_CHECKING:
    from everlog.log.log import Log

ONE_KEY = "state"


class MaterialisedView(Protocol):
    def reset(self) -> None: ...

    def apply(self, event: Any) -> None: ...

    def snapshot_state(self) -> dict[str, Any]: ...

    def restore_state(self, state: dict[str, Any]) -> None: ...


class SeedEvent:
    """An event under the names that the seed gives its fields; our own names work as well."""

    __slots__ = ("_event",)
    schema_version: ClassVar[int] = 1

    def __init__(self, event: Event) -> None:
        self._event = event

    def __getattr__(self, name: str) -> Any:
        return getattr(self._event, name)

    @property
    def event_id(self) -> str:
        return self._event.id

    @property
    def event_type(self) -> str:
        return self._event.type

    @property
    def data(self) -> dict[str, Any]:
        return self._event.payload

    @property
    def author(self) -> str:
        return self._event.actor

    @property
    def community_id(self) -> str:
        return self._event.scope

    @property
    def wall_clock(self) -> str:
        return self._event.occurred_at.isoformat().replace("+00:00", "Z")


class Materialised(View):
    """A seed's view as a view with one key. Its state is handed in and out at every event."""

    order = CAUSAL

    def __init__(self, name: str, view: MaterialisedView, types: Collection[str] = ()) -> None:
        self.name = name  # type: ignore[misc]
        self.types = frozenset(types)  # type: ignore[misc]
        self.uses = (type(view),)  # type: ignore[misc]
        self._view = view
        self._holds: Any = object()  # the very state that the object holds by now, if nobody else was served since

    def key(self, event: Event) -> str:
        return ONE_KEY

    def initial(self) -> State:
        self._view.reset()
        self._holds = self._view.snapshot_state()
        return self._holds

    def apply(self, state: State, event: Event) -> State:
        if state is not self._holds:
            self._view.restore_state(state)
        self._holds = None  # if the view raises, what it holds is worth nothing
        self._view.apply(SeedEvent(event))
        self._holds = self._view.snapshot_state()
        return self._holds


class ReplayEngine:
    """The seed's engine over a log: views in memory, rebuilt from the events at every start."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.views: dict[str, MaterialisedView] = {}
        self._types: dict[str, frozenset[str]] = {}
        self._last: dict[str, tuple[int, str]] = {}
        self._from: dict[str, int] = {}

    def register(self, name: str, view: MaterialisedView, event_types: Iterable[str] = ()) -> None:
        """Add a view. Without types it receives every event."""
        self.views[name] = view
        self._types[name] = frozenset(event_types)
        self._last[name] = (0, "")
        self._from[name] = 0

    def rebuild(self, view_name: str, from_lamport: int = 0) -> None:
        """Rebuild a view from every event of its types whose clock is not below `from_lamport`."""
        view = self._named(view_name)
        view.reset()
        self._from[view_name], self._last[view_name] = from_lamport, (0, "")
        for recorded in in_causal_order(self._events(view_name)):
            self._take(view_name, recorded.event)

    def rebuild_all(self) -> None:
        for name in self.views:
            self.rebuild(name)

    def on_event(self, event: Event | Recorded) -> None:
        """Pass an event that was just recorded to the views. The same one twice, or a late one, does no harm."""
        new = event.event if isinstance(event, Recorded) else event
        new = self.log.catalog.upcast(new)
        for name, types in self._types.items():
            if (types and new.type not in types) or new.lamport < self._from[name]:
                continue
            if new.causal_order > self._last[name]:
                self._take(name, new)
            elif new.causal_order != self._last[name]:
                self.rebuild(name, self._from[name])

    def digest(self) -> str:
        """Return one hash over the states of all views."""
        return digest((name, view.snapshot_state()) for name, view in self.views.items())

    def _take(self, name: str, event: Event) -> None:
        self.views[name].apply(SeedEvent(event))
        self._last[name] = event.causal_order

    def _events(self, name: str) -> Iterable[Recorded]:
        least = self._from[name]
        found = self.log.read(Query(types=self._types[name]))
        return (recorded for recorded in found if recorded.event.lamport >= least)

    def _named(self, name: str) -> MaterialisedView:
        if name not in self.views:
            raise NotFound(
                f"there is no view {name}",
                why=f"the views here are {', '.join(sorted(self.views)) or 'none'}",
                hint="register it first",
                view=name,
            )
        return self.views[name]
