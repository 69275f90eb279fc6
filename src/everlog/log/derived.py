"""The views of a log as the log sees them: what `log.view(…)` and `log.views` offer.

The classes behind them are `LiveView` and `Views` in `everlog.views`, which imports this package, never the other way
round. So results that are defined there are typed as Any here; `live_view` and `views_of` in `everlog.views.registry`
return the classes themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, ClassVar, Protocol

import msgspec

from everlog.core.event import Position, Recorded
from everlog.errors import ViewBehind
from everlog.stores.small_state import SmallState


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A state, and how old it is."""

    view: str
    key: str
    state: Any  # None: there is none under this key
    position: Position  # it includes every event up to here
    lag: int  # positions that the log is ahead of that
    parked: bool = False  # an event of this key could not be applied, and the later ones wait behind it
    stopped_at: int = 0  # the view as a whole goes no further than this event

    @property
    def found(self) -> bool:
        return self.state is not None


def view_behind(view: str, *, reached: int, wanted: int, timeout_s: float) -> ViewBehind:
    """Return the error for a view that has not applied a position in time."""
    return ViewBehind(
        f"the view {view} is at position {reached}, not yet at {wanted}",
        why=f"it did not get there within {timeout_s:g} s",
        hint="wait longer, or use an answer that is older and says so",
        view=view,
        position=reached,
        wanted=wanted,
    )


class ViewCode(Protocol):
    """A view as it is written: a subclass of `everlog.View`."""

    name: ClassVar[str]
    version: ClassVar[int]


ViewName = ViewCode | type[ViewCode] | str
"""A view, its class or its name."""


class ViewOfLog(Protocol):
    """One view of a log: `everlog.views.live.LiveView`."""

    @property
    def view(self) -> Any: ...

    # ---- asking

    def get(self, key: str, *, fresh: bool = True, as_of: Any = None) -> Answer: ...
    def get_many(self, keys: Collection[str], *, fresh: bool = True) -> dict[str, Any]: ...
    def items(self, *, fresh: bool = ..., after: str = ..., limit: int | None = ...) -> Iterator[tuple[str, Any]]: ...
    def search(
        self, text: str, *, within: str = ..., limit: int = ..., fresh: bool = ...
    ) -> list[tuple[str, Any]]: ...
    def alike(
        self, title: str, *, part: str = ..., least: float = ..., limit: int = ..., fresh: bool = ...
    ) -> list[tuple[str, Any]]: ...
    def count(self, *, fresh: bool = True) -> int: ...
    def digest(self, *, fresh: bool = True) -> str: ...
    def position(self, *, fresh: bool = False) -> Position: ...
    def lag(self) -> int: ...
    def build(self) -> Any: ...

    # ---- keeping it up to date

    def catch_up(
        self, *, upto: int | None = ..., limit: int = ..., progress: Callable[[int], None] = ...
    ) -> Position: ...
    def wait_for(self, position: int | Recorded, timeout_s: float = ...) -> Position: ...
    def rebuild(
        self,
        *,
        switch: bool = ...,
        fresh: bool = ...,
        progress: Callable[[int], None] = ...,
        limit: int = ...,
        derive: Any = ...,
    ) -> Any: ...
    def rollback(self) -> Any: ...
    def audit(self, *, sample: int | None = ..., progress: Callable[[int], None] = ...) -> Any: ...
    def snapshot(self, *, full: bool = False) -> Any: ...
    def restore(self, entry: Any = None) -> Any: ...
    def dead_letters(self) -> list[Any]: ...
    def retry(self) -> list[Any]: ...
    def skip(self, position: int, *, reason: str, actor: str = "") -> list[Any]: ...


class ViewsOfLog(Protocol):
    """All views of a log: `everlog.views.registry.Views`."""

    @property
    def small_state(self) -> SmallState: ...
    @property
    def snapshots(self) -> Any: ...

    def of(self, given: Any) -> ViewOfLog: ...
    def register(self, given: Any, *, mode: str = ...) -> ViewOfLog: ...
    def run(self, name: str, *, mode: str) -> ViewOfLog: ...
    def names(self) -> list[str]: ...
    def known(self) -> list[Any]: ...
    def overviews(self) -> list[Any]: ...
    def damaged_rows(self) -> dict[str, frozenset[str]]: ...
    def forget_purged(self, stream: str) -> None: ...
    def forget_missed(self) -> None: ...
    def close(self) -> None: ...
