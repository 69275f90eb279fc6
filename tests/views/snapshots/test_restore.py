"""A restored snapshot gives the same states, and an earlier state is the same with and without one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.views.conftest import ALL, ByActor, Said
from tests.views.snapshots.logs import (
    fill,
    forget_states,
    from_nothing,
    reopened,
    say,
)

from everlog.log.log import Log
from everlog.views.view import View


@pytest.mark.parametrize("view", ALL)
def test_snapshot_roundtrip(slog: Log, folder: Path, view: type[View]) -> None:
    fill(slog, 20)
    entry = slog.view(view).snapshot()
    assert (entry.position, entry.protected, entry.problem) == (20, "", "")
    fill(slog, 15, start=20)
    live = slog.view(view).digest()
    restored = slog.view(view).restore()
    assert (restored.covered, restored.position, restored.digest) == (20, 35, live)
    assert slog.view(view).digest() == live == from_nothing(slog, view)
    assert slog.view(view).audit().ok


def test_dead_letters_and_the_audit_survive_a_restore(slog: Log, folder: Path) -> None:
    fill(slog, 4)
    bad = say(slog, "poison").position
    say(slog, "behind it")
    slog.view(Said).snapshot()
    letters = slog.view(Said).dead_letters()
    forget_states(slog)
    handle = reopened(slog._store, folder).view(Said)
    assert handle.dead_letters() == letters
    assert handle.get("thing/1").parked
    assert handle.audit().ok
    handle.skip(bad, reason="a test")
    assert handle.get("thing/1").state["values"][-1] == "behind it"


def test_a_view_as_of_a_moment_is_the_same_with_and_without_snapshots(slog: Log) -> None:
    for number in range(30):
        say(slog, number, stream=f"thing/{number % 4}", actor=f"user:u{number % 2}")
        if number % 9 == 0:
            slog.view(ByActor).snapshot()
    handle = slog.view(ByActor)
    with_them = [handle.get("user:u1", as_of=position).state for position in range(31)]
    for entry in slog.views.snapshots.folder.entries():
        entry.path.unlink()
    assert with_them == [handle.get("user:u1", as_of=position).state for position in range(31)]
