"""While a handle changes the rows of views, no other handle can change them, and an append with a view waits. So
nothing of the log is read then: however long that takes, no writer waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import CATALOG
from tests.views.conftest import Said, Total
from tests.views.said import say
from tests.views.snapshots.logs import forget_states, with_snapshots

from everlog.files import DiskFiles, Handle
from everlog.log.log import Log
from everlog.stores.segments.store import SegmentsStore
from everlog.stores.small_state import StateChanges
from everlog.stores.small_state_sqlite import StateFile
from everlog.views.registry import live_view


class WatchedFiles(DiskFiles):
    """Counts the looks at a file, and those during a change of the rows of views."""

    changing = False
    looks = 0
    looks_in_change = 0

    def open(self, path: Path, **how: Any) -> Handle:
        self._look()
        return super().open(path, **how)

    def size(self, handle: Handle) -> int:
        self._look()
        return super().size(handle)

    def read(self, handle: Handle, size: int, *, at: int) -> bytes:
        self._look()
        return super().read(handle, size, at=at)

    def _look(self) -> None:
        self.looks += 1
        self.looks_in_change += self.changing


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> WatchedFiles:
    watched, change = WatchedFiles(), StateFile.change

    @contextmanager
    def noticed(state: StateFile) -> Iterator[StateChanges]:
        with change(state) as changes:
            watched.changing = True
            try:
                yield changes
            finally:
                watched.changing = False

    monkeypatch.setattr(StateFile, "change", noticed)
    return watched


def forget_and_get(log: Log) -> None:
    """A snapshot is where it begins then."""
    forget_states(log)
    live_view(log, Total).get("all")


QUESTIONS: dict[str, Callable[[Log], object]] = {
    "the first answer": lambda log: live_view(log, Said).get("thing/1"),
    "a later answer": lambda log: live_view(log, Total).get("all"),
    "an answer from a snapshot": forget_and_get,
    "a rebuild": lambda log: live_view(log, Total).rebuild(fresh=True),
    "a rollback": lambda log: (live_view(log, Total).rebuild(), live_view(log, Total).rollback()),
    "an audit": lambda log: live_view(log, Total).audit(),
    "a snapshot": lambda log: live_view(log, Total).snapshot(full=True),
    "a restored snapshot": lambda log: live_view(log, Total).restore(),
    "a purge": lambda log: (log.purge("thing/1", reason="asked to"), live_view(log, Total).get("all")),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_nothing_of_the_log_is_read_while_rows_of_views_are_changed(
    tmp_path: Path, files: WatchedFiles, question: str
) -> None:
    path, options = tmp_path / "log", with_snapshots(tmp_path / "snapshots")
    with Log(SegmentsStore(path), CATALOG, **options) as log:
        for number in range(4):
            say(log, number, stream=f"thing/{number % 2}")
        log.view(Total).snapshot()
        say(log, 4)
    with Log(SegmentsStore(path, files=files), CATALOG, **options) as log:
        QUESTIONS[question](log)
    assert files.looks
    assert not files.looks_in_change
