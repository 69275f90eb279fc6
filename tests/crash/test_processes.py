"""Many processes on one log leave no gap, no duplicate and no reorder (G3, G4, G13, R10)."""

from __future__ import annotations

import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest

import everlog

WRITER = Path(__file__).with_name("writer.py")
PROCESSES = 8
# Of every three appends of the writer, one is a batch of three: 5 events.
APPENDS, APPENDS_FULL = 300, 5_000


def test_eight_processes_leave_no_gap_no_duplicate_no_reorder(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    appends = APPENDS_FULL if pytestconfig.getoption("--full") else APPENDS
    path = tmp_path / "log.db"
    processes = []
    for number in range(PROCESSES):
        with (tmp_path / f"acks-{number}").open("wb") as acks:
            command = [sys.executable, str(WRITER), str(path), str(appends), f"w{number}"]
            processes.append(subprocess.Popen(command, stdout=acks, stderr=subprocess.PIPE))
    for process in processes:
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors.decode()

    acknowledged: dict[int, str] = {}
    for number in range(PROCESSES):
        lines = (tmp_path / f"acks-{number}").read_text().splitlines()[1:]
        own = [int(line.split()[0]) for line in lines]
        assert own == sorted(own), "one process's appends were reordered"
        acknowledged.update((int(line.split()[0]), line.split()[1]) for line in lines)

    with everlog.open(f"sqlite:{path}", create=False) as log:
        records = list(log.read())
        expected = PROCESSES * sum(3 if number % 3 == 2 else 1 for number in range(appends))
        assert [recorded.position for recorded in records] == list(range(1, expected + 1))
        assert {recorded.position: recorded.event.id for recorded in records} == acknowledged
        assert [recorded.event.lamport for recorded in records] == list(range(1, expected + 1))
        assert [recorded.event.origin_seq for recorded in records] == list(range(1, expected + 1))
        by_stream = sorted(records, key=lambda recorded: (recorded.event.stream, recorded.position))
        for stream, history in groupby(by_stream, key=lambda recorded: recorded.event.stream):
            sequences = [recorded.sequence for recorded in history]
            assert sequences == list(range(1, len(sequences) + 1)), stream
        assert log.verify().problems == ()
    print(f"{PROCESSES} processes, {expected} events, no gap, no duplicate, no reorder")
