"""In any history, with purges and late events: a view kept live, one rebuilt, one folded from nothing and one that is
restored from any of its snapshots say the same, on every store. With --full, 500 histories on each."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.views.conftest import ALL
from tests.views.snapshots.logs import from_nothing, say, with_snapshots
from tests.views.test_planted import a_purge_is_not_followed, late_events_are_taken_as_they_come

from everlog.core.query import Reset
from everlog.errors import EverlogError, NotFound
from everlog.log.derived import ViewOfLog
from everlog.log.log import Log
from everlog.testing.builders import Chain
from everlog.views.advance import Advance
from everlog.views.builds.open_build import OpenBuild
from everlog.views.snapshots.folder import SnapshotEntry
from everlog.views.snapshots.snapshots import Snapshots

HISTORIES, HISTORIES_FULL = 6, 500
STEPS = 18
VIEWS = 2  # of six, taking turns
OPS = ("say", "say", "say", "say", "late", "purge", "snapshot", "snapshot", "full", "look", "rebuild")


@pytest.fixture(autouse=True)
def patches_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """States as small as these would never be worth a patch."""
    monkeypatch.setattr("everlog.views.snapshots.snapshots.PATCH_SHARE_MAX", 100.0)


class History:
    """One random history on one log, with some views looking on."""

    def __init__(self, log: Log, seed: int) -> None:
        self.log = log
        self.chance = random.Random(seed)
        self.chain = Chain()
        self.handles = [log.view(ALL[(seed * VIEWS + number) % len(ALL)]) for number in range(VIEWS)]
        self.seen: Counter[str] = Counter()

    def run(self) -> None:
        for _ in range(STEPS):
            op = self.chance.choice(OPS)
            self.step(op)
            self.seen[op] += 1
        for handle in self.handles:
            self.require_the_same(handle)

    def step(self, op: str) -> None:
        chance, log = self.chance, self.log
        stream, actor = f"thing/{chance.randrange(4)}", f"user:u{chance.randrange(3)}"
        handle = chance.choice(self.handles)
        match op:
            case "say":
                for number in range(chance.randrange(1, 4)):
                    say(log, number, stream=f"thing/{chance.randrange(4)}", actor=actor)
            case "late":
                late = self.chain.next(type="thing.said", stream=stream, payload={"value": "late"}, actor=actor)
                log.admit([late.event])
            case "purge":
                if next(log.read(stream=stream, limit=1), None) is not None:
                    log.purge(stream, reason="a request")
            case "snapshot" | "full":
                handle.snapshot(full=op == "full")
            case "look":
                handle.catch_up(limit=chance.randrange(1, 5))
            case _:
                assert handle.rebuild(limit=3).same is not False, handle.view.name

    def require_the_same(self, handle: ViewOfLog) -> None:
        expected = from_nothing(self.log, handle.view)
        assert handle.digest() == expected, ("live", handle.view.name)
        assert handle.rebuild(limit=5).digest == expected, ("rebuilt", handle.view.name)
        for entry in self.log.views.snapshots.folder.entries(handle.view.name):
            self.require_restored(handle, entry, expected)
        assert handle.audit().ok

    def require_restored(self, handle: ViewOfLog, entry: SnapshotEntry, expected: str) -> None:
        try:
            restored = handle.restore(entry)
        except NotFound:
            # Only what a purge has to do with may be of no use: a purge in these histories removes the snapshot.
            raise AssertionError(f"{entry.id} is there and cannot be used") from None
        assert restored.digest == expected, ("restored", handle.view.name, entry.position)
        assert handle.digest() == expected
        self.seen["restored"] += 1


def history_of(make_log: Callable[..., Log], kind: str, seed: int) -> History:
    with (
        tempfile.TemporaryDirectory() as folder,
        make_log(kind, **with_snapshots(Path(folder) / "snapshots")) as log,
    ):
        history = History(log, seed)
        history.run()
        return history


def test_live_rebuilt_and_restored_are_the_same(
    make_log: Callable[..., Log], kind: str, pytestconfig: pytest.Config
) -> None:
    count = HISTORIES_FULL if pytestconfig.getoption("--full") else HISTORIES
    seen: Counter[str] = Counter()
    for seed in range(count):
        seen += history_of(make_log, kind, seed).seen
    print(f"{kind}: {count} histories, {seen['purge']} purges, {seen['restored']} snapshots restored, all the same")
    assert seen["purge"] >= count / 2
    assert seen["restored"] >= count / 2, "too few snapshots were restored for this to mean anything"


def purged_snapshots_are_used(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Snapshots, "sweep", lambda self: [])
    patch.setattr(Snapshots, "_purged_since", lambda self, header, body: False)

    def ignore(self: OpenBuild, reset: Reset) -> Advance:
        self.cursor = reset.cursor
        return Advance.MORE

    patch.setattr(OpenBuild, "_follow_reset", ignore)


def a_patch_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("everlog.views.snapshots.folder.apply_patch", lambda base, patch: base)


@pytest.mark.parametrize(
    "bug",
    [purged_snapshots_are_used, late_events_are_taken_as_they_come, a_purge_is_not_followed, a_patch_is_forgotten],
)
def test_a_planted_bug_makes_a_difference(
    make_log: Callable[..., Log], bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    with pytest.raises((AssertionError, EverlogError)):
        for seed in range(HISTORIES * 3):
            history_of(make_log, "memory", seed)
