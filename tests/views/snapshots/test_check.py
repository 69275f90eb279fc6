"""A snapshot is checked by its bytes, by replay, and by what it leads to."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest
from tests.views.conftest import Said
from tests.views.snapshots.logs import fill
from tests.views.snapshots.test_snapshots import _forge

from everlog.log.log import Log
from everlog.views.builds.build import Build
from everlog.views.live import LiveView
from everlog.views.snapshots.check import check_all


def test_a_snapshot_that_lies_is_found_by_replay_and_by_what_it_leads_to(slog: Log, folder: Path) -> None:
    fill(slog, 20)
    slog.view(Said).snapshot(full=True)
    fill(slog, 3, start=20)
    entry = slog.view(Said).snapshot(full=True)
    assert all(verdict.ok for verdict in check_all(slog.views.snapshots, slog.view(Said)))
    _forge(entry.path, slog)
    newest, before = check_all(slog.views.snapshots, slog.view(Said))
    assert (newest.problem, newest.wrong, newest.live, newest.before) == ("", ("thing/2",), False, False)
    assert before.ok


def test_a_causal_view_is_checked_although_events_came_late(slog: Log) -> None:
    from tests.views.conftest import Causal

    from everlog.testing.builders import Chain

    chain = Chain()
    fill(slog, 6)
    slog.view(Causal).snapshot()
    late = [chain.next(type="thing.said", stream="thing/9", payload={"value": n}, actor="user:u1") for n in range(3)]
    slog.admit([sealed.event for sealed in late])
    slog.view(Causal).snapshot()
    verdicts = check_all(slog.views.snapshots, slog.view(Causal), sample=None)
    assert [verdict.live for verdict in verdicts] == [True, True]
    assert all(verdict.ok for verdict in verdicts)


def test_a_view_that_moves_on_meanwhile_gives_no_verdict(slog: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may have stored the next states between the two looks at the build."""
    fill(slog, 6)
    handle = slog.view(Said)
    handle.snapshot()
    real, looks = LiveView.build, itertools.count()

    def build(self: LiveView) -> Build | None:
        found = real(self)
        return None if found is None else msgspec.structs.replace(found, revision=found.revision + next(looks))

    assert [verdict.live for verdict in check_all(slog.views.snapshots, handle)] == [True]
    monkeypatch.setattr(LiveView, "build", build)
    assert [verdict.live for verdict in check_all(slog.views.snapshots, handle)] == [None]


def test_what_protected_a_snapshot_goes_with_it(slog: Log) -> None:
    """Otherwise a later one of the same name would be kept for a reason that nobody gave."""
    fill(slog, 6)
    entry = slog.view(Said).snapshot()
    folder = slog.views.snapshots.folder
    folder.protect(entry, "for the audit")
    assert [path.suffix for path in entry.path.parent.iterdir() if path.suffix == ".keep"] == [".keep"]
    folder.remove([entry])
    assert [path for path in entry.path.parent.iterdir() if path.name.startswith(entry.path.name.split(".")[0])] == []
