"""everlog: an append-only event log that starts as a file and grows to a cluster.

    import everlog
    log = everlog.open("sqlite:log.db")
    log.append("note.added", stream="note/1", payload={"text": "hello"}, actor="user:ada")

The names below are the public ones; docs/reference/api.md lists them. They are loaded at first use, so importing
everlog is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from everlog._version import __version__

if TYPE_CHECKING:
    from everlog import aio as aio
    from everlog import errors as errors
    from everlog import testing as testing
    from everlog.catalog.catalog import Catalog as Catalog
    from everlog.catalog.personal import Personal as Personal
    from everlog.core.event import Event as Event
    from everlog.core.event import Position as Position
    from everlog.core.event import Purge as Purge
    from everlog.core.event import Recorded as Recorded
    from everlog.core.event import TypedRecord as TypedRecord
    from everlog.core.query import Cursor as Cursor
    from everlog.core.query import Page as Page
    from everlog.core.query import Query as Query
    from everlog.core.query import Reset as Reset
    from everlog.errors import EverlogError as EverlogError
    from everlog.log.log import Log as Log
    from everlog.log.write.draft import Draft as Draft
    from everlog.log.write.draft import Receipt as Receipt
    from everlog.log.write.expect import Expect as Expect
    from everlog.log.write.expect import NoMatch as NoMatch
    from everlog.programs.command import By as By
    from everlog.programs.perform import ask as ask
    from everlog.programs.perform import perform as perform
    from everlog.remote.log import RemoteLog as RemoteLog
    from everlog.remote.log import connect as connect
    from everlog.views.view import Text as Text
    from everlog.views.view import View as View
    from everlog.wiring import open as open

_HOMES = {
    "By": "everlog.programs.command",
    "Catalog": "everlog.catalog.catalog",
    "Cursor": "everlog.core.query",
    "Draft": "everlog.log.write.draft",
    "Event": "everlog.core.event",
    "EverlogError": "everlog.errors",
    "Expect": "everlog.log.write.expect",
    "Log": "everlog.log.log",
    "NoMatch": "everlog.log.write.expect",
    "Page": "everlog.core.query",
    "Personal": "everlog.catalog.personal",
    "Position": "everlog.core.event",
    "Purge": "everlog.core.event",
    "Query": "everlog.core.query",
    "Receipt": "everlog.log.write.draft",
    "Recorded": "everlog.core.event",
    "RemoteLog": "everlog.remote.log",
    "Reset": "everlog.core.query",
    "Text": "everlog.views.view",
    "TypedRecord": "everlog.core.event",
    "View": "everlog.views.view",
    "ask": "everlog.programs.perform",
    "connect": "everlog.remote.log",
    "open": "everlog.wiring",
    "perform": "everlog.programs.perform",
}
_MODULES = ("aio", "errors", "testing")

__all__ = [
    "By",
    "Catalog",
    "Cursor",
    "Draft",
    "Event",
    "EverlogError",
    "Expect",
    "Log",
    "NoMatch",
    "Page",
    "Personal",
    "Position",
    "Purge",
    "Query",
    "Receipt",
    "Recorded",
    "RemoteLog",
    "Reset",
    "Text",
    "TypedRecord",
    "View",
    "__version__",
    "aio",
    "ask",
    "connect",
    "errors",
    "open",
    "perform",
    "testing",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"everlog.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'everlog' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
