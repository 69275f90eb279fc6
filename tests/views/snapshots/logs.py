"""Logs whose views have snapshots in a folder, for the tests of these."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conftest import CATALOG

from everlog.core.query import EVERYTHING
from everlog.files import DiskFiles, Handle
from everlog.log.log import Log
from everlog.stores.contract import Store
from everlog.views.builds.build import VIEWS, builds_of, drop_build, every_name
from everlog.views.fold import fold_all
from everlog.views.registry import Views
from everlog.views.snapshots.snapshots import Snapshots
from everlog.views.view import View, digest


class QuietFiles(DiskFiles):
    """A disk that is not waited for: for tests that write thousands of files and cut no power."""

    def flush(self, handle: Handle) -> None:
        """Nothing to wait for."""

    def fsync(self, handle: Handle) -> None:
        """Nothing to wait for."""

    def fsync_dir(self, path: Path) -> None:
        """Nothing to wait for."""


def with_snapshots(folder: Path, **options: Any) -> dict[str, Any]:
    """The options of a Log whose views keep snapshots there."""
    options.setdefault("files", QuietFiles())

    def make(log: Log) -> Views:
        return Views(log, make_snapshots=lambda log, small_state: Snapshots(log, small_state, folder, **options))

    return {"make_views": make}


def reopened(store: Store, folder: Path, *, catalog: Any = CATALOG, **options: Any) -> Log:
    """The same store behind a new log object: what only this process knew is gone."""
    return Log(store, catalog=catalog, **with_snapshots(folder, **options))


def forget_states(log: Log) -> None:
    """Take away everything that views have kept on the small state."""
    small_state = log.views.small_state
    names = every_name(small_state)
    builds = [build for name in names for build in builds_of(small_state, name)]
    with small_state.change() as change:
        for build in builds:
            drop_build(change, build)
        change.put(VIEWS, dict.fromkeys(names))


def from_nothing(log: Log, view: type[View] | View) -> str:
    made = view() if isinstance(view, type) else view
    return digest(fold_all(made, log._store.read(EVERYTHING), upcast=log.catalog.upcast).items())


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


Say = Callable[..., Any]


def say(log: Log, value: Any, *, stream: str = "thing/1", actor: str = "user:ada") -> Any:
    return log.append("thing.said", stream=stream, payload={"value": value}, actor=actor)


def fill(log: Log, count: int, *, start: int = 0) -> None:
    for number in range(start, start + count):
        say(log, number, stream=f"thing/{number % 5}", actor=f"user:u{number % 3}")
