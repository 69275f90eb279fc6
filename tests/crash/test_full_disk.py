"""A full disk refuses writes, keeps reads, and takes writes again when there is room (F07, R9)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import everlog
from everlog.errors import StorageFull


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("a small disk can be mounted by root only")
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_loses_nothing_and_the_log_goes_on_when_there_is_room(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    acknowledged: list[str] = []
    with everlog.open(f"sqlite:{small_disk}/log.db") as log:
        for round_number in range(5):
            ballast.write_bytes(b"x" * 350_000)
            with pytest.raises(StorageFull):
                for number in range(10_000):
                    text = f"{round_number} {number} " + "x" * 2000
                    recorded = log.append("note.added", stream="note/1", payload={"text": text})
                    acknowledged.append(recorded.event.id)
            assert [recorded.event.id for recorded in log.read()] == acknowledged
            ballast.unlink()
            recorded = log.append("note.added", stream="note/1", payload={"text": "room again"})
            acknowledged.append(recorded.event.id)
            log.purge("note/1", reason="make room for the next round")
            acknowledged.clear()
        assert log.verify().problems == ()
