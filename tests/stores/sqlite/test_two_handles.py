"""Two handles of one process on one log, beside another process."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import everlog
from everlog.stores.sqlite.store import SqliteStore
from everlog.testing.builders import seal_any
from everlog.testing.filling import append

APPEND_AND_CLOSE = """
import sys, everlog
with everlog.open(sys.argv[1]) as log:
    log.append("note.added", stream="note/1", payload={"text": "there"})
"""


def append_elsewhere(url: str) -> None:
    subprocess.run([sys.executable, "-c", APPEND_AND_CLOSE, url], check=True, timeout=60)


def test_a_second_handle_does_not_take_the_first_ones_locks_away(tmp_path: Path) -> None:
    """POSIX drops every lock of a process on a file when it closes any descriptor of it. Another process that closes
    the log would then take itself for the last one, and remove the write-ahead log under the first handle."""
    url = f"sqlite:{tmp_path / 'log.db'}"
    with everlog.open(url) as first:
        first.append("note.added", stream="note/1", payload={"text": "here"})
        everlog.open(url).close()
        append_elsewhere(url)
        first.append("note.added", stream="note/1", payload={"text": "here"})
        append_elsewhere(url)
        assert [recorded.position for recorded in first.read()] == [1, 2, 3, 4]
    with everlog.open(url) as again:
        assert [recorded.position for recorded in again.read()] == [1, 2, 3, 4]
        assert again.verify().problems == ()


def test_ids_from_elsewhere_are_found_when_two_handles_record_them_in_turn(tmp_path: Path) -> None:
    """An id below the greatest one has a row in a list, also when another handle recorded the greatest one."""
    path = tmp_path / "log.db"
    made = [seal_any() for _ in range(300)]
    random.Random(7).shuffle(made)
    handles = [SqliteStore(path), SqliteStore(path)]
    for number, start in enumerate(range(0, len(made), 10)):
        append(handles[number % 2], *made[start : start + 10])

    for store in [*handles, SqliteStore(path)]:
        for sealed in made:
            found = store.get(sealed.event.id)
            assert found is not None
            assert found.event == sealed.event
        assert list(store.check()) == []
        store.close()
