"""kill -9 while snapshots are made: every file that has its name is whole, and the view is what a replay says."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import everlog
from everlog.files import TEMP_SUFFIX
from everlog.views.as_of import cut, states_at
from everlog.views.fields import Fields
from everlog.views.view import digest

SNAPSHOTTER = Path(__file__).with_name("snapshotter.py")
KILLS, KILLS_FULL = 6, 100


def test_a_killed_maker_leaves_whole_snapshots_only(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    kills = KILLS_FULL if pytestconfig.getoption("--full") else KILLS
    chance = random.Random(7)
    path = tmp_path / "log.db"
    folder = tmp_path / "log.db.snapshots"
    acknowledged = 0
    for _ in range(kills):
        process = subprocess.Popen(
            [sys.executable, str(SNAPSHOTTER), str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(chance.uniform(0.01, 0.15))
        process.send_signal(signal.SIGKILL)
        output, errors = process.communicate()
        assert process.returncode == -signal.SIGKILL, errors.decode()
        made = [int(line) for line in output.decode().splitlines(keepends=True) if line.endswith("\n")]
        acknowledged += len(made)
        _require_sound(path, at_least=max(made, default=0))
    with everlog.open(f"sqlite:{path}", create=False) as log:
        log.view(Fields).snapshot(full=True)
        log.append("note.added", stream="note/last", payload={"text": "last"})
        log.view(Fields).snapshot()
    assert [name.name for name in folder.iterdir() if name.name.endswith(TEMP_SUFFIX)] == []
    assert acknowledged > kills // 2, "too few snapshots were made for the kills to mean anything"
    print(f"{kills} kills, {acknowledged} snapshots acknowledged, all whole")


def _require_sound(path: Path, *, at_least: int) -> None:
    with everlog.open(f"sqlite:{path}", create=False) as log:
        snapshots = log.views.snapshots
        entries = snapshots.folder.entries()
        assert [entry.problem for entry in entries if entry.problem] == []
        assert max((entry.position for entry in entries), default=0) >= at_least
        for entry in entries[:5]:
            snapshots.folder.load(entry)
        expected = digest(states_at(log, Fields(), cut(log, None)).states().items())
        if entries:
            assert log.view(Fields).restore().digest == expected
        assert log.view(Fields).digest() == expected
        assert log.verify().ok
