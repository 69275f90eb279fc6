"""kill -9 at any moment loses no acknowledged event, invents none, and leaves a log that goes on (G1, R4)."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import everlog
from everlog.core.query import Query

WRITER = Path(__file__).with_name("writer.py")
KILLS, KILLS_FULL = 25, 200


def test_a_killed_writer_loses_no_acknowledged_event(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    kills = KILLS_FULL if pytestconfig.getoption("--full") else KILLS
    chance = random.Random(4)
    path = tmp_path / "log.db"
    acknowledged: dict[int, tuple[str, str]] = {}
    running = 0
    for round_number in range(kills):
        process = subprocess.Popen(
            [sys.executable, str(WRITER), str(path), "100000", f"w{round_number}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(chance.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        output, errors = process.communicate()
        assert process.returncode == -signal.SIGKILL, errors.decode()
        running += bool(output)
        for line in output.decode().splitlines(keepends=True):
            if not line.endswith("\n"):
                continue  # the kill fell into the acknowledgement itself
            position, event_id, text = line.rstrip("\n").split(" ", 2)
            assert int(position) not in acknowledged, "a position was acknowledged twice"
            acknowledged[int(position)] = (event_id, text)

    with everlog.open(f"sqlite:{path}", create=False) as log:
        found: dict[int, tuple[str, str]] = {
            recorded.position: (recorded.event.id, recorded.event.payload["text"]) for recorded in log.read()
        }
        report = log.verify()
        assert {place: found.get(place) for place in acknowledged} == acknowledged
        assert report.problems == ()
        assert sorted(found) == list(range(1, len(found) + 1))
        _require_whole_batches(log)
        # At most one write of each victim can be there without its acknowledgement: the one that was cut.
        assert len(found) - len(acknowledged) <= 3 * kills
        after = log.append("note.added", stream="note/after", payload={"text": "after"})
        assert after.position == len(found) + 1
    assert running > kills // 2, "too few victims got as far as appending: the kills came too early to mean anything"
    print(f"{kills} kills, {len(acknowledged)} acknowledged, {len(found)} found, 0 lost")


def _require_whole_batches(log: everlog.Log) -> None:
    """G2: of every batch of three, all or none."""
    parts: dict[str, int] = {}
    for recorded in log.read(Query(kind="note")):
        name, _, part = recorded.event.stream.rpartition("-")
        if name:
            text = recorded.event.payload["text"].rsplit(" ", 1)[0]
            parts[text] = parts.get(text, 0) + 1
            assert part in "012"
    assert set(parts.values()) <= {3}
