"""kill -9 during a rebuild, a switch, a snapshot or an inline append leaves a view that is whole, and goes on
(F33, F41); every snapshot that has its name is whole, and those that were acknowledged are there.

With --full, 100 kills on each store."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import everlog
from everlog.files import TEMP_SUFFIX
from everlog.views.builds.build import active_build, builds_of
from everlog.views.builds.content import build_digest
from everlog.views.builtin import Streams, Types
from everlog.views.fold import fold_all
from everlog.views.view import digest

REBUILDER = Path(__file__).with_name("rebuilder.py")
KILLS, KILLS_FULL = 6, 100
EVENTS = 120
PHASES = {"step": 60, "switch": 3, "snap": 3}
"""The line after which it is killed, and among how many of them the one is chosen."""

DELAY_S = {"step": 0.0, "switch": 0.004, "snap": 0.03}
"""How long after the line, at most: what it tells of takes about as long."""


@pytest.fixture
def snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the snapshots of every kind of log go; one in PostgreSQL has no folder of its own."""
    monkeypatch.setenv("EVERLOG_SNAPSHOTS", str(tmp_path / "snapshots"))
    return tmp_path / "snapshots"


@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "segments", "postgresql"])
def test_a_kill_leaves_whole_views_and_whole_snapshots(
    kind: str, tmp_path: Path, snapshots: Path, request: pytest.FixtureRequest, pytestconfig: pytest.Config
) -> None:
    kills = KILLS_FULL if pytestconfig.getoption("--full") else KILLS
    chance = random.Random(11)
    place = request.getfixturevalue("postgres_url") if kind == "postgresql" else f"{kind}:{tmp_path / 'log'}"
    fill(place)
    met: Counter[str] = Counter()
    for number in range(kills):
        phase = list(PHASES)[number % len(PHASES)]
        told = killed(place, phase, chance)
        met[f"kills at {phase}"] += 1
        met["half a snapshot"] += told[-1] == "snap"
        met["half a switch"] += told[-1] == "switch"
        met["half a rebuild"] += require_whole(place, told)
    print(f"{kind}: {kills} kills, {dict(met)}")
    leave_nothing_behind(place, snapshots)
    if kills == KILLS_FULL:  # with few kills it is chance what they meet
        for half in ("half a rebuild", "half a snapshot", "half a switch"):
            assert met[half], f"{half} was never met: the kills came too late to mean anything"


def fill(place: str) -> None:
    with everlog.open(place) as log:
        log.append_batch(
            [
                everlog.Draft(type="note.added", stream=f"note/{number % 7}", payload={"text": str(number)})
                for number in range(EVENTS)
            ]
        )


def killed(place: str, phase: str, chance: random.Random) -> list[str]:
    """Everything that a victim said until it was killed, some time after a line of this phase."""
    process = subprocess.Popen(
        [sys.executable, str(REBUILDER), place],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    left = chance.randrange(PHASES[phase]) + 1
    said = []
    while left and (line := process.stdout.readline().decode().strip()):
        said.append(line)
        left -= line == phase
    end = time.perf_counter() + chance.uniform(0, DELAY_S[phase])
    while time.perf_counter() < end:
        pass  # a sleep takes longer than most of what is to be hit
    process.send_signal(signal.SIGKILL)
    output, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors.decode()
    return said + [line.decode().strip() for line in output.splitlines(keepends=True) if line.endswith(b"\n")]


def require_whole(place: str, told: list[str]) -> bool:
    """The views as they were left are right, and go on; True if a rebuild was under way."""
    under_way = False
    with everlog.open(place, create=False) as log:
        for view in (Streams, Types):
            small_state = log.views.small_state
            under_way |= any(build.position and not build.complete for build in builds_of(small_state, view.name))
            build = active_build(small_state, view.name)
            if build is not None:  # otherwise it was killed before the first build was whole
                # As it lies there, without reading on: it says exactly what the events up to its cursor say.
                assert build_digest(small_state, build) == digest(
                    fold_all(view(), log.read(upto=build.position)).items()
                )
                assert log.view(view).audit().ok
                assert len(builds_of(small_state, view.name)) <= 3
            expected = digest(fold_all(view(), log.read()).items())
            assert log.view(view).digest() == expected
            require_snapshots(log, view, told, expected)
        assert log.verify().ok
    return under_way


def require_snapshots(log: everlog.Log, view: type[everlog.View], told: list[str], expected: str) -> None:
    folder = log.views.snapshots.folder
    entries = folder.entries(view.name)
    assert [entry.problem for entry in entries if entry.problem] == []
    made = [int(line.split()[2]) for line in told if line.startswith(f"snapped {view.name} ")]
    assert max((entry.position for entry in entries), default=0) >= max(made, default=0)
    for entry in entries[:3]:
        folder.load(entry)
    if entries:
        assert log.view(view).restore().digest == expected


def leave_nothing_behind(place: str, snapshots: Path) -> None:
    with everlog.open(place, create=False) as log:
        log.append("note.added", stream="note/last", payload={"text": "last"})
        for view in (Streams, Types):
            log.view(view).snapshot(full=True)
    assert [path.name for path in snapshots.iterdir() if path.name.endswith(TEMP_SUFFIX)] == []
