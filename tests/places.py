"""Where the files of tests are: in memory, where a flush costs nothing, or on the disk.

Most tests ask something of a log that they make, and to wait for the disk takes them longer than all the rest. The
calls are the same in memory. The tests of what a store does with its own files import `on_disk` as their `tmp_path`;
with --full all tests run on the disk.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

RAM = Path("/dev/shm")
RAM_BYTES_MIN = 4 * 1024**3
"""More than a whole run has at one time, with its PostgreSQL servers."""


def in_memory() -> Path | None:
    """A folder in memory, if there is one with room enough that programs can be started from."""
    if not RAM.is_dir() or not os.access(RAM, os.W_OK) or os.statvfs(RAM).f_flag & os.ST_NOEXEC:
        return None
    return RAM if shutil.disk_usage(RAM).free >= RAM_BYTES_MIN else None


@pytest.fixture
def on_disk() -> Iterator[Path]:
    with TemporaryDirectory(prefix="everlog-test-", ignore_cleanup_errors=True) as found:
        yield Path(found).resolve()
