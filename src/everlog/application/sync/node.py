"""A log as a node, with its settings: what it follows of other nodes, and which nodes get keys of persons."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from everlog.application.folder.open import Location
from everlog.application.sync.forgets import follow_pending
from everlog.application.sync.peers import may_have_keys
from everlog.application.sync.shared_snapshots import Shelf
from everlog.application.trust.owned_bytes import owned_by
from everlog.log.log import Log
from everlog.sync.exchange import Node


def node_of(log: Log, location: Location, *, on_forgotten: Callable[[], None] | None = None) -> Node:
    """Return the node that a log is. Without `on_forgotten`, it follows the forgets of others as they come."""
    settings = location.settings().settings
    follow = on_forgotten or (lambda: follow_forgets(log, location))
    return Node(
        log,
        follow_purges=settings.follow_purges,
        on_forgotten=follow if settings.follow_forgets else lambda: None,
        may_have_keys=partial(may_have_keys, log),
        shelf=Shelf(log),
    )


def follow_forgets(log: Log, location: Location, *, joined: bool = False) -> None:
    """Follow the forgets of other nodes, if the settings say so."""
    if location.settings().settings.follow_forgets:
        follow_pending(log, lambda: owned_by(location), joined=joined)


def location_of(folder: Path) -> Location:
    """Return where the log of a .everlog folder is."""
    return Location(work_in=folder.parent.absolute())
