"""A disk that fills up, is freed, fills up again: nothing acknowledged is lost, and the log goes on (F07, R9)."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.crash.rows import Row, Skip

import everlog
from everlog.errors import EverlogError, StorageFull

DISK = "1m"
ROUNDS_PER_LOG = 5
BALLAST_BYTES = 450_000  # a purge needs room for a second copy of the day file
TEXT_BYTES = 2_000


@contextmanager
def small_disk(size: str = DISK) -> Iterator[Path]:
    """A file system that holds no more than this, in memory."""
    if os.geteuid() != 0:
        raise Skip("a small disk can be mounted by root only")
    with tempfile.TemporaryDirectory(prefix="everlog-full-") as folder:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]
        mounted = subprocess.run(command, capture_output=True, text=True)
        if mounted.returncode != 0:
            raise Skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


def fill_disks(row: Row, *, rounds: int) -> None:
    while row.count < rounds:
        with small_disk() as place:
            _fill(row, place, min(ROUNDS_PER_LOG, rounds - row.count))


def _fill(row: Row, place: Path, rounds: int) -> None:
    """Fill, look, free, go on, make room by a purge, open again."""
    url, ballast = f"{row.subject}:{place}/log", place / "ballast"
    acknowledged: dict[int, str] = {}
    for number in range(rounds):
        row.count += 1
        try:
            with everlog.open(url) as log:
                ballast.write_bytes(b"x" * BALLAST_BYTES)
                if not _append_until_full(log, acknowledged, number):
                    row.broken(f"round {row.count}: the disk did not fill up")
                _compare(log, acknowledged, row, "with the disk full")
            ballast.unlink()
            with everlog.open(url, create=False) as log:
                _compare(log, acknowledged, row, "opened again")
                recorded = log.append("note.added", stream="note/1", payload={"text": "room again"})
                acknowledged[recorded.position] = recorded.event.id
                log.purge("note/1", reason="make room for the next round")
                acknowledged.clear()
                _compare(log, acknowledged, row, "after the purge")
                for problem in log.verify().problems:
                    row.changed(f"round {row.count}: verify: {problem.code} {problem.reason}")
        except (EverlogError, OSError) as error:
            row.broken(f"round {row.count}: {error!r}")
            return


def _append_until_full(log: everlog.Log, acknowledged: dict[int, str], number: int) -> bool:
    for count in range(10_000):
        text = f"{number} {count} " + "x" * TEXT_BYTES
        try:
            recorded = log.append("note.added", stream="note/1", payload={"text": text})
        except StorageFull:
            return True
        acknowledged[recorded.position] = recorded.event.id
    return False


def _compare(log: everlog.Log, acknowledged: dict[int, str], row: Row, when: str) -> None:
    found = {int(recorded.position): recorded.event.id for recorded in log.read()}
    for position, event_id in acknowledged.items():
        if found.get(position) != event_id:
            row.lost(f"round {row.count}, {when}: position {position} is gone")
    if found.keys() - acknowledged.keys():
        row.changed(f"round {row.count}, {when}: {sorted(found.keys() - acknowledged.keys())} nobody was told of")
