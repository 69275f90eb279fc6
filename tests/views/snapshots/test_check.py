"""A snapshot is checked by its bytes, by replay, and by what it leads to."""

from __future__ import annotations

from pathlib import Path

from tests.views.conftest import Said
from tests.views.snapshots.logs import fill
from tests.views.snapshots.test_snapshots import _forge

from everlog.log.log import Log
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
