"""One writer among processes: the second is told who, and a stopped one keeps its place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from everlog.errors import Busy
from everlog.stores.segments.store import SegmentsStore
from everlog.testing.builders import seal_any
from everlog.testing.filling import append, positions

WRITER = """
import sys
from pathlib import Path
from everlog.stores.segments.store import SegmentsStore
from everlog.testing.builders import seal_any
store = SegmentsStore(Path(sys.argv[1]))
for line in sys.stdin:
    with store.open_write() as writer:
        writer.append([seal_any()])
    print("acked", flush=True)
store.close()
"""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "log")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def ask(process: subprocess.Popen[str]) -> str:
    tell(process)
    assert process.stdout is not None
    return process.stdout.readline()


def test_a_second_writer_is_refused_within_a_second_and_told_who_has_it(
    writer: subprocess.Popen[str], tmp_path: Path
) -> None:
    """R11, G13: and it reads all the same."""
    assert ask(writer) == "acked\n"
    store = SegmentsStore(tmp_path / "log")
    began = time.monotonic()
    with pytest.raises(Busy, match="another writer") as refusal:
        append(store, seal_any())
    assert time.monotonic() - began < 2  # 0.8 s of waiting, and a slow machine
    assert str(writer.pid) in refusal.value.why
    assert positions(store.read()) == [1]
    store.close()


def test_a_stopped_writer_keeps_its_place_and_nothing_it_acknowledged_is_lost(
    writer: subprocess.Popen[str], tmp_path: Path
) -> None:
    """R11: nobody takes over from one who may wake up; after its death the next one has a greater number."""
    assert ask(writer) == "acked\n"
    os.kill(writer.pid, signal.SIGSTOP)
    store = SegmentsStore(tmp_path / "log")
    with pytest.raises(Busy):
        append(store, seal_any())
    os.kill(writer.pid, signal.SIGCONT)
    assert ask(writer) == "acked\n"
    fence = SegmentsStore(tmp_path / "log").state.fence
    writer.kill()
    writer.wait()

    append(store, seal_any())
    assert positions(store.read()) == [1, 2, 3]
    assert store.state.fence >= fence
    assert max(part.fence for part in store.state.parts) == fence + 1
    assert list(store.check()) == []
    store.close()


def test_killing_the_writer_over_and_over_loses_nothing(tmp_path: Path) -> None:
    """R4, in short: what was acknowledged before the kill is there, in order."""
    acked = 0
    for _ in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "log")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(5):
            assert ask(process) == "acked\n"
            acked += 1
        tell(process)  # one more is under way, or not, when it dies
        process.kill()
        process.communicate()
        store = SegmentsStore(tmp_path / "log")
        found = positions(store.read())
        assert len(found) >= acked
        assert found == list(range(1, len(found) + 1))
        assert list(store.check()) == []
        store.close()
        acked = len(found)
