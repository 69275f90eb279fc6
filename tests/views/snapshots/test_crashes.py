"""Every disk that a power cut or a kill can leave while snapshots are made, protected, thinned and purged."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from tests.support.crash_states import CrashState, Effort, kills, power_cuts
from tests.support.faults import RecordingFiles
from tests.views.conftest import Said
from tests.views.snapshots.logs import from_nothing, reopened, say

from everlog.stores.memory import MemoryStore
from everlog.views.snapshots.folder import SnapshotFolder

DISK = Path("/disk")
FOLDER = DISK / "snapshots"


def test_whatever_a_crash_leaves_is_whole_and_what_was_acknowledged_is_there(pytestconfig: pytest.Config) -> None:
    effort = Effort(exhaustive_max=4096 if pytestconfig.getoption("--full") else 256, samples=100, tears_max=16)
    files = RecordingFiles(dirs=[DISK])
    store = MemoryStore()
    log = reopened(store, FOLDER, files=files)
    names: list[str] = []
    for number in range(3):
        for part in range(20):
            say(log, number, stream=f"thing/{part}")
        files.tried(number)
        names.append(log.view(Said).snapshot(full=number != 1).id)
        files.acked(number)
    log.views.snapshots.folder.protect(log.views.snapshots.folder.find(names[1]), "a test")
    states = [*power_cuts(files, effort=effort), *kills(files)]
    assert len(states) > 50
    for state in states:
        _require_whole(state, names)
    for state in states[::10]:  # and a view begins well from each
        again = reopened(copied(store), FOLDER, files=state.files())
        assert again.view(Said).digest() == from_nothing(log, Said)
    print(f"{len(states)} states")


def test_after_a_purge_was_swept_no_crash_brings_anything_back() -> None:
    files = RecordingFiles(dirs=[DISK])
    log = reopened(MemoryStore(), FOLDER, files=files)
    say(log, "the-sentinel", stream="thing/secret")
    log.view(Said).snapshot()
    log.purge("thing/secret", reason="a test")
    files.acked(1)
    say(log, "other")
    log.view(Said).snapshot()
    found = 0
    for state in power_cuts(files, effort=Effort(exhaustive_max=256, samples=50, tears_max=8)):
        if 1 in state.acked:
            found += 1
            for path, data in state.contents.items():
                plain = gzip.decompress(data) if path.name.endswith(".gz") else data
                assert b"the-sentinel" not in plain, f"{state.label}: {path}"
    assert found


def _require_whole(state: CrashState, names: list[str]) -> None:
    if FOLDER not in state.dirs:
        assert not state.acked, state.label
        return
    folder = SnapshotFolder(FOLDER, state.files())
    entries = folder.entries()
    assert [entry.problem for entry in entries if entry.problem] == [], state.label
    for entry in entries:
        folder.load(entry)
    there = {entry.id for entry in entries}
    assert {names[number] for number in state.acked} <= there, state.label


def copied(store: MemoryStore) -> MemoryStore:
    """A copy of a store in memory, without what views keep."""
    copy = MemoryStore(identity=store.identity)
    with copy.open_write() as writer:
        writer.copy_in(list(store.slots()))
    return copy
