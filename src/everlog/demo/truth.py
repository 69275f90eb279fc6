"""Every view of every program, derived in three ways: live while the log grew, rebuilt, and as of the head."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

from everlog import programs
from everlog.log.log import Log
from everlog.views.as_of import cut, states_at
from everlog.views.registry import live_view
from everlog.views.view import View, digest


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """What a view came to, by each way."""

    view: str
    rows: int
    live: str
    rebuilt: str
    as_of_head: str

    @property
    def one(self) -> bool:
        return self.live == self.rebuilt == self.as_of_head


def every_view() -> Iterator[type[View]]:
    for name in programs.TYPES:
        yield from programs.load(name).views


def follow(log: Log) -> None:
    """Have every view take in what is new, as one that is kept live does."""
    for view in every_view():
        log.view(view).catch_up()


def truths(log: Log, views: Iterable[type[View]] | None = None) -> list[Truth]:
    """Compare the three ways, view by view."""
    found = []
    for view in every_view() if views is None else views:
        handle = live_view(log, view)
        live = handle.digest()
        at_head = states_at(log, handle.view, cut(log, log.head()), skipped=handle.skipped()).states()
        found.append(
            Truth(
                view=view.name,
                rows=len(at_head),
                live=live,
                rebuilt=handle.rebuild().digest,
                as_of_head=digest(at_head.items()),
            )
        )
    return found


def together(found: list[Truth]) -> str:
    """Return one digest for all of them."""
    return hashlib.sha256("\n".join(truth.live for truth in found).encode()).hexdigest()
